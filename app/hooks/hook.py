"""A hook, whatever its kind: when it is asked, how, and what its failing means."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.domain.hooks import HookEvent
from app.hooks.matching import Matches

DEFAULT_TIMEOUT_S = 60.0
LONGEST_TIMEOUT_S = 600.0


class HookFailed(Exception):
    """A hook could not be asked, or gave no answer that can be read. Says why, for people."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a hook is told."""

    id: str
    """The same on every host for the same hook and moment."""
    event: HookEvent
    input: Mapping[str, Any]
    """JSON, in the SDK's form."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What it answered."""

    output: object = None
    """Decoded JSON, not looked at yet. None: it had nothing to say."""
    text: str = ""
    """As it came, for people."""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """Somebody who is asked."""

    name: str
    """For people: what it is. No secrets."""
    event: str
    matches: Matches
    ask: Callable[[Asked], Awaitable[Reply]]
    """Raises `HookFailed`."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    on_failure: Literal["block", "continue"] = "continue"
    """Whether what it was asked about may go on when it fails. A time-out of `PreToolUse` blocks
    in any case."""
    is_always_told: bool = False
    """Whether readers are told of it at the start of a session though they did not ask for it."""
