"""Prompts that say more than they hold: commands of the workspace, and files that they name.

`/NAME arguments` is given to the model as the command's text, `@path` brings the file, and a
command's text may hold the output of commands that only read. Arguments are words: they run and
read nothing, wherever the command's text puts them. Readers see the prompt as it was sent; what the
model is given goes with it as a fact, so that every host repeats the same bytes.
Nothing here changes anything, so a host that died over it is followed by one that does it again.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.agent.command import LOCAL_COMMANDS, said_by
from app.agent.effects import Effects
from app.agent.state import LoopState
from app.domain.briefing import News
from app.domain.mcp import PREFIX, ServerStatus
from app.domain.messages import Prompt
from app.domain.skills import SkillNote
from app.domain.substitution import commands_of, mentions_of, substituted
from app.domain.tools import ToolCall, ToolResult

MOST_MENTIONS = 10
"""Files that a prompt brings; those named beyond are only named."""
MOST_COMMANDS = 10
"""Commands that a text runs; those beyond stay words."""
_COMMAND = re.compile(r"\s*/(\w[\w.:-]{0,200})(?:\s+(.*))?", re.DOTALL)
_UNKNOWN = (
    "<system-reminder>\nThe next message begins with {name}, which is no command here: nothing was "
    "run. Take it as text. The commands here: {known}.\n</system-reminder>"
)
_NAMED = "<system-reminder>\nThe user's message names {path}; {tool} gives this for it:\n</system-reminder>"


@dataclass(slots=True)
class Expansion:
    """What the model is given for a prompt."""

    blocks: list[dict[str, Any]]
    """In Messages API form."""
    read: list[ToolResult] = field(default_factory=list)
    """What was read for it."""
    news: News = field(default_factory=News)
    """Instructions that stand beside the files."""
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that are approved from here on, by the skill of the tenant's that brings them."""


Expansions: TypeAlias = Mapping[str, Expansion]
"""By the prompt's inbox id; prompts that say just what they hold are not in it."""


async def expanded(
    prompts: Iterable[Prompt], skills: Iterable[SkillNote], state: LoopState, effects: Effects
) -> Expansions:
    """Look up what prompts begin with and name."""
    if state.run.options.verbatim_prompts:
        return {}
    found: dict[str, Expansion] = {}
    for prompt in prompts:
        if (text := said_by(prompt)) and (one := await _expanded(text, skills, state, effects)):
            found[prompt.id] = one
    return found


async def _expanded(
    text: str, skills: Iterable[SkillNote], state: LoopState, effects: Effects
) -> Expansion | None:
    texts, named = [text], mentions_of(text)
    granted: Mapping[str, tuple[str, ...]] = {}
    if command := _COMMAND.fullmatch(text):
        name, arguments = command[1], (command[2] or "").strip()
        if name.startswith(PREFIX):
            body = await effects.servers.prompt(name, arguments)
            if body is not None:  # a server's words run nothing and read nothing here
                texts, named = [_told(name, arguments), body], []
        elif found := await effects.place.command(name):
            granted, named = found.granted, mentions_of(found.text, found.folder)
            outputs = await _outputs(commands_of(found.text, found.folder), state, effects)
            body = substituted(found.text, arguments, found.folder, outputs)
            texts = [_told(name, arguments), body]
        if len(texts) == 1 and name not in LOCAL_COMMANDS:
            texts = [_unknown(name, skills, effects.servers.readiness().statuses), text]
    expansion = Expansion([], granted=granted)
    for path in named:
        if len(expansion.read) < MOST_MENTIONS:
            await _bring(path, expansion, state, effects)
    if len(texts) == 1 and not expansion.read:
        return None
    expansion.blocks += map(_text, texts)
    return expansion


async def _bring(path: str, expansion: Expansion, state: LoopState, effects: Effects) -> None:
    """Put a file, or the names in a folder, before the prompt; nothing if it cannot be read."""
    tool, given = "Read", {"file_path": path}
    if path.endswith("/"):
        tool, given = "Glob", {"pattern": "*", "path": path}
    result = await _read(tool, given, state, effects)
    if result is None or result.is_error:
        return
    expansion.read.append(result)
    expansion.blocks.append(_text(_NAMED.replace("{path}", path).replace("{tool}", tool)))
    content = result.content
    expansion.blocks += [_text(content)] if isinstance(content, str) else content
    beside = await effects.place.near(result.facts.files, state.briefing)
    expansion.news = News(files={**expansion.news.files, **beside.files})


async def _outputs(
    commands: Mapping[str, str], state: LoopState, effects: Effects
) -> Mapping[str, str]:
    """Run commands that only read; give what they print. One that does more has no output."""
    outputs: dict[str, str] = {}
    for text, command in commands.items():
        if len(outputs) < MOST_COMMANDS:
            result = await _read("Bash", {"command": command}, state, effects)
            if result is not None and isinstance(result.content, str):
                outputs[text] = result.content
    return outputs


async def _read(
    tool: str, given: Mapping[str, Any], state: LoopState, effects: Effects
) -> ToolResult | None:
    return await effects.errands.read(ToolCall(effects.clock.uuid(), tool, given), state.memory)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _told(name: str, arguments: str) -> str:
    return (
        f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>\n"
        f"<command-args>{arguments}</command-args>"
    )


def _unknown(name: str, skills: Iterable[SkillNote], servers: Iterable[ServerStatus]) -> str:
    prompts = (prompt for server in servers for prompt in server.prompts)
    names = (*LOCAL_COMMANDS, *(note.name for note in skills if note.for_user), *prompts)
    known = ", ".join(f"/{each}" for each in names)
    return _UNKNOWN.replace("{name}", f"/{name}").replace("{known}", known)
