"""The worked example of a tool in CONTRIBUTING.md, as it stands there."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from app.tools.builtin import BUILTIN_TOOLS
from app.tools.tool import Tool
from app.tools.toolbox import Toolbox
from tests.contracts.tool import ToolContract
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform

GUIDE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
FILE = re.search(r"One file, `(app/tools/builtin/\w+\.py)`", GUIDE)
LINE = re.search(r"One line, in `BUILTIN_TOOLS` of `(\S+)`: `(\w+),`", GUIDE)
CODE = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def example() -> Tool[Any]:
    """Import the file, and take what the line names."""
    assert FILE
    assert LINE
    assert CODE
    with TemporaryDirectory() as folder:
        path = Path(folder) / Path(FILE[1]).name
        path.write_text(CODE[1])
        spec = spec_from_file_location("example_of_contributing", path)
        assert spec
        assert spec.loader
        module = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    tool = getattr(module, LINE[2])
    assert isinstance(tool, Tool)
    return tool


EXAMPLE = example()


def box(desk: Desk) -> Toolbox:
    return Toolbox([*BUILTIN_TOOLS, EXAMPLE], desk.workspace, desk.sandbox)


@pytest.mark.parametrize("tool", [EXAMPLE], ids=lambda tool: tool.spec.name)
class TestExample(ToolContract):
    @pytest.fixture
    def valid_input(self) -> dict[str, Any]:
        return {"file_path": "a.txt"}

    @pytest.fixture
    def toolbox(self, desk: Desk) -> Toolbox:
        return box(desk)


@pytest.mark.parametrize(("content", "lines"), [("", 0), ("a", 1), ("a\nb\n", 2), ("\n\nc", 3)])
async def test_it_counts(content: str, lines: int, desk: Desk) -> None:
    desk.put("a.txt", content)
    desk.tools = (*BUILTIN_TOOLS, EXAMPLE)
    result = await desk.call("CountLines", file_path="a.txt")
    assert text_of(result) == f"{lines} lines"
    assert (await desk.call("CountLines", file_path="b.txt")).is_error


def test_the_files_that_it_names_are_there() -> None:
    for path in re.findall(r"`((?:app|tests|examples|migrations|docs)/[\w/.]+)`", GUIDE):
        is_made = FILE is not None and path == FILE[1]
        assert is_made or (Path(__file__).parents[2] / path).exists(), path
