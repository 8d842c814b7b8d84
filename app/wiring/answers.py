"""Whether what a person wrote for a call fits the tool."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.options import AgentOptions
from app.errors import ToolFailed
from app.runs.actions import CheckInput
from app.tools.inputs import parse_input
from app.tools.tool import Tool


def input_check(tools: Sequence[Tool[Any]]) -> CheckInput:
    """Give the check of edited inputs. A tool that is not known here is checked where it runs."""
    by_name = {name: tool for tool in tools for name in (*tool.aliases, tool.spec.name)}

    def problem(_options: AgentOptions, name: str, given: Mapping[str, Any]) -> str | None:
        tool = by_name.get(name)
        if tool is None:
            return None
        try:
            parse_input(tool, given)
        except ToolFailed as error:
            return error.message
        return None

    return problem
