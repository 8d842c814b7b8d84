"""Sessions as files: what is written, what is read back, and what is refused."""

import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.api.stage import Stage, pointers, problem, scripted, spoken

CALL = {"blocks": [{"thinking": "hm"}, {"tool": "Bash", "input": {"command": "echo 1"}}]}
TWO_CALLS = {
    "blocks": [
        {"tool": "Bash", "input": {"command": "echo 1"}},
        {"tool": "Bash", "input": {"command": "echo 2"}},
    ]
}
OPTIONS = {"allowed_tools": ["Bash"], "model": "claude-sonnet-5"}
AT = "2026-11-30T12:00:00.000Z"


async def exported(stage: Stage, session_id: str, form: str) -> str:
    answer = await stage.client.get(f"/v1/sessions/{session_id}/export", params={"format": form})
    assert answer.status_code == 200, answer.text
    assert session_id in answer.headers["content-disposition"]
    return answer.text


async def imported(stage: Stage, text: str, **query: Any) -> dict[str, Any]:
    answer = await stage.client.post(
        "/v1/sessions/import",
        content=text.encode(),
        headers={"content-type": "application/x-ndjson"},
        params=query,
    )
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/sessions/{answer.json()['id']}"
    made: dict[str, Any] = answer.json()
    return made


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def asked(stage: Stage) -> list[dict[str, Any]]:
    """The newest model request's messages, without reminders and marks for the cache."""
    messages: list[dict[str, Any]] = json.loads(json.dumps(stage.model.bodies()[-1]["messages"]))
    for message in messages:
        message["content"] = spoken(message["content"])
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages


async def talked(stage: Stage) -> str:
    """A session with thoughts, tools, two runs, and a rewind behind it."""
    first = await stage.run(
        scripted(CALL, TWO_CALLS, {"text": "one"}), options=OPTIONS, session={"title": "T"}
    )
    path = f"/v1/sessions/{first['session_id']}"
    end = (await stage.client.get(path)).json()["last_message_uuid"]
    for word in ("dropped", "two"):
        answer = await stage.client.post(
            f"{path}/runs",
            json={"prompt": scripted({"text": word}), "wait": 20, "resume_at": end},
        )
        assert answer.status_code == 200, answer.text
    return str(first["session_id"])


@pytest.mark.requirement("sessions:export")
async def test_stream_json_is_what_clients_saw(stage: Stage) -> None:
    session = await talked(stage)
    page = await stage.client.get(f"/v1/sessions/{session}/messages", params={"limit": 1000})
    assert lines(await exported(stage, session, "stream-json")) == page.json()["data"]


@pytest.mark.requirement("sessions:export")
@pytest.mark.requirement("sessions:import")
async def test_a_session_that_is_exported_and_imported_goes_on_as_the_original(
    stage: Stage,
) -> None:
    session = await talked(stage)
    file = await exported(stage, session, "claude-jsonl")
    entries = lines(file)
    chain = [entry for entry in entries if "uuid" in entry]
    assert [entry["parentUuid"] for entry in chain] == [None, *(e["uuid"] for e in chain[:-1])]
    assert "dropped" not in [e["message"]["content"] for e in chain if e["type"] == "user"]
    assert {entry["sessionId"] for entry in entries} == {session}

    copy = await imported(stage, file)
    assert copy["id"] != session  # which is taken
    assert (copy["title"], copy["num_runs"], copy["status"]) == ("T", 0, "idle")
    assert copy["imported"] == {"messages": len(chain), "skipped_lines": 2}
    bodies = []
    for each in (session, copy["id"]):
        answer = await stage.client.post(
            f"/v1/sessions/{each}/runs", json={"prompt": "on", "wait": 20, "options": OPTIONS}
        )
        assert answer.json()["run"]["result_subtype"] == "success"
        bodies.append(asked(stage))
    assert bodies[0] == bodies[1]
    assert [e["uuid"] for e in chain] == [
        e["uuid"] for e in lines(await exported(stage, copy["id"], "claude-jsonl"))[: len(chain)]
    ]
    cost = (await stage.client.get(f"/v1/sessions/{session}")).json()["cost"]
    copied = (await stage.client.get(f"/v1/sessions/{copy['id']}")).json()["cost"]
    both = Decimal(copied["session_usd"]) + Decimal(copied["inherited_usd"])
    assert both == Decimal(cost["session_usd"]) > 0


