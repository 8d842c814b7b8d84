"""Whatever is said: compactions part no pair, lose no run, cost what the ledger says."""

import asyncio
from dataclasses import fields, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.agent.active import COMPACTED
from app.agent.state import CARRIED, LoopState
from app.compaction.window import Window
from app.domain.usage import Usage
from app.errors import ContextTooLong, ModelOverloaded
from tests.agent.test_resume import (
    ANSWERS,
    Talk,
    assert_valid,
    endings,
    play_talk,
    settled,
)
from tests.fakes.effects import Answer, Journal, call, response, run_info, text

LOOKS: st.SearchStrategy[Answer] = st.builds(
    lambda tokens: response(call("x"), usage=Usage(input_tokens=tokens)), st.integers(100, 900)
)
NOTES: st.SearchStrategy[Answer] = st.just(response(text("<summary>notes</summary>")))
TOO_LONG: st.SearchStrategy[Answer] = st.builds(
    lambda: ContextTooLong("prompt is too long", category="invalid_request", status=400)
)


def long_talks() -> st.SearchStrategy[Talk]:
    """Runs in a window that a few answers fill; some of them begin with the command."""
    windows = st.sampled_from([Window(1_000), Window(600), Window(800, is_auto=False)])
    return st.builds(
        lambda answers, windows, commands: Talk(
            [*answers, *[response(text("end"))] * 30],
            [run_info(f"run_{i}", window=window) for i, window in enumerate(windows)],
            (),
            tuple("/compact now" if is_command else f"p{i}" for i, is_command in commands),
        ),
        st.lists(
            st.one_of(LOOKS, LOOKS, LOOKS, LOOKS, LOOKS, NOTES, NOTES, TOO_LONG, ANSWERS),
            min_size=4,
            max_size=14,
        ),
        st.lists(windows, min_size=3, max_size=3),
        st.tuples(*(st.tuples(st.just(i), st.sampled_from([False, i > 0])) for i in range(3))),
    )


@pytest.mark.requirement("loop:compaction-keeps-pairs")
@settings(max_examples=150, deadline=None)
@given(long_talks())
def test_every_request_is_valid_and_has_the_same_cached_prefix(talk: Talk) -> None:
    journal, _, model = asyncio.run(play_talk(talk))
    for request in model.requests:
        assert_valid(request)
    assert len({(request.system, request.tools) for request in model.requests}) <= 1
    assert len(endings(journal)) == len(talk.runs)
    total = sum(row.cost_usd or 0 for _, row in journal.ledger)
    assert journal.result().total_cost_usd == float(total)


def look(tokens: int) -> Answer:
    return response(call("x"), usage=Usage(input_tokens=tokens))


FORGETFUL = Talk(
    [
        *(look(464), look(100), ModelOverloaded("busy", category="overloaded", status=529)),
        *(look(100), *[response(text("end"))] * 30),
    ],
    [run_info("run_0", window=Window(600))],
    (),
)
"""The first answer to the request for a summary is no summary, the second is a failure."""


@pytest.mark.requirement("loop:resume")
@settings(max_examples=40, deadline=None)
@example(FORGETFUL)
@given(long_talks())
def test_a_run_resumed_from_any_prefix_ends_as_the_uninterrupted_one(talk: Talk) -> None:
    async def scenario() -> None:
        journal, stops, _ = await play_talk(talk)
        for stop in stops:
            again, _, others = await play_talk(talk, stop)
            assert endings(again) == endings(journal)
            for request in others.requests:
                assert_valid(request)

    asyncio.run(scenario())


@pytest.mark.requirement("loop:fold-from-compaction")
@settings(max_examples=100, deadline=None)
@given(long_talks())
def test_a_fold_from_the_kept_tail_on_gives_what_the_whole_journal_gives(talk: Talk) -> None:
    journal, stops, _ = asyncio.run(play_talk(talk))
    for stop in stops:
        run = talk.runs[stop.run]
        assert settled(from_tail(stop.journal).state(run)) == settled(stop.journal.state(run))
    later = run_info("later")
    assert from_tail(journal).state(later) == journal.state(later)


def from_tail(journal: Journal) -> Journal:
    """Leave out what the last compaction took away, by its own word."""
    facts = [facts[COMPACTED] for _, _, facts in journal.rows if facts and COMPACTED in facts]
    if not facts:
        return journal
    uuids = [message.uuid for message in journal.messages()]
    return replace(journal, rows=journal.rows[uuids.index(facts[-1]["head"]) :])


def test_every_field_of_a_state_is_carried_or_known_otherwise() -> None:
    names = {field.name for field in fields(LoopState)}
    state = LoopState(run_info(), responses=3, last_text="so far", client_uuids=("a", "b"))
    assert set(CARRIED.names) < names
    assert {"memory", "responses", "rounds", "has_started"} <= set(CARRIED.names)
    loaded = CARRIED.load(CARRIED.dump(state))
    assert loaded == {name: getattr(state, name) for name in CARRIED.names}


def test_two_compactions_without_an_answer_between_are_counted_by_every_host() -> None:
    too_long = ContextTooLong("prompt is too long", category="invalid_request", status=400)
    notes = response(text("<summary>notes</summary>"))
    script = [look(100), look(100), look(100), too_long, notes, too_long, notes]
    # `play_talk` folds the journal after each batch, and holds it against the live state.
    talk = Talk([*script, response(text("end"))], [run_info(window=Window(1_000))], ())
    journal, _, _ = asyncio.run(play_talk(talk))
    assert journal.result().subtype == "success"
