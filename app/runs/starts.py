"""How runs begin: a prompt in a new session or in one that is there, and a failed run tried again.

Each is one transaction. A host with a free slot claims the run on the spot when nothing older waits.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.options import AgentOptions
from app.errors import NotFound
from app.runs.busy import find_place
from app.runs.ends import rewind
from app.runs.once import Once, guarded
from app.runs.opened import Opened, open_run
from app.runs.policy import Policy
from app.runs.retrying import find_again
from app.runs.schemas import check_schemas
from app.runs.skills import KnownSkills
from app.runs.telling import Accepted, Teller
from app.runs.wishes import RetryWish, RunWish, SessionWish, new_prompts, new_run, new_session
from app.runs.worker import Worker
from app.runs.workspaces import WorkspaceRules, workspace_key
from app.store import queue
from app.store.engine import Database
from app.store.inbox import steer
from app.store.keys import Caller
from app.store.leases import Host, Lease
from app.store.queue import Enqueued, NewRun
from app.store.runs import RunRow, Work, find_run
from app.store.session_lists import newest_session
from app.store.sessions import NewSession, options_of_session, session_of
from app.store.starting import QUEUED_SEQ, new_run_row, new_session_row, start_session


@dataclass(frozen=True, slots=True)
class Starts:
    """All that begins runs. `worker` is None on a host that only serves HTTP."""

    database: Database
    worker: Worker | None
    policy: Policy
    workspaces: WorkspaceRules
    queue_per_session: int
    teller: Teller
    skills: KnownSkills

    async def start(
        self,
        caller: Caller,
        session: SessionWish | str,
        wish: RunWish,
        *,
        once: Once | None = None,
    ) -> Accepted:
        """Send prompts into a new session, or into the session of the given id.

        Committed when this returns: they survive whatever happens next. A host with a free slot
        has claimed the run on the spot when nothing older waits.
        """
        with self.worker.slot() if self.worker else nullcontext() as host:
            if isinstance(session, SessionWish) and session.is_continuation:
                going_on = session
                accepted = await guarded(
                    self.database,
                    once,
                    lambda connection: self._go_on(connection, caller, going_on, wish, host),
                )
            elif isinstance(session, SessionWish):
                accepted = await self._start_new(caller, session, wish, host, once)
            else:
                accepted = await guarded(
                    self.database,
                    once,
                    lambda connection: self._put(connection, caller, session, wish, host),
                )
            self.teller.accepted(caller.tenant_id, accepted)
        return accepted

    async def _go_on(
        self,
        connection: AsyncConnection,
        caller: Caller,
        session: SessionWish,
        wish: RunWish,
        host: Host | None,
    ) -> Accepted:
        """Send prompts into the newest session of a user or a place; make one if there is none."""
        key = workspace_key(self.workspaces.place(session.workspace))
        newest = await newest_session(
            connection, caller.tenant_id, user=session.user, workspace_key=key
        )
        if newest is not None:
            return await self._put(connection, caller, newest, wish, host)
        return await self._begin(connection, caller, session, wish, host)

    async def _start_new(
        self,
        caller: Caller,
        session: SessionWish,
        wish: RunWish,
        host: Host | None,
        once: Once | None,
    ) -> Accepted:
        if once is None:  # one statement does it all, in a transaction of its own
            return await self._begin(None, caller, session, wish, host)
        return await guarded(
            self.database,
            once,
            lambda connection: self._begin(connection, caller, session, wish, host),
        )

    async def _begin(
        self,
        connection: AsyncConnection | None,
        caller: Caller,
        session: SessionWish,
        wish: RunWish,
        host: Host | None,
    ) -> Accepted:
        new = new_session(self.workspaces, session)
        options = await self.checked(caller, wish.options.over(session.options))
        run = new_run(new.id, options, wish)
        opened = await self._opened(caller, new, run) if host else None
        started = await start_session(
            self.database,
            caller.tenant_id,
            new,
            run,
            host=host,
            opening=opened.rows if opened else (),
            skills=opened.work.skills if opened else (),
            within=connection,
        )
        if started.epoch is None:  # perhaps because they are others by now
            self.skills.forget(caller.tenant_id)
        claim = None
        if started.epoch is not None and opened is not None:
            claim = opened.claim(Lease(caller.tenant_id, new.id, run.id, started.epoch))
        worker = host.id if host and claim else None
        return Accepted(
            new_run_row(run, new.id, started, worker),
            new_session_row(new, run.id, started),
            Enqueued(claim.last_seq if claim else QUEUED_SEQ, 0, claim),
            known=opened.known(run) if opened and claim else (),
        )

    async def _opened(self, caller: Caller, session: NewSession, run: NewRun) -> Opened | None:
        """Open a run beforehand, in case this host gets it. None where no runs are driven."""
        if self.worker is None:
            return None
        lease = Lease(caller.tenant_id, session.id, run.id, epoch=0)
        work = Work(
            run.options,
            session.workspace,
            None,
            0,
            caller.allow_bypass,
            run.deadline_s,
            run.recovery_policy,
            run.max_attempts,
            ceiling=caller.ceiling,
            skills=await self.skills.of(caller.tenant_id),
        )
        return await open_run(self.worker.parts, lease, work, run.prompts)

    async def _put(
        self,
        connection: AsyncConnection,
        caller: Caller,
        session_id: str,
        wish: RunWish,
        host: Host | None,
    ) -> Accepted:
        tenant_id = caller.tenant_id
        given = await options_of_session(connection, tenant_id, session_id)
        if given is None:
            raise NotFound("There is no such session.")
        options = await self.checked(caller, wish.options.over(options_of(given)))
        if wish.resume_at is not None:
            await rewind(connection, tenant_id, session_id, wish.resume_at, pointer="/resume_at")
        place = await find_place(
            connection, tenant_id, session_id, wish.on_busy, queue_limit=self.queue_per_session
        )
        enqueued = None
        if run_id := place.steered_into:
            prompts = new_prompts(wish.prompts, steers=True)
            await steer(connection, tenant_id, session_id, run_id, prompts)
        else:
            run = new_run(session_id, options, wish)
            run_id = run.id
            enqueued = await self._enqueue(
                connection, tenant_id, session_id, run, host, is_next=place.is_next
            )
        return Accepted(
            await run_of(connection, tenant_id, run_id),
            await session_of(connection, tenant_id, session_id),
            enqueued,
            place.superseded,
        )

    async def retry(
        self, caller: Caller, run_id: str, wish: RetryWish, *, once: Once | None = None
    ) -> Accepted:
        """Try a failed run again, as a run of its own.

        Raises `RunUnfinished`, `RunNotRetryable`, and `SessionBusy` for a session that has
        unfinished runs.
        """
        with self.worker.slot() if self.worker else nullcontext() as host:
            accepted = await guarded(
                self.database,
                once,
                lambda connection: self._retry(connection, caller, run_id, wish, host),
            )
            self.teller.accepted(caller.tenant_id, accepted)
        return accepted

    async def _retry(
        self,
        connection: AsyncConnection,
        caller: Caller,
        run_id: str,
        wish: RetryWish,
        host: Host | None,
    ) -> Accepted:
        tenant_id = caller.tenant_id
        again = await find_again(connection, tenant_id, run_id, wish)
        options = await self.checked(caller, wish.options.over(self.asked(again.failed)))
        session_id = again.failed.session_id
        run = new_run(session_id, options, again.wish)
        enqueued = await self._enqueue(connection, tenant_id, session_id, run, host)
        return Accepted(
            await run_of(connection, tenant_id, run.id),
            await session_of(connection, tenant_id, session_id),
            enqueued,
        )

    async def _enqueue(
        self,
        connection: AsyncConnection,
        tenant_id: str,
        session_id: str,
        run: NewRun,
        host: Host | None,
        *,
        is_next: bool = False,
    ) -> Enqueued:
        return await queue.enqueue(
            connection,
            tenant_id,
            session_id,
            run,
            queue_limit=self.queue_per_session,
            host=host,
            is_next=is_next,
        )

    # -- options --------------------------------------------------------------------------

    def asked(self, run: RunRow) -> AgentOptions:
        """Give what was asked for with a run, without what the operator's defaults filled in."""
        return self.policy.without_defaults(options_of(run.options))

    async def checked(self, caller: Caller, options: AgentOptions) -> AgentOptions:
        """Give the options that a run is made with. Raises a `RequestError` that names the field."""
        await check_schemas(options)
        return self.policy.effective(
            options,
            allows_bypass=caller.allow_bypass,
            ceiling=caller.ceiling,
            now=datetime.now(UTC),
        )


def options_of(stored: Mapping[str, Any]) -> AgentOptions:
    """Read stored options."""
    return AgentOptions.model_validate(dict(stored))


async def run_of(connection: AsyncConnection, tenant_id: str, run_id: str) -> RunRow:
    """Give a run. Raises `NotFound`."""
    row = await find_run(connection, tenant_id, run_id)
    if row is None:
        raise NotFound("There is no such run.")
    return row
