"""What a server asks in a call whose host goes away."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_mcp import PLAIN, call, results
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, HostProcess, environment, host, host_process
from tests.runs.prompts import finished, scripted, start

Json = dict[str, Any]
ANSWER: Json = {"action": "accept", "content": {"name": "Ada"}}
ENGINE = {"lease_s": 2, "heartbeat_s": 0.5, "poll_s": 0.2, "drain_s": 1}


async def asked(running: HostProcess, tool: str) -> tuple[Json, Json]:
    """Start a run whose server asks; give the run and the action."""
    run = await start(
        running.client,
        scripted(call(f"mcp__p__{tool}"), call("mcp__p__echo", n=2)),
        mcp_servers={"p": PLAIN},
        allowed_tools=["mcp__p"],
        actions={"elicitations": "ask"},
    )
    session = f"/v1/sessions/{run['session_id']}"
    await running.client.get(f"{session}/events", params={"types": "action.opened", "wait": 20})
    (action,) = (await running.client.get(f"{session}/actions")).json()["data"]
    return run, action


async def actions(service: Host, run: Json) -> list[tuple[str, str]]:
    answer = await service.client.get(f"/v1/sessions/{run['session_id']}/actions")
    return [(action["id"], action["status"]) for action in answer.json()["data"]]


@pytest.mark.requirement("mcp:elicitation")
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_the_question_of_a_call_that_only_reads_outlives_its_host(
    make_settings: MakeSettings,
    messages_api: MessagesApi,
    database_url: str,
    scratch: Path,
    how: str,
) -> None:
    del messages_api, database_url
    settings = make_settings(engine=ENGINE)
    async with host_process(environment(settings), scratch / "ask.log") as running:
        run, action = await asked(running, "ask_only")
        await (running.kill() if how == "killed" else running.terminate())
    async with host(settings) as service:
        resolve = f"/v1/actions/{action['id']}/resolve"
        assert (await service.client.post(resolve, json=ANSWER)).status_code == 200
        assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
        (said, is_error), echo = await results(service, run["session_id"])
        assert (json.loads(said), is_error) == (ANSWER, False)
        assert echo == ('{"n": 2}', False)
        assert await actions(service, run) == [(action["id"], "resolved")]


@pytest.mark.requirement("mcp:elicitation")
@pytest.mark.parametrize(
    ("how", "words"), [("killed", "its effect is unknown"), ("stopped", '{"action": "cancel"}')]
)
async def test_the_question_of_another_call_goes_with_its_host_and_is_asked_no_more(
    make_settings: MakeSettings,
    messages_api: MessagesApi,
    database_url: str,
    scratch: Path,
    how: str,
    words: str,
) -> None:
    del messages_api, database_url
    settings = make_settings(engine=ENGINE)
    async with host_process(environment(settings), scratch / "ask-once.log") as running:
        run, action = await asked(running, "ask")
        await (running.kill() if how == "killed" else running.terminate())
    async with host(settings) as service:
        assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
        (said, _), echo = await results(service, run["session_id"])
        assert words in said  # made once: never again
        assert echo == ('{"n": 2}', False)
        assert await actions(service, run) == [(action["id"], "withdrawn")]
        events = f"/v1/sessions/{run['session_id']}/events?limit=1000"
        log = [json.dumps(entry) for entry in (await service.client.get(events)).json()["data"]]
        withdrawn = [index for index, entry in enumerate(log) if "action.withdrawn" in entry]
        told = [index for index, entry in enumerate(log) if '"tool_result"' in entry]
        assert len(withdrawn) == 1
        assert withdrawn[0] < told[0]  # not at the run's end, with whatever is left then
