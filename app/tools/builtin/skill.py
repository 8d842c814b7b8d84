"""Skill: load how a kind of work is done here, or have a subagent do it. Spec: tools 15."""

import difflib
import hashlib

from app.domain.tools import Fork, JsonValue, ToolFacts, ToolResult
from app.errors import ToolFailed
from app.tools.paths import shown
from app.tools.skills import Skill, told
from app.tools.tool import ToolContext, ToolInput, tool


class SkillInput(ToolInput):
    skill: str
    """Name of the skill."""
    args: str | None = None
    """Arguments, as its text asks for them."""


@tool(
    name="Skill",
    description=(
        "Load a skill: instructions for one kind of work, from the list that you were given. They "
        "come after the result; follow them. Some are carried out apart: then the result is what "
        "came of it."
    ),
    input_model=SkillInput,
    read_only=True,
    may_fork=True,
)
async def skill_tool(given: SkillInput, context: ToolContext) -> ToolResult:
    """Give the text of a skill, once."""
    name = given.skill.strip().removeprefix("/")
    skill = context.shelf.find(name)
    if skill is None:
        raise _unknown(name, context)
    name = skill.note.name
    if not skill.note.for_model:
        raise ToolFailed(f"Only users can start {name}: it is not for you to load.", wrapped=True)
    text = told(skill, (given.args or "").strip())
    if skill.is_forked:
        granted = {name: skill.allowed_tools} if skill.allowed_tools else {}
        return ToolResult("", fork=Fork(name, text, skill.agent, granted))
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    known = context.memory.skills.get(name)
    done: dict[str, JsonValue] = {"success": True, "commandName": name}
    if skill.allowed_tools:
        done["allowedTools"] = list(skill.allowed_tools)
    granted = _granted(skill, context)
    if known == digest:
        text = f"{name} is loaded already: its text stands above."
        return ToolResult(text, structured=done, facts=ToolFacts(granted=granted))
    again = " It was loaded before; this text counts from here on." if known else ""
    return ToolResult(
        f"Launching skill: {name}.{again}",
        structured=done,
        facts=ToolFacts(skills={name: digest}, granted=granted),
        notes=(text,),
    )


def _granted(skill: Skill, context: ToolContext) -> dict[str, tuple[str, ...]]:
    """Give what is approved from now on, if that is not as it was: less takes back what was more."""
    name, rules = skill.note.name, skill.allowed_tools
    return {} if context.memory.granted.get(name, ()) == rules else {name: rules}


def _unknown(name: str, context: ToolContext) -> ToolFailed:
    names = [note.name for note in context.shelf.notes() if note.for_model]
    near = difflib.get_close_matches(name[:100], names, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return ToolFailed(f"There is no skill {shown(name)}.{hint}", wrapped=True)
