"""What comes of the question whether a call may run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.domain.permissions import PermissionUpdate
from app.domain.value import value

Kind = Literal["rule", "mode", "hook", "person", "classifier", "tenant", "default", "expiry"]


@dataclass(frozen=True, slots=True)
class Author:
    """Who decided, for the audit."""

    kind: Kind
    name: str = ""
    """Which one: the rule with its source, the mode, the hook, the key of a person."""


BY_DEFAULT = Author("default")


@value
class Allow:
    """The call may run."""

    reason: str | None
    """The wire's `reason_type`: `rule`, `mode`, `subcommandResults`, `hook` … None: not told."""
    by: Author = BY_DEFAULT
    source: Literal["config", "hook", "user_temporary", "user_permanent"] = "config"
    """The wire's word for who decided."""
    updated_input: Mapping[str, Any] | None = None
    """The input that a person wrote; None: the call's own."""
    is_first: bool = False
    """Whether it is certain that the call did not begin before: its answer was still to be taken."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The call may have begun before its host was lost: it is not made again, and nobody is asked."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run; the model is told why."""

    reason: str | None
    """The wire's `decision_reason_type`; None: not told."""
    message: str
    """What the model reads, to the letter."""
    by: Author = BY_DEFAULT
    source: Literal["config", "hook", "user_reject"] = "config"
    interrupts: bool = False
    """Whether the whole run is interrupted with it."""
    is_announced: bool = True
    """Whether `system/permission_denied` says so: not for what a hook or a person decided."""
    is_unanswered: bool = False
    """Whether it is denied since nobody was there to ask."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A person has to decide."""

    reason: str | None
    """The wire's `decision_reason_type`; None: nothing but that no rule covers the call."""
    message: str
    """The sentence a person reads; the model too, when nobody is there."""
    by: Author = BY_DEFAULT
    suggestions: tuple[PermissionUpdate, ...] = ()
    """Updates that would spare the next question of its like; empty where none would."""
    blocked_path: str | None = None
    """The path that the question is about, in the agent's view."""
    needs_classifier: bool = False
    """Whether mode `auto` lets a model answer first."""


Decision: TypeAlias = Allow | Deny | Ask
Verdict: TypeAlias = Allow | Deny | Lost
"""What a gate makes of a decision: nothing is left open."""


def unanswered(ask: Ask) -> Deny:
    """Give what becomes of a question when nobody is there to answer it (decisions B27)."""
    return Deny(
        ask.reason,
        ask.message,
        ask.by,
        is_announced=True,
        is_unanswered=ask.reason is None,
    )
