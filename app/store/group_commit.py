"""Group commit: appends of many sessions that come together share a statement and a commit.

An append of a single session costs a round trip, a statement of a third of a millisecond of the
server's time, and a flush of its log. With hundreds of running sessions on a host most of that can
be shared. Nothing waits for company: an append goes at once while fewer than `AT_ONCE` are under
way; what comes meanwhile goes together with the next.

A batch that ends a run, begins or tells of others, or takes prompts in goes alone: those are few,
and do more.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg

from app.domain.journal import Batch, ServiceEvent
from app.errors import LeaseLost
from app.store.append import append
from app.store.append_many import Stored, Write, append_many
from app.store.engine import GONE, Database
from app.store.leases import Lease
from app.store.rows import Row

log = logging.getLogger(__name__)

_Waiting: TypeAlias = tuple[Write, asyncio.Future[Stored | None]]

AT_ONCE = 2
"""Statements under way: one works while the other waits for its flush."""
MOST_WRITES = 50
MOST_CHARACTERS = 1_000_000
"""Of a group: its commit must not keep the others waiting for long."""


@dataclass(slots=True)
class GroupCommit:
    """The appends of one host."""

    database: Database
    _waiting: list[_Waiting] = field(default_factory=list)
    _under_way: int = 0
    _flushes: set[asyncio.Task[None]] = field(default_factory=set)

    async def append(
        self,
        lease: Lease,
        batch: Batch,
        *,
        first: Sequence[ServiceEvent] = (),
        on_mail: Callable[[], None] | None = None,
        keeps_session: bool = False,
        is_beside: bool = False,
    ) -> list[Row]:
        """Store a batch under the fence, as `append` does and with its errors.

        When the database fails, whether any of a group was stored is unknown to all of its callers.
        """
        if batch.outcome is not None or batch.consumed or batch.launches or batch.told:
            return await append(
                self.database,
                lease,
                batch,
                first=first,
                on_mail=on_mail,
                keeps_session=keeps_session,
                is_beside=is_beside,
            )
        if self._under_way < AT_ONCE and not self._waiting:
            self._under_way += 1
            try:
                return await append(self.database, lease, batch, first=first, on_mail=on_mail)
            finally:
                self._ended()
        write = Write.of(lease, batch, first)
        answer: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, answer))
        stored = await answer
        if stored is None:
            raise LeaseLost(
                f"session {lease.session_id} has another owner than epoch {lease.epoch}"
            )
        if stored.has_mail and on_mail:
            on_mail()
        return stored.rows

    def _ended(self) -> None:
        self._under_way -= 1
        while self._waiting and self._under_way < AT_ONCE:
            self._under_way += 1
            task = asyncio.create_task(self._flush(self._next_group()))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    def _next_group(self) -> list[_Waiting]:
        """Take what waits, the oldest first; of one session only one write."""
        group: dict[tuple[str, str], _Waiting] = {}
        left: list[_Waiting] = []
        size = 0
        for write, answer in self._waiting:
            size += write.size
            is_full = len(group) == MOST_WRITES or (group and size > MOST_CHARACTERS)
            if is_full or write.session in group:
                left.append((write, answer))
            else:
                group[write.session] = (write, answer)
        self._waiting = left
        return list(group.values())

    async def _flush(self, group: Sequence[_Waiting]) -> None:
        try:
            stored = await append_many(self.database, [write for write, _ in group])
            for (_, answer), each in zip(group, stored, strict=True):
                _answer(answer, each)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are told
            if _is_unstored(error) and len(group) > 1:
                await self._one_by_one(group)
            else:
                for _, answer in group:
                    _answer(answer, error)
        finally:
            for _, answer in group:
                answer.cancel()  # only when we are cancelled is one left without an answer
            self._ended()

    async def _one_by_one(self, group: Sequence[_Waiting]) -> None:
        """Append each on its own: one batch that the database refuses must not hold up the others."""
        log.warning("A group of %d appends was refused; each goes alone now", len(group))
        for write, answer in group:
            try:
                (stored,) = await append_many(self.database, [write])
                _answer(answer, stored)
            except Exception as error:  # noqa: BLE001 - as above
                _answer(answer, error)


def _answer(answer: asyncio.Future[Stored | None], given: Stored | Exception | None) -> None:
    if answer.done():
        return  # nobody waits any more
    if isinstance(given, Exception):
        answer.set_exception(given)
    else:
        answer.set_result(given)


def _is_unstored(error: Exception) -> bool:
    """Whether it is sure that nothing was stored: the statement was refused, or never sent."""
    # GONE has what leaves the outcome open; a rollback is among it, since it is worth another try.
    return isinstance(error, asyncpg.TransactionRollbackError) or not isinstance(error, GONE)
