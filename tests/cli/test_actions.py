"""What runs ask, answered at the terminal and by commands, against a real server."""

import asyncio
import json
import os
import pty
import sys
from typing import Any

from tests.cli.conftest import Begin, Run, finish
from tests.hosts import KEY, Host
from tests.runs.prompts import scripted

TOUCH = {"tool": "Bash", "input": {"command": "touch made; echo ran"}}
QUESTION = {
    "question": "Which one?",
    "header": "One",
    "multiSelect": False,
    "options": [{"label": label, "description": label} for label in ("first", "second")],
}
ASKS = {"tool": "AskUserQuestion", "input": {"questions": [QUESTION]}}


async def pending(service: Host) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            page = (await service.client.get("/v1/actions", params={"status": "pending"})).json()
            if page["data"]:
                found: dict[str, Any] = page["data"][0]
                return found
            await asyncio.sleep(0.05)


async def test_what_is_asked_is_listed_shown_and_answered_by_commands(
    treadle: Run, begun: Begin, service: Host
) -> None:
    prompt = scripted(TOUCH, TOUCH, ASKS, {"text": "all done"})
    following = await begun("run", "--ask", prompt)
    first = await pending(service)
    listed = await treadle("actions")
    assert first["id"] in listed.out
    assert json.loads((await treadle("actions", "list", "--json")).out)[0]["id"] == first["id"]
    assert "touch made" in (await treadle("actions", "show", first["id"])).out
    denied = await treadle("actions", "deny", first["id"], "-m", "not yet")
    assert denied.status == 0, denied.err
    again = await treadle("actions", "allow", first["id"])
    assert (again.status, "action_already_resolved" in again.err) == (2, True)
    second = await pending(service)
    edited = json.dumps({"command": "echo edited"})
    assert (await treadle("actions", "allow", second["id"], "--input", edited)).status == 0
    third = await pending(service)
    assert (await treadle("actions", "answer", third["id"], "a", "b")).status == 2
    assert (await treadle("actions", "answer", third["id"], "2")).status == 0
    done = await finish(following)
    assert done.status == 0, done.err
    assert "not yet" in done.out
    assert "edited" in done.out
    assert '"Which one?"="second"' in done.out
    assert f"treadle actions allow {first['id']}" in done.err


async def test_a_person_at_the_terminal_is_asked_there(service: Host) -> None:
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TREADLE_URL": service.base_url, "TREADLE_KEY": KEY}
    command = (sys.executable, "-m", "app", "run", "--ask", scripted(TOUCH, {"text": "all done"}))
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        async with asyncio.timeout(30):
            while b"(y)es" not in said:
                said += await asyncio.to_thread(os.read, ours, 4096)
            os.write(ours, b"what\ny\n")
            while b"all done" not in said:
                said += await asyncio.to_thread(os.read, ours, 4096)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        os.close(ours)
    assert said.count(b"(y)es") == 2  # the first answer was none
    assert b"touch made" in said
