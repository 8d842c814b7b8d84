"""Approvals that outlive hosts: whatever dies meanwhile, an approved call is made exactly once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.agent.broken_off import UNMADE_TEXT
from app.store.engine import Database
from tests.api.test_actions import ONE_CALL, answer, asked, log, read, results
from tests.conftest import MakeSettings
from tests.e2e.test_replicas import check_session
from tests.fakes.hook_server import NEVER, HookServer
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import finished, scripted, start
from tests.store.seeds import opened, rows, until

ENGINE = {"lease_s": 1.5, "heartbeat_s": 0.5, "poll_s": 0.2}


async def ten_minutes_pass(database: Database) -> None:
    """Let the database's clock be ten minutes further, as far as waiting goes."""
    await database.raw.execute(
        """UPDATE actions SET created_at = created_at - interval '10 min',
             expires_at = expires_at - interval '10 min'"""
    )
    await database.raw.execute(
        """UPDATE sessions SET lease_expires_at = lease_expires_at - interval '10 min'"""
    )


@pytest.mark.requirement("field:P07")
@pytest.mark.parametrize("dies", ["while it is asked", "after the answer", "once it is let go"])
async def test_an_approval_given_ten_minutes_later_after_a_kill_runs_the_call_once_on_another_host(
    make_settings: MakeSettings, database_url: str, tmp_path: Path, dies: str
) -> None:
    settings = make_settings(engine=ENGINE)
    hold = {"hold_seconds": 0} if dies == "once it is let go" else {}
    async with (
        opened(database_url) as database,
        host(settings, "api") as api,
        host_process(environment(settings), tmp_path / "a.log") as a,
    ):
        run = await start(a.client, ONE_CALL, actions={"permissions": "ask", **hold})
        action = await asked(api.client, run)
        if hold:
            await until_parked(database)
        if dies == "after the answer":
            a.process.send_signal(19)  # it hears of no answer any more
            assert (await answer(api.client, action, behavior="allow")).status_code == 200
        await a.kill()
        await ten_minutes_pass(database)
        async with host(settings) as b:
            if dies != "after the answer":
                again = await asked(b.client, run)
                assert again["id"] == action["id"]  # the same question, not another one
                assert (await answer(b.client, action, behavior="allow")).status_code == 200
            ended = await finished(b.client, run["id"])
            assert (ended["result_subtype"], ended["attempt"] >= 2) == ("success", True)
            assert [r["content"] for r in results(await log(b.client, run))] == ["1"]
            await check_session(database, run["session_id"])
            (used,) = await rows(database, "SELECT status, used_at IS NULL AS lies FROM actions")
            assert used == {"status": "resolved", "lies": False}


@pytest.mark.requirement("actions:exactly-once")
@pytest.mark.parametrize("rule", [None, "Bash"], ids=["approved", "allowed by a rule"])
async def test_a_call_whose_host_is_lost_before_it_asked_is_asked_about_and_run_once(
    make_settings: MakeSettings, database_url: str, tmp_path: Path, rule: str | None
) -> None:
    settings = make_settings(
        engine=ENGINE, hooks={"secret": "s" * 32}, egress={"private_hosts": ["127.0.0.1"]}
    )
    async with HookServer() as server, opened(database_url) as database:
        # The response is stored; its call waits for a hook when the host is lost.
        server.script["PreToolUse"] = [NEVER, {}]
        async with host_process(environment(settings), tmp_path / "a.log") as a:
            run = await start(
                a.client,
                ONE_CALL,
                actions={"permissions": "ask"},
                hooks=[server.hook("PreToolUse", timeout=600)],
                allowed_tools=[rule] if rule else [],
            )

            async def is_held() -> bool:
                return bool(server.asked)

            await until(is_held)
            await a.kill()
        await ten_minutes_pass(database)
        async with host(settings) as b:
            if rule is None:
                action = await asked(b.client, run)
                assert (await answer(b.client, action, behavior="allow")).status_code == 200
            assert (await finished(b.client, run["id"]))["result_subtype"] == "success"
            assert [r["content"] for r in results(await log(b.client, run))] == ["1"]
            await check_session(database, run["session_id"])


