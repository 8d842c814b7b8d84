"""What a server lists, in our own words: strings made printable, counts bounded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_TOOLS = 300
MAX_PROMPTS = 100
MAX_RESOURCES = 1_000
MAX_PAGE = 1_000
"""Entries of one page; what is beyond is not there."""
MAX_PAGES = 50
MAX_PROMPT = 100_000
"""Characters of what a prompt says."""
MAX_TITLE = 200
"""Characters; what is longer is cut."""
MAX_INSTRUCTIONS = 2_000
"""Characters; what is longer is cut."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as a server describes it."""

    name: str
    """By which the server is called: exactly as it was sent."""
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool
    title: str = ""
    """For people."""
    needs_person: bool = False
    """Whether the server wants a person to see each call."""


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """A prompt as a server describes it."""

    name: str
    arguments: tuple[str, ...]
    """Names of its arguments, in order."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All that a server offers."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    """As the server describes them, JSON objects."""
    has_resources: bool = False
    instructions: str = ""
    server: Mapping[str, str] = field(default_factory=dict)
    """Name and version."""
