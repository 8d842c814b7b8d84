"""Fifty subagents over three levels, whose host is killed in the middle."""

import json
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_replicas import check_session, until_processes
from tests.fakes.messages_api import MessagesApi
from tests.hosts import environment, host, host_process
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import opened, rows

Json = dict[str, Any]
LEVELS = (5, 2, 3)
"""Children of each on the way down: 5 + 10 + 30, and five more that only answer."""


def tree(levels: tuple[int, ...], names: "count[int]", slow: str) -> list[Json]:
    """Calls that begin so many subagents, each with its own below it; each leaf runs a command."""
    if not levels:
        return []
    calls = []
    for _ in range(levels[0]):
        name = next(names)
        below = tree(levels[1:], names, slow)
        command = {"tool": "Bash", "input": {"command": f"echo {name} >> log; {slow}"}}
        asked = scripted(below or [command], {"text": f"{name} is done"}, text=f"Child {name}.")
        given = {"description": f"job {name}", "prompt": asked}
        calls.append({"tool": "Agent", "input": given})
    return calls


@pytest.mark.requirement("loop:subagent-resume")
@pytest.mark.timeout(120)
async def test_fifty_subagents_end_once_each_though_their_host_is_killed(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5})
    calls = tree(LEVELS, count(1), "sleep 0.417")
    plain = scripted({"text": "plain"}, text="Plain.")
    calls += [{"tool": "Agent", "input": {"description": "p", "prompt": plain}} for _ in range(5)]
    options: Json = {"allowed_tools": ["Bash"], "max_budget_usd": 5}
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        run = await start(a.client, scripted(calls, {"text": "all done"}), **options)
        await messages_api.until(lambda: len(messages_api.requests) > 40)
        b = await stack.enter_async_context(host(settings))
        await a.kill()
        ended = await finished(b.client, run["id"])
        assert (ended["result"]["text"], ended["attempt"]) == ("all done", 2)
        await until_processes("sleep 0.417", exist=False)
        session_id = run["session_id"]
        found = (await b.client.get(f"/v1/sessions/{session_id}/subagents")).json()["data"]
        assert [s["status"] for s in found] == ["completed"] * 50
        assert sorted(s["depth"] for s in found) == [1] * 10 + [2] * 10 + [3] * 30
        answers = [
            block["tool_use_id"]
            for message in await messages(b.client, session_id)
            if message["type"] == "user" and isinstance(message["message"]["content"], list)
            for block in message["message"]["content"]
            if block["type"] == "tool_result"
        ]
        assert len(answers) == len(set(answers)) == 50 + 30
        await check_session(database, session_id)
        sums = await rows(
            database,
            "SELECT thread IS NULL AS is_main, count(*) AS n, sum(cost_usd) AS cost FROM ledger"
            " WHERE session_id = $1 AND NOT is_estimated GROUP BY 1",
            session_id,
        )
        by_thread = {row["is_main"]: row["n"] for row in sums}
        # Two requests of the main thread; of a leaf with a command, and of each parent, two as well.
        assert by_thread == {True: 2, False: 2 * 45 + 5}
        assert float(ended["cost"]["run_usd"]) >= float(sum(row["cost"] for row in sums))
        assert json.loads(json.dumps(ended["usage"]))["input_tokens"] >= 100 * (2 + 95)
