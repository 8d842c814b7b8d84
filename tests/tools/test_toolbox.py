"""The toolbox: what is offered, what is refused, and that nothing but a result comes back."""

import asyncio
import json
import logging
from typing import Any, Literal, cast

import pytest

from app.domain.text import printable, printable_value, unstorable
from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.errors import ToolFailed
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from app.tools.toolbox import Toolbox
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform


class Inner(ToolInput):
    n: int


class EchoInput(ToolInput):
    text: str
    """What to say."""
    n: int | None = None
    ratio: float | None = None
    flag: bool = False
    color: Literal["red", "blue"] | None = None
    inner: Inner | None = None
    many: list[str] | None = None


@tool(name="Echo", description="Say it.", input_model=EchoInput, read_only=True)
async def echo_tool(given: EchoInput, _: ToolContext) -> ToolResult:
    match given.text:
        case "fail":
            raise ToolFailed("it failed\0")
        case "invalid":
            raise ToolFailed("it is invalid", wrapped=True)
        case "bug":
            raise ZeroDivisionError("a secret")
        case "exit":
            raise SystemExit("a secret")
        case "cancel":
            raise asyncio.CancelledError
        case "wait":
            await asyncio.Event().wait()
            raise AssertionError
        case "":
            return ToolResult("")
        case _:
            shown = given.model_dump(exclude={"text"}, exclude_none=True)
            return ToolResult(given.text, structured={"given": shown, "text": given.text})


def box(desk: Desk, *tools: Tool[Any], disabled: frozenset[str] = frozenset()) -> Toolbox:
    return Toolbox(tools or (echo_tool,), desk.workspace, desk.sandbox, disabled=disabled)


TASKS = ("TaskCreate", "TaskUpdate", "TaskList", "TaskGet")


async def call(toolbox: Toolbox, name: str, given: dict[str, Any]) -> ToolResult:
    asked = ToolCall("toolu_1", name, given)
    result = await toolbox.call(asked, ToolMemory())
    refused = toolbox.invalid(asked)
    if refused is not None:
        assert refused == result, "both ways of asking give the same answer"
    return result


def test_tools_are_offered_in_the_same_order_each_time(desk: Desk) -> None:
    names = [spec.name for spec in desk.toolbox.specs()]
    assert names == [
        "Read",
        "Write",
        "Edit",
        "NotebookEdit",
        "Glob",
        "Grep",
        "Bash",
        "WebFetch",
        "WebSearch",
        "TaskStop",
        *TASKS,
        "Skill",
        "AskUserQuestion",
        "ExitPlanMode",
        "ToolSearch",
    ]
    for name in names:
        spec = desk.toolbox.spec(name)
        assert spec is not None
        assert spec.name == name
    assert desk.toolbox.spec("Nope") is None


async def test_a_disabled_tool_is_not_offered_and_a_call_says_so(desk: Desk) -> None:
    toolbox = box(desk, *BUILTIN_TOOLS, disabled=frozenset({"Bash", "WebFetch"}))
    assert "Bash" not in [spec.name for spec in toolbox.specs()]
    assert toolbox.spec("Bash") is None
    for name in ("Bash", "WebFetch"):
        assert text_of(await call(toolbox, name, {"command": "true"})) == (
            f"<tool_use_error>Error: No such tool available: {name}. "
            f"{name} is disabled in this session.</tool_use_error>"
        )


