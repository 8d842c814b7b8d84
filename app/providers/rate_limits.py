"""Where the provider's rate limits stand, read from the headers of its answers.

Two families: `anthropic-ratelimit-unified-*` speaks of a subscription's windows and says itself
how near the limit is; `anthropic-ratelimit-{requests,tokens,…}-*` counts what an API key has left.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

from app.domain.notices import RateLimitInfo

NEAR = 0.8
"""Share of a limit at which it counts as near."""

_PREFIX = "anthropic-ratelimit-"
_UNIFIED = f"{_PREFIX}unified-"
_RESOURCES = ("requests", "tokens", "input-tokens", "output-tokens")
_STATUSES = frozenset({"allowed", "allowed_warning", "rejected"})
_WINDOWS = {"five_hour": "5h", "seven_day": "7d"}
_WORD = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?")

Status = Literal["allowed", "allowed_warning", "rejected"]


def rate_limit_of(
    headers: Mapping[str, str], *, was_refused: bool, near: float = NEAR
) -> RateLimitInfo | None:
    """Give the limit that binds most; None when the answer says nothing of limits.

    `was_refused`: the answer is a 429.
    """
    if headers.get(f"{_UNIFIED}status") in _STATUSES:
        return _of_subscription(headers, was_refused=was_refused)
    limits = list(_of_key(headers))
    if not limits:
        return None
    used, resource = max(limits)
    status: Status = "allowed_warning" if used >= near else "allowed"
    return RateLimitInfo(
        status="rejected" if was_refused else status,
        resetsAt=_time(headers.get(f"{_PREFIX}{resource}-reset")),
        utilization=round(used, 4),
        resource=resource.replace("-", "_"),
    )


def _of_subscription(headers: Mapping[str, str], *, was_refused: bool) -> RateLimitInfo:
    window = _word(headers.get(f"{_UNIFIED}representative-claim"))
    used = _number(headers.get(f"{_UNIFIED}{_WINDOWS.get(window or '', 'x')}-utilization"))
    return RateLimitInfo(
        status=_status("rejected" if was_refused else headers[f"{_UNIFIED}status"]),
        resetsAt=_time(headers.get(f"{_UNIFIED}reset")),
        rateLimitType=window,
        utilization=None if used is None else min(used, 1.0),
        overageStatus=_word(headers.get(f"{_UNIFIED}overage-status")),
        overageResetsAt=_time(headers.get(f"{_UNIFIED}overage-reset")),
        overageDisabledReason=_word(headers.get(f"{_UNIFIED}overage-disabled-reason")),
    )


def _of_key(headers: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    for resource in _RESOURCES:
        limit = _number(headers.get(f"{_PREFIX}{resource}-limit"))
        left = _number(headers.get(f"{_PREFIX}{resource}-remaining"))
        if limit and left is not None:
            yield min(max(1 - left / limit, 0.0), 1.0), resource


def _status(word: str) -> Status:
    match word:
        case "allowed_warning" | "rejected":
            return word
        case _:
            return "allowed"


def _word(value: str | None) -> str | None:
    return value if value and _WORD.fullmatch(value) else None


def _number(value: str | None) -> float | None:
    return float(value) if value and _NUMBER.fullmatch(value) else None


def _time(value: str | None) -> int | None:
    """Read seconds since 1970, or a time of RFC 3339."""
    if (seconds := _number(value)) is not None:
        return math.ceil(seconds)
    try:
        at = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return math.ceil((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
