"""MCP servers that mean harm: whatever they do, a run and its log go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.mcp.client import MAX_QUESTIONS
from tests.conftest import MakeSettings
from tests.e2e.test_mcp import PLAIN, call, results
from tests.fakes import mcp_hostile
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, messages, scripted, start

Json = dict[str, Any]
HOSTILE: Json = {"command": "python3", "args": ["-c", Path(mcp_hostile.__file__).read_text()]}
TOOLS = (*mcp_hostile.RESULTS, *mcp_hostile.ERRORS, "storm", "asks", "twice", "noise")

MALFORMED = "malformed"
SAID = {
    "nul": "a\u2400b\ufffdc",
    "nul_structured": "\ufffd",
    "big_number": str(mcp_hostile.BIG),
    "no_number": "null",
    "deep": "nests too deep",
    **dict.fromkeys(("deeper", "deep_meta", "unknown_kind", "wrong_types"), MALFORMED),
    **dict.fromkeys(("no_object", "null", "claims_to_be_us", "rpc_wrong"), MALFORMED),
    "many_blocks": "x",
    "error_nul": "bad\u2400\ufffd",
    "error_empty": "unknown error",
    "error_picture": "unknown error",
    "picture_nul": "cannot be read or saved",
    "odd_mime": "it is no base64",
    "rpc_nul": "no\u2400\ufffdxxx",
    "rpc_lost": "connection to the MCP server h was lost",
    **dict.fromkeys(("fine", "storm", "asks", "twice", "noise"), "fine"),
}
"""What the model reads of each, among other words."""
FAILING = {
    *(name for name, words in SAID.items() if words == MALFORMED),
    *("deep", "error_nul", "error_empty", "error_picture", "rpc_nul", "rpc_lost"),
}


@pytest.mark.requirement("mcp:hostile")
async def test_nothing_that_a_server_answers_ends_a_run_or_spoils_its_log(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del database_url
    async with host(make_settings()) as service:
        steps = [call(f"mcp__h__{name}") for name in (*TOOLS, "fine")]
        run = await start(
            service.client,
            scripted(*steps, {"text": "ok"}),
            mcp_servers={"h": {**HOSTILE, "timeout_seconds": 60}},
            allowed_tools=["mcp__h"],
        )
        ended = await finished(service.client, run["id"])
        assert (ended["result_subtype"], ended["end_reason"]) == ("success", "completed")
        told = await messages(service.client, run["session_id"])
        results = [
            message["message"]["content"][0]
            for message in told
            if message["type"] == "user"
            and isinstance(message["message"]["content"], list)
            and message["message"]["content"][0]["type"] == "tool_result"
        ]
        said = dict(zip((*TOOLS, "at last"), results, strict=True))
        for name, words in SAID.items():
            result = said[name]
            assert words in json.dumps(result["content"], ensure_ascii=False), name
            assert ("is_error" in result) == (name in FAILING), name
        assert said["at last"]["content"] == [{"type": "text", "text": "fine"}]
        sent = json.dumps(messages_api.requests[-1].body)
        assert said.keys() == {*SAID, "at last"}
        assert "\\u0000" not in sent
        assert "\\ud800" not in sent
        events = await service.client.get(
            f"/v1/sessions/{run['session_id']}/events", params={"limit": 1000}
        )
        assert events.status_code == 200  # all of it was stored, and can be read
        assert len(events.content) < 3_000_000


async def quiz(service: Host, count: int, **actions: object) -> Json:
    """Call a tool whose server asks so many things at once."""
    return await start(
        service.client,
        scripted(call("mcp__p__quiz", n=count)),
        mcp_servers={"p": {**PLAIN, "timeout_seconds": 20}},
        allowed_tools=["mcp__p__quiz"],
        actions={"elicitations": "ask", **actions},
    )


@pytest.mark.requirement("mcp:elicitation")
async def test_a_server_that_asks_much_at_once_is_answered_in_turn_and_not_without_end(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    async with host(make_settings()) as service:
        run = await quiz(service, MAX_QUESTIONS + 5)
        seq, events = 0, f"/v1/sessions/{run['session_id']}/events"
        for _ in range(MAX_QUESTIONS):
            wanted: dict[str, str | int] = {"types": "action.opened", "after": seq, "wait": 20}
            (asked,) = (await service.client.get(events, params=wanted)).json()["data"]
            seq, resolve = asked["seq"], f"/v1/actions/{asked['data']['action_id']}/resolve"
            answer = await service.client.post(resolve, json={"action": "decline"})
            assert answer.status_code == 200
        await finished(service.client, run["id"])
        ((said, _),) = await results(service, run["session_id"])
        assert json.loads(said) == ["decline"] * MAX_QUESTIONS + ["cancel"] * 5

        run = await quiz(service, 5, hold_seconds=1)
        await finished(service.client, run["id"])
        ((said, _),) = await results(service, run["session_id"])
        assert (
            json.loads(said) == ["cancel"] * 5
        )  # nobody was there for the first: no other is asked
        of_session = f"/v1/sessions/{run['session_id']}/actions"
        (action,) = (await service.client.get(of_session, params={"status": "expired"})).json()[
            "data"
        ]
        assert action["elicitation"]["message"] == "Question 0"
