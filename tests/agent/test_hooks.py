"""What hooks say, and what the loop makes of it. Every run is folded anew from its journal at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.agent.hook_memory import MAX_STOP_BLOCKS
from app.agent.state import RunInfo
from app.domain.hook_outcome import Failed, HookOutcome, Ran, Said
from app.domain.hooks import EVENTS
from app.domain.permissions import HookVerdict
from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.errors import ModelOverloaded
from tests.fakes.effects import (
    Answer,
    Journal,
    ScriptedHooks,
    ScriptedModel,
    ScriptedToolbox,
    call,
    effects,
    kinds,
    options_gate,
    play,
    prompt,
    response,
    run_info,
    text,
)

DONE = response(text("done"))
CHANGE = response(call("a", "Change", what="this"))


def verdict(decision: Any, reason: str | None = "why") -> HookOutcome:
    return HookOutcome(verdict=HookVerdict(decision, reason, "the hook"))


class Played:
    """A run with hooks: its world, and what came of it."""

    def __init__(
        self,
        outcomes: Mapping[str, Sequence[HookOutcome]],
        answers: Sequence[Answer],
        *,
        tools: ScriptedToolbox | None = None,
        journal: Journal | None = None,
        prompts: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:
        self.run: RunInfo = run_info(hooks=EVENTS, **options)
        self.hooks = ScriptedHooks(outcomes)
        self.model = ScriptedModel(answers)
        self.tools = tools or ScriptedToolbox()
        self.journal = journal or Journal()
        self.world = effects(
            self.model,
            tools=self.tools,
            hooks=self.hooks,
            gate=options_gate(self.run.options),
            prompts=prompts,
        )

    async def play(self) -> "Played":
        await play(self.world, self.run, self.journal)
        return self

    @property
    def events(self) -> list[str]:
        return [event.name for event in self.hooks.asked]

    def said(self, request: int) -> str:
        """What the user side of a request ends with."""
        return b"".join(self.model.requests[request].messages[-1].blocks).decode()

    def told(self, kind: str) -> dict[str, Any]:
        """The only message of a kind."""
        (found,) = [m for m in self.journal.messages() if kinds([m]) == [kind]]
        return found.model_dump(by_alias=True)


async def played(
    outcomes: Mapping[str, Sequence[HookOutcome]], answers: Sequence[Answer], **given: Any
) -> Played:
    return await Played(outcomes, answers, **given).play()


@pytest.mark.requirement("hooks:events")
async def test_hooks_are_asked_at_their_points_and_told_of_them() -> None:
    async def fail(asked: ToolCall, _: ToolMemory) -> ToolResult:
        return ToolResult("broken", is_error=True) if asked.id == "b" else ToolResult("fine")

    both = response(call("a"), call("b", "Change"))
    run = await played(
        {}, [both, DONE], tools=ScriptedToolbox(run=fail), allowed_tools=["Change"], effort="low"
    )
    assert run.events == [
        *("Setup", "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        *("PreToolUse", "PostToolUseFailure", "PostToolBatch", "Stop"),
    ]
    start, submitted, _, post, _, failed, batch, stop = run.hooks.asked[1:]
    assert start.told() == {"source": "startup", "model": "priced-model"}
    assert submitted.told() == {"prompt": "hello"}
    assert post.told() == {
        "tool_name": "Look",
        "tool_input": {},
        "tool_use_id": "a",
        "tool_response": "fine",
        "duration_ms": 0,
    }
    assert (failed.told()["error"], failed.told()["is_interrupt"]) == ("broken", False)
    assert [each["tool_response"] for each in batch.told()["tool_calls"]] == ["fine", "broken"]
    assert stop.told() == {
        "stop_hook_active": False,
        "last_assistant_message": "done",
        "background_tasks": [],
        "session_crons": (),
    }
    assert {around.effort for around in run.hooks.around} == {"low"}


@pytest.mark.requirement("hooks:no-cost")
async def test_hooks_that_say_nothing_change_neither_messages_nor_requests() -> None:
    asked = await played({}, [response(call("a")), DONE])
    plain = Played({}, [response(call("a")), DONE])
    plain.run = run_info()
    await plain.play()
    assert plain.hooks.asked == []
    assert kinds(asked.journal.messages()) == kinds(plain.journal.messages())
    assert asked.model.requests == plain.model.requests
    assert [len(batch.entries) for batch in plain.journal.batches] == [2, 1, 1, 2]


# -- PreToolUse -------------------------------------------------------------------------------


@pytest.mark.requirement("hooks:pre-tool-use")
async def test_a_hook_may_allow_what_no_rule_covers() -> None:
    run = await played({"PreToolUse": [verdict("allow")]}, [CHANGE, DONE])
    assert run.tools.started() == ["a"]


@pytest.mark.requirement("hooks:pre-tool-use")
@pytest.mark.parametrize(
    ("outcome", "content", "is_listed"),
    [
        (verdict("deny", "not here"), "PreToolUse:Change hook error: not here", True),
        (verdict("deny", None), "Blocked by hook", True),
        (verdict("ask", "look at it"), "look at it", True),
        (HookOutcome(closed="too slow."), "PreToolUse:Change hook error: too slow.", False),
    ],
)
async def test_a_call_that_a_hook_does_not_let_pass_reaches_the_model_as_an_error(
    outcome: HookOutcome, content: str, *, is_listed: bool
) -> None:
    run = await played({"PreToolUse": [outcome]}, [CHANGE, DONE], allowed_tools=["Change"])
    assert run.tools.started() == []
    result = run.journal.results()["a"]
    assert result.is_error
    assert str(result.content).startswith(content)
    denials = run.journal.result().permission_denials
    assert [denial["tool_input"] for denial in denials] == [{"what": "this"}] * is_listed
    assert "PostToolUseFailure" not in run.events


@pytest.mark.requirement("hooks:pre-tool-use")
async def test_an_input_that_a_hook_wrote_is_decided_run_and_listed_instead() -> None:
    seen: list[Any] = []

    async def see(asked: ToolCall, _: ToolMemory) -> ToolResult:
        seen.append(asked.input)
        return ToolResult("ok")

    other = HookOutcome(updated_input={"what": "that"})
    tools = ScriptedToolbox(run=see)
    run = await played(
        {"PreToolUse": [other]}, [CHANGE, DONE], tools=tools, allowed_tools=["Change"]
    )
    assert seen == [{"what": "that"}]
    (asked,) = [m for m in run.journal.messages() if kinds([m]) == ["tool_use"]]
    assert asked.model_dump()["message"]["content"][0]["input"] == {"what": "this"}
    denied = await played({"PreToolUse": [replace(other, verdict=None)]}, [CHANGE, DONE])
    assert denied.journal.result().permission_denials[0]["tool_input"] == {"what": "that"}


async def test_an_input_that_a_hook_wrote_wrong_is_an_error_result() -> None:
    wrong = HookOutcome(updated_input={"wrong": 1})
    run = await played({"PreToolUse": [wrong]}, [CHANGE, DONE], allowed_tools=["Change"])
    assert "InputValidationError" in str(run.journal.results()["a"].content)


@pytest.mark.requirement("hooks:context")
async def test_what_hooks_add_stands_behind_the_results_and_in_no_message() -> None:
    added = {
        "PreToolUse": [HookOutcome(contexts=("before",))],
        "PostToolUse": [HookOutcome(contexts=("after",), block="not good")],
        "PostToolBatch": [HookOutcome(contexts=("all</system-reminder>together",))],
        "UserPromptSubmit": [HookOutcome(contexts=("with the prompt",))],
        "SessionStart": [HookOutcome(contexts=("at the start",))],
    }
    run = await played(added, [response(call("a")), DONE])
    first, second = run.said(0), run.said(1)
    assert first.index("at the start") < first.index("with the prompt") < first.index("hello")
    words = ["tool_result", "before", "after", "not good", "all&lt;/system-reminder>together"]
    places = [second.index(word) for word in words]
    assert places == sorted(places)
    assert run.model.requests[1].messages[:1] == run.model.requests[0].messages
    shown = b"".join(body for _, body, _ in run.journal.rows).decode()
    assert not any(word in shown for word in ("before", "not good", "together", "at the start"))
    again = run.journal.state(run_info("run_2", hooks=EVENTS)).request_messages()
    assert b"".join(again[2].blocks).decode() == second


@pytest.mark.requirement("hooks:continue-false")
@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "PostToolBatch"])
async def test_continue_false_lets_the_calls_end_and_then_the_run(event: str) -> None:
    both = response(call("a"), call("b"))
    run = await played({event: [HookOutcome(stop="enough")]}, [both, DONE])
    assert sorted(run.journal.results()) == ["a", "b"]
    result = run.journal.result()
    assert (result.subtype, result.result) == ("success", "")
    assert (result.terminal_reason, result.stop_reason) == ("hook_stopped", "tool_use")
    assert len(run.model.requests) == 1
    assert run.journal.batches[-1].outcome is not None
    assert run.journal.batches[-1].outcome.end_reason == "hook"


@pytest.mark.requirement("hooks:defer")
async def test_a_deferred_call_is_left_open_and_goes_on_with_the_next_run() -> None:
    both = response(call("a", "Change", n=1), call("b"), call("c", "Change", n=2))
    later = HookOutcome(defers=True)
    run = await played(
        {"PreToolUse": [later, HookOutcome(), later]}, [both], allowed_tools=["Change"]
    )
    result = run.journal.result()
    assert (result.terminal_reason, result.stop_reason) == ("tool_deferred", "tool_deferred")
    assert (result.subtype, result.result) == ("success", "")
    assert result.deferred_tool_use == {"id": "c", "name": "Change", "input": {"n": 2}}
    assert list(run.journal.results()) == ["b"]
    next_run = Played({}, [DONE], allowed_tools=["Change"], run_id="run_2", journal=run.journal)
    await next_run.play()
    assert next_run.tools.started() == ["a", "c"]
    assert next_run.said(0).index("done") < next_run.said(0).index("hello")


@pytest.mark.requirement("hooks:pre-tool-use")
async def test_a_call_that_a_lost_host_may_have_made_is_lost_whatever_hooks_say_now() -> None:
    run = Played({}, [CHANGE, DONE], allowed_tools=["Change"])
    journal = run.journal
    now = {"PreToolUse": [verdict("deny")]}
    lost = Played(now, [DONE], allowed_tools=["Change"], journal=journal)
    run.world = replace(run.world, tools=ScriptedToolbox(run=_never))
    with pytest.raises(_Lost):
        await run.play()
    await lost.play()
    assert lost.events[0] == "PreToolUse"
    assert lost.hooks.asked[0].key == run.hooks.asked[-1].key
    assert "unknown" in str(journal.results()["a"].content)
    assert journal.result().permission_denials == []


class _Lost(Exception):
    pass


async def _never(_asked: ToolCall, _memory: ToolMemory) -> ToolResult:
    raise _Lost


# -- PostToolUse ------------------------------------------------------------------------------


@pytest.mark.requirement("hooks:post-tool-use")
async def test_an_output_that_a_hook_wrote_takes_the_place_of_the_tools_own() -> None:
    async def structured(_asked: ToolCall, _memory: ToolMemory) -> ToolResult:
        return ToolResult("own words", structured={"n": 1})

    tools = ScriptedToolbox(run=structured)
    other = HookOutcome(updated_output={"n": 2, "more": True})
    run = await played({"PostToolUse": [other]}, [response(call("a")), DONE], tools=tools)
    assert orjson.loads(str(run.journal.results()["a"].content)) == {"n": 2, "more": True}
    assert run.told("tool_result")["tool_use_result"] == {"n": 2, "more": True}


@pytest.mark.requirement("hooks:post-tool-use")
async def test_an_output_of_another_shape_changes_nothing_and_is_warned_of() -> None:
    async def structured(_asked: ToolCall, _memory: ToolMemory) -> ToolResult:
        return ToolResult("own words", structured={"n": 1})

    tools = ScriptedToolbox(run=structured)
    run = await played(
        {"PostToolUse": [HookOutcome(updated_output={"m": 2})]},
        [response(call("a")), DONE],
        tools=tools,
    )
    assert run.journal.results()["a"].content == "own words"
    told = run.told("informational")
    assert (told["level"], told["tag"]) == ("warning", "hook_callback_failed")


@pytest.mark.requirement("hooks:post-tool-use")
@pytest.mark.parametrize("content", ["other", [{"type": "text", "text": "other"}]])
async def test_of_an_object_with_content_the_model_reads_the_content(content: object) -> None:
    async def structured(_asked: ToolCall, _memory: ToolMemory) -> ToolResult:
        return ToolResult("own", structured={"content": "own", "structuredContent": {"n": 1}})

    other: dict[str, object] = {"content": content, "structuredContent": {"n": 2}}
    run = await played(
        {"PostToolUse": [HookOutcome(updated_output=other)]},
        [response(call("a")), DONE],
        tools=ScriptedToolbox(run=structured),
    )
    assert run.told("tool_result")["message"]["content"][0]["content"] == content
    assert run.told("tool_result")["tool_use_result"] == other


# -- prompts ----------------------------------------------------------------------------------


@pytest.mark.requirement("hooks:prompts")
@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (
            HookOutcome(block="not that"),
            {"kind": "blocked_by_hook", "prompt_kept": False, "reason": "not that"},
        ),
        (
            HookOutcome(closed="no answer"),
            {"kind": "blocked_by_hook", "prompt_kept": False, "reason": "no answer"},
        ),
        (
            HookOutcome(stop="later"),
            {"kind": "stopped_by_hook", "prompt_kept": True, "reason": "later"},
        ),
    ],
)
async def test_a_run_whose_prompt_a_hook_blocks_ends_without_a_request(
    outcome: HookOutcome, told: dict[str, Any]
) -> None:
    run = await played({"UserPromptSubmit": [outcome]}, [])
    kept = ["prompt"] * told["prompt_kept"]
    note = run.told("informational")
    assert note["prompt_submit_outcome"] == told
    assert note["prevent_continuation"]
    assert kinds(run.journal.messages()) == ["init", "informational", *kept, "success"]
    result = run.journal.result()
    assert (result.result, result.num_turns, result.terminal_reason) == (note["content"], 0, None)
    assert len(run.journal.batches) == 1
    assert run.journal.batches[0].consumed == ("inbox-1",)
    state = run.journal.state(run_info("run_2"))
    assert bool(state.request_messages()) == told["prompt_kept"]


async def test_a_run_goes_on_with_the_prompts_that_hooks_let_pass() -> None:
    two = [prompt("first"), replace(prompt("second"), id="inbox-2", uuid="2")]
    run = await played({"UserPromptSubmit": [HookOutcome(block="no")]}, [DONE], prompts=two)
    assert "first" not in run.said(0)
    assert "second" in run.said(0)
    assert run.journal.result().result == "done"


@pytest.mark.requirement("hooks:prompts")
async def test_a_prompt_sent_into_a_run_is_told_to_hooks_and_may_end_it() -> None:
    two = [prompt("first"), replace(prompt("second"), id="inbox-2", uuid="2", is_steer=True)]
    answers = [response(call("a")), DONE]
    blocked = await played(
        {"UserPromptSubmit": [HookOutcome(), HookOutcome(block="no")]}, answers, prompts=two
    )
    assert "second" not in blocked.said(1)
    assert blocked.journal.batches[3].consumed == ("inbox-2",)
    stopped = await played(
        {"UserPromptSubmit": [HookOutcome(), HookOutcome(stop="no")]}, answers, prompts=two
    )
    assert stopped.journal.result().terminal_reason == "hook_stopped"
    assert len(stopped.model.requests) == 1


# -- Stop -------------------------------------------------------------------------------------


@pytest.mark.requirement("hooks:stop")
async def test_a_stop_hook_that_blocks_sends_the_model_back() -> None:
    run = await played(
        {"Stop": [HookOutcome(block="more")]}, [response(text("one")), response(text("two"))]
    )
    assert kinds(run.journal.messages()) == [
        *("init", "prompt", "text", "note", "notification", "text", "success")
    ]
    assert "Stop hook feedback:\\nmore" in run.said(1)
    stops = [event.told() for event in run.hooks.asked if event.name == "Stop"]
    assert [stop["stop_hook_active"] for stop in stops] == [False, True]
    assert [stop["last_assistant_message"] for stop in stops] == ["one", "two"]
    assert run.journal.result().result == "two"


@pytest.mark.requirement("hooks:stop")
async def test_what_a_stop_hook_adds_asks_for_another_response_and_is_no_message() -> None:
    run = await played(
        {"Stop": [HookOutcome(contexts=("CTX",))]}, [response(text("one")), response(text("two"))]
    )
    assert kinds(run.journal.messages()) == ["init", "prompt", "text", "text", "success"]
    assert "CTX" in run.said(1)
    again = run.journal.state(run_info("run_2")).request_messages()
    assert b"".join(again[2].blocks).decode() == run.said(1)


@pytest.mark.requirement("hooks:stop")
@pytest.mark.parametrize("outcome", [HookOutcome(block="x"), HookOutcome(contexts=("x",))])
async def test_stop_hooks_count_against_max_turns(outcome: HookOutcome) -> None:
    answers = [response(text(f"t{n}")) for n in range(5)]
    run = await played({"Stop": [outcome] * 5}, answers, max_turns=3)
    result = run.journal.result()
    assert (result.subtype, result.num_turns) == ("error_max_turns", 3)
    assert len(run.model.requests) == 3


@pytest.mark.requirement("hooks:stop")
async def test_stop_hooks_that_never_agree_end_with_the_ninth() -> None:
    answers = [response(text(f"t{n}")) for n in range(12)]
    run = await played({"Stop": [HookOutcome(block="x")] * 12}, answers)
    assert run.events.count("Stop") == MAX_STOP_BLOCKS == 9
    result = run.journal.result()
    assert (result.subtype, result.result, result.num_turns) == ("success", "", 9)
    last = kinds(run.journal.messages())[-4:]
    assert last == ["note", "informational", "notification", "success"]


@pytest.mark.requirement("hooks:stop")
async def test_a_stop_hook_may_end_the_run_for_good() -> None:
    run = await played({"Stop": [HookOutcome(stop="halt")]}, [response(text("one"))])
    result = run.journal.result()
    assert (result.result, result.terminal_reason) == ("one", "stop_hook_prevented")


@pytest.mark.requirement("hooks:stop")
@pytest.mark.parametrize(
    ("answers", "options"),
    [
        ([response(call("a")), DONE], {"max_turns": 1}),
        ([response(call("a")), DONE], {"max_budget_usd": "0.0001"}),
        ([ModelOverloaded("busy", category="overloaded")], {"max_retries": 0}),
    ],
)
async def test_stop_hooks_are_not_asked_of_limits_and_failures(
    answers: Sequence[Answer], options: dict[str, Any]
) -> None:
    run = await played({}, answers, **options)
    assert "Stop" not in run.events
    assert run.journal.result().is_error
    has_failed = isinstance(answers[0], ModelOverloaded)
    failures = [event.told() for event in run.hooks.asked if event.name == "StopFailure"]
    assert [each["error"] for each in failures] == ["server_error"] * has_failed


@pytest.mark.requirement("hooks:recovery")
async def test_a_host_that_takes_over_asks_no_hook_whose_answer_is_journalled() -> None:
    busy = ModelOverloaded("busy", category="overloaded")
    answers: list[Answer] = [response(text("one")), busy, DONE]
    run = Played({"Stop": [HookOutcome(contexts=("CTX",))]}, answers)
    await run.play()
    upto = next(n for n, row in enumerate(run.journal.rows) if b"api_retry" in row[1])
    taken = Played({}, [response(text("two"), message_id="msg_9")])
    taken.journal.rows = run.journal.rows[: upto + 1]
    await taken.play()
    assert taken.events == ["Stop"]
    assert "CTX" in taken.said(0)
    lost = Played({}, [DONE])
    lost.journal.rows = run.journal.rows[:upto]
    await lost.play()
    asked = [event.key for event in run.hooks.asked if event.name == "Stop"]
    assert lost.hooks.asked[0].key == asked[0]


async def test_a_run_that_is_to_give_an_output_does_not_succeed_without_it() -> None:
    output = {"type": "json_schema", "schema": {"type": "object"}}
    cases: list[tuple[dict[str, list[HookOutcome]], list[Answer]]] = [
        ({"UserPromptSubmit": [HookOutcome(block="no")]}, []),
        ({"PreToolUse": [HookOutcome(stop="no")]}, [response(call("a"))]),
        ({"PreToolUse": [HookOutcome(defers=True)]}, [response(call("a"))]),
    ]
    for outcomes, answers in cases:
        run = await played(outcomes, answers, output_format=output)
        assert run.journal.result().subtype == "error_during_execution"


# -- what readers are told --------------------------------------------------------------------


@pytest.mark.requirement("hooks:told")
async def test_what_hooks_say_to_people_stands_before_the_result() -> None:
    ran = Ran("hook_1", "success", "{}\n", "{}\n", "", 0)
    said = HookOutcome(notes=(ran, Said("mind the gap"), Failed("its name", "it is down")))
    shown = await played({"PostToolUse": [said]}, [response(call("a")), DONE])
    assert kinds(shown.journal.messages())[3:6] == ["informational"] * 2 + ["tool_result"]
    texts = [m.model_dump()["content"] for m in shown.journal.messages()[3:5]]
    assert texts[0] == "PostToolUse:Look says: mind the gap"
    assert "its name" in texts[1]
    assert "it is down" in texts[1]
    every = await played(
        {"PostToolUse": [said]}, [response(call("a")), DONE], include_hook_events=True
    )
    assert kinds(every.journal.messages())[3:5] == ["hook_started", "hook_response"]
    started = every.told("hook_started")
    assert (started["hook_id"], started["hook_name"]) == ("hook_1", "PostToolUse:Look")


@pytest.mark.requirement("hooks:told")
async def test_a_command_at_the_start_of_a_session_is_told_before_init() -> None:
    ran = Ran("hook_1", "success", "hi", is_always_told=True)
    run = await played({"SessionStart": [HookOutcome(notes=(ran,))]}, [DONE])
    assert kinds(run.journal.messages())[:3] == ["hook_started", "hook_response", "init"]


async def test_a_later_run_of_a_session_resumes_it() -> None:
    first = await played({}, [DONE])
    later = await played({}, [DONE], run_id="run_2", journal=first.journal)
    assert later.events[:2] == ["SessionStart", "UserPromptSubmit"]
    assert later.hooks.asked[0].told()["source"] == "resume"
