"""The fold by itself: what the journal's rows mean."""

import asyncio

import orjson
import pytest

from app.agent.broken_off import abandoned
from app.agent.fold import fold
from app.agent.results import note_entry
from app.agent.state import LoopState
from app.domain.journal import Batch
from app.domain.messages import (
    Message,
    OtherSystemMessage,
    UserContent,
    UserMessage,
    WorkerShuttingDownMessage,
)
from app.domain.usage import Spend
from tests.fakes.effects import (
    SESSION,
    Journal,
    call,
    effects,
    play,
    prompt,
    response,
    run_info,
    text,
)

DONE = response(text("done"))


def folded(rows: list[tuple[str | None, Message]], run_id: str = "run_1") -> LoopState:
    return fold(
        [(run, message, None) for run, message in rows],
        run_info(run_id),
        spent_before=Spend(),
        spend=Spend(),
    )


def said(words: str) -> UserMessage:
    return UserMessage(
        session_id=SESSION, uuid=words, message=UserContent(content=words), timestamp="now"
    )


def user_texts(state: LoopState) -> list[list[str]]:
    return [[orjson.loads(b)["text"] for b in m.blocks] for m in state.request_messages()]


def test_an_empty_journal_is_a_run_that_has_not_started() -> None:
    state = folded([])
    assert state == LoopState(run_info())
    assert (state.has_started, state.awaits_model, state.request_messages()) == (False, False, ())


@pytest.mark.requirement("loop:prompts-merge")
def test_prompts_in_a_row_are_one_message_to_the_model() -> None:
    state = folded([("run_1", said("one")), ("run_2", said("two")), ("run_2", said("three"))])
    assert user_texts(state) == [["one", "two", "three"]]


def test_a_row_without_a_run_belongs_to_the_run_before_it() -> None:
    journal = asyncio.run(play(effects([response(call("a")), DONE])))
    rows: list[tuple[str | None, Message]] = [("run_1", m) for m in journal.messages()]
    passing = OtherSystemMessage(session_id=SESSION, uuid="x", subtype="note")
    with_one = [*rows[:4], (None, passing), *rows[4:]]
    assert folded(with_one) == folded(rows)
    assert folded(with_one).responses == 2


def test_rows_without_a_run_at_the_head_are_history_not_the_runs_own() -> None:
    journal = asyncio.run(play(effects([response(call("a")), DONE])))
    inherited: list[tuple[str | None, Message]] = [(None, m) for m in journal.messages()]
    state = folded([*inherited, ("run_2", said("go on"))], "run_2")
    assert (state.responses, state.rounds, state.result) == (0, 0, None)
    assert len(state.request_messages()) == 5


def test_a_run_that_was_cancelled_before_it_began_takes_nothing_from_the_one_under_way() -> None:
    journal = asyncio.run(play(effects([response(call("a")), DONE])))
    rows: list[tuple[str | None, Message]] = [("run_1", m) for m in journal.messages()]
    fresh = LoopState(run_info("run_2"))
    ended = abandoned(fresh, effects(), end_reason="cancelled", why="It had not begun.")
    for at in range(1, len(rows)):  # its result stands anywhere among the other's rows
        with_it = [*rows[:at], ("run_2", ended.entries[-1].message), *rows[at:]]
        assert folded(with_it) == folded(rows)


def test_messages_about_the_service_do_not_change_the_conversation() -> None:
    going = WorkerShuttingDownMessage(session_id=SESSION, uuid="x")
    assert folded([("run_1", said("one")), ("run_1", going)]) == folded([("run_1", said("one"))])


async def test_a_note_after_closed_user_blocks_joins_them() -> None:
    world = effects()
    state = LoopState(run_info()).apply(Batch((note_entry("one", LoopState(run_info()), world),)))
    closed = LoopState(run_info(), context=state.request_messages(), notes=(b'{"text":"two"}',))
    assert user_texts(closed) == [["one", "two"]]


async def test_open_calls_of_a_fork_are_closed_before_its_first_request() -> None:
    journal = await play(effects([response(call("a", "Change"), call("b")), DONE]))
    fork = Journal(rows=journal.rows[:4])  # init, prompt, two calls: cut before the results
    await play(effects([DONE], prompts=[prompt("go")]), run_info("run_2"), fork)
    assert set(fork.results()) == {"a", "b"}
    assert fork.result().subtype == "success"
