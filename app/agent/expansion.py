"""Prompts that begin with a command of the workspace: the model is given what the command says.

Readers see the prompt as it was sent; what the model is given instead goes with it as a fact, so
that every host repeats the same bytes.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from app.agent.command import LOCAL_COMMANDS, said_by
from app.agent.effects import Effects
from app.domain.messages import Prompt
from app.domain.skills import SkillNote

Expansions: TypeAlias = Mapping[str, tuple[str, ...]]
"""Those texts by the prompt's inbox id; prompts that say what they say are not in it."""
_COMMAND = re.compile(r"\s*/(\w[\w.:-]{0,200})(?:\s+(.*))?", re.DOTALL)
_UNKNOWN = (
    "<system-reminder>\nThe next message begins with {name}, which is no command here: nothing was "
    "run. Take it as text. The commands here: {known}.\n</system-reminder>"
)


async def expanded(
    prompts: Iterable[Prompt], skills: Iterable[SkillNote], effects: Effects
) -> Expansions:
    """Look up the commands that prompts begin with."""
    found: dict[str, tuple[str, ...]] = {}
    for prompt in prompts:
        text = said_by(prompt)
        if (match := _COMMAND.fullmatch(text)) is None:
            continue
        name, arguments = match[1], (match[2] or "").strip()
        body = await effects.place.command(name, arguments)
        if body is not None:
            found[prompt.id] = (_named(name, arguments), body)
        elif name not in LOCAL_COMMANDS:
            names = (*LOCAL_COMMANDS, *(note.name for note in skills if note.for_user))
            known = ", ".join(f"/{name}" for name in names)
            found[prompt.id] = (
                _UNKNOWN.replace("{name}", f"/{name}").replace("{known}", known),
                text,
            )
    return found


def _named(name: str, arguments: str) -> str:
    return (
        f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>\n"
        f"<command-args>{arguments}</command-args>"
    )
