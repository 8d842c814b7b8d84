"""Commands of the service: prompts that it carries out itself, which no model answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.messages import Prompt

CLEAR, COMPACT, CONTEXT, COST = "clear", "compact", "context", "cost"
LOCAL_COMMANDS = (CLEAR, COMPACT, CONTEXT, COST)
"""By name, as `init` lists them."""
COMMAND = "command"
"""Fact on the prompt that is a command: its name."""
COMMAND_SAID = "command_said"
"""Fact on what a command printed: the command itself."""
EXPANDED = "expanded"
"""Fact on a prompt that says more than it holds: the blocks that the model is given for it."""
COMMAND_NOTICE = (
    "The next two notes are a command that the user gave to the service, not to you, and what it "
    "printed. They ask nothing of you: answer only what comes after them."
)
_LOCAL = re.compile(rf"\s*/({'|'.join(LOCAL_COMMANDS)})(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LocalCommand:
    """A command as it was given."""

    name: str
    arguments: str = ""
    """Only `/compact` takes any."""


def local_command(prompts: Sequence[Prompt]) -> LocalCommand | None:
    """Read a prompt as a command; None if it is another prompt.

    A command stands alone: beside other prompts it is a text like any, and so is one with words
    behind it that it has no use for.
    """
    if len(prompts) != 1 or (found := _LOCAL.fullmatch(said_by(prompts[0]))) is None:
        return None
    name, arguments = found[1], (found[2] or "").strip()
    return None if arguments and name != COMPACT else LocalCommand(name, arguments)


def said_by(prompt: Prompt) -> str:
    """Give the text of a prompt that is nothing but a text, else nothing."""
    content = prompt.content
    if isinstance(content, str):
        return content
    is_text = len(content) == 1 and content[0].get("type") == "text"
    return str(content[0]["text"]) if is_text else ""
