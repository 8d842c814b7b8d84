"""What a prompt meets in its session, and what is done about it (ADR 10)."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import QueueFull, SessionBusy
from app.runs.wishes import OnBusy
from app.store.cancels import request_cancel
from app.store.waiting import First, hold_session

SUPERSEDED = "Another prompt took its place."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a prompt goes."""

    steered_into: str | None = None
    """The run that takes it in; else it makes a run of its own."""
    is_next: bool = False
    """Whether its run comes before those that wait."""
    superseded: str | None = None
    """The run whose cancel was asked for."""


async def find_place(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    on_busy: OnBusy,
    *,
    queue_limit: int,
) -> Place:
    """Find the place of a prompt, and make room for it.

    The session stays locked until the transaction ends. Raises `NotFound`, `SessionBusy`,
    `QueueFull`.
    """
    if on_busy == "queue":
        return Place()
    held = await hold_session(connection, tenant_id, session_id)
    if held.first is None:
        return Place()
    if on_busy == "reject":
        raise _busy(held.first)
    if on_busy == "interrupt":
        return await _interrupt(connection, tenant_id, held.first)
    if not (held.is_live and held.first.has_begun) or held.first.is_cancelled:
        return Place()
    if held.pending_steers >= queue_limit:
        raise QueueFull(f"{queue_limit} prompts wait for this run already.", retry_after_s=5)
    return Place(steered_into=held.first.run_id)


async def _interrupt(connection: AsyncConnection, tenant_id: str, first: First) -> Place:
    if not first.has_begun:
        return Place(is_next=True)
    await request_cancel(
        connection,
        tenant_id,
        first.run_id,
        SUPERSEDED,
        end_reason="superseded",
        spares_tasks=True,
    )
    return Place(is_next=True, superseded=first.run_id)


def _busy(first: First) -> SessionBusy:
    state = "is running" if first.has_begun else "waits"
    return SessionBusy(
        f"Run {first.run_id} {state}. Use on_busy=queue, or cancel it.",
        context={"active_run_id": first.run_id},
    )
