"""What came of asking the hooks of an event."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.domain.permissions import HookVerdict

Outcome = Literal["success", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Said:
    """A hook's words for a person (`systemMessage`)."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A hook could not be asked, or gave no proper answer."""

    hook: str
    why: str


@dataclass(frozen=True, slots=True)
class Ran:
    """A hook was asked and came to an end: `hook_started` and `hook_response` on the wire."""

    hook_id: str
    outcome: Outcome
    output: str
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    """Of a command; None: the hook is none."""
    is_always_told: bool = False
    """Else only to runs with `include_hook_events`."""


Note: TypeAlias = Said | Failed | Ran


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """What all hooks of an event said, merged. The default: nothing."""

    verdict: HookVerdict | None = None
    """Of a call: deny beats ask beats allow; of equals the first."""
    defers: bool = False
    """Whether the call is left for a later run; a denial comes before it."""
    interrupts: bool = False
    """Whether the run ends with a denial (`PermissionRequest`)."""
    updated_input: Mapping[str, Any] | None = None
    """In place of the call's own; the last hook's."""
    updated_output: Any = None
    """In place of the tool's structured output; the last hook's. None: unchanged."""
    contexts: tuple[str, ...] = ()
    """What the model is told, in the order of the hooks."""
    block: str | None = None
    """`decision: block`: its reason, of the first hook that said so."""
    stop: str | None = None
    """`continue: false`: its `stopReason`, which may be empty."""
    closed: str | None = None
    """Why a hook that should have been heard was not: the call may not run, the prompt not enter."""
    notes: tuple[Note, ...] = ()
    """What readers are told, in order."""


NOTHING = HookOutcome()
"""No hook had anything to say."""
