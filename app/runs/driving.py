"""What every attempt at a run has: whether it is made at all, and how its loop is waited for."""

import asyncio
from collections.abc import Callable

from app.errors import LeaseLost
from app.store.runs import Work


def why_given_up(
    work: Work, *, stalled_attempts: int, was_lost: bool, max_attempts: int
) -> str | None:
    """Say why a run is not driven once more, if so. `max_attempts` is the operator's."""
    limit = work.max_attempts or max_attempts
    if stalled_attempts >= limit:
        return f"{limit} hosts were lost with this run, each without progress."
    if was_lost and work.recovery_policy == "fail":
        return "The host of this run was lost, and its recovery policy says to fail then."
    return None


async def until_ended(
    loop: asyncio.Task[None], deadline_left_s: float | None, at_deadline: Callable[[], object]
) -> BaseException | None:
    """Wait for a loop, which ends with this call whatever happens. Raises `LeaseLost`.

    Gives the error that ended it, if one did; `at_deadline` is called when its time is over.
    """
    try:
        await asyncio.wait([loop], timeout=deadline_left_s)
        if not loop.done() and deadline_left_s is not None:
            at_deadline()
    finally:
        loop.cancel()
        (failed,) = await asyncio.gather(loop, return_exceptions=True)
    if isinstance(failed, LeaseLost):
        raise failed
    return failed
