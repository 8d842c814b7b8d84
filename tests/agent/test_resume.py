"""Properties of whole runs over scripted conversations: what holds for any of them."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agent.loop import run_agent
from app.agent.state import LoopState, RunInfo
from app.agent.suggest_step import TASK
from app.domain.blocks import Block, ToolUseBlock
from app.domain.messages import AssistantMessage, ResultMessage
from app.domain.model import ModelRequest
from app.domain.usage import Usage
from app.errors import ModelOverloaded, ModelRejected, ModelThrottled, ModelUnreachable
from tests.fakes.effects import (
    Answer,
    DenyThese,
    FakeClock,
    Journal,
    ScriptedModel,
    call,
    effects,
    prompt,
    response,
    run_info,
    text,
    thinking,
)

# -- scripted conversations -------------------------------------------------------------------

CALLS: st.SearchStrategy[Block] = st.builds(
    lambda call_id, name, given: call(call_id, name, **given),
    st.sampled_from(["a", "b", "c"]),  # few, so that ids repeat
    st.sampled_from(["Look", "Look", "Change", "Edit", "Nope"]),
    st.sampled_from([{}, {}, {"wrong": 1}]),
)
WORDS: st.SearchStrategy[Block] = st.sampled_from([text("words"), text(" "), thinking("hm")])
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(
        lambda blocks, asked, stop_reason, tokens: response(
            *blocks, *asked, stop_reason=stop_reason, usage=Usage(input_tokens=tokens)
        ),
        st.lists(WORDS, max_size=2),
        st.lists(CALLS, max_size=4),
        st.sampled_from([None, None, None, "pause_turn", "max_tokens", "refusal"]),
        st.sampled_from([10, 500]),
    ),
    st.builds(
        lambda failure, tokens: failure(tokens and Usage(input_tokens=tokens)),
        st.sampled_from(
            [
                lambda usage: ModelOverloaded(
                    "busy", category="overloaded", status=529, usage=usage
                ),
                lambda usage: ModelOverloaded(
                    "oops", category="server_error", status=500, usage=usage
                ),
                lambda usage: ModelUnreachable("cut", category="unknown", usage=usage),
                lambda usage: ModelThrottled(
                    "slow", category="rate_limit", status=429, usage=usage
                ),
            ]
        ),
        st.sampled_from([None, 500]),
    ),
    st.just(ModelRejected("no", category="unknown", status=400)),
)


@dataclass(frozen=True)
class Talk:
    """A session's script, and what its runs may do."""

    script: Sequence[Answer]
    runs: Sequence[RunInfo]
    denied: tuple[str, ...]
    prompts: Sequence[str] = ()
    """Of the runs; numbered ones if there are none."""


def talks() -> st.SearchStrategy[Talk]:
    limits = st.fixed_dictionaries(
        {},
        optional={
            "max_turns": st.integers(1, 3),
            "max_budget_usd": st.sampled_from(["0.005", "0.01"]),
            "max_retries": st.integers(0, 2),
            "overloads_before_fallback": st.integers(1, 2),
            "fallback_model": st.just("other-model"),
            "prompt_suggestions": st.sampled_from([True]),
        },
    )
    return st.builds(
        lambda answers, options, denied: Talk(
            [*answers, *[response(text("end"))] * 10],
            [run_info(f"run_{i}", **given) for i, given in enumerate(options)],
            denied,
        ),
        st.lists(ANSWERS, max_size=6),
        st.lists(limits, min_size=1, max_size=2),
        st.sampled_from([(), ("Edit",), ("Edit", "Look")]),
    )


@dataclass
class Stop:
    """Where a host could be lost: after a batch of a run."""

    run: int
    journal: Journal
    cursor: int


async def play_talk(
    talk: Talk, start: Stop | None = None
) -> tuple[Journal, list[Stop], ScriptedModel]:
    """Play all runs from a stop on; tell every stop on the way."""
    first, cursor = (start.run, start.cursor) if start else (0, 0)
    journal = copied(start.journal) if start else Journal()
    if journal.batches and journal.batches[-1].outcome is not None:
        first += 1  # nobody claims a run that is over
    model = ScriptedModel(talk.script, cursor=cursor)
    stops: list[Stop] = []
    for index, run in enumerate(talk.runs[first:], first):
        clock = FakeClock(prefix=f"{index}-{'again' if start else 'first'}")
        world = effects(
            model,
            gate=DenyThese(talk.denied),
            prompts=[prompt(talk.prompts[index] if talk.prompts else f"p{index}")],
            clock=clock,
        )
        live = journal.state(run)
        async with asyncio.timeout(20), aclosing(run_agent(live, world)) as batches:
            async for advance in batches:
                live = advance.state
                journal.store(run, advance)
                assert settled(journal.state(run)) == settled(live)
                stops.append(Stop(index, copied(journal), model.cursor))
    return journal, stops, model


