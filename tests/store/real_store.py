"""The real store behind the protocol of the engine's contract."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.domain.journal import Batch, ServiceEvent
from app.domain.messages import Prompt
from app.domain.results import ErrorResult
from app.domain.usage import Spend
from app.runs.busy import find_place
from app.store import cancels, claims, inbox, journal, queue
from app.store.append import append
from app.store.claims import Claim
from app.store.engine import Database
from app.store.follow_up import FollowUp, follow_up
from app.store.inbox import steer
from app.store.keys import ensure_tenant
from app.store.leases import Host, Lease, release, renew
from app.store.ledger import spends
from app.store.queue import Enqueued, NewRun
from app.store.rows import Row
from app.store.runs import Work, work_of
from app.store.sessions import NewSession, create_session
from app.store.starting import Started, start_session
from tests.contracts.engine_seam import TENANTS, RunView, SessionView
from tests.store.seeds import dump, opened, rows


@dataclass(frozen=True, slots=True)
class RealStore:
    """Each call is a transaction, as the service makes them."""

    database: Database
    _time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def create_session(self, tenant_id: str, session: NewSession) -> None:
        async with self.database.begin() as connection:
            await create_session(connection, tenant_id, session)

    async def start_session(
        self, tenant_id: str, session: NewSession, run: NewRun, *, host: Host | None
    ) -> Started:
        return await start_session(self.database, tenant_id, session, run, host=host)

    async def enqueue(
        self,
        tenant_id: str,
        session_id: str,
        run: NewRun,
        *,
        queue_limit: int,
        host: Host | None,
        is_next: bool = False,
    ) -> Enqueued:
        async with self.database.begin() as connection:
            return await queue.enqueue(
                connection,
                tenant_id,
                session_id,
                run,
                queue_limit=queue_limit,
                host=host,
                is_next=is_next,
            )

    async def steer(self, tenant_id: str, session_id: str, prompts: Sequence[Prompt]) -> str | None:
        async with self.database.begin() as connection:
            place = await find_place(connection, tenant_id, session_id, "steer", queue_limit=1000)
            run_id = place.steered_into
            if run_id is not None:
                await steer(connection, tenant_id, session_id, run_id, prompts)
            return run_id

    async def claim(self, host: Host) -> Claim | None:
        return await claims.claim(self.database, host)

    async def claim_many(self, host: Host, most: int) -> list[Claim]:
        return await claims.claim_many(self.database, host, most)

    async def renew(self, host: Host, leases: Sequence[Lease]) -> dict[Lease, bool]:
        return await renew(self.database, host, leases)

    async def release(self, lease: Lease) -> None:
        await release(self.database, lease)

    async def append(
        self,
        lease: Lease,
        batch: Batch,
        *,
        first: Sequence[ServiceEvent] = (),
        keeps_session: bool = False,
    ) -> list[Row]:
        return await append(self.database, lease, batch, first=first, keeps_session=keeps_session)

    async def follow_up(self, host: Host, kept: Lease, *, may_claim: bool) -> FollowUp | None:
        return await follow_up(self.database, host, kept, {}, may_claim=may_claim)

    async def request_cancel(
        self,
        tenant_id: str,
        run_id: str,
        reason: str | None,
        *,
        end_reason: Any = "cancelled",
        spares_tasks: bool = False,
    ) -> int | None:
        async with self.database.begin() as connection:
            return await cancels.request_cancel(
                connection,
                tenant_id,
                run_id,
                reason,
                end_reason=end_reason,
                spares_tasks=spares_tasks,
            )

    async def cancel_asked(self, lease: Lease) -> cancels.CancelAsked:
        return await cancels.cancel_asked(self.database, lease)

    async def finish_unstarted(
        self,
        tenant_id: str,
        run_id: str,
        *,
        result: ErrorResult,
        end_reason: Any,
        finished_body: str,
    ) -> int | None:
        async with self.database.begin() as connection:
            return await cancels.finish_unstarted(
                connection,
                tenant_id,
                run_id,
                result=result,
                end_reason=end_reason,
                finished_body=finished_body,
            )

    async def waiting_prompts(self, lease: Lease) -> list[Prompt]:
        return await inbox.waiting_prompts(self.database, lease)

    async def work_of(self, tenant_id: str, run_id: str) -> Work:
        return await work_of(self.database, tenant_id, run_id)

    async def read(self, tenant_id: str, session_id: str) -> list[Row]:
        return await journal.read(self.database, tenant_id, session_id)

    async def history(
        self, tenant_id: str, session_id: str
    ) -> list[tuple[str | None, str, str | None]]:
        return [row async for row in journal.history(self.database, tenant_id, session_id)]

    async def spends(self, tenant_id: str, session_id: str, run_id: str) -> tuple[Spend, Spend]:
        return await spends(self.database, tenant_id, session_id, run_id)

    async def run(self, tenant_id: str, run_id: str) -> RunView:
        (row,) = await rows(
            self.database,
            """SELECT status, attempt, stalled_attempts, end_reason, last_seq, cost_usd,
                 cancel_requested_at IS NOT NULL AS is_cancelled
               FROM runs WHERE tenant_id = $1 AND id = $2""",
            tenant_id,
            run_id,
        )
        return RunView(**row)

    async def session(self, tenant_id: str, session_id: str) -> SessionView:
        (row,) = await rows(
            self.database,
            """SELECT epoch, owner, coalesce(lease_expires_at > clock_timestamp(), false) AS is_live,
                 last_seq, num_runs, pending_steers, cost_usd
               FROM sessions WHERE tenant_id = $1 AND id = $2""",
            tenant_id,
            session_id,
        )
        return SessionView(**row)

    async def dump(self) -> Any:
        return await dump(self.database)

    async def pass_time(self, seconds: float) -> None:
        """The server's clock cannot be moved, so what it is compared with is.

        One at a time: two would lock all rows, each in an order of its own.
        """
        async with self._time:
            await self._pass_time(seconds)

    async def _pass_time(self, seconds: float) -> None:
        await self.database.raw.execute(
            f"""UPDATE runs SET deadline_at = deadline_at - make_interval(secs => {seconds}),
                  started_at = started_at - make_interval(secs => {seconds})"""  # noqa: S608
        )
        await self.database.raw.execute(
            f"""UPDATE sessions
                SET lease_expires_at = lease_expires_at - make_interval(secs => {seconds})"""  # noqa: S608
        )


@asynccontextmanager
async def real_store(database_url: str) -> AsyncIterator[RealStore]:
    """A store with the contract's tenants in a fresh database."""
    async with opened(database_url) as database:
        async with database.begin() as connection:
            for tenant in TENANTS:
                await ensure_tenant(connection, tenant, allow_bypass=False)
        yield RealStore(database)
