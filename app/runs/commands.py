"""What clients can do: create sessions, send prompts, fork; change, remove and cancel runs.

Each command is one transaction; afterwards readers, owners and other hosts are told. With a `once`
a command has its effect at most once: repeated, it raises `Replayed`.
"""

import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.agent.effects import Stamps
from app.domain.options import AgentOptions
from app.errors import NotFound, ValidationFailed
from app.runs.busy import find_place
from app.runs.cancelling import Cancelled, Canceller, ManyCancelled
from app.runs.live import Hub
from app.runs.once import Once, guarded
from app.runs.opened import Opened, open_run
from app.runs.output_format import check_output_format
from app.runs.policy import Policy
from app.runs.telling import Accepted, Teller
from app.runs.wishes import (
    RunChange,
    RunChoice,
    RunWish,
    SessionWish,
    event_body,
    new_prompts,
    new_run,
)
from app.runs.worker import Worker
from app.runs.workspaces import WorkspaceRules
from app.store import journal, queue
from app.store.bus import Bus
from app.store.engine import Database
from app.store.inbox import steer
from app.store.journal import Lease
from app.store.keys import Caller
from app.store.ledger import spend_json, spend_of, spends
from app.store.queue import Enqueued, Host, NewRun
from app.store.runs import RunRow, Work, find_run
from app.store.sessions import NewSession, SessionRow, create_session, find_session, fork_session
from app.store.starting import QUEUED_SEQ, new_run_row, new_session_row, start_session
from app.store.waiting import Edit, edit_run

MOST_METADATA = 50