@pytest.mark.parametrize(
    "name", ["Nope", "", "../../x", "BASH", "Bash\0", "Ba\u0455h", "x" * 10_000]
)
async def test_m01_an_unknown_name_is_an_error_result(name: str, desk: Desk) -> None:
    result = await call(box(desk, *BUILTIN_TOOLS), name, {"command": "touch made"})
    assert result.is_error
    text = text_of(result)
    assert text.startswith("<tool_use_error>Error: No such tool available: ")
    assert "\0" not in text
    assert len(text) < 300
    assert list(desk.dirs.ws.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, ["The required parameter `text` is missing"]),
        ({"text": "x", "bogus": 1}, ["An unexpected parameter `bogus` was provided"]),
        ({"text": 5}, ["The parameter `text` must be of type string; got integer 5"]),
        ({"text": {"a": 1}}, ["The parameter `text` must be of type string; got object"]),
        ({"text": None}, ["The parameter `text` must be of type string; got null"]),
        ({"text": "x", "n": 2.5}, ["The parameter `n` must be of type integer; got number 2.5"]),
        ({"text": "x", "n": "two"}, ["The parameter `n` must be of type integer; got string"]),
        ({"text": "x", "n": True}, ["The parameter `n` must be of type integer; got boolean True"]),
        (
            {"text": "x", "flag": "yes"},
            ["The parameter `flag` must be of type boolean; got string"],
        ),
        ({"text": "x", "flag": 1}, ["The parameter `flag` must be of type boolean; got integer 1"]),
        (
            {"text": "x", "color": "pink"},
            ["The parameter `color` must be one of red, blue; got string"],
        ),
        ({"text": "x", "many": "a"}, ["The parameter `many` must be of type array; got string"]),
        (
            {"n": [], "x": 1},
            [
                "The required parameter `text` is missing",
                "The parameter `n` must be of type integer; got array",
                "An unexpected parameter `x` was provided",
            ],
        ),
    ],
)
async def test_m02_bad_input_is_told_line_by_line(
    given: dict[str, Any], lines: list[str], desk: Desk
) -> None:
    result = await call(box(desk), "Echo", given)
    assert result.is_error
    assert result.structured is None
    head = "<tool_use_error>InputValidationError: Echo failed due to the following issue(s):"
    assert text_of(result) == "\n".join([head, *lines]) + "</tool_use_error>"


async def test_m02_hostile_input_is_refused_in_few_words(desk: Desk) -> None:
    nested: dict[str, Any] = {}
    for _ in range(10_000):
        nested = {"a": nested}
    for given in (
        {"text": nested},
        {"text": "x", **{f"k{n}": n for n in range(1000)}},
        {"text": "x", "k" * 20_000_000: 1},
        {"text": "x", "\0\ud800": 1},
        {"text": "x", "n": 10**400},
        {"text": "x", "n": "9" * 5000},
    ):
        result = await call(box(desk), "Echo", given)
        if "n" not in given:
            assert result.is_error
        text_of(result).encode()
        assert "\0" not in text_of(result)
        assert len(text_of(result)) < 5000


async def test_input_that_was_no_json_is_named(desk: Desk) -> None:
    result = await call(box(desk), "Echo", {"__unparsedToolInput": '{"text": "x'})
    assert result.is_error
    assert "could not be parsed as JSON" in text_of(result)
    assert text_of(result).startswith("<tool_use_error>InputValidationError: ")


async def test_numbers_and_booleans_may_come_as_strings(desk: Desk) -> None:
    given = {
        "text": "x",
        "n": "-2",
        "ratio": "0.5",
        "flag": "true",
        "inner": {"n": 1},
        "many": ["a"],
    }
    result = await call(box(desk), "Echo", given)
    assert result.structured["given"] == {
        "n": -2,
        "ratio": 0.5,
        "flag": True,
        "inner": {"n": 1},
        "many": ["a"],
    }
    whole = await call(box(desk), "Echo", {"text": "x", "n": 2.0, "ratio": 1})
    assert whole.structured["given"] == {"n": 2, "ratio": 1.0, "flag": False}
    text = await call(box(desk), "Echo", {"text": "5"})
    assert text.structured["text"] == "5"


async def test_a_tools_own_failure_is_plain_and_a_validation_error_is_wrapped(desk: Desk) -> None:
    assert await call(box(desk), "Echo", {"text": "fail"}) == ToolResult(
        "it failed\u2400", is_error=True
    )
    invalid = await call(box(desk), "Echo", {"text": "invalid"})
    assert invalid == ToolResult("<tool_use_error>it is invalid</tool_use_error>", is_error=True)


