"""Commands of the service: prompts that it carries out itself, which no model answers."""

import re
from collections.abc import Sequence

from app.domain.messages import Prompt

COMPACT = "compact"
LOCAL_COMMANDS = (COMPACT,)
"""By name, as `init` lists them."""
COMMAND = "command"
"""Fact on the prompt that is a command."""
COMMAND_SAID = "command_said"
"""Fact on what a command printed: the command itself."""
COMMAND_NOTICE = (
    "The next two notes are a command that the user gave to the service, not to you, and what it "
    "printed. They ask nothing of you: answer only what comes after them."
)
_COMPACT = re.compile(r"\s*/compact(?:\s+(.*))?", re.DOTALL)


def compact_instructions(prompts: Sequence[Prompt]) -> str | None:
    """Give what a `/compact` prompt says beside the command; None if it is another prompt.

    A command stands alone: beside other prompts it is a text like any.
    """
    if len(prompts) != 1 or (found := _COMPACT.fullmatch(said_by(prompts[0]))) is None:
        return None
    return (found[1] or "").strip()


def said_by(prompt: Prompt) -> str:
    """Give the text of a prompt that is nothing but a text, else nothing."""
    content = prompt.content
    if isinstance(content, str):
        return content
    is_text = len(content) == 1 and content[0].get("type") == "text"
    return str(content[0]["text"]) if is_text else ""
