"""The tool that takes structured output in."""

from typing import Any

import pytest

from app.agent.structured import OUTPUT_TOOL
from app.domain.blocks import UNPARSED
from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.tools.structured_output import ACCEPTED, OutputToolbox, output_spec
from tests.fakes.effects import ScriptedToolbox

SCHEMA = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def given(**output: Any) -> ToolResult:
    box = OutputToolbox(ScriptedToolbox(), SCHEMA)
    return await box.call(ToolCall("a", OUTPUT_TOOL, output), ToolMemory())


async def test_an_output_that_fits_is_taken() -> None:
    assert await given(n=1) == ToolResult(ACCEPTED, structured=ACCEPTED)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"n": "1"}, "/n: '1' is not of type 'integer'"),
        ({}, "root: 'n' is a required property"),
        ({"n": "\0\ud800"}, "/n: '\\x00\\ud800' is not of type"),
        ({UNPARSED: {"raw": '{"n": 1'}}, "no complete JSON"),
    ],
)
async def test_an_output_that_does_not_fit_is_told_why(output: dict[str, Any], why: str) -> None:
    result = await given(**output)
    assert result.is_error
    assert why in str(result.content)


async def test_the_other_tools_stay_and_the_output_comes_last() -> None:
    others = ScriptedToolbox()
    box = OutputToolbox(others, SCHEMA)
    assert [*box.specs()] == [*others.specs(), output_spec(SCHEMA)]
    assert output_spec(SCHEMA).input_schema == {"type": "object", **SCHEMA}
    assert box.spec("Look") == others.spec("Look")
    assert box.spec(OUTPUT_TOOL) == output_spec(SCHEMA)
    assert box.spec("Other") is None
    done = await box.call(ToolCall("b", "Look", {}), ToolMemory())
    assert done.content == "Look b done"
    wrong = ToolCall("c", "Look", {"wrong": True})
    assert box.invalid(wrong) == others.invalid(wrong)
    assert box.invalid(ToolCall("d", OUTPUT_TOOL, {})) is None