@pytest.mark.parametrize("bug", ["bug", "exit", "cancel"])
async def test_a_bug_in_a_tool_is_logged_and_told_without_details(
    bug: str, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="app.tools.toolbox"):
        result = await call(box(desk), "Echo", {"text": bug})
    assert result == ToolResult("Echo failed because of an internal error.", is_error=True)
    (record,) = caplog.records
    assert record.__dict__["action"] == "tool_crashed"
    assert record.exc_info


DEEP: Any = 0
for _ in range(2_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "given",
    [
        *(None, "text", {"content": "text"}),
        *(ToolResult(cast("Any", content)) for content in (None, 5, b"x", {"a": 1}, ("a",))),
        *(ToolResult(cast("Any", [block])) for block in (5, {}, {"type": "video"})),
        *(ToolResult([{"type": kind}]) for kind in ("text", "image", "tool_reference")),
        ToolResult([{"type": "text", "text": 5}]),
        ToolResult([{"type": "text", "text": "x", "more": DEEP}]),
        *(ToolResult("x", structured=given) for given in (object(), {1: 2}, {"s": {1}}, b"x")),
        ToolResult("x", structured=DEEP),
        ToolResult("x", facts=cast("Any", None)),
        *(ToolResult("x", notes=cast("Any", notes)) for notes in (None, (5,))),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_what_is_no_result_is_a_bug_of_its_tool(given: Any, desk: Desk) -> None:
    @tool(name="Junk", description="Gives junk.", input_model=Inner)
    async def junk(_: Inner, __: ToolContext) -> ToolResult:
        return cast("ToolResult", given)

    result = await call(box(desk, junk), "Junk", {"n": 1})
    assert result == ToolResult("Junk failed because of an internal error.", is_error=True)


async def test_a_cancellation_passes_through(desk: Desk) -> None:
    going = asyncio.create_task(
        box(desk).call(ToolCall("t", "Echo", {"text": "wait"}), ToolMemory())
    )
    await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_an_empty_result_says_that_it_is_empty(desk: Desk) -> None:
    assert text_of(await call(box(desk), "Echo", {"text": ""})) == "(Echo completed with no output)"


async def test_results_hold_only_what_can_be_stored(desk: Desk) -> None:
    result = await call(box(desk), "Echo", {"text": "a\0b\ud800c\U0001f600"})
    assert result.content == "a\u2400b\ufffdc\U0001f600"
    assert result.structured["text"] == "a\u2400b\ufffdc\U0001f600"
    json.dumps([result.content, result.structured]).encode()


def test_text_is_left_alone_when_it_can_be_stored() -> None:
    text = "plain é \U0001f600 \u2028 \x1b[0m"
    assert printable(text) is text
    assert unstorable(text) is None
    assert unstorable("a\0") == "a NUL character"
    assert unstorable("a\udfff") == "a lone surrogate"
    assert printable_value({"\0": ["\0", 1, None, {"a": "\ud800"}]}) == {
        "\u2400": ["\u2400", 1, None, {"a": "\ufffd"}]
    }


def test_optional_fields_are_offered_without_null(desk: Desk) -> None:
    (spec,) = box(desk).specs()
    assert spec.input_schema["properties"]["n"] == {"type": "integer"}
    assert spec.input_schema["properties"]["text"] == {
        "type": "string",
        "description": "What to say.",
    }
    assert spec.input_schema["additionalProperties"] is False
    assert spec.input_schema["required"] == ["text"]


async def test_a_call_that_was_looked_at_is_made_with_its_own_input(desk: Desk) -> None:
    tools = box(desk)
    first, second = (ToolCall(f"t{n}", "Echo", {"text": "told", "n": n}) for n in (1, 2))
    assert tools.invalid(first) is None
    assert tools.invalid(second) is None
    changed = ToolCall("t2", "Echo", {**second.input, "n": 3})
    results = [await tools.call(call, ToolMemory()) for call in (first, second, second, changed)]
    assert [result.structured["given"]["n"] for result in results] == [1, 2, 2, 3]
    worse = ToolCall("t1", "Echo", {**first.input, "n": "many"})
    assert (await tools.call(worse, ToolMemory())).is_error