@dataclass(frozen=True, slots=True)
class Commands:
    """All writes of the API. `worker` is None on a host that only serves HTTP."""

    database: Database
    hub: Hub
    bus: Bus
    worker: Worker | None
    policy: Policy
    workspaces: WorkspaceRules
    stamps: Stamps
    queue_per_session: int

    # -- sessions -------------------------------------------------------------------------

    async def create_session(
        self, caller: Caller, wish: SessionWish, *, once: Once | None = None
    ) -> SessionRow:
        """Create a session without a run."""

        async def write(connection: AsyncConnection) -> SessionRow:
            self.policy.check(wish.options, allows_bypass=caller.allow_bypass)
            await check_output_format(wish.options)
            new = self._new_session(wish)
            await create_session(connection, caller.tenant_id, new)
            return await _session(connection, caller.tenant_id, new.id)

        return await guarded(self.database, once, write)

    async def fork(
        self,
        caller: Caller,
        session_id: str,
        *,
        at_message: str | None,
        title: str | None,
        new_id: str | None,
        once: Once | None = None,
    ) -> SessionRow:
        """Make a new session with the messages of another one, up to a message of it.

        The new session works in an empty workspace, or in the same folder of the host.
        """
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> SessionRow:
            parent = await _session(connection, tenant_id, session_id)
            before, _ = await spends(self.database, tenant_id, session_id, "")
            up_to = parent.last_seq
            if at_message is not None:
                up_to = await self._seq_of(tenant_id, session_id, at_message)
            new = self._forked(parent, title, new_id)
            await fork_session(
                connection,
                tenant_id,
                session_id,
                new,
                up_to_seq=up_to,
                inherited=spend_json(spend_of(parent.inherited).merged(before)),
                forked_body=event_body(new.id, "session.forked", {"parent_id": session_id}),
            )
            return await _session(connection, tenant_id, new.id)

        return await guarded(self.database, once, write)

    # -- prompts --------------------------------------------------------------------------

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
            if isinstance(session, SessionWish):
                accepted = await self._start_new(caller, session, wish, host, once)
            else:
                accepted = await guarded(
                    self.database,
                    once,
                    lambda connection: self._put(connection, caller, session, wish, host),
                )
            self._teller.accepted(caller.tenant_id, accepted)
        return accepted

    async def _start_new(
        self,
        caller: Caller,
        session: SessionWish,
        wish: RunWish,
        host: Host | None,
        once: Once | None,
    ) -> Accepted:
        async def write(connection: AsyncConnection | None) -> Accepted:
            new = self._new_session(session)
            options = await self._effective(caller, wish.options.over(session.options))
            run = new_run(new.id, options, wish)
            opened = self._opened(caller, new, run)
            started = await start_session(
                self.database,
                caller.tenant_id,
                new,
                run,
                host=host,
                opening=opened.rows if opened else (),
                within=connection,
            )
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

        # Without a key one statement does it all, in a transaction of its own.
        return await (write(None) if once is None else guarded(self.database, once, write))

    def _opened(self, caller: Caller, session: NewSession, run: NewRun) -> Opened | None:
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
        )
        return open_run(self.worker.parts, lease, work, run.prompts)

    async def _put(
        self,
        connection: AsyncConnection,
        caller: Caller,
        session_id: str,
        wish: RunWish,
        host: Host | None,
    ) -> Accepted:
        tenant_id = caller.tenant_id
        found = await _session(connection, tenant_id, session_id)
        options = await self._effective(caller, wish.options.over(_options(found.options)))
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
            enqueued = await queue.enqueue(
                connection,
                tenant_id,
                session_id,
                run,
                queue_limit=self.queue_per_session,
                host=host,
                is_next=place.is_next,
            )
        return Accepted(
            await _run(connection, tenant_id, run_id),
            await _session(connection, tenant_id, session_id),
            enqueued,
            place.superseded,
        )

    # -- runs that wait or go on ----------------------------------------------------------

    async def change(
        self, caller: Caller, run_id: str, change: RunChange, *, once: Once | None = None
    ) -> RunRow:
        """Change a run that has not begun. Raises `RunAlreadyStarted`."""
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> RunRow:
            run = await self._canceller(caller).waiting_run(connection, run_id)
            options = await self._effective(caller, change.options.over(_options(run.options)))
            edit = Edit(
                options.stored(),
                _merged(run.metadata, change.metadata or {}),
                run.priority if change.priority is None else change.priority,
                None if change.prompts is None else new_prompts(change.prompts, steers=False),
            )
            await edit_run(connection, tenant_id, run.session_id, run_id, edit)
            return await _run(connection, tenant_id, run_id)

        return await guarded(self.database, once, write)

    async def remove(self, caller: Caller, run_id: str, *, once: Once | None = None) -> RunRow:
        """Take a run that has not begun out of the queue. Raises `RunAlreadyStarted`."""
        canceller = self._canceller(caller)
        run = await guarded(
            self.database, once, lambda connection: canceller.remove(connection, run_id)
        )
        self._teller.cancelled(caller.tenant_id, Cancelled(run, is_already_finished=False))
        return run

    async def cancel(
        self, caller: Caller, run_id: str, *, reason: str | None, once: Once | None = None
    ) -> Cancelled:
        """Cancel a run, wherever it is. Repeating it, or cancelling a finished run, is fine."""
        canceller = self._canceller(caller)
        cancelled = await guarded(
            self.database, once, lambda connection: canceller.one(connection, run_id, reason=reason)
        )
        self._teller.cancelled(caller.tenant_id, cancelled)
        return cancelled

    async def cancel_many(
        self, caller: Caller, choice: RunChoice, *, reason: str | None, once: Once | None = None
    ) -> ManyCancelled:
        """Cancel several runs at once."""
        canceller = self._canceller(caller)
        done = await guarded(
            self.database,
            once,
            lambda connection: canceller.many(connection, choice, reason=reason),
        )
        for cancelled in done.runs:
            self._teller.cancelled(caller.tenant_id, cancelled)
        return done

    # -- parts ----------------------------------------------------------------------------

    @property
    def _teller(self) -> Teller:
        return Teller(self.hub, self.bus, self.worker)

    def _canceller(self, caller: Caller) -> Canceller:
        return Canceller(self.database, self.stamps, caller.tenant_id)

    async def _effective(self, caller: Caller, options: AgentOptions) -> AgentOptions:
        await check_output_format(options)
        return self.policy.effective(
            options, allows_bypass=caller.allow_bypass, now=datetime.now(UTC)
        )

    def _forked(self, parent: SessionRow, title: str | None, new_id: str | None) -> NewSession:
        wish = SessionWish(new_id, title or parent.title, _options(parent.options))
        new = self._new_session(wish)
        workspace = dict(parent.workspace) | {"token": new.workspace["token"]}
        return NewSession(
            new.id, new.title, parent.options, workspace, parent.metadata, new.created_body
        )

    async def _seq_of(self, tenant_id: str, session_id: str, message_uuid: str) -> int:
        seq = await journal.seq_of(self.database, tenant_id, session_id, message_uuid)
        if seq is None:
            raise ValidationFailed(
                "The session has no such message.",
                errors=[
                    {"pointer": "/at_message", "code": "unknown", "message": "no such message"}
                ],
            )
        return seq

    def _new_session(self, wish: SessionWish) -> NewSession:
        session_id = wish.id or str(uuid.uuid4())
        return NewSession(
            session_id,
            wish.title,
            wish.options.stored(),
            self.workspaces.place(wish.workspace),
            wish.metadata or {},
            event_body(session_id, "session.created", {}),
        )


def _options(stored: Mapping[str, Any]) -> AgentOptions:
    return AgentOptions.model_validate(dict(stored))


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {k: v for k, v in {**old, **changes}.items() if v is not None}
    if len(merged) > MOST_METADATA:
        raise ValidationFailed(
            f"A run has {MOST_METADATA} names of metadata at the most.",
            errors=[{"pointer": "/metadata", "code": "too_long", "message": "too many names"}],
        )
    return merged


async def _session(connection: AsyncConnection, tenant_id: str, session_id: str) -> SessionRow:
    row = await find_session(connection, tenant_id, session_id)
    if row is None:
        raise NotFound("There is no such session.")
    return row


async def _run(connection: AsyncConnection, tenant_id: str, run_id: str) -> RunRow:
    row = await find_run(connection, tenant_id, run_id)
    if row is None:
        raise NotFound("There is no such run.")
    return row
