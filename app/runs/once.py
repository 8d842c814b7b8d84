"""A write that may be repeated: at most one effect, one answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import IdempotencyMismatch
from app.store import idempotency


class Replayed(Exception):
    """The write was made before; this is what it was answered with."""

    def __init__(self, status: int, body: str, run_id: str | None) -> None:
        super().__init__("replayed")
        self.status = status
        self.body = body
        self.run_id = run_id


@dataclass(frozen=True, slots=True)
class Once:
    """Guards one write. `begin` and `end` run inside the write's own transaction."""

    tenant_id: str
    key: str
    sha256: bytes
    """Of method, path and body."""
    render: Callable[[Any], tuple[int, str, str | None]]
    """Makes `(status, body, run id)` of what the write gives."""

    async def begin(self, connection: AsyncConnection) -> None:
        """Claim the key. Raises `Replayed`, or `IdempotencyMismatch` for another request."""
        kept = await idempotency.begin(connection, self.tenant_id, self.key, self.sha256)
        if kept is None:
            return
        if kept.sha256 != self.sha256:
            raise IdempotencyMismatch(
                "This Idempotency-Key was used for another request. Use a new key."
            )
        raise Replayed(kept.status, kept.body, kept.run_id)

    async def end(self, connection: AsyncConnection, outcome: object) -> None:
        """Keep the answer."""
        status, body, run_id = self.render(outcome)
        await idempotency.keep(
            connection, self.tenant_id, self.key, status=status, body=body, run_id=run_id
        )
