"""The schemas of the built-in tools: names, types and what is required, as clients know them."""

from collections.abc import Mapping

import pytest

from app.tools.builtin import BUILTIN_TOOLS

TEXT, FLAG, WHOLE, NUMBER = "string", "boolean", "integer", "number"

SCHEMAS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "Read": (
        {"file_path": TEXT},
        {"offset": WHOLE, "limit": WHOLE, "pages": TEXT, "allow_large": FLAG},
    ),
    "Write": ({"file_path": TEXT, "content": TEXT}, {}),
    "Edit": (
        {"file_path": TEXT, "old_string": TEXT, "new_string": TEXT},
        {"replace_all": FLAG},
    ),
    "NotebookEdit": (
        {"notebook_path": TEXT, "new_source": TEXT},
        {"cell_id": TEXT, "cell_type": TEXT, "edit_mode": TEXT},
    ),
    "WebFetch": ({"url": TEXT, "prompt": TEXT}, {"offset": WHOLE}),
    "WebSearch": ({"query": TEXT}, {"allowed_domains": "array", "blocked_domains": "array"}),
    "Bash": (
        {"command": TEXT},
        {
            "timeout": NUMBER,
            "description": TEXT,
            "run_in_background": FLAG,
            "dangerouslyDisableSandbox": FLAG,
        },
    ),
    "TaskStop": ({}, {"task_id": TEXT, "shell_id": TEXT}),
    "TaskCreate": (
        {"subject": TEXT},
        {"description": TEXT, "activeForm": TEXT, "metadata": "object"},
    ),
    "TaskUpdate": (
        {"taskId": TEXT},
        {
            **dict.fromkeys(("subject", "description", "activeForm", "status", "owner"), TEXT),
            "addBlocks": "array",
            "addBlockedBy": "array",
            "metadata": "object",
        },
    ),
    "TaskList": ({}, {}),
    "TaskGet": ({"taskId": TEXT}, {}),
    "ToolSearch": ({"query": TEXT}, {"max_results": NUMBER}),
    "Glob": ({"pattern": TEXT}, {"path": TEXT}),
    "Grep": (
        {"pattern": TEXT},
        {
            "path": TEXT,
            "glob": TEXT,
            "type": TEXT,
            "output_mode": TEXT,
            "-A": NUMBER,
            "-B": NUMBER,
            "-C": NUMBER,
            "context": NUMBER,
            "-n": FLAG,
            "-i": FLAG,
            "-o": FLAG,
            "multiline": FLAG,
            "head_limit": NUMBER,
            "offset": NUMBER,
        },
    ),
}
"""Required properties and optional ones."""

ENUMS = {
    ("TaskUpdate", "status"): ["pending", "in_progress", "completed", "deleted"],
    ("NotebookEdit", "cell_type"): ["code", "markdown"],
    ("NotebookEdit", "edit_mode"): ["replace", "insert", "delete"],
    ("Grep", "output_mode"): ["files_with_matches", "content", "count"],
}
DEFAULTS = {
    ("Edit", "replace_all"): False,
    ("NotebookEdit", "edit_mode"): "replace",
    ("Grep", "output_mode"): "files_with_matches",
    ("Grep", "-n"): True,
    ("Grep", "head_limit"): 250,
    ("Grep", "offset"): 0,
    ("ToolSearch", "max_results"): 5,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_has_these_properties_and_no_others(name: str) -> None:
    schema = next(tool.spec.input_schema for tool in BUILTIN_TOOLS if tool.spec.name == name)
    required, optional = SCHEMAS[name]
    told = schema["properties"]
    assert {prop: field["type"] for prop, field in told.items()} == {**required, **optional}
    assert set(schema.get("required", ())) == set(required)
    assert schema["additionalProperties"] is False
    for (tool, prop), values in ENUMS.items():
        assert tool != name or told[prop]["enum"] == values
    for (tool, prop), value in DEFAULTS.items():
        assert tool != name or told[prop]["default"] == value
