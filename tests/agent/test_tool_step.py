"""Scheduling, permissions and the ends of calls. Interleavings are forced by holding calls back."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import orjson
import pytest

from app.agent.calls import MAX_PARALLEL_CALLS
from app.agent.loop import run_agent
from app.agent.results import LOST_TEXT
from app.agent.state import Advance
from app.agent.tool_effects import Fire, NoDesk
from app.domain.journal import Batch
from app.domain.messages import UserMessage
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolFacts, ToolMemory, ToolResult, ToolSpec
from app.errors import Parked
from app.permissions.decision import Allow, Deny, Lost, Verdict
from tests.fakes.effects import (
    DenyThese,
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    call,
    effects,
    kinds,
    options_gate,
    play,
    response,
    run_info,
    text,
)

DONE = response(text("done"))


async def store(journal: Journal, advances: AsyncGenerator[Advance]) -> Batch:
    """Store the next batch."""
    async with asyncio.timeout(30):
        advance = await anext(advances)
    journal.store(run_info(), advance)
    return advance.batch


def results_of(batch: Batch) -> list[str]:
    """Ids of the calls that a batch answers."""
    journal = Journal()
    journal.store(run_info(), batch)
    return list(journal.results())


@pytest.mark.requirement("loop:read-only-together")
@pytest.mark.requirement("loop:results-order")
async def test_read_only_calls_overlap_and_their_results_come_as_they_finish() -> None:
    tools = ScriptedToolbox(held={"a", "b", "c"})
    model = ScriptedModel([response(call("a"), call("b"), call("c")), DONE])
    world = effects(model, tools=tools)
    journal = Journal()
    async with aclosing(run_agent(journal.state(run_info()), world)) as batches:
        await store(journal, batches)
        await store(journal, batches)
        for call_id in ("c", "a", "b"):
            waiting = asyncio.ensure_future(store(journal, batches))
            for started in ("a", "b", "c"):
                await tools.until("start", started)
            tools.let(call_id)
            assert results_of(await waiting) == [call_id]
        await store(journal, batches)
    assert tools.most_running == 3
    assert list(journal.results()) == ["c", "a", "b"]
    [*_, results] = model.requests[1].messages
    assert [
        b'"tool_use_id":"%c"' % name in block
        for name, block in zip(b"abc", results.blocks, strict=True)
    ] == [True] * 3


@pytest.mark.requirement("loop:others-alone")
async def test_a_state_changing_call_runs_alone_and_in_order() -> None:
    tools = ScriptedToolbox()
    asked = [call("r1"), call("r2"), call("w1", "Change"), call("w2", "Change"), call("r3")]
    await play(effects([response(*asked), DONE], tools=tools))
    spans = {
        call_id: [i for i, (_, c) in enumerate(tools.log) if c == call_id]
        for call_id in tools.started()
    }
    for alone, others in (("w1", ("r1", "r2", "w2", "r3")), ("w2", ("r1", "r2", "w1", "r3"))):
        begin, end = spans[alone]
        assert all(not begin < at < end for other in others for at in spans[other])
    assert max(spans["r1"][1], spans["r2"][1]) < spans["w1"][0]
    assert spans["w1"][1] < spans["w2"][0]
    assert spans["w2"][1] < spans["r3"][0]


async def test_a_held_state_changing_call_holds_back_all_that_follow() -> None:
    tools = ScriptedToolbox(held={"w"})
    world = effects([response(call("w", "Change"), call("r")), DONE], tools=tools)
    playing = asyncio.ensure_future(play(world))
    await tools.until("start", "w")
    for _ in range(20):
        await asyncio.sleep(0)
    assert tools.started() == ["w"]
    tools.let("w")
    await playing
    assert tools.log == [("start", "w"), ("end", "w"), ("start", "r"), ("end", "r")]


async def test_results_that_are_ready_together_are_stored_together() -> None:
    world = effects([response(call("a"), call("b")), DONE])
    journal = await play(world)
    assert [len(batch.entries) for batch in journal.batches] == [2, 2, 2, 2]
    assert results_of(journal.batches[2]) == ["a", "b"]


@pytest.mark.requirement("loop:bounded-parallelism")
async def test_a_thousand_calls_in_one_response_run_a_few_at_a_time() -> None:
    tools = ScriptedToolbox()

    async def slowly(asked: ToolCall, _memory: ToolMemory) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult(asked.id)

    tools.run = slowly
    ids = [f"c{i}" for i in range(1_000)]
    model = ScriptedModel([response(*map(call, ids)), DONE])
    journal = await play(effects(model, tools=tools))
    assert tools.most_running == MAX_PARALLEL_CALLS
    assert set(journal.results()) == set(ids)
    results = model.requests[1].messages[-1].blocks
    assert [block.split(b'"')[7].decode() for block in results] == ids
    assert journal.result().num_turns == 2


@pytest.mark.requirement("loop:denied")
async def test_a_denied_call_reaches_the_model_as_an_error_result() -> None:
    tools = ScriptedToolbox()
    asked = call("w", "Change", of="x")
    journal = await play(
        effects([response(asked, call("r")), DONE], tools=tools, gate=DenyThese(("Change",)))
    )
    assert kinds(journal.messages()) == [
        "init",
        "prompt",
        "tool_use",
        "tool_use",
        "permission_denied",
        "tool_result",
        "tool_result",
        "text",
        "success",
    ]
    assert tools.started() == ["r"]
    notice, told, ran = journal.messages()[4:7]
    assert notice.model_dump(exclude={"uuid", "session_id"}) == {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": "Change",
        "tool_use_id": "w",
        "message": "no Change",
        "decision_reason_type": "rule",
    }
    assert isinstance(told, UserMessage)
    assert isinstance(ran, UserMessage)
    assert told.message.model_dump() == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "w", "content": "no Change", "is_error": True}
        ],
    }
    assert told.tool_use_result == "Error: no Change"
    assert told.tool_result_meta == [
        {
            "id": "w",
            "permission_decision": {
                "decision": "reject",
                "source": "config",
                "reason_type": "rule",
            },
            "non_execution_kind": "permission-rule",
        }
    ]
    assert ran.tool_result_meta == [
        {
            "id": "r",
            "permission_decision": {
                "decision": "accept",
                "source": "config",
                "reason_type": "mode",
            },
        }
    ]
    denials = [{"tool_name": "Change", "tool_use_id": "w", "tool_input": {"of": "x"}}]
    assert journal.result().permission_denials == denials
    assert (
        list(journal.batches[-1].outcome.permission_denials if journal.batches[-1].outcome else ())
        == denials
    )


@dataclass
class Says:
    """A gate that gives one answer."""

    answer: Verdict

    async def check(self, call: ToolCall, spec: ToolSpec, _scene: Scene, _fire: Fire) -> Verdict:
        assert call.name == spec.name
        return self.answer


async def test_an_input_that_a_person_edited_is_the_one_that_runs() -> None:
    given: list[object] = []

    async def note(asked: ToolCall, _memory: ToolMemory) -> ToolResult:
        given.append(asked.input)
        return ToolResult("ok")

    gate = Says(Allow(None, source="user_temporary", updated_input={"of": "y"}))
    script = [response(call("w", "Change", of="x")), DONE]
    journal = await play(effects(script, tools=ScriptedToolbox(run=note), gate=gate))
    assert given == [{"of": "y"}]
    [*_, told, _, _] = journal.messages()
    assert isinstance(told, UserMessage)
    accepted = {"decision": "accept", "source": "user_temporary"}
    assert told.tool_result_meta == [{"id": "w", "permission_decision": accepted}]


@pytest.mark.parametrize(
    ("denial", "kind"),
    [
        (Deny("hook", "no", source="hook", is_announced=False), "permission-rule"),
        (Deny(None, "no", source="user_reject", is_announced=False), "permission-rule"),
    ],
)
async def test_what_a_hook_or_a_person_denied_is_not_announced_but_counted(
    denial: Deny, kind: str
) -> None:
    journal = await play(
        effects([response(call("w", "Change")), DONE], gate=Says(denial)),
    )
    assert "permission_denied" not in kinds(journal.messages())
    [*_, told, _, _] = journal.messages()
    assert isinstance(told, UserMessage)
    assert told.tool_result_meta is not None
    assert told.tool_result_meta[0]["non_execution_kind"] == kind
    assert len(journal.result().permission_denials) == 1


async def test_denials_of_an_earlier_run_are_not_told_again() -> None:
    journal = await play(
        effects([response(call("w", "Change")), DONE], gate=DenyThese(("Change",)))
    )
    await play(effects([response(text("hi"))]), run_info("run_2"), journal)
    assert journal.result().permission_denials == []


async def test_a_call_denied_again_and_again_ends_by_the_turns() -> None:
    script = [response(call(f"w{i}", "Change")) for i in range(5)]
    run = run_info(max_turns=3, permission_mode="dontAsk")
    tools = ScriptedToolbox()
    journal = await play(effects(script, tools=tools, gate=options_gate(run.options)), run)
    assert tools.started() == []
    assert journal.result().subtype == "error_max_turns"
    assert len(journal.result().permission_denials) == 3


@pytest.mark.parametrize(
    ("asked", "told", "structured"),
    [
        (
            call("x", "Nope"),
            "<tool_use_error>Error: No such tool available: Nope</tool_use_error>",
            "Error: No such tool available: Nope",
        ),
        (
            call("x", "Change", wrong=1),
            "<tool_use_error>InputValidationError: wrong</tool_use_error>",
            "InputValidationError: wrong",
        ),
    ],
)
@pytest.mark.requirement("loop:invalid-calls")
async def test_a_call_that_cannot_run_is_answered_without_asking_for_permission(
    asked: object, told: str, structured: str
) -> None:
    class NobodyIsAsked:
        async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
            raise AssertionError(call, spec, scene, fire)

    tools = ScriptedToolbox()
    journal = await play(effects([response(asked), DONE], tools=tools, gate=NobodyIsAsked()))  # type: ignore[arg-type]  # a parametrized value
    assert tools.started() == []
    assert journal.results()["x"].content == told
    assert journal.results()["x"].is_error is True
    [message] = [m for m in journal.messages() if isinstance(m, UserMessage) and not m.isReplay]
    assert (message.tool_use_result, message.tool_result_meta) == (structured, None)
    assert journal.result().subtype == "success"


@pytest.mark.parametrize(
    ("result", "block", "structured"),
    [
        (ToolResult("ok", structured={"n": 1}), {"content": "ok"}, {"n": 1}),
        (ToolResult("ok", is_error=False), {"content": "ok", "is_error": False}, None),
        (ToolResult("bad", is_error=True), {"content": "bad", "is_error": True}, "Error: bad"),
        (
            ToolResult([{"type": "text", "text": "bad"}, {"type": "image"}], is_error=True),
            {"content": [{"type": "text", "text": "bad"}, {"type": "image"}], "is_error": True},
            "Error: bad",
        ),
    ],
)
@pytest.mark.requirement("wire:tool-result")
async def test_a_result_says_is_error_only_where_the_tool_did(
    result: ToolResult, block: dict[str, object], structured: object
) -> None:
    async def give(_call: ToolCall, _memory: ToolMemory) -> ToolResult:
        return result

    model = ScriptedModel([response(call("a")), DONE])
    journal = await play(effects(model, tools=ScriptedToolbox(run=give)))
    message = journal.messages()[3]
    assert isinstance(message, UserMessage)
    whole = {"type": "tool_result", "tool_use_id": "a", **block}
    assert message.message.model_dump()["content"] == [whole]
    assert message.tool_use_result == structured
    assert (b'"is_error"' in model.requests[1].messages[-1].blocks[0]) == ("is_error" in block)


async def test_what_a_call_saw_is_known_to_the_next_one_and_to_the_next_run() -> None:
    seen: list[str | None] = []

    async def move(asked: ToolCall, memory: ToolMemory) -> ToolResult:
        seen.append(memory.cwd)
        return ToolResult("moved", facts=ToolFacts(cwd=f"/workspace/{asked.id}"))

    tools = ScriptedToolbox(run=move)
    script = [response(call("a", "Change"), call("b", "Change")), DONE]
    journal = await play(effects(script, tools=tools))
    await play(
        effects([response(call("c", "Change")), DONE], tools=tools), run_info("run_2"), journal
    )
    assert seen == [None, "/workspace/a", "/workspace/b"]


@pytest.mark.requirement("skill:load")
async def test_a_note_follows_its_result_as_a_message_of_its_own() -> None:
    async def load(_: ToolCall, __: ToolMemory) -> ToolResult:
        return ToolResult("loaded", facts=ToolFacts(skills={"s": "1"}), notes=("Do it so.",))

    model = ScriptedModel([response(call("a"), call("b")), DONE])
    journal = await play(effects(model, tools=ScriptedToolbox(run=load)))
    notes = [m for m in journal.messages() if isinstance(m, UserMessage) and m.isSynthetic]
    assert [note.message.content for note in notes] == [[text("Do it so.")]] * 2
    blocks = [orjson.loads(block) for block in model.requests[1].messages[-1].blocks]
    assert [block["type"] for block in blocks] == ["tool_result"] * 2 + ["text"] * 2
    assert journal.state(run_info()).memory.skills == {"s": "1"}


@pytest.mark.requirement("loop:cancel-kills-tools")
async def test_closing_the_run_kills_its_tools_and_waits_for_them() -> None:
    tools = ScriptedToolbox(held={"b"})
    world = effects([response(call("a"), call("b"))], tools=tools)
    journal = Journal()
    async with aclosing(run_agent(journal.state(run_info()), world)) as batches:
        for _ in range(3):
            await store(journal, batches)
        await tools.until("start", "b")
    assert tools.log[-1] == ("cancelled", "b")
    assert [call.id for call in journal.state(run_info()).open_calls] == ["b"]


@pytest.mark.requirement("loop:cancel-kills-tools")
async def test_cancelling_the_task_reaches_a_tool_that_runs() -> None:
    tools = ScriptedToolbox(held={"w"})
    playing = asyncio.ensure_future(play(effects([response(call("w", "Change"))], tools=tools)))
    await tools.until("start", "w")
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert tools.log == [("start", "w"), ("cancelled", "w")]


async def test_a_gate_that_breaks_ends_the_step_instead_of_hanging_it() -> None:
    class Broken:
        async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
            raise ConnectionError(call.id, spec.name, scene, fire)

    tools = ScriptedToolbox()
    with pytest.raises(ConnectionError):
        await play(effects([response(call("a"), call("b"))], tools=tools, gate=Broken()))
    assert tools.log == []


async def resumed(
    asked: Sequence[object], gate: object = None, desk: NoDesk | None = None
) -> tuple[Journal, ScriptedToolbox]:
    """Lose the host right after the response is stored, and go on with another."""
    journal = Journal()
    first = effects([response(*asked)])  # type: ignore[arg-type]  # blocks
    async with aclosing(run_agent(journal.state(run_info()), first)) as batches:
        await store(journal, batches)
        await store(journal, batches)
    tools = ScriptedToolbox()
    world = effects([DONE], tools=tools, gate=gate)  # type: ignore[arg-type]  # a gate or None
    await play(replace(world, desk=desk or NoDesk()), journal=journal)
    return journal, tools


@pytest.mark.requirement("loop:resume-open-calls")
async def test_after_a_crash_read_only_calls_run_again_and_others_are_said_to_be_unknown() -> None:
    journal, tools = await resumed([call("w", "Change"), call("r"), call("r2")])
    assert tools.started() == ["r", "r2"]
    assert journal.results()["w"].content == LOST_TEXT
    assert journal.results()["w"].is_error is True
    assert journal.results()["r"].content == "Look r done"
    assert journal.result().subtype == "success"


async def test_after_a_crash_what_stands_behind_open_calls_has_not_begun_and_runs() -> None:
    journal, tools = await resumed([call("r"), call("w", "Change"), call("w2", "Change")])
    assert tools.started() == ["r", "w", "w2"]
    assert LOST_TEXT not in [block.content for block in journal.results().values()]


@dataclass
class Waits(NoDesk):
    """A gate at which the calls that it names wait until nothing else moves; then it parks."""

    names: Sequence[str]
    expected: list[int] = field(default_factory=list)
    waiting: int = 0
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def expects(self, calls: int) -> None:
        self.expected.append(calls)
        self.bell.set()

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
        del spec, scene, fire
        if call.id not in self.names:
            return Allow(None)
        self.waiting += 1
        while self.waiting < self.expected[-1]:
            self.bell.clear()
            await self.bell.wait()
        raise Parked


async def test_a_run_is_let_go_only_when_every_result_that_there_is_was_taken() -> None:
    gate, tools, journal = Waits(["a", "c"]), ScriptedToolbox(), Journal()
    world = replace(
        effects([response(call("a"), call("b"), call("c"))], tools=tools, gate=gate), desk=gate
    )
    with pytest.raises(Parked):
        await play(world, journal=journal)
    assert tools.started() == ["b"]
    assert list(journal.results()) == ["b"]
    assert gate.expected == [3, 2]


async def test_a_denial_that_interrupts_closes_the_other_calls_and_is_listed() -> None:
    denial = Deny(None, "never shown", source="user_reject", interrupts=True, is_announced=False)
    asked = [call("w", "Change"), call("w2", "Change")]
    tools = ScriptedToolbox()
    journal = await play(effects([response(*asked)], tools=tools, gate=Says(denial)))
    assert tools.log == []
    assert list(journal.results()) == ["w", "w2"]
    assert "never shown" not in str(journal.results())
    assert journal.result().terminal_reason == "aborted_tools"
    assert [each["tool_use_id"] for each in journal.result().permission_denials] == ["w"]


async def test_a_call_whose_answer_was_still_to_be_taken_has_not_begun() -> None:
    certain = Allow(None, is_first=True)
    _, tools = await resumed([call("w", "Change")], Says(certain))
    assert tools.started() == ["w"]


async def test_a_call_whose_answer_was_taken_may_have_begun_and_is_lost() -> None:
    journal, tools = await resumed([call("w", "Change")], Says(Lost()))
    assert tools.log == []
    assert journal.results()["w"].content == LOST_TEXT
    assert journal.result().permission_denials == []


@dataclass
class Notes(NoDesk):
    """Knows what a lost host began, and what this one does, in order with what its tools do."""

    tools: ScriptedToolbox
    begun: frozenset[str] = frozenset()
    noted: list[tuple[str, list[str]]] = field(default_factory=list)

    async def begins(self, call_id: str) -> None:
        self.noted.append((call_id, self.tools.started()))

    async def may_have_begun(self, call_id: str) -> bool:
        return call_id in self.begun


@pytest.mark.requirement("actions:exactly-once")
async def test_after_a_crash_a_call_that_was_certainly_not_begun_is_made() -> None:
    asked = [call("w", "Change"), call("r"), call("w2", "Change")]
    _, tools = await resumed(asked, desk=Notes(ScriptedToolbox()))
    assert tools.started() == ["w", "r", "w2"]
    journal, tools = await resumed(asked, desk=Notes(ScriptedToolbox(), frozenset({"w"})))
    assert tools.started() == ["r", "w2"]
    assert journal.results()["w"].content == LOST_TEXT


@pytest.mark.requirement("actions:exactly-once")
async def test_a_call_that_must_not_be_made_twice_is_noted_before_it_begins() -> None:
    tools = ScriptedToolbox()
    desk = Notes(tools)
    asked = response(call("w", "Change"), call("r"), call("w2", "Change"))
    await play(replace(effects([asked, DONE], tools=tools), desk=desk))
    assert desk.noted == [("w", []), ("w2", ["w", "r"])]


async def test_after_a_crash_a_call_that_could_not_have_run_gets_its_own_answer() -> None:
    asked = [call("x", "Nope"), call("y", "Change", wrong=1), call("z", "Edit")]
    journal, tools = await resumed(asked, DenyThese(("Edit",)))
    assert tools.started() == []
    assert LOST_TEXT not in [block.content for block in journal.results().values()]
    assert [denial["tool_use_id"] for denial in journal.result().permission_denials] == ["z"]


async def test_after_a_resume_later_calls_run_as_ever() -> None:
    journal = Journal()
    async with aclosing(
        run_agent(journal.state(run_info()), effects([response(call("w", "Change"))]))
    ) as batches:
        await store(journal, batches)
        await store(journal, batches)
    tools = ScriptedToolbox()
    await play(effects([response(call("w2", "Change")), DONE], tools=tools), journal=journal)
    assert tools.started() == ["w2"]
