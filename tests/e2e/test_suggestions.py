"""A host that goes away between a result and its suggestion."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_replicas import check_session
from tests.fakes.messages_api import MessagesApi
from tests.hosts import environment, host, host_process
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import rows

# A step that is slow once: the second host is answered at once.
SLOW_ONCE = scripted({"text": "done"}, {"blocks": [{"text": "Now the tests."}], "delay": 4.0})


@pytest.mark.requirement("loop:suggestion-takeover")
async def test_a_lost_host_is_followed_by_one_that_asks_again(
    make_settings: MakeSettings, messages_api: MessagesApi, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5, "poll_s": 0.2})
    async with AsyncExitStack() as stack:
        doomed = await stack.enter_async_context(
            host_process(environment(settings), tmp_path / "a.log")
        )
        run = await start(doomed.client, SLOW_ONCE, prompt_suggestions=True)
        await messages_api.until(lambda: len(messages_api.requests) == 2)
        await doomed.kill()
        heir = await stack.enter_async_context(host(settings))
        ended = await finished(heir.client, run["id"])
        assert (ended["result_subtype"], ended["attempt"]) == ("success", 2)
        shown = [message["type"] for message in await messages(heir.client, run["session_id"])]
        assert shown[-3:] == ["assistant", "result", "prompt_suggestion"]
        ledger = await rows(
            heir.service.database, "SELECT purpose, is_estimated FROM ledger ORDER BY id"
        )
        assert [tuple(row.values()) for row in ledger] == [
            ("main", False),
            ("suggestion", True),
            ("suggestion", False),
        ]
        await check_session(heir.service.database, run["session_id"])


async def test_a_host_that_drains_ends_the_run_by_its_result(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    slow = scripted({"text": "done"}, {"blocks": [{"text": "late"}], "delay": 30.0})
    settings = make_settings(engine={"drain_s": 0.5})
    async with host(settings) as running:
        run = await start(running.client, slow, prompt_suggestions=True)
        await messages_api.until(lambda: len(messages_api.requests) == 2)
        await running.service.drain()
        (row,) = await rows(running.service.database, "SELECT status, end_reason FROM runs")
        assert tuple(row.values()) == ("finished", "completed")
        await check_session(running.service.database, run["session_id"])
