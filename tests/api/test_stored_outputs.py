"""A single message, and the whole of an output that was too long for it."""

from typing import Any

import httpx
import pytest

from tests.api.stage import RANDOM_SESSION, Stage, problem
from tests.conftest import MakeSettings
from tests.hosts import host
from tests.runs.prompts import bash, finished, messages, scripted, start

WHOLE = "".join(f"{n}\n" for n in range(1, 20_001))
COUNT = {"tool": "Bash", "input": {"command": "seq 1 20000"}}


async def result_of(client: httpx.AsyncClient, session_id: str, number: int = 0) -> dict[str, Any]:
    told = await messages(client, session_id)
    return [each for each in told if each["type"] == "user" and not each.get("isReplay")][number]


@pytest.mark.platform
@pytest.mark.requirement("tools:long-results")
async def test_the_whole_of_a_long_output_is_read_on_any_host(make_settings: MakeSettings) -> None:
    async with (
        host(make_settings(), "worker") as worker,
        host(make_settings(), "api") as api,
    ):
        del worker
        run = await start(
            api.client, scripted(COUNT, bash("true"), {"text": "counted"}), allowed_tools=["Bash"]
        )
        await finished(api.client, run["id"])
        told = await result_of(api.client, run["session_id"])
        path = f"/v1/sessions/{run['session_id']}/messages/{told['uuid']}"
        answer = await api.client.get(path)
        found = answer.json()
        assert found["data"] == told
        assert found["kind"] == "message"
        assert found["run_id"] == run["id"]
        link = found["stored_output"]
        assert link["size_bytes"] == len(WHOLE)
        assert link["path"] in told["message"]["content"][0]["content"]
        whole = await api.client.get(link["url"])
        assert whole.text == WHOLE
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        assert whole.headers["x-content-type-options"] == "nosniff"
        short = await result_of(api.client, run["session_id"], 1)
        path = f"/v1/sessions/{run['session_id']}/messages/{short['uuid']}"
        assert (await api.client.get(path)).json()["stored_output"] is None
        problem(await api.client.get(f"{path}/output"), 404, "not_found")


@pytest.mark.platform
async def test_what_the_agent_puts_in_its_place_leads_nowhere_else(stage: Stage) -> None:
    client = stage.client
    run = await start(client, scripted(COUNT, {"text": "counted"}), allowed_tools=["Bash"])
    await finished(client, run["id"])
    session_id = run["session_id"]
    uuid = (await result_of(client, session_id))["uuid"]
    path = f"/v1/sessions/{session_id}/messages/{uuid}"
    file = (await client.get(path)).json()["stored_output"]["path"]
    tricks = ["ln -s /etc/passwd", "mkfifo", "mkdir", "ln -s ../../../../../../etc/passwd", "rm -f"]
    steps = [[bash(f"rm -rf {file}; {trick} {file}"), {"text": "done"}] for trick in tricks]
    for step in steps:
        run = await start(client, scripted(*step), session_id=session_id, allowed_tools=["Bash"])
        assert (await finished(client, run["id"]))["status"] == "finished"
        answer = await client.get(f"{path}/output")
        assert "not there any more" in problem(answer, 404, "not_found")["detail"]
    assert (await client.get(path)).json()["stored_output"]["size_bytes"] == len(WHOLE)


async def test_a_message_that_is_not_there_is_not_found(stage: Stage) -> None:
    session = await stage.session()
    for uuid in (RANDOM_SESSION, "nope", "%F0%9F%98%80", "x" * 500):
        for end in ("", "/output"):
            path = f"/v1/sessions/{session['id']}/messages/{uuid}{end}"
            problem(await stage.client.get(path), 404, "not_found")
