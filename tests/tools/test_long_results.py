"""Results that are too long for the model: stored, and a part of them shown. One place for all tools."""

import json
import re
from typing import Any

import pytest

from app.domain.tools import StoredOutput, ToolResult
from app.errors import ToolFailed
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from tests.tools.desk import Desk, blocks_of, text_of

pytestmark = pytest.mark.platform

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 9}}


class SayInput(ToolInput):
    chars: int
    """How much."""
    how: str = "text"
    """In which form."""


@tool(name="Say", description="Say a lot of it.", input_model=SayInput)
async def say_tool(given: SayInput, _: ToolContext) -> ToolResult:
    text = ("é" * 99 + "\n") * (given.chars // 100)
    half = {"type": "text", "text": text[: given.chars // 2]}
    match given.how:
        case "blocks":
            return ToolResult([half, IMAGE, half])
        case "error":
            return ToolResult(text, is_error=True)
        case "failed":
            raise ToolFailed(text, wrapped=True)
        case "structured":
            names = [f"name{n}" for n in range(50_000)]
            return ToolResult(text, structured={"text": text, "names": names, "count": 50_000})
        case _:
            return ToolResult(text)


@pytest.fixture
def say(desk: Desk) -> Desk:
    desk.tools = (*BUILTIN_TOOLS, say_tool)
    return desk


def stored_of(result: ToolResult) -> StoredOutput:
    assert result.stored is not None
    return result.stored


@pytest.mark.requirement("tools:long-results")
async def test_a_tool_of_ones_own_is_stored_past_50000_characters(say: Desk) -> None:
    whole = await say.call("Say", chars=50_000)
    assert len(text_of(whole)) == 50_000
    assert whole.stored is None
    long = await say.call("Say", chars=50_100)
    stored = stored_of(long)
    text = text_of(long)
    assert text.startswith("<persisted-output>\n")
    assert text.endswith("é\n...\n</persisted-output>")
    assert stored.path in text
    assert "97.4KB" in text
    assert len(text.encode()) < 2_300
    assert say.content_of(stored.path).decode() == ("é" * 99 + "\n") * 501
    assert stored.size_bytes == 501 * 199
    shown = await say.call("Read", file_path=stored.path, offset=501, limit=1)
    assert text_of(shown) == "501\t" + "é" * 99


async def test_texts_among_blocks_are_stored_and_the_other_blocks_stay(say: Desk) -> None:
    result = await say.call("Say", chars=60_000, how="blocks")
    shown, image = blocks_of(result)
    assert image == IMAGE
    assert stored_of(result).path in shown["text"]
    assert len(say.content_of(stored_of(result).path).decode()) == 60_002


@pytest.mark.parametrize("how", ["error", "failed"])
async def test_a_long_failure_shows_its_end_too(say: Desk, how: str) -> None:
    result = await say.call("Say", chars=60_000, how=how)
    assert result.is_error
    text = text_of(result)
    assert len(text) < 10_300
    assert f"all of it is in {stored_of(result).path}" in text
    if how == "failed":
        assert text.startswith("<tool_use_error>é")
        assert text.endswith("é\n</tool_use_error>")


async def test_the_structured_form_is_cut_and_names_the_file(say: Desk) -> None:
    result = await say.call("Say", chars=60_000, how="structured")
    told = result.structured
    assert told["text"] == (("é" * 99 + "\n") * 600)[:30_000]
    assert told["names"] == []
    assert told["count"] == 50_000
    assert told["persistedOutputPath"] == stored_of(result).path
    assert told["persistedOutputSize"] == stored_of(result).size_bytes


async def test_where_no_file_can_be_made_the_middle_is_left_out(say: Desk) -> None:
    await say.bash("rm -rf /tmp/treadle; ln -s /workspace /tmp/treadle")
    result = await say.call("Say", chars=60_000, how="structured")
    assert result.stored is None
    assert "persistedOutputPath" not in result.structured
    text = text_of(result)
    assert len(text) < 10_300
    assert "50,000 characters are left out here" in text
    assert await say.bash("ls /workspace") == "(Bash completed with no output)"


async def test_what_grep_finds_is_stored_past_20000_characters(desk: Desk) -> None:
    desk.put("a.txt", "".join(f"needle {n:05} {'x' * 80}\n" for n in range(250)))
    result = await desk.call("Grep", pattern="needle", output_mode="content")
    stored = stored_of(result)
    assert result.structured["persistedOutputPath"] == stored.path
    assert result.structured["totalLines"] == 250
    assert text_of(result).startswith("<persisted-output>")
    lines = desk.content_of(stored.path).decode().splitlines()
    assert lines[-1] == f"a.txt:250:needle 00249 {'x' * 80}"
    short = await desk.call("Grep", pattern="needle", output_mode="content", head_limit=190)
    assert short.stored is None


async def test_a_grep_that_finds_very_much_stays_bounded(desk: Desk) -> None:
    for folder in range(4):
        for n in range(1000):
            desk.put(f"{'d' * 100}{folder}/{'n' * 100}{n}.txt", "needle\n")
    result = await desk.call("Grep", pattern="needle", head_limit=0)
    assert result.structured["totalFiles"] == 4000
    assert len(json.dumps([result.content, result.structured])) < 45_000
    whole = desk.content_of(stored_of(result).path).decode()
    assert len(re.findall(r"\.txt$", whole, re.MULTILINE)) == 4000


async def test_read_keeps_to_bounds_of_its_own(desk: Desk) -> None:
    desk.put("a.txt", "x\n" * 100_000)
    result = await desk.call("Read", file_path="a.txt", allow_large=True)
    assert result.stored is None
    assert len(text_of(result)) > 500_000


async def test_a_long_failure_of_a_command_says_where_it_is(desk: Desk) -> None:
    failed = await desk.call("Bash", command="seq 1 20000; exit 2")
    assert stored_of(failed).size_bytes == 108_894


@pytest.mark.parametrize("given", BUILTIN_TOOLS, ids=lambda tool: tool.spec.name)
def test_only_tools_with_bounds_of_their_own_have_no_common_one(given: Tool[Any]) -> None:
    bounds = {"Read": None, "Bash": None, "Grep": 20_000}
    assert given.most_chars == bounds.get(given.spec.name, 50_000)
