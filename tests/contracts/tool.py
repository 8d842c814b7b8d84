"""What every built-in tool promises, whatever it does.

`tests/tools/test_builtin_contract.py` runs it on all of `BUILTIN_TOOLS`: a new tool needs only an
entry in `VALID_INPUT` there.
"""

import json
from typing import Any

from app.domain.tools import ToolCall, ToolMemory
from app.tools.tool import Tool
from app.tools.toolbox import Toolbox


class ToolContract:
    """Subclasses give the fixtures `tool`, `valid_input` and `toolbox` (which holds the tool)."""

    def test_it_is_offered_with_few_and_plain_words(self, tool: Tool[Any]) -> None:
        spec = tool.spec
        assert spec.name.isalnum()
        assert 20 < len(spec.description) < 800
        assert not (spec.read_only and spec.edits_files)

    def test_its_schema_is_a_closed_object_and_explains_each_field(self, tool: Tool[Any]) -> None:
        schema = tool.spec.input_schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema.get("required", [])) <= set(schema["properties"])
        assert "title" not in json.dumps(schema)
        for name, field in schema["properties"].items():
            assert field.get("description"), f"{name} is not explained"
            assert "anyOf" not in field, f"{name} has several types"

    def test_valid_input_is_accepted(
        self, tool: Tool[Any], toolbox: Toolbox, valid_input: dict[str, Any]
    ) -> None:
        assert toolbox.spec(tool.spec.name) == tool.spec
        assert toolbox.invalid(ToolCall("t", tool.spec.name, valid_input)) is None

    def test_an_unknown_parameter_is_refused_by_name(
        self, tool: Tool[Any], toolbox: Toolbox, valid_input: dict[str, Any]
    ) -> None:
        call = ToolCall("t", tool.spec.name, {**valid_input, "no_such_thing": 1})
        refused = toolbox.invalid(call)
        assert refused is not None
        assert refused.is_error
        assert "`no_such_thing`" in refused.content

    def test_a_missing_parameter_is_refused_by_name(
        self, tool: Tool[Any], toolbox: Toolbox, valid_input: dict[str, Any]
    ) -> None:
        for name in tool.spec.input_schema.get("required", []):
            given = {key: value for key, value in valid_input.items() if key != name}
            refused = toolbox.invalid(ToolCall("t", tool.spec.name, given))
            assert refused is not None
            assert f"`{name}`" in refused.content

    def test_a_wrong_type_is_refused_by_name(
        self, tool: Tool[Any], toolbox: Toolbox, valid_input: dict[str, Any]
    ) -> None:
        for name, field in tool.spec.input_schema["properties"].items():
            wrong = "no object" if field["type"] == "object" else {"an": "object"}
            given = {**valid_input, name: wrong}
            refused = toolbox.invalid(ToolCall("t", tool.spec.name, given))
            assert refused is not None, name
            assert f"`{name}`" in refused.content

    async def test_text_that_no_file_and_no_program_takes_is_an_answer(
        self, tool: Tool[Any], toolbox: Toolbox, valid_input: dict[str, Any]
    ) -> None:
        for name, field in tool.spec.input_schema["properties"].items():
            if field.get("type") != "string":
                continue
            for text in ("a\0b", "a\ud800b"):
                call = ToolCall("t", tool.spec.name, {**valid_input, name: text})
                result = await toolbox.call(call, ToolMemory())
                assert "internal error" not in str(result.content), (name, text)
                json.dumps([result.content, result.structured], ensure_ascii=False).encode()
