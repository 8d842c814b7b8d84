"""The walls around an agent, from inside a run of a whole service (security cases A and B)."""

import secrets
import time
from typing import Any

import orjson
import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_replicas import processes_with, results_of, until_processes
from tests.hosts import KEY, Host, host
from tests.runs.prompts import bash, finished, messages, scripted, start
from tests.runs.sse import read_to_end
from tests.store.seeds import until

pytestmark = pytest.mark.platform

Json = dict[str, Any]


def read(path: str) -> Json:
    return {"tool": "Read", "input": {"file_path": path}}


async def played(service: Host, *steps: Json, **options: Any) -> tuple[Json, list[str]]:
    """Play calls in one run; give the run and the texts of their results."""
    given: Json = {"allowed_tools": ["Bash", "Read"], **options}
    run = await start(service.client, scripted(*steps, {"text": "done"}), **given)
    run = await finished(service.client, run["id"])
    return run, results_of(await messages(service.client, run["session_id"]))


async def test_sb01_sb02_sb03_sb05_a_run_finds_nothing_of_its_service(
    service: Host, database_url: str
) -> None:
    """What names the service, its keys, its database, its tenants or other sessions is not there."""
    look = (
        "cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo /proc/*/status | tr '\\0' '\\n'; env"
    )
    port = service.base_url.rpartition(":")[2]
    knock = f"for a in 127.0.0.1 ::1; do (echo > /dev/tcp/$a/{port}) 2>&1; done; echo $?"
    run, (seen, knocked) = await played(service, bash(look), bash(knock))
    assert "--args" in seen, "it did look"
    secret = [KEY, "sk-test-provider-key", database_url, run["id"], run["session_id"]]
    for word in secret:
        assert word not in seen, word
    for address in ("127.0.0.1", "::1"):
        assert f"/dev/tcp/{address}/{port}: Connection refused" in knocked


async def test_sb26_the_wish_to_leave_the_sandbox_is_granted_in_no_mode(
    make_settings: MakeSettings,
) -> None:
    wish = bash("cat /proc/1/comm; id -un", dangerouslyDisableSandbox=True)
    async with host(make_settings(policy={"allow_bypass": True})) as service:
        for mode in ("default", "acceptEdits", "dontAsk", "bypassPermissions"):
            _, (said,) = await played(service, wish, permission_mode=mode)
            assert said == "bwrap\nagent", mode


async def test_sb27_output_that_was_stored_is_the_sessions_own(service: Host) -> None:
    first, (told, shown) = await played(
        service, bash("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last"), bash("ls /tmp/*")
    )
    name = shown.split()[-1]
    path = next(word for word in told.split() if word.startswith("/tmp/")).rstrip(";")
    assert path.endswith(name)
    _, (again,) = await played(service, {**read(path), "input": {"file_path": path, "offset": 2}})
    assert "does not exist" in again, "another session sees a file of the first"
    run = await start(
        service.client,
        scripted(bash(f"tail -n 1 {path}"), {"text": "done"}),
        session_id=first["session_id"],
        allowed_tools=["Bash"],
    )
    await finished(service.client, run["id"])
    assert results_of(await messages(service.client, first["session_id"]))[-1] == "last"


async def test_f18_sb22_bytes_that_no_text_holds_are_stored_and_streamed(service: Host) -> None:
    noise = "head -c 3000 /dev/urandom > noise; printf '\\x00\\x1b]0;x\\x07\\xff\\n'"
    run, (printed, shown) = await played(service, bash(noise), read("noise"))
    assert printed == "\u2400\x1b]0;x\x07\ufffd"
    assert "not valid UTF-8" in shown
    frames = await read_to_end(service.client, f"/v1/runs/{run['id']}/stream")
    assert frames[-1].event == "end"
    told = [orjson.loads(frame.data) for frame in frames if frame.event == "message"]
    results = results_of([message for message in told if message["type"] == "user"])
    assert results == [printed, shown]


def hostile() -> tuple[str, str]:
    """A command that ignores all signals and stops what it can; and its mark."""
    mark = f"sleep 9{secrets.randbelow(10**9):09}"
    return f"trap '' TERM INT HUP; setsid {mark} & kill -STOP -1; {mark}", mark


async def test_sb14_sb15_a_command_that_ignores_signals_ends_with_its_run(service: Host) -> None:
    command, mark = hostile()
    run = await start(
        service.client, scripted(bash(command), {"text": "never"}), allowed_tools=["Bash"]
    )
    await until_processes(mark, exist=True)
    began = time.monotonic()
    await service.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 10})
    assert time.monotonic() - began < 8
    assert processes_with(mark) == []
    shown = await messages(service.client, run["session_id"])
    calls = [
        block["id"]
        for message in shown
        if message["type"] == "assistant"
        for block in message["message"]["content"]
        if block["type"] == "tool_use"
    ]
    answered = [
        block["tool_use_id"]
        for message in shown
        if message["type"] == "user" and isinstance(message["message"]["content"], list)
        for block in message["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert answered == calls
    following = await start(service.client, scripted({"text": "on"}), session_id=run["session_id"])
    assert (await finished(service.client, following["id"]))["result_subtype"] == "success"


async def test_sb14_at_its_limit_it_goes_on_in_the_background_until_it_is_cancelled(
    service: Host,
) -> None:
    command, mark = hostile()
    script = scripted(bash(command, timeout=300), {"text": "x", "stall": 3})
    run = await start(service.client, script, allowed_tools=["Bash"])

    async def is_told() -> bool:
        return bool(results_of(await messages(service.client, run["session_id"])))

    await until(is_told)
    (told,) = results_of(await messages(service.client, run["session_id"]))
    assert "time limit" in told
    assert processes_with(mark)
    began = time.monotonic()
    await service.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 10})
    assert time.monotonic() - began < 8
    assert processes_with(mark) == []