async def until_parked(database: Database) -> None:
    async def is_parked() -> bool:
        return bool(await rows(database, "SELECT 1 FROM runs WHERE is_parked"))

    await until(is_parked)


async def until_idle(of: Host) -> None:
    """Wait until a host has all its slots free."""

    async def is_idle() -> bool:
        return of.service.worker is not None and of.service.worker.running == 0

    await until(is_idle)


async def test_a_host_that_stops_lets_a_run_go_that_waits_and_another_one_answers(
    make_settings: MakeSettings, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine=ENGINE | {"drain_s": 10.0})
    async with (
        opened(database_url) as database,
        host(settings) as b,
        host_process(environment(settings), tmp_path / "a.log") as a,
    ):
        run = await start(a.client, ONE_CALL, actions={"permissions": "ask"})
        action = await asked(a.client, run)
        async with asyncio.timeout(15):
            assert await a.terminate() == 0  # at once: it need not wait for a person
        waiting: dict[str, Any] = await read(b.client, f"/v1/runs/{run['id']}")
        assert (waiting["status"], waiting["worker"]) == ("requires_action", None)
        assert (await answer(b.client, action, behavior="allow")).status_code == 200
        assert (await finished(b.client, run["id"]))["result_subtype"] == "success"
        assert [r["content"] for r in results(await log(b.client, run))] == ["1"]
        await check_session(database, run["session_id"])


async def test_of_a_run_that_is_given_up_only_a_call_that_began_is_told_as_lost(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine=ENGINE)
    write = {"tool": "Bash", "input": {"command": "echo x >> runs.txt"}}
    async with opened(database_url) as database, host(settings, "api") as api:
        async with host(settings) as a:
            run = await start(
                a.client,
                scripted([write, write], {"text": "done"}),
                actions={"permissions": "ask", "hold_seconds": 0},
            )
            action = await asked(api.client, run)
            await until_parked(database)
        # Approved, then claimed by hosts that died before they took the answer.
        assert (await answer(api.client, action, behavior="allow")).status_code == 200
        await database.raw.execute(
            """UPDATE runs SET stalled_attempts = 2, has_waited = false, attempt = 3,
                 claim_seq = (SELECT last_seq FROM sessions)"""
        )
        async with host(settings) as b:
            ended = await finished(b.client, run["id"])
        assert ended["end_reason"] == "worker_lost"
        assert [r["content"] for r in results(await log(api.client, run))] == [UNMADE_TEXT] * 2
        await check_session(database, run["session_id"])


async def test_a_run_goes_on_elsewhere_as_it_was_though_one_behind_it_was_cancelled_meanwhile(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine=ENGINE)
    write = {"tool": "Bash", "input": {"command": "echo x >> runs.txt; wc -l < runs.txt"}}
    async with opened(database_url) as database, host(settings, "api") as api:
        async with host(settings) as a:
            run = await start(
                a.client,
                scripted(write, write, {"text": "done"}),
                actions={"permissions": "ask", "hold_seconds": 0},
                max_turns=2,
            )
            action = await asked(api.client, run)
            await until_parked(database)
            await until_idle(a)
        runs = f"/v1/sessions/{run['session_id']}/runs"
        behind = (await api.client.post(runs, json={"prompt": "and then"})).json()["run"]
        await api.client.post(f"/v1/runs/{behind['id']}/cancel")
        assert (await answer(api.client, action, behavior="allow")).status_code == 200
        async with host(settings) as b:
            again = await asked(b.client, run)
            assert (await answer(b.client, again, behavior="allow")).status_code == 200
            ended = await finished(b.client, run["id"])
        said = await log(api.client, run)
        assert (ended["result_subtype"], ended["num_turns"]) == ("error_max_turns", 2)
        assert [r["content"] for r in results(said)] == ["1", "2"]
        assert sum(message.get("subtype") == "init" for message in said) == 1
        await check_session(database, run["session_id"])
