"""The life of a run.

    queued ──claim──> running ──result──> finished
      │                  │ lease ends or host drains: claimed again, attempt + 1
      └──── cancel ──────┴──────────────> finished

`requires_action` is a running run that waits for its client; no transition leaves `finished`.
"""

from dataclasses import dataclass
from typing import Any, Literal

RunStatus = Literal["queued", "running", "requires_action", "finished"]

EndReason = Literal[
    "completed",
    "refusal",
    "max_turns",
    "max_budget_run",
    "model_error",
    "cancelled",
    "superseded",
    "deadline",
    "worker_lost",
    "internal",
]
"""Why a run ended, in our words; the wire's word is the result's subtype."""


@dataclass(frozen=True, slots=True)
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