@pytest.mark.requirement("sessions:import")
async def test_an_import_keeps_the_files_id_unless_it_is_taken(stage: Stage) -> None:
    own = str(uuid.uuid4())
    file = entry("user", "hello", sessionId=own)
    assert (await imported(stage, file, user="u"))["id"] == own
    assert (await imported(stage, file))["id"] != own
    chosen = str(uuid.uuid4())
    assert (await imported(stage, file, id=chosen, title="t"))["title"] == "t"
    again = await stage.client.post(
        "/v1/sessions/import", content=file.encode(), params={"id": chosen}
    )
    problem(again, 409, "id_taken")


@pytest.mark.requirement("sessions:export")
async def test_markdown_cannot_be_broken_by_what_it_shows(stage: Stage) -> None:
    fence = {"tool": "Bash", "input": {"command": "printf '```\\n# Not a heading\\n'"}}
    run = await stage.run(
        scripted(fence, {"text": "done"}, text="Look."),
        options={"allowed_tools": ["Bash"]},
        session={"title": "a\n# b"},
    )
    text = await exported(stage, run["session_id"], "markdown")
    assert text.startswith("# a # b\n")
    assert "## User\n\nLook." in text
    assert "## Assistant\n\ndone" in text
    assert "\n````\n```\n# Not a heading\n" in text
    assert "Ended: success, 2 turns" in text


@pytest.mark.requirement("sessions:export")
async def test_an_export_of_a_long_session_comes_in_pages(stage: Stage) -> None:
    session = (await stage.session())["id"]
    filler = "x" * 5_000
    await stage.host.service.database.raw.execute(
        """INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)
           SELECT s.tenant_id, s.id, n, 'message', 'user', '{"n":' || n || ',"x":"' || $2 || '"}'
           FROM sessions s, generate_series(2, 3001) n WHERE s.id = $1""",
        session,
        filler,
    )
    await stage.host.service.database.raw.execute(
        "UPDATE sessions SET last_seq = 3001 WHERE id = $1", session
    )
    sizes, text = [], ""
    async with stage.client.stream("GET", f"/v1/sessions/{session}/export") as answer:
        assert "content-length" not in answer.headers
        async for chunk in answer.aiter_raw():
            sizes.append(len(chunk))
            text += chunk.decode()
    assert [entry["n"] for entry in lines(text)] == list(range(2, 3002))
    assert max(sizes) <= 2_000_000 < sum(sizes)


@pytest.mark.requirement("sessions:export")
async def test_what_cannot_be_exported_is_said(stage: Stage) -> None:
    session = (await stage.session())["id"]
    odd = await stage.client.get(f"/v1/sessions/{session}/export", params={"format": "zip"})
    assert pointers(problem(odd, 422, "validation_failed")) == ["format"]
    nobody = await stage.client.get(f"/v1/sessions/{uuid.uuid4()}/export")
    problem(nobody, 404, "not_found")


# -- files of others ----------------------------------------------------------------------------


def entry(kind: str, content: Any, *, parent: str | None = None, **more: Any) -> str:
    """One line of a transcript."""
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("message_id", f"msg_{uuid.uuid4().hex}"), "model": "m"}
    given = {"type": kind, "uuid": str(uuid.uuid4()), "parentUuid": parent, "timestamp": AT}
    return json.dumps({**given, "message": message, **more}) + "\n"


def use(call: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {}}


