import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.hook_outcome import NOTHING, Failed, Ran, Said
from app.domain.hooks import HookEvent, PreToolUse, Stop, Surroundings
from app.domain.permissions import HookVerdict
from app.hooks.hook import Asked, Hook, HookFailed, Reply
from app.hooks.matching import matcher_of
from app.hooks.runner import RunHooks

AROUND = Surroundings("/workspace/src", "default", "low")
PRE = PreToolUse("toolu_1", "Bash", {"command": "ls"}, "toolu_1")
STOP = Stop("msg_1", stop_hook_active=False, last_assistant_message="x", background_tasks=())


def hook(
    output: object = None, event: str = "PreToolUse", *, name: str = "h", **given: Any
) -> Hook:
    async def ask(_: Asked) -> Reply:
        if isinstance(output, BaseException):
            raise output
        if isinstance(output, float):
            await asyncio.sleep(output)
        return Reply(None if isinstance(output, float) else output)

    return Hook(name, event, matcher_of(given.pop("matcher", None)), ask, **given)


def pre(decision: str, **given: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"permissionDecision": decision, **given}}


async def fire(hooks: Sequence[Hook], event: HookEvent = PRE) -> Any:
    return await RunHooks(hooks, "s", "run_1").fire(event, AROUND)


@pytest.mark.requirement("hooks:merging")
@pytest.mark.parametrize(
    ("decisions", "merged"),
    [
        (["allow", "ask", "deny", "allow"], ("deny", "2")),
        (["allow", "ask"], ("ask", "1")),
        (["ask", "ask"], ("ask", "0")),
        (["allow", "allow"], ("allow", "0")),
    ],
)
async def test_deny_beats_ask_beats_allow(decisions: list[str], merged: tuple[Any, str]) -> None:
    hooks = [hook(pre(each), name=str(n)) for n, each in enumerate(decisions)]
    outcome = await fire(hooks)
    decision, name = merged
    assert outcome.verdict == HookVerdict(decision, None, name)


@pytest.mark.requirement("hooks:merging")
async def test_defer_stands_between_a_denial_and_all_else() -> None:
    assert (await fire([hook(pre("defer")), hook(pre("allow"))])).defers
    assert not (await fire([hook(pre("defer")), hook(pre("deny"))])).defers


@pytest.mark.requirement("hooks:merging")
async def test_outputs_are_merged_in_the_order_of_the_hooks() -> None:
    first = {**pre("allow", updatedInput={"n": 1}, additionalContext="a"), "systemMessage": "m"}
    second = {**pre("allow", updatedInput={"n": 2}, additionalContext="b"), "continue": False}
    third = {"continue": False, "stopReason": "late"}
    outcome = await fire([hook(first), hook(second), hook(third), hook({})])
    assert outcome.updated_input == {"n": 2}
    assert outcome.contexts == ("a", "b")
    assert outcome.stop == ""
    kinds = [type(note) for note in outcome.notes]
    assert kinds == [Ran, Said, Ran, Ran, Ran]


@pytest.mark.requirement("hooks:matching")
async def test_only_hooks_that_match_are_asked() -> None:
    others = [hook(pre("deny"), matcher="Edit"), hook({"decision": "block"}, "Stop")]
    assert await fire(others) == NOTHING
    assert (await fire([*others, hook(pre("deny"), matcher="Bash")])).verdict is not None
    assert (await fire([hook({"decision": "block"}, "Stop", matcher="any")], STOP)).block == ""


@pytest.mark.requirement("hooks:timeouts")
async def test_a_call_whose_hook_is_too_slow_is_closed_and_nothing_else_is() -> None:
    slow = hook(60.0, timeout_s=0.01)
    closed = await fire([slow, hook(pre("allow"))])
    assert closed.closed == "The hook h gave no answer within 0.01 s."
    assert [note.outcome for note in closed.notes] == ["cancelled", "success"]
    stop = await fire([hook(60.0, "Stop", timeout_s=0.01)], STOP)
    assert stop.closed is None
    assert isinstance(stop.notes[-1], Failed)
    denied = await fire([slow, hook(pre("deny"))])
    assert (denied.closed, denied.verdict.decision) == (None, "deny")


@pytest.mark.requirement("hooks:failures")
@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (HookFailed("the server answered 500"), "the server answered 500"),
        (RuntimeError("secret detail"), "it raised RuntimeError"),
        (TimeoutError("inner"), "inner"),
        ([1], "it is no JSON object"),
    ],
)
async def test_a_hook_that_fails_is_told_of_and_changes_nothing(failure: object, why: str) -> None:
    outcome = await fire([hook(failure), hook(pre("allow"))])
    assert outcome.closed is None
    assert outcome.verdict.decision == "allow"
    assert outcome.notes[1] == Failed("h", why)
    closed = await fire([hook(failure, on_failure="block")])
    assert closed.closed == f"The hook h failed: {why}."
    assert not any(isinstance(note, Failed) for note in closed.notes)


async def test_cancelling_stops_the_hooks() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def ask(_: Asked) -> Reply:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return Reply()

    task = asyncio.ensure_future(fire([Hook("h", "PreToolUse", matcher_of(None), ask)]))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.requirement("hooks:inputs")
async def test_a_hook_is_told_of_the_event_and_of_the_run() -> None:
    heard: list[Asked] = []

    async def ask(asked: Asked) -> Reply:
        heard.append(asked)
        return Reply()

    hooks = [Hook("h", name, matcher_of(None), ask) for name in ("PreToolUse", "Stop")]
    run = RunHooks(hooks, "s", "run_1")
    await run.fire(PRE, AROUND)
    child = Surroundings("/workspace", "plan", agent_id="a1", agent_type="Explore")
    await run.fire(STOP, child)
    assert heard[0].input == {
        "session_id": "s",
        "transcript_path": "/v1/sessions/s/export",
        "cwd": "/workspace/src",
        "prompt_id": "run_1",
        "hook_event_name": "PreToolUse",
        "permission_mode": "default",
        "effort": {"level": "low"},
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "toolu_1",
    }
    assert "effort" not in heard[1].input
    assert (heard[1].input["agent_id"], heard[1].input["agent_type"]) == ("a1", "Explore")


@pytest.mark.requirement("hooks:recovery")
async def test_a_hook_that_is_asked_again_about_the_same_moment_is_given_the_same_id() -> None:
    ids: list[str] = []

    async def ask(asked: Asked) -> Reply:
        ids.append(asked.id)
        return Reply()

    two = [Hook(name, "PreToolUse", matcher_of(None), ask) for name in "ab"]
    for run_id in ("run_1", "run_1", "run_2"):
        await RunHooks(two, "s", run_id).fire(PRE, AROUND)
    assert ids[:2] == ids[2:4]
    assert len(set(ids)) == 4
