"""Commands that are clients of a server, against a real one."""

import asyncio
import json
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.cli.conftest import Begin, Run, begin, finish
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import KEY, Host, host
from tests.runs.prompts import scripted

SLOW = scripted({"text": "late", "delay": 60})


async def session_of(service: Host) -> str:
    page = (await service.client.get("/v1/sessions")).json()
    return str(page["data"][0]["id"])


async def running_run(service: Host, status: str = "running") -> str:
    async with asyncio.timeout(20):
        while True:
            page = (await service.client.get("/v1/runs", params={"status": status})).json()
            if page["data"]:
                return str(page["data"][0]["id"])
            await asyncio.sleep(0.05)


async def test_a_run_is_followed_to_its_end(treadle: Run, service: Host) -> None:
    call = {"tool": "Bash", "input": {"command": "printf '\\033[31mred\\033[0m [bold]'"}}
    done = await treadle("run", scripted(call, {"text": "all done"}), "--allow", "Bash")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[1].startswith("● Bash printf")
    assert lines[2:4] == ["  └ red [bold]", "all done"]
    assert lines[4].startswith("success: 2 turns, ")
    assert f"treadle run --session {await session_of(service)}" in lines[4]


async def test_options_reach_the_run(treadle: Run, service: Host) -> None:
    done = await treadle(
        *("run", scripted({"text": "ok"}), "--model", "haiku", "--mode", "acceptEdits"),
        *("--allow", "Read", "--allow", "Bash", "--max-turns", "3", "--budget", "0.25"),
    )
    assert done.status == 0, done.err
    options = (await service.client.get("/v1/runs")).json()["data"][0]["options"]
    assert options["permission_mode"] == "acceptEdits"
    assert options["allowed_tools"] == ["Read", "Bash"]
    assert (options["max_turns"], Decimal(options["max_budget_usd"])) == (3, Decimal("0.25"))
    assert "haiku" in options["model"]


