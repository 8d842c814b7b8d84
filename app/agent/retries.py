"""When a failed model request is made again, and when another model is asked instead. Pure.

Figures: loop 4.1, 4.3 and 4.7. Each request has its own retries; a fallback begins them anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.errors import (
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRejected,
    ModelUnreachable,
)

FallbackTrigger: TypeAlias = Literal["overloaded", "server_error", "model_not_found", "last_resort"]
OVERLOADED = "overloaded"
"""Category of a failure that says that the model has too much to do."""
_NOT_THE_MODELS_FAULT = frozenset({402, 413})
"""Refusals that another model would meet too."""


@dataclass(frozen=True, slots=True)
class RetryRules:
    """What an operator may set."""

    max_retries: int = 10
    """Tries after the first one, for each model request."""
    first_delay_s: float = 0.5
    """The wait before the first of them; it doubles from one to the next."""
    longest_delay_s: float = 32.0
    """Where the doubling stops."""
    longest_asked_delay_s: float = 300.0
    """A provider that asks for a longer wait is asked again after this one."""
    jitter: float = 0.25
    """Share of the wait that is added at random, at the most."""
    overloads_before_fallback: int = 3
    """Tries that find a model overloaded before its fallback is asked."""


def retry_delay_s(attempt: int, error: ModelError, jitter: float, rules: RetryRules) -> float:
    """Give the wait before try `attempt + 1`; `jitter` is in [0, 1). The provider's word wins."""
    base = min(rules.first_delay_s * 2.0 ** (attempt - 1), rules.longest_delay_s)
    if error.retry_after_s is not None:
        base = min(error.retry_after_s, rules.longest_asked_delay_s)
    return base * (1 + rules.jitter * jitter)


def may_retry(error: ModelError, failures: Sequence[str], rules: RetryRules) -> bool:
    """Whether the request is made again. `failures`: categories of its tries, this one's last."""
    return error.can_retry and len(failures) <= rules.max_retries


def fallback_trigger(
    error: ModelError, failures: Sequence[str], rules: RetryRules
) -> FallbackTrigger | None:
    """Say why the fallback is asked now; None if it is not (yet).

    A rate limit and a refused key are the account's, so another model would not help. A broken
    connection is tried again first: it is seldom the model's.
    """
    is_last = not may_retry(error, failures, rules)
    match error:
        case ModelOverloaded(category="overloaded"):
            has_waited = failures.count(OVERLOADED) >= rules.overloads_before_fallback
            return "overloaded" if has_waited or is_last else None
        case ModelOverloaded():
            return "server_error"
        case ContextTooLong() | ModelRejected(category="billing_error"):
            return None
        case ModelRejected(category="model_not_found"):
            return "model_not_found"
        case ModelRejected():
            is_mine = error.status is not None and error.status not in _NOT_THE_MODELS_FAULT
            return "last_resort" if is_mine and is_last else None
        case ModelUnreachable():
            return "last_resort" if is_last else None
        case _:
            return None
