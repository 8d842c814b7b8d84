"""Every built-in tool keeps the contract of tools."""

from typing import Any

import pytest

from app.tools.builtin import BUILTIN_TOOLS
from app.tools.tool import Tool
from app.tools.toolbox import Toolbox
from tests.contracts.tool import ToolContract
from tests.tools.desk import Desk

pytestmark = pytest.mark.platform

VALID_INPUT: dict[str, dict[str, Any]] = {
    "Read": {"file_path": "a.txt"},
    "Write": {"file_path": "a.txt", "content": "x"},
    "Edit": {"file_path": "a.txt", "old_string": "x", "new_string": "y"},
    "NotebookEdit": {"notebook_path": "a.ipynb", "new_source": "x", "cell_id": "y"},
    "Glob": {"pattern": "*"},
    "Grep": {"pattern": "x"},
    "Bash": {"command": "true"},
    "TaskCreate": {"subject": "Look"},
    "TaskUpdate": {"taskId": "1"},
    "TaskList": {},
    "TaskGet": {"taskId": "1"},
    "WebFetch": {"url": "https://127.0.0.1/", "prompt": "What is it?"},
    "WebSearch": {"query": "cats"},
    "TaskStop": {"task_id": "b00000000"},
    "Skill": {"skill": "review"},
    "AskUserQuestion": {
        "questions": [
            {
                "question": "Which one?",
                "header": "Choice",
                "multiSelect": False,
                "options": [
                    {"label": "one", "description": "the first"},
                    {"label": "two", "description": "the second"},
                ],
            }
        ]
    },
    "ExitPlanMode": {"plan": "Do it."},
    "ToolSearch": {"query": "x"},
}


@pytest.mark.parametrize("tool", BUILTIN_TOOLS, ids=lambda tool: tool.spec.name)
class TestBuiltin(ToolContract):
    @pytest.fixture
    def valid_input(self, tool: Tool[Any]) -> dict[str, Any]:
        return VALID_INPUT[tool.spec.name]

    @pytest.fixture
    def toolbox(self, desk: Desk) -> Toolbox:
        return desk.toolbox
