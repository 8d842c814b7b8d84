"""A write that may be repeated: at most one effect, one answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import IdempotencyInProgress, IdempotencyMismatch
from app.store import idempotency
from app.store.engine import Database
from app.store.idempotency import Answer as Answer

T = TypeVar("T")


class Replayed(Exception):
    """The write was made before; this is what it was answered with."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("replayed")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Once:
    """Guards one write. `begin` and `end` run inside the write's own transaction."""

    tenant_id: str
    key: str
    sha256: bytes
    """Of method, path and body."""
    render: Callable[[Any], Answer]
    """Makes the answer of what the write gives."""

    async def begin(self, connection: AsyncConnection) -> None:
        """Claim the key.

        Raises `Replayed`, `IdempotencyMismatch` for another request, `IdempotencyInProgress`
        while the first one is being served.
        """
        try:
            kept = await idempotency.begin(connection, self.tenant_id, self.key, self.sha256)
        except idempotency.InProgress:
            raise IdempotencyInProgress(
                "A request with this Idempotency-Key is being served. Ask again for its answer.",
                retry_after_s=1,
            ) from None
        if kept is None:
            return
        if kept.sha256 != self.sha256:
            raise IdempotencyMismatch(
                "This Idempotency-Key was used for another request. Use a new key."
            )
        raise Replayed(kept.answer)

    async def end(self, connection: AsyncConnection, outcome: object) -> None:
        """Keep the answer."""
        await idempotency.keep(connection, self.tenant_id, self.key, self.render(outcome))


async def guarded(
    database: Database, once: Once | None, write: Callable[[AsyncConnection], Awaitable[T]]
) -> T:
    """Do `write` in a transaction that commits before this returns; with a key, at most once.

    Raises `Replayed` when it was done before. A write that raises keeps nothing.
    """
    async with database.begin() as connection:
        if once is not None:
            await once.begin(connection)
        outcome = await write(connection)
        if once is not None:
            await once.end(connection, outcome)
    return outcome
