"""The life of a run, as a table.

    accepted ──> queued ──claimed──> running ──ended──> finished
                  │  ^                │ │ ^                ^
                  │  └── released ────┘ └─┘ taken_over     │
                  └───────────── cancelled_unstarted ──────┘

    running ──waits──> requires_action ──answered──> running
                       (released, taken_over and ended as a running one)

A run that waits for long is let go and still waits: its answer releases it.

A status says what clients see; who may write is decided by the session's lease alone. So a lease
that runs out changes no status: the run is `running` until another host takes it over, one attempt
later. `requires_action` is a running run that waits for its client. Nothing leaves `finished`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from app.domain.value import value

RunStatus = Literal["queued", "running", "requires_action", "finished"]

RunEvent = Literal[
    "accepted",
    "claimed",
    "taken_over",
    "released",
    "waits",
    "answered",
    "cancelled_unstarted",
    "ended",
]
"""What changes a run. A new run that is claimed on the spot is accepted and claimed in one commit.

`claimed` takes a free session, `taken_over` one whose last owner's lease ran out. `released` is an
orderly hand-over: the run is queued again, but has begun, so that only an owner can end it.
`cancelled_unstarted` ends a run that no host has begun; every other end is its owner's `ended`.
"""

TRANSITIONS: Mapping[tuple[RunStatus | None, RunEvent], RunStatus] = MappingProxyType(
    {
        (None, "accepted"): "queued",
        ("queued", "claimed"): "running",
        ("queued", "cancelled_unstarted"): "finished",
        ("running", "taken_over"): "running",
        ("running", "released"): "queued",
        ("running", "waits"): "requires_action",
        ("running", "ended"): "finished",
        ("requires_action", "taken_over"): "running",
        ("requires_action", "released"): "queued",
        ("requires_action", "answered"): "running",
        ("requires_action", "ended"): "finished",
    }
)
"""`(status, event)` to the next status; None is a run that is not there yet."""


def after(status: RunStatus | None, *events: RunEvent) -> RunStatus:
    """Give the status that events lead to, in order. Raises `ValueError` for what cannot happen."""
    for event in events:
        if (status, event) not in TRANSITIONS:
            raise ValueError(f"a run that is {status or 'not there'} cannot be {event}")
        status = TRANSITIONS[status, event]
    if status is None:
        raise ValueError("nothing happened to a run that is not there")
    return status


EndReason = Literal[
    "completed",
    "refusal",
    "max_turns",
    "max_budget_run",
    "structured_output",
    "model_error",
    "hook",
    "cancelled",
    "superseded",
    "deadline",
    "mcp_required",
    "worker_lost",
    "action_expired",
    "internal",
]
"""Why a run ended, in our words; the wire's word is the result's subtype."""


@value
class Outcome:
    """How a run ended: what its row shows from then on."""

    subtype: str
    end_reason: EndReason
    is_error: bool
    stop_reason: str | None
    terminal_reason: str | None
    num_turns: int
    result_text: str | None
    errors: tuple[str, ...] = ()
    permission_denials: tuple[dict[str, Any], ...] = ()
