"""The built-in tools, in the order in which they are offered."""

from typing import Any

from app.tools.builtin.ask_user import ask_user_tool
from app.tools.builtin.bash import bash_tool
from app.tools.builtin.edit import edit_tool
from app.tools.builtin.exit_plan_mode import exit_plan_mode_tool
from app.tools.builtin.glob import glob_tool
from app.tools.builtin.grep import grep_tool
from app.tools.builtin.notebook_edit import notebook_edit_tool
from app.tools.builtin.read import read_tool
from app.tools.builtin.skill import skill_tool
from app.tools.builtin.task_items import (
    task_create_tool,
    task_get_tool,
    task_list_tool,
    task_update_tool,
)
from app.tools.builtin.task_stop import task_stop_tool
from app.tools.builtin.tool_search import tool_search_tool
from app.tools.builtin.web_fetch import web_fetch_tool
from app.tools.builtin.web_search import web_search_tool
from app.tools.builtin.write import write_tool
from app.tools.tool import Tool

BUILTIN_TOOLS: tuple[Tool[Any], ...] = (  # each has an input type of its own
    read_tool,
    write_tool,
    edit_tool,
    notebook_edit_tool,
    glob_tool,
    grep_tool,
    bash_tool,
    web_fetch_tool,
    web_search_tool,
    task_stop_tool,
    task_create_tool,
    task_update_tool,
    task_list_tool,
    task_get_tool,
    skill_tool,
    ask_user_tool,
    exit_plan_mode_tool,
    tool_search_tool,
)
