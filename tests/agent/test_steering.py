"""Prompts that come while the run goes on, and responses that are cut off."""

from dataclasses import replace
from decimal import Decimal

from app.agent.broken_off import INTERRUPTED_TEXT, UNSTARTED_TEXT, interrupted
from app.agent.draft import STEER_NOTICE
from app.agent.lost_request import lost_request
from app.agent.model_step import answered
from app.agent.state import LoopState
from app.domain.messages import AssistantMessage, Prompt, ResultMessage, UserMessage
from app.domain.model import PartialResponse
from app.domain.usage import Usage
from tests.fakes.effects import (
    MODEL,
    Journal,
    ScriptedModel,
    call,
    effects,
    play,
    prompt,
    response,
    run_info,
    text,
)


def _cut(journal: Journal, batches: int) -> Journal:
    """Give the journal as it was after so many batches."""
    cut = Journal()
    for batch in journal.batches[:batches]:
        cut.store(run_info(), batch)
    return cut


class _LateInbox:
    """Gives its prompt at the start; what is sent into the run comes after the first response."""

    def __init__(self, first: Prompt, *steers: Prompt) -> None:
        self.first = [first]
        self.steers = list(steers)

    async def take(self, *, steers: bool) -> list[Prompt]:
        waiting = self.steers if steers else self.first
        taken = list(waiting)
        waiting.clear()
        return taken


def _steer(words: str) -> Prompt:
    return Prompt(f"in_{words}", f"uuid-{words}", words, is_steer=True)


async def test_a_steered_prompt_enters_after_the_results_of_the_round() -> None:
    model = ScriptedModel([response(call("a")), response(text("done"))])
    late = _LateInbox(prompt(), _steer("also blue"))
    world = replace(effects(model), inbox=late)
    journal = await play(world)
    request = model.requests[-1].messages[-1]
    assert request.role == "user"
    kinds = [b'"tool_result"' in block for block in request.blocks]
    assert kinds == [True, False]
    assert b"also blue" in request.blocks[1]
    assert STEER_NOTICE.encode()[:20] in request.blocks[1]
    replays = [m for m in journal.messages() if isinstance(m, UserMessage) and m.isReplay]
    assert [m.message.content for m in replays][-1] == "also blue"


async def test_a_steered_prompt_reads_the_same_after_a_resume() -> None:
    model = ScriptedModel([response(call("a")), response(text("done"))])
    inbox = _LateInbox(prompt(), _steer("also blue"))
    journal = await play(replace(effects(model), inbox=inbox))
    folded = journal.state(run_info()).request_messages()
    assert folded[: len(model.requests[-1].messages)] == model.requests[-1].messages


async def test_the_text_of_a_cut_response_is_kept_as_an_aborted_block_and_priced() -> None:
    journal = _cut(await play(effects([response(text("done"))])), 1)
    partial = PartialResponse(
        "msg_cut", MODEL, ("so fa",), Usage(input_tokens=100, output_tokens=3)
    )
    batch = interrupted(journal.state(run_info()), effects(), partial=partial)
    aborted, marker, result = (entry.message for entry in batch.entries)
    assert isinstance(aborted, AssistantMessage)
    assert aborted.aborted is True
    assert aborted.message.stop_reason is None
    assert isinstance(marker, UserMessage)
    assert isinstance(result, ResultMessage)
    assert result.terminal_reason == "aborted_streaming"
    assert result.num_turns == 0
    assert batch.ledger[0].estimated
    assert Decimal(str(result.total_cost_usd)) == batch.ledger[0].cost_usd
    after = journal.state(run_info()).apply(batch)
    assert [m.role for m in after.request_messages()] == ["user", "assistant", "user"]


async def test_a_request_in_flight_when_the_host_was_lost_is_estimated() -> None:
    journal = _cut(await play(effects([response(text("done"))])), 1)
    batch = lost_request(journal.state(run_info()), effects())
    assert batch is not None
    assert batch.ledger[0].estimated
    assert batch.ledger[0].usage.input_tokens > 0


async def test_nothing_is_estimated_where_no_request_can_have_been_in_flight() -> None:
    assert lost_request(Journal().state(run_info()), effects()) is None
    journal = _cut(await play(effects([response(call("a")), response(text("done"))])), 2)
    state = journal.state(run_info())
    assert state.open_calls
    assert lost_request(state, effects()) is None


async def test_a_call_that_never_began_is_told_apart_from_one_that_was_running() -> None:
    asked = answered(response(call("a"), call("b")), LoopState(run_info()), effects())
    state = LoopState(run_info()).apply(asked)
    batch = interrupted(state, effects(), begun={"a"})
    journal = Journal()
    journal.store(run_info(), asked)
    journal.store(run_info(), batch)
    told = journal.results()
    assert (told["a"].content, told["b"].content) == (INTERRUPTED_TEXT, UNSTARTED_TEXT)
