"""Outputs that a hook wrote read like the tool's own, and are refused in another shape."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.tools.builtin import BUILTIN_TOOLS

TOOLS = {tool.spec.name: tool.spec for tool in BUILTIN_TOOLS}
FILE = {"filePath": "a", "content": "x\n\ty", "numLines": 2, "startLine": 7, "totalLines": 9}
LINKS = [{"title": "A", "url": "https://a.example"}]
TASK = {"id": "3", "subject": "Sweep", "status": "pending", "blockedBy": ["1", "2"]}

READS: list[tuple[str, Mapping[str, Any], str]] = [
    ("Bash", {"stdout": "a", "stderr": "b", "interrupted": False}, "a\nb"),
    ("Read", {"type": "text", "file": FILE}, "7\tx\n8\t\ty"),
    ("Write", {"type": "update", "filePath": "a/b", "content": "x"}, "Updated a/b."),
    ("Edit", {"filePath": "a", "oldString": "x", "newString": "y"}, "Updated a."),
    ("Glob", {"filenames": ["a", "b\nc"], "numFiles": 2, "totalMatches": 2}, "a\nb␊c"),
    (
        "Glob",
        {"filenames": ["a"], "numFiles": 1, "totalMatches": 5},
        "a\n(Showing 1 of 5 files.)",
    ),
    ("Grep", {"mode": "files_with_matches", "filenames": [], "numFiles": 0}, "No files found"),
    ("Grep", {"mode": "content", "content": "a:1:x", "numLines": 1}, "a:1:x"),
    ("WebFetch", {"result": "It is so.", "url": "https://a.example", "code": 200}, "It is so."),
    (
        "WebSearch",
        {"query": "q", "results": [{"tool_use_id": "s", "content": LINKS}, "So."]},
        'Web search results for "q":\n\nLinks: [{"title":"A","url":"https://a.example"}]\n\nSo.',
    ),
    ("TaskList", {"tasks": [TASK]}, "#3 [pending] Sweep [blocked by #1, #2]"),
    ("TaskList", {"tasks": []}, "There are no tasks."),
    (
        "TaskGet",
        {"task": {**TASK, "blockedBy": [], "description": "All of it."}},
        "Task #3 [pending] Sweep\nAll of it.",
    ),
    ("TaskCreate", {"task": {"id": "3", "subject": "Sweep"}}, "Task #3 Sweep"),
]


@pytest.mark.requirement("hooks:post-tool-use")
@pytest.mark.parametrize(("name", "output", "words"), READS)
def test_an_output_of_the_tools_shape_reads_like_its_own(
    name: str, output: Mapping[str, Any], words: str
) -> None:
    words_of = TOOLS[name].words_of
    assert words_of is not None
    assert words_of(output) == words


@pytest.mark.requirement("hooks:post-tool-use")
@pytest.mark.parametrize("name", sorted({name for name, *_ in READS}))
@pytest.mark.parametrize(
    "output",
    [
        {},
        {"type": "image", "file": FILE},
        {"stdout": 1},
        {"type": "text", "file": {"content": "x", "startLine": -1}},
        {"mode": "other", "content": "x"},
        {"filenames": "a", "numFiles": 1},
        {"tasks": [{"id": 3}], "task": None, "result": None, "url": ""},
    ],
)
def test_an_output_of_another_shape_has_no_words(name: str, output: Mapping[str, Any]) -> None:
    words_of = TOOLS[name].words_of
    assert words_of is not None
    assert words_of(output) is None