def answer_to(call: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": call}


async def goes_on(stage: Stage, file: str) -> list[tuple[str, list[str]]]:
    """Import a file and prompt it; give the roles and kinds of blocks that the model was sent."""
    made = await imported(stage, file)
    answer = await stage.client.post(
        f"/v1/sessions/{made['id']}/runs", json={"prompt": "on", "wait": 20}
    )
    assert answer.json()["run"]["result_subtype"] == "success", answer.text
    return [
        (m["role"], [b.get("tool_use_id") or b.get("id") or b["text"] for b in m["content"]])
        for m in asked(stage)
    ]


@pytest.mark.requirement("sessions:import")
async def test_results_of_parallel_calls_are_found_beside_the_branch(stage: Stage) -> None:
    ids = [str(uuid.uuid4()) for _ in range(6)]
    file = "".join(
        [
            entry("user", "go", uuid=ids[0]),
            entry("assistant", [use("a")], uuid=ids[1], parent=ids[0], message_id="m1"),
            entry("user", [answer_to("a")], uuid=ids[2], parent=ids[1]),
            entry("assistant", [use("b")], uuid=ids[3], parent=ids[1], message_id="m1"),
            entry("user", [answer_to("b")], uuid=ids[4], parent=ids[3]),
            entry("assistant", [{"type": "text", "text": "ok"}], uuid=ids[5], parent=ids[4]),
        ]
    )
    assert await goes_on(stage, file) == [
        ("user", ["go"]),
        ("assistant", ["a", "b"]),
        ("user", ["a", "b"]),
        ("assistant", ["ok"]),
        ("user", ["on"]),
    ]


@pytest.mark.requirement("sessions:import")
async def test_only_the_branch_of_the_newest_entry_is_taken(stage: Stage) -> None:
    ids = [str(uuid.uuid4()) for _ in range(6)]
    file = "".join(
        [
            '{"type":"mode","mode":"x"}\n',
            entry("user", "go", uuid=ids[0]),
            json.dumps({"type": "attachment", "uuid": ids[1], "parentUuid": ids[0]}) + "\n",
            entry("user", "left", uuid=ids[2], parent=ids[1]),
            entry("user", "taken", uuid=ids[3], parent=ids[1]),
            entry("user", " ", uuid=ids[4], parent=ids[3]),
            entry("user", "aside", uuid=ids[5], isSidechain=True),
        ]
    )
    assert await goes_on(stage, file) == [("user", ["go", "taken", "on"])]


@pytest.mark.requirement("sessions:import")
async def test_calls_that_a_crash_left_open_are_closed(stage: Stage) -> None:
    ids = [str(uuid.uuid4()) for _ in range(4)]
    text = {"type": "text", "text": "ok", "cache_control": {"type": "ephemeral"}}
    file = "".join(
        [
            entry("user", "go", uuid=ids[0]),
            entry("assistant", [use("a")], uuid=ids[1], parent=ids[0]),
            entry("user", "again", uuid=ids[2], parent=ids[1]),
            entry("assistant", [text, use("b", "Write")], uuid=ids[3], parent=ids[2]),
        ]
    )
    assert await goes_on(stage, file) == [
        ("user", ["go"]),
        ("assistant", ["a"]),
        ("user", ["a", "again"]),
        ("assistant", ["ok", "b"]),
        ("user", ["b", "on"]),
    ]
    marked = [b for m in stage.model.bodies()[-1]["messages"] for b in m["content"]]
    assert sum("cache_control" in block for block in marked) <= 2


U = str(uuid.uuid4())
LOOP = [str(uuid.uuid4()) for _ in range(2)]
REFUSED: dict[str, tuple[str, str, str]] = {
    "no JSON": (entry("user", "x") + "{", "/2", "invalid_request"),
    "a NUL": (entry("user", "x").replace('"x"', '"\\u0000"'), "/1/message/content", "nul"),
    "a name twice": ('{"type":"user","type":"user"}', "", "invalid_request"),
    "too deep": ('{"type":"x","y":' + "[" * 200 + "]" * 200 + "}", "", "invalid_request"),
    "a lone surrogate": ('{"type":"user","x":"\\ud800"}', "", "invalid_request"),
    "no object": ("\n\n[1]", "/3", "line"),
    "no type": ("{}", "/1", "line"),
    "nothing said": ('{"type":"mode"}', "", "empty"),
    "blank alone": (entry("user", "  "), "/1", "line"),
    "an odd uuid": (entry("user", "x", uuid="../../etc"), "/1/uuid", "line"),
    "a uuid twice": (entry("user", "x", uuid=U) + entry("user", "y", uuid=U), "/2/uuid", "line"),
    "no parent": (entry("user", "x", parent=U), "/1/parentUuid", "line"),
    "its own parent": (entry("user", "x", uuid=U, parent=U), "/1/parentUuid", "line"),
    "a circle": (
        entry("user", "x", uuid=LOOP[0], parent=LOOP[1])
        + entry("user", "y", uuid=LOOP[1], parent=LOOP[0]),
        "/1/parentUuid",
        "line",
    ),
    "no message": (
        json.dumps({"type": "user", "uuid": U, "timestamp": AT}),
        "/1/message",
        "line",
    ),
    "a wrong role": (entry("user", "x").replace('"role": "user"', '"role": "system"'), "", "line"),
    "no time": (entry("user", "x", timestamp="yesterday"), "/1/timestamp", "line"),
    "a time long ago": (entry("user", "x", timestamp="0001-01-01T00:00:00Z"), "", "line"),
    "a call of a user": (entry("user", [use("a")]), "/1/message/content", "line"),
    "an image without source": (entry("user", [{"type": "image"}]), "", "line"),
    "a result of nothing": (entry("user", [answer_to("a")]), "/1/message/content", "line"),
    "an odd call id": (entry("assistant", [use("a b")]), "/1/message/content", "line"),
    "an odd tool name": (entry("assistant", [use("a", "x" * 200)]), "", "line"),
    "a call twice": (entry("assistant", [use("a"), use("a")]), "/1/message/content", "line"),
    "arguments that are none": (
        entry("assistant", [{"type": "tool_use", "id": "a", "name": "B", "input": 1}]),
        "",
        "line",
    ),
    "a cost below zero": (
        '{"type":"cost-state","modelUsage":{"m":{"costUSD":-1}}}\n' + entry("user", "x"),
        "/1/modelUsage/m/costUSD",
        "line",
    ),
}


@pytest.mark.requirement("sessions:import")
@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_read_is_refused_with_its_line_and_nothing_is_stored(
    stage: Stage, name: str
) -> None:
    file, pointer, code = REFUSED[name]
    count: Callable[[], Any] = lambda: stage.host.service.database.raw.fetchval(  # noqa: E731
        "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM journal)"
    )
    before = await count()
    answer = await stage.client.post("/v1/sessions/import", content=file.encode())
    assert answer.status_code in {400, 422}, answer.text
    body = answer.json()
    if pointer:
        assert pointers(body) in ([pointer], []), body
    if answer.status_code == 422:
        assert [error["code"] for error in body["errors"]] == [code]
    assert "ine " in body["detail"] or code == "empty", body
    assert await count() == before


@pytest.mark.requirement("sessions:import")
async def test_an_import_is_bounded_and_of_one_kind(stage: Stage) -> None:
    path = "/v1/sessions/import"
    large = await stage.client.post(path, content=b" " * 10_000_001)
    problem(large, 413, "payload_too_large")
    picture = await stage.client.post(path, content=b"x", headers={"content-type": "image/png"})
    problem(picture, 415, "unsupported_media_type")
    problem(await stage.client.post(path, content=b"\n"), 400, "invalid_request")


@pytest.mark.requirement("sessions:import")
async def test_a_repeated_import_makes_one_session(stage: Stage) -> None:
    file = entry("user", "x", sessionId=str(uuid.uuid4())).encode()
    headers = {"Idempotency-Key": str(uuid.uuid4())}

    async def post(content: bytes) -> Any:
        return await stage.client.post("/v1/sessions/import", content=content, headers=headers)

    first, second = await post(file), await post(file)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    problem(await post(file + b"\n" + entry("user", "y").encode()), 422, "idempotency_mismatch")
