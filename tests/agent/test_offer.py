"""Which tools requests hold, and how: deferred ones come when they are found, and stay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson
import pytest

from app.agent.briefing import news_block, opening_blocks
from app.agent.offer import STAND_IN, deferred_names, offer_of, on_offer, unsent_hint
from app.domain.briefing import Briefing, News
from app.domain.model import ContextMessage
from app.domain.notices import InformationalMessage
from app.domain.tools import ToolCall, ToolFacts, ToolMemory, ToolResult, ToolSpec
from tests.fakes.effects import (
    ScriptedModel,
    ScriptedToolbox,
    SmallModels,
    call,
    effects,
    play,
    response,
    text,
)


def spec(name: str, *, deferred: bool = False) -> ToolSpec:
    return ToolSpec(name, f"About {name}.", {"type": "object"}, deferred=deferred)


READ, SEARCH = spec("Read"), spec("ToolSearch")
A, B, C = (spec(name, deferred=True) for name in "abc")
SPECS = (A, READ, B, SEARCH, C)


def names(*encoded: bytes) -> list[str]:
    return [orjson.loads(block)["name"] for block in encoded]


def found(*loaded: str) -> ToolMemory:
    return ToolMemory().plus(ToolFacts(loaded=loaded))


def test_what_is_deferred_is_absent_until_it_is_found() -> None:
    offer = offer_of(SPECS, ToolMemory(), has_search=True)
    assert names(*offer.tools) == ["Read", "ToolSearch"]
    assert names(*offer.deferred) == [STAND_IN]
    assert deferred_names(on_offer(SPECS, has_search=True), has_search=True) == ("a", "b", "c")


def test_what_is_found_follows_in_that_order_and_what_stands_before_it_stays() -> None:
    memory = ToolMemory()
    before = offer_of(SPECS, memory, has_search=True)
    for loaded in (("c",), ("a", "Read", "nope"), ("c", "b")):
        memory = memory.plus(ToolFacts.from_json(ToolFacts(loaded=loaded).to_json()))
        offer = offer_of(SPECS, memory, has_search=True)
        assert offer.tools == before.tools
        assert offer.deferred[: len(before.deferred)] == before.deferred
        before = offer
    assert names(*before.deferred) == [STAND_IN, "c", "a", "b"]
    assert all(orjson.loads(block)["defer_loading"] for block in before.deferred)
    assert orjson.loads(before.deferred[1])["input_schema"] == {"type": "object"}


def test_a_compaction_puts_what_was_found_among_the_tools_that_are_held_in_full() -> None:
    memory = found("c", "a").compacted()
    offer = offer_of(SPECS, memory, has_search=True)
    assert names(*offer.tools) == ["Read", "ToolSearch", "c", "a"]
    assert names(*offer.deferred) == [STAND_IN]
    assert all("defer_loading" not in orjson.loads(tool) for tool in offer.tools)
    later = offer_of(SPECS, memory.plus(ToolFacts(loaded=("b",))), has_search=True)
    assert later.tools == offer.tools
    assert names(*later.deferred) == [STAND_IN, "b"]


@pytest.mark.parametrize(
    ("specs", "has_search", "left"),
    [
        (SPECS, False, ["a", "Read", "b", "c"]),  # the model cannot
        ((READ, SEARCH), True, ["Read"]),  # nothing is deferred
        ((A, READ), True, ["a", "Read"]),  # the client removed ToolSearch
    ],
)
def test_where_nothing_can_be_found_all_tools_are_held_in_full(
    specs: tuple[ToolSpec, ...], has_search: bool, left: list[str]
) -> None:
    offer = offer_of(specs, found("a"), has_search=has_search)
    assert names(*offer.tools) == left
    assert offer.deferred == ()
    assert not offer.is_searching
    assert deferred_names(on_offer(specs, has_search=has_search), has_search=has_search) == ()
    assert unsent_hint(B, ToolMemory(), on_offer(specs, has_search=has_search)) == ""


def test_only_a_tool_that_was_not_found_has_an_unknown_schema() -> None:
    assert "select:b" in unsent_hint(B, found("a"), SPECS)
    assert unsent_hint(A, found("a"), SPECS) == ""
    assert unsent_hint(READ, ToolMemory(), SPECS) == ""


def conversation(*references: str) -> tuple[ContextMessage, ...]:
    parts = [{"type": "tool_reference", "tool_name": name} for name in references]
    result = {"type": "tool_result", "tool_use_id": "t", "content": parts}
    said = {"type": "text", "text": '"tool_reference"'}
    blocks = (orjson.dumps(result), orjson.dumps(said))
    return (ContextMessage("user", blocks).closed(), ContextMessage("assistant", ()))


def test_references_stay_as_they_are_while_all_lead_somewhere() -> None:
    talk = conversation("a", "Read")
    offer = offer_of(SPECS, found("a", "Read"), has_search=True)
    assert offer.readable(talk, ("a", "Read")) is talk


def test_references_to_tools_that_are_gone_are_left_out() -> None:
    offer = offer_of((READ, B, SEARCH), found("a", "b"), has_search=True)
    user, _ = offer.readable(conversation("a", "b"), ("a", "b"))
    assert user.blocks[0] == conversation("b")[0].blocks[0]
    assert user.blocks[1] == conversation()[0].blocks[1]
    assert user.whole is None


def test_a_model_without_tool_search_reads_words() -> None:
    offer = offer_of(SPECS, found("a"), has_search=False)
    user, assistant = offer.readable(conversation("a"), ("a",))
    (part,) = orjson.loads(user.blocks[0])["content"]
    assert part["type"] == "text"
    assert "Found: a." in part["text"]
    assert assistant == ContextMessage("assistant", ())


def test_names_are_told_first_and_news_of_them_where_they_became_known() -> None:
    before = Briefing("linux", {"/p/CLAUDE.md": "be kind"}, tools=("a", "b"))
    opening = [orjson.loads(block)["text"] for block in opening_blocks(before)]
    assert opening[0].endswith("ToolSearch:\na\nb\n</system-reminder>")
    assert len(opening) == 3
    after = Briefing("linux", {"/p/CLAUDE.md": "be kind"}, tools=("b", "c"))
    news = after.since(before)
    assert News.from_json(orjson.loads(orjson.dumps(news.to_json()))) == news
    assert (news.tools, news.tools_gone) == (("c",), ("a",))
    assert before.plus(news) == after
    text = orjson.loads(news_block(news))["text"]
    assert "can load:\nc\n" in text
    assert "no longer:\na\n" in text
    assert "CLAUDE" not in text
    assert not after.since(after)
    assert not after.unknown(News(None, {}, (), tools=("b", "c")))
    assert News.from_json({"environment": None, "files": [], "gone": []}) == News()


@dataclass(slots=True)
class ServersCome(ScriptedToolbox):
    """Tools that come and go with each call."""

    later: Sequence[Sequence[ToolSpec]] = ()

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        result = await ScriptedToolbox.call(self, call, memory)
        self.offered, *self.later = self.later
        return result


async def test_tools_that_come_in_the_middle_of_a_run_are_told_once_and_go_on_being_known() -> None:
    look = spec("Look")
    tools = ServersCome(
        offered=(look, SEARCH, A),
        later=[(look, SEARCH, A, B), (look, SEARCH, A, B), (look, SEARCH, B)],
    )
    script = [response(call("1")), response(call("2")), response(call("3")), response(text("ok"))]
    model = ScriptedModel(script)
    world = replace(effects(model, tools=tools), models=SmallModels(tool_search=True))
    journal = await play(world)
    told = [m for m in journal.messages() if isinstance(m, InformationalMessage)]
    assert [m.content for m in told if m.tag == "deferred_tools"] == ["New: b.", "Gone: a."]
    sent = [b"".join(m.blocks[-1] for m in request.messages) for request in model.requests]
    assert [b"can load:\\nb" in each for each in sent] == [False, True, True, True]
    assert [b"no longer:\\na" in each for each in sent] == [False, False, False, True]
    for earlier, later in zip(model.requests, model.requests[1:], strict=False):
        assert later.tools == earlier.tools
        assert [m.blocks for m in later.messages[: len(earlier.messages)]] == [
            m.blocks for m in earlier.messages
        ]


async def test_a_failed_call_of_an_unseen_tool_says_how_to_see_it() -> None:
    async def fails(_: ToolCall, __: ToolMemory) -> ToolResult:
        return ToolResult("it wants more", is_error=True)

    look = replace(spec("Look"), deferred=True, read_only=True)
    tools = ScriptedToolbox(offered=(look, SEARCH), run=fails)
    for has_search in (True, False):
        model = ScriptedModel([response(call("1")), response(text("ok"))])
        world = replace(effects(model, tools=tools), models=SmallModels(tool_search=has_search))
        await play(world)
        assert (b"select:Look" in model.requests[-1].messages[-1].blocks[0]) is has_search