async def test_skills_are_added_from_a_folder_shown_and_deleted(
    treadle: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "review"
    (folder / "bin").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nallowed-tools: Read\n---\nLook at it.")
    (folder / "bin/run.sh").write_text("echo")
    added = await treadle("skills", "add", str(folder))
    assert added.status == 0, added.err
    assert "bin/run.sh (4 bytes)" in added.out
    listed = json.loads((await treadle("skills", "--json")).out)
    assert [(each["name"], each["description"]) for each in listed] == [("review", "Look at it.")]
    (folder / "link").symlink_to("/etc/passwd")
    refused = await treadle("skills", "add", str(folder))
    assert (refused.status, "is a link" in refused.err) == (2, True)
    assert (await treadle("skills", "delete", "review")).status == 0
    gone = await treadle("skills", "show", "review")
    assert "There is no such skill" in gone.err


async def test_what_could_come_next_is_printed_after_the_result(treadle: Run) -> None:
    done = await treadle("run", "--suggest", scripted({"text": "ok"}, {"text": "Now the tests."}))
    assert done.status == 0, done.err
    assert done.out.splitlines()[-1] == "Next, perhaps: Now the tests."
    assert "success: 1 turn" in done.out.splitlines()[-2]


async def test_programs_get_the_very_messages_of_the_journal(treadle: Run, service: Host) -> None:
    done = await treadle("run", "--json", "-", text=scripted({"text": "ünï \u2028 x"}))
    assert done.status == 0, done.err
    path = f"/v1/sessions/{await session_of(service)}/messages"
    journal = (await service.client.get(path)).json()["data"]
    assert [json.loads(line) for line in done.out.splitlines()] == journal


async def test_the_status_says_that_a_run_failed(treadle: Run) -> None:
    again = {"tool": "Glob", "input": {"pattern": "*"}}
    done = await treadle("run", scripted(again, again, again), "--max-turns", "1")
    assert done.status == 1
    assert "error_max_turns: " in done.out


async def test_a_failed_run_goes_on_under_other_limits(treadle: Run, service: Host) -> None:
    look = {"tool": "Glob", "input": {"pattern": "*"}}
    text = scripted(look, look, {"text": "all done"})
    assert (await treadle("run", text, "--max-turns", "1")).status == 1
    run_id = (await service.client.get("/v1/runs")).json()["data"][0]["id"]
    done = await treadle("runs", "retry", run_id, "--resume", "--max-turns", "9")
    assert done.status == 0, done.err
    assert "all done" in done.out
    refused = await treadle("runs", "retry", run_id)
    assert refused.status == 2
    assert "run_not_retryable" in refused.err


async def test_a_session_goes_on_with_its_context(
    treadle: Run, service: Host, messages_api: Any
) -> None:
    assert (await treadle("run", scripted({"text": "first"}))).status == 0
    session = await session_of(service)
    assert (await treadle("run", scripted({"text": "second"}), "--session", session)).status == 0
    assert len(messages_api.requests[-1].body["messages"]) == 3


async def test_ctrl_c_leaves_and_the_run_goes_on(begun: Begin, treadle: Run, service: Host) -> None:
    process = await begun("run", SLOW)
    assert process.stdout is not None
    await process.stdout.readline()  # the session: it follows
    process.send_signal(signal.SIGINT)
    left = await finish(process)
    assert left.status == 130
    run_id = await running_run(service)
    assert f"treadle tail {run_id} --after " in left.err
    assert f"treadle runs cancel {run_id}" in left.err

    cancelled = await treadle("runs", "cancel", run_id)
    assert cancelled.status == 0
    assert "is stopped" in cancelled.err
    again = await treadle("runs", "cancel", run_id)
    assert "had finished before" in again.err
    tail = await treadle("tail", run_id)
    assert tail.status == 1
    assert "error_during_execution" in tail.out


async def test_a_run_that_is_not_followed_is_found_again_by_its_id(
    treadle: Run, service: Host, messages_api: MessagesApi
) -> None:
    started = await treadle("run", "--no-follow", SLOW)
    run_id = started.out.strip()
    assert run_id == await running_run(service)
    unfinished = await treadle("runs", "result", run_id)
    assert (unfinished.status, unfinished.out) == (4, "")
    messages_api.hurry()
    tail = await treadle("tail", run_id)
    assert tail.status == 0
    assert "» Do it." in tail.out
    assert "late" in tail.out
    result = await treadle("runs", "result", run_id)
    assert (result.status, result.out) == (0, "late\n")
    run = (await service.client.get(f"/v1/runs/{run_id}")).json()
    nothing_left = await treadle("tail", run_id, "--after", str(run["last_seq"]))
    assert (nothing_left.status, nothing_left.out) == (0, "")


async def test_a_session_is_followed_across_its_runs(
    begun: Begin, treadle: Run, service: Host
) -> None:
    await treadle("run", scripted({"text": "first"}))
    session = await session_of(service)
    process = await begun("tail", session)
    await treadle("run", scripted({"text": "second"}), "--session", session)
    assert process.stdout is not None
    seen: list[str] = []
    async with asyncio.timeout(20):
        while sum(line.startswith("success") for line in seen) < 2:
            seen.append((await process.stdout.readline()).decode())
    process.send_signal(signal.SIGINT)
    left = await finish(process)
    assert "first\n" in seen
    assert "second\n" in seen
    assert left.status == 130
    assert f"treadle tail {session} --after " in left.err


async def test_a_run_that_no_host_has_room_for_says_that_it_waits(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings(), "api") as only_http:
        process = await begin(
            *("run", "--model", "demo", "hi"),
            environment={"TREADLE_URL": only_http.base_url, "TREADLE_KEY": KEY},
        )
        assert process.stderr is not None
        async with asyncio.timeout(30):
            said = await process.stderr.readline()
        assert b"queued" in said
        waiting = await running_run(only_http, "queued")
        await only_http.client.post(f"/v1/runs/{waiting}/cancel")
        ended = await finish(process)
    assert ended.status == 1


async def test_a_busy_session_says_that_the_run_waits(
    begun: Begin, treadle: Run, service: Host
) -> None:
    first = await treadle("run", "--no-follow", SLOW)
    await running_run(service)
    session = await session_of(service)
    process = await begun("run", scripted({"text": "second"}), "--session", session)
    assert process.stderr is not None
    line = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
    assert line == "The session is busy: 1 of its runs come before this one.\n"
    await treadle("runs", "cancel", first.out.strip())
    assert (await finish(process)).status == 0


async def test_sessions_are_listed_shown_and_forked(treadle: Run, service: Host) -> None:
    await treadle("run", scripted({"text": "hi"}))
    session = await session_of(service)
    assert session in (await treadle("sessions")).out
    forked = json.loads((await treadle("sessions", "fork", session, "--json")).out)
    assert forked["parent_id"] == session
    listed = json.loads((await treadle("sessions", "list", "--json")).out)
    assert {one["id"] for one in listed} == {session, forked["id"]}
    assert f"forked from  {session}" in (await treadle("sessions", "show", forked["id"])).out


async def test_a_session_is_kept_found_and_put_away(treadle: Run, service: Host) -> None:
    await treadle("run", scripted({"text": "hi"}), "--user", "me")
    session = await session_of(service)
    changed = await treadle(
        *("sessions", "change", session, "--title", "T", "--tag", "ci", "--meta", "a=1")
    )
    assert "tags ci" in " ".join(changed.out.split())
    shown = (await service.client.get(f"/v1/sessions/{session}")).json()
    assert (shown["title"], shown["metadata"], shown["user"]) == ("T", {"a": "1"}, "me")
    assert session in (await treadle("sessions", "list", "--tag", "ci", "--user", "me")).out
    again = await treadle("run", scripted({"text": "more"}), "--continue", "--user", "me")
    assert session in again.out
    assert (await treadle("sessions", "archive", session)).status == 0
    assert session not in (await treadle("sessions")).out
    assert session in (await treadle("sessions", "list", "--archived")).out
    refused = await treadle("run", "x", "--session", session)
    assert (refused.status, "archived" in refused.err) == (2, True)
    assert (await treadle("sessions", "unarchive", session)).status == 0


async def test_a_session_is_rewound_and_gone_on_with_at_a_message(
    treadle: Run, service: Host
) -> None:
    await treadle("run", scripted({"text": "one"}))
    session = await session_of(service)
    end = (await service.client.get(f"/v1/sessions/{session}")).json()["last_message_uuid"]
    for arguments in (
        ("run", scripted({"text": "two"}), "--session", session, "--resume-at", end),
        ("sessions", "rewind", session, end),
    ):
        assert (await treadle(*arguments)).status == 0
    shown = (await service.client.get(f"/v1/sessions/{session}")).json()
    assert shown["last_message_uuid"] == end


async def test_a_session_is_written_to_a_file_and_made_of_one(
    treadle: Run, service: Host, tmp_path: Path
) -> None:
    await treadle("run", scripted({"text": "all done"}))
    session = await session_of(service)
    assert "## Assistant\n\nall done" in (await treadle("sessions", "export", session)).out
    file = tmp_path / "s.jsonl"
    written = await treadle(
        *("sessions", "export", session, "--format", "claude-jsonl", "-o", str(file))
    )
    assert written.status == 0, written.err
    made = await treadle("sessions", "import", str(file), "--title", "again", "--json")
    assert json.loads(made.out)["title"] == "again"
    assert made.err.startswith("2 messages came in; ")
    file.write_text("{}\n")
    refused = await treadle("sessions", "import", str(file))
    assert refused.status == 2
    assert "Line 1 of the transcript" in refused.err
    kept = tmp_path / "kept.md"
    kept.write_text("kept")
    unknown = "00000000-0000-4000-8000-000000000000"
    assert (await treadle("sessions", "export", unknown, "-o", str(kept))).status == 2
    assert kept.read_text() == "kept"


async def test_runs_are_listed_and_shown(treadle: Run, service: Host) -> None:
    await treadle("run", scripted({"text": "hi"}))
    session = await session_of(service)
    (run,) = json.loads((await treadle("runs", "--json", "--session", session)).out)
    for arguments in (("runs",), ("runs", "list", "--status", "finished")):
        assert run["id"] in (await treadle(*arguments)).out
    assert run["id"] not in (await treadle("runs", "list", "--status", "queued")).out
    shown = (await treadle("runs", "show", run["id"])).out
    assert session in shown
    assert "how it ended  success" in shown
    assert json.loads((await treadle("runs", "show", run["id"], "--json")).out) == run
    body = json.loads((await treadle("runs", "result", run["id"], "--json")).out)
    assert (body["type"], body["result"]) == ("result", "hi")


async def test_costs_of_runs_add_up_to_their_session_and_sessions_to_the_whole(
    treadle: Run, service: Host
) -> None:
    await treadle("run", scripted({"text": "one"}))
    session = await session_of(service)
    await treadle("run", scripted({"text": "two"}), "--session", session)
    await treadle("run", scripted({"text": "three"}))

    async def total(*of: str) -> Decimal:
        body = json.loads((await treadle("cost", "--json", *of)).out)
        assert body["complete"]
        assert Decimal(body["total_usd"]) == sum(Decimal(row["usd"]) for row in body["rows"])
        return Decimal(body["total_usd"])

    of_session = (await service.client.get(f"/v1/sessions/{session}")).json()["cost"]
    assert await total(session) == Decimal(of_session["session_usd"]) > 0
    assert await total() > await total(session)
    run = (await service.client.get("/v1/runs")).json()["data"][0]
    assert await total(run["id"]) == Decimal(run["cost"]["run_usd"])
    table = (await treadle("cost", session)).out.splitlines()
    assert len(table) == 4
    assert table[-1].endswith(str(of_session["session_usd"]))


async def test_a_refused_key_names_the_way_to_a_new_one(treadle: Run) -> None:
    done = await treadle("runs", key="wrong")
    assert done.status == 2
    assert "treadle keys create" in done.err
    assert "TREADLE_DATA_DIR" in done.err


async def test_what_the_server_refuses_is_named_by_field(treadle: Run) -> None:
    done = await treadle("run", "hi", "--model", "nobody-knows-1", "--budget", "1")
    assert done.status == 2
    assert "/options/max_budget_usd: needs a priced model" in done.err
    assert "422 unpriced_model" in done.err
    unknown = await treadle("tail", "run_01J0000000000000000000000")
    assert (unknown.status, unknown.out) == (2, "")
    assert "404 not_found" in unknown.err
    assert "`treadle runs`" in unknown.err
    assert "`treadle sessions`" in (await treadle("sessions", "show", "none")).err


async def test_the_folder_of_a_session_cannot_be_changed(treadle: Run) -> None:
    done = await treadle("run", "hi", "--session", "x", "--dir", "/srv")
    assert done.status == 2
    assert "leave out --dir" in done.err
