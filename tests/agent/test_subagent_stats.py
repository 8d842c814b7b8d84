"""`subagent_stats` of results: what became of all subagents of a session, in numbers."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from app.agent.broken_off import abandoned, interrupted
from app.agent.effects import AgentLimits
from app.agent.loop import run_agent
from app.domain.runs import EndReason
from app.domain.subagent_stats import SubagentCounts
from app.domain.usage import Usage
from app.errors import ModelRejected
from tests.agent.threads import agent, played, threads
from tests.fakes.effects import Answer, Journal, Stalled, call, response, run_info, text

DONE = response(text("done"))
TREE: dict[str, list[Answer]] = {
    "main": [response(agent("A", "a", run_in_background=False), agent("B", "b")), DONE],
    "a": [response(agent("AA", "aa"), agent("AB", "ab")), DONE],
    "aa": [DONE],
    "ab": [response(text(" "))],
    "b": [ModelRejected("no", category="unknown", status=400)],
}
TOLD = {
    "spawned": 4,
    "requested": {"background": 0, "foreground": 1, "unset": 3},
    "started_in_background": 0,
    "max_depth": 2,
    "spawned_by_subagents": 2,
    "completed": 2,
    "failed": 2,
    "killed": {"parent": 0, "user": 0, "system": 0},
    "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0},
    "by_type": {"helper": 4},
}


def told(journal: Journal) -> dict[str, Any]:
    """What the last result says."""
    stats: dict[str, Any] = journal.result().subagent_stats.model_dump()
    return stats


@pytest.mark.requirement("loop:subagent-stats")
async def test_all_are_counted_by_how_they_ended_at_any_depth() -> None:
    journal, _ = await played(threads(TREE)[0])
    assert told(journal) == TOLD


async def test_each_is_counted_once_whichever_host_goes_on() -> None:
    _, stops = await played(threads(TREE)[0])
    for number, stop in enumerate(stops):
        again, _ = await played(threads(TREE, prefix=f"again{number}")[0], journal=stop)
        assert told(again) == TOLD


async def test_later_runs_of_the_session_count_on() -> None:
    journal, _ = await played(threads(TREE)[0])
    scripts: dict[str, list[Answer]] = {
        "main": [*TREE["main"], response(agent("C", "c")), DONE],
        "c": [DONE],
    }
    later, _ = await played(threads(scripts, prefix="later")[0], run_info("run_2"), journal)
    assert told(later) == {
        **TOLD,
        "spawned": 5,
        "requested": {"background": 0, "foreground": 1, "unset": 4},
        "completed": 3,
        "by_type": {"helper": 5},
    }


async def test_one_that_a_cut_left_without_an_end_is_counted_as_stopped_by_the_next_run() -> None:
    _, stops = await played(threads(TREE)[0])
    stop = next(stop for stop in stops if stop.state(run_info()).subagents.running)
    begun = stop.state(run_info()).subagents
    state = stop.state(run_info("run_2"))  # of a fork, or after a rewind, to this place
    assert state.subagents.running == frozenset()
    assert state.subagents.stats.killed.system == len(begun.running)
    assert state.subagents.stats.spawned == begun.stats.spawned


def test_what_one_in_the_background_has_begun_counts_once_with_its_own_end() -> None:
    below = SubagentCounts().started("n", "helper", 2, "unset", in_background=False)
    below = below.ended("n", "failed", "system").refused("budget")
    counts = SubagentCounts().started("c", "other", 1, "background", in_background=True)
    counts = counts.ended("c", "completed", "system", below.stats)
    assert counts == counts.ended("c", "completed", "system", below.stats)
    assert counts.stats.model_dump() == {
        "spawned": 2,
        "requested": {"background": 1, "foreground": 0, "unset": 1},
        "started_in_background": 1,
        "max_depth": 2,
        "spawned_by_subagents": 1,
        "completed": 1,
        "failed": 1,
        "killed": {"parent": 0, "user": 0, "system": 0},
        "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 1},
        "by_type": {"other": 1, "helper": 1},
    }


async def test_calls_that_limits_refuse_are_counted_by_the_limit() -> None:
    calls: list[Answer] = [
        response(agent("A", "leaf"), agent("B", "leaf"), agent("C", "leaf")),
        DONE,
    ]
    scripts: dict[str, list[Answer]] = {
        "main": calls,
        "leaf": [DONE],
        "deep": [response(agent("D", "leaf")), DONE],
    }
    journal, _ = await played(threads(scripts, limits=AgentLimits(at_once=1, a_run=2))[0])
    assert told(journal)["refused"] == {"depth_limit": 0, "concurrency_limit": 1, "budget": 0}

    scripts["main"] = [response(agent("A", "deep")), DONE]
    journal, _ = await played(threads(scripts, limits=AgentLimits(depth=1))[0])
    assert told(journal)["refused"] == {"depth_limit": 1, "concurrency_limit": 0, "budget": 0}
    assert told(journal)["spawned"] == 1

    scripts = {"main": [response(agent("A", "nobody", kind="who")), DONE]}
    journal, _ = await played(threads(scripts)[0])
    assert not any(told(journal)["refused"].values())


async def test_at_the_budget_those_that_wait_and_those_that_are_asked_for_are_refused() -> None:
    dear = Usage(input_tokens=6000)
    scripts: dict[str, list[Answer]] = {
        "main": [response(agent("A", "child"), agent("B", "child")), DONE],
        "child": [response(call("x"), agent("AA", "child"), usage=dear)],
    }
    journal, _ = await played(
        threads(scripts, limits=AgentLimits(at_once=1))[0], run_info(max_budget_usd="0.05")
    )
    assert told(journal)["refused"]["budget"] == 2
    assert (told(journal)["spawned"], told(journal)["killed"]["system"]) == (1, 1)
    refused = journal.results()["AA"]
    assert refused.is_error
    assert str(refused.content).startswith("Budget limit reached")
    assert "$0.05" in str(refused.content)
    assert "Budget limit" not in str(journal.results()["x"].content)


@pytest.mark.parametrize(
    ("reason", "killer"), [("cancelled", "user"), ("superseded", "user"), ("deadline", "system")]
)
async def test_those_that_end_with_their_run_are_killed_by_who_ended_it(
    reason: EndReason, killer: str
) -> None:
    stalled = Stalled()
    scripts: dict[str, list[Answer]] = {**TREE, "aa": [stalled], "ab": [stalled]}
    scripts["main"] = [response(agent("A", "a")), DONE]
    world, _ = threads(scripts)
    journal, run = Journal(), run_info()
    state, advances = journal.state(run), run_agent(journal.state(run), world)

    async def drive() -> None:
        nonlocal state
        async for advance in advances:
            journal.store(run, advance)
            state = advance.state

    driving = asyncio.create_task(drive())
    async with asyncio.timeout(30), aclosing(advances):
        await stalled.began.wait()
        while len(state.threads["A"].threads) < 2:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0)
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
    journal.store(run, interrupted(state, world, end_reason=reason))
    assert told(journal)["killed"] == {"parent": 0, "user": 0, "system": 0, killer: 3}


async def test_those_of_a_lost_run_are_killed_by_the_service() -> None:
    _, stops = await played(threads(TREE)[0])
    stop = next(stop for stop in stops if stop.state(run_info()).threads)
    world, _ = threads(TREE)
    state = stop.state(run_info())
    stop.store(run_info(), abandoned(state, world, end_reason="worker_lost", why="lost"))
    assert told(stop)["killed"]["system"] == told(stop)["spawned"] > 0