def copied(journal: Journal) -> Journal:
    return Journal(list(journal.rows), list(journal.ledger), list(journal.batches))


def settled(state: LoopState) -> LoopState:
    """The state but for what a new attempt knows of open calls."""
    return replace(state, unsure=frozenset())


def endings(journal: Journal) -> list[dict[str, Any]]:
    """All results but for ids and durations."""
    return [
        message.model_dump(exclude={"uuid", "duration_ms"})
        for message in journal.messages()
        if isinstance(message, ResultMessage)
    ]


def assert_valid(request: ModelRequest) -> None:
    """What the API demands: roles alternate; each call has its result next, in order."""
    roles = [message.role for message in request.messages]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    messages = [[orjson.loads(block) for block in message.blocks] for message in request.messages]
    assert all(messages)
    ids = [[b["id"] for b in blocks if b["type"] == "tool_use"] for blocks in messages]
    flat = [call_id for asked in ids for call_id in asked]
    assert len(flat) == len(set(flat))
    answers = [
        [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"] for blocks in messages
    ]
    assert answers == [[], *ids[:-1]]
    assert ids[-1] == []
    assert all(blocks[-1]["type"] != "thinking" for blocks in messages[:-1])
    for blocks in messages:
        kinds = [block["type"] == "tool_result" for block in blocks]
        assert kinds == sorted(kinds, reverse=True)  # results stand first


@pytest.mark.requirement("loop:resume")
@settings(max_examples=60, deadline=None)
@given(talks())
def test_a_run_resumed_from_any_prefix_ends_as_the_uninterrupted_one(talk: Talk) -> None:
    async def scenario() -> None:
        journal, stops, model = await play_talk(talk)
        for request in model.requests:
            assert_valid(request)
        for stop in stops:
            again, _, others = await play_talk(talk, stop)
            assert endings(again) == endings(journal)
            for request in others.requests:
                assert_valid(request)

    asyncio.run(scenario())


def said(requests: Sequence[ModelRequest]) -> list[list[tuple[str, bytes]]]:
    """What each request tells of the conversation, block by block; those beside it are left out."""
    told: list[list[tuple[str, bytes]]] = [
        [(message.role, block) for message in request.messages for block in message.blocks]
        for request in requests
    ]
    return [blocks for blocks in told if TASK.encode() not in blocks[-1][1]]


@pytest.mark.requirement("loop:cached-prefix")
@settings(max_examples=60, deadline=None)
@given(talks())
def test_each_request_begins_with_the_very_bytes_of_the_one_before_also_on_another_host(
    talk: Talk,
) -> None:
    async def scenario() -> None:
        _, stops, model = await play_talk(talk)
        assert len({(request.system, request.tools) for request in model.requests}) <= 1
        for before, after in pairwise(said(model.requests)):
            assert after[: len(before)] == before
        for stop in stops:
            _, _, others = await play_talk(talk, stop)
            sent, next_sent = said(model.requests[: stop.cursor])[-1:], said(others.requests)[:1]
            for before, after in zip(sent, next_sent, strict=False):
                assert after[: len(before)] == before

    asyncio.run(scenario())


@pytest.mark.requirement("loop:one-result-a-call")
@settings(max_examples=100, deadline=None)
@given(talks())
def test_each_call_has_one_result_and_each_run_too(talk: Talk) -> None:
    journal, _, _ = asyncio.run(play_talk(talk))
    asked = [
        block.id
        for message in journal.messages()
        if isinstance(message, AssistantMessage)
        for block in message.message.content
        if isinstance(block, ToolUseBlock)
    ]
    assert sorted(journal.results()) == sorted(asked)
    assert len(endings(journal)) == len(talk.runs)
    assert sum(batch.outcome is not None for batch in journal.batches) == len(talk.runs)


@settings(max_examples=60, deadline=None)
@given(talks())
def test_money_on_the_last_result_is_the_sum_of_the_ledger(talk: Talk) -> None:
    journal, _, _ = asyncio.run(play_talk(talk))
    # What is suggested after the last result is in no result yet.
    late = {(talk.runs[-1].run_id, "suggestion")}
    rows = [row for run_id, row in journal.ledger if (run_id, row.purpose) not in late]
    assert endings(journal)[-1]["total_cost_usd"] == float(sum(row.cost_usd or 0 for row in rows))
