import pytest

from app.domain.messages import InitMessage, UserMessage
from app.domain.tools import ToolCall, ToolFacts, ToolMemory, ToolResult
from tests.fakes.effects import (
    SESSION,
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    call,
    effects,
    kinds,
    play,
    prompt,
    response,
    run_info,
    text,
)

DONE = response(text("done"))


@pytest.mark.requirement("loop:prompts-replayed")
async def test_init_comes_first_and_then_the_prompts_as_replays() -> None:
    prompts = [prompt("one", uuid="u1"), prompt([{"type": "text", "text": "two"}])]
    model = ScriptedModel([DONE])
    journal = await play(effects(model, prompts=prompts), run_info(permission_mode="acceptEdits"))
    init, first, second = journal.messages()[:3]
    assert isinstance(init, InitMessage)
    assert isinstance(first, UserMessage)
    assert isinstance(second, UserMessage)
    assert init.tools == ["Look", "Change", "Edit"]
    assert (init.cwd, init.permissionMode) == ("/workspace", "acceptEdits")
    assert init.user_message_uuids == ["u1"]
    assert (first.uuid, first.isReplay, first.message.content) == ("u1", True, "one")
    assert second.message.model_dump()["content"] == [{"type": "text", "text": "two"}]
    assert {message.session_id for message in journal.messages()} == {SESSION}
    assert [len(batch.entries) for batch in journal.batches] == [3, 2]
    assert journal.batches[0].consumed == ("inbox-1", "inbox-1")
    [request] = model.requests
    assert [len(message.blocks) for message in request.messages] == [2]


async def test_a_prompt_without_a_uuid_of_the_client_is_not_named() -> None:
    journal = await play(effects([DONE]))
    init = journal.messages()[0]
    assert isinstance(init, InitMessage)
    assert init.user_message_uuids is None
    assert journal.result().user_message_uuids is None


async def test_a_run_that_goes_on_elsewhere_has_no_second_init() -> None:
    journal = Journal()
    world = effects([response(call("a")), DONE])
    journal = await play(world)
    whole = kinds(journal.messages())
    cut = Journal(rows=journal.rows[:2])
    await play(effects([response(call("a")), DONE], prompts=()), journal=cut)
    assert kinds(cut.messages()) == whole


async def test_init_names_the_directory_where_the_last_run_left_the_shell() -> None:
    async def move(_call: ToolCall, _memory: ToolMemory) -> ToolResult:
        return ToolResult("moved", facts=ToolFacts(cwd="/workspace/src"))

    journal = await play(effects([response(call("a")), DONE], tools=ScriptedToolbox(run=move)))
    await play(effects([DONE]), run_info("run_2"), journal)
    inits = [m.cwd for m in journal.messages() if isinstance(m, InitMessage)]
    assert inits == ["/workspace", "/workspace/src"]
