"""Headers about rate limits: two families, and whatever a gateway makes of them."""

import httpx
import pytest

from app.domain.notices import RateLimitInfo
from app.providers.rate_limits import rate_limit_of

RESET = "2026-11-30T12:00:00Z"
RESETS_AT = 1_796_040_000


def of_key(**left: tuple[int, int]) -> dict[str, str]:
    """Headers that say how much is left of how much."""
    headers: dict[str, str] = {}
    for resource, (remaining, limit) in left.items():
        name = f"anthropic-ratelimit-{resource.replace('_', '-')}"
        headers |= {
            f"{name}-limit": str(limit),
            f"{name}-remaining": str(remaining),
            f"{name}-reset": RESET,
        }
    return headers


def read(headers: dict[str, str], *, was_refused: bool = False) -> RateLimitInfo | None:
    return rate_limit_of(httpx.Headers(headers), was_refused=was_refused)


@pytest.mark.requirement("wire:rate-limit")
@pytest.mark.parametrize(
    ("left", "status", "used", "resource"),
    [
        ({"requests": (40, 50)}, "allowed", 0.2, "requests"),
        (
            {"requests": (40, 50), "input_tokens": (100, 1000)},
            "allowed_warning",
            0.9,
            "input_tokens",
        ),
        ({"tokens": (200, 1000), "requests": (50, 50)}, "allowed_warning", 0.8, "tokens"),
        ({"output_tokens": (2000, 1000)}, "allowed", 0.0, "output_tokens"),
    ],
)
def test_the_limit_of_a_key_that_binds_most_is_told(
    left: dict[str, tuple[int, int]], status: str, used: float, resource: str
) -> None:
    info = read(of_key(**left))
    assert info == RateLimitInfo.model_validate(
        {"status": status, "resetsAt": RESETS_AT, "utilization": used, "resource": resource}
    )


@pytest.mark.requirement("wire:rate-limit")
def test_a_refusal_is_one_whatever_the_figures_say() -> None:
    info = read(of_key(requests=(1, 50)), was_refused=True)
    assert info is not None
    assert (info.status, info.resource) == ("rejected", "requests")


@pytest.mark.requirement("wire:rate-limit")
def test_a_subscription_says_itself_how_it_stands() -> None:
    headers = {
        "anthropic-ratelimit-unified-status": "allowed_warning",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-5h-utilization": "0.91",
        "anthropic-ratelimit-unified-reset": "1796040000",
        "anthropic-ratelimit-unified-overage-status": "rejected",
        "anthropic-ratelimit-unified-overage-disabled-reason": "org_level_disabled",
    }
    said = {
        "status": "allowed_warning",
        "resetsAt": RESETS_AT,
        "rateLimitType": "five_hour",
        "utilization": 0.91,
        "overageStatus": "rejected",
        "overageDisabledReason": "org_level_disabled",
    }
    assert read(headers) == RateLimitInfo.model_validate(said)
    assert read(headers, was_refused=True) == RateLimitInfo.model_validate(
        {**said, "status": "rejected"}
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"retry-after": "1"},
        {"anthropic-ratelimit-requests-limit": "50"},
        {"anthropic-ratelimit-requests-limit": "0", "anthropic-ratelimit-requests-remaining": "0"},
        {"anthropic-ratelimit-tokens-limit": "nan", "anthropic-ratelimit-tokens-remaining": "-1"},
        {"anthropic-ratelimit-unified-status": "sideways"},
    ],
)
def test_headers_that_say_nothing_of_use_are_passed_over(headers: dict[str, str]) -> None:
    assert read(headers) is None
    assert read(headers, was_refused=True) is None


def test_what_makes_no_sense_is_left_out_and_the_rest_is_told() -> None:
    headers = {
        "anthropic-ratelimit-unified-status": "allowed",
        "anthropic-ratelimit-unified-representative-claim": "<b>" * 99,
        "anthropic-ratelimit-unified-reset": "tomorrow",
    }
    assert read(headers) == RateLimitInfo(status="allowed")
