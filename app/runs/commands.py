"""What clients can do: create sessions, send prompts, fork, cancel.

Each command is one transaction; afterwards readers and other hosts are told.
"""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ulid import ULID

from app.agent.effects import Stamps
from app.agent.finish_step import abandoned
from app.agent.state import LoopState, RunInfo
from app.domain.journal import ServiceEvent
from app.domain.messages import Prompt, ResultMessage
from app.domain.options import AgentOptions
from app.errors import NotFound, ValidationFailed
from app.runs.live import Hub
from app.runs.policy import Policy
from app.runs.worker import Worker
from app.runs.workspaces import WorkspaceRules, WorkspaceSource
from app.store import journal, queue
from app.store.bus import Bus, CancelAsked, WorkWaiting
from app.store.engine import Database
from app.store.journal import Lease, service_body
from app.store.keys import Caller
from app.store.ledger import spend_json, spend_of, spends
from app.store.queue import Claim, Enqueued, Host, NewRun
from app.store.runs import RunRow, Work, find_run
from app.store.sessions import NewSession, SessionRow, create_session, find_session, fork_session
from app.store.starting import QUEUED_SEQ, new_run_row, new_session_row, start_session


@dataclass(frozen=True, slots=True)
class SessionWish:
    """What a client says of a new session."""

    id: str | None = None
    title: str | None = None
    options: AgentOptions = AgentOptions()
    workspace: WorkspaceSource = WorkspaceSource()
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PromptWish:
    """One user message that a client sends."""

    content: str | list[dict[str, Any]]
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class RunWish:
    """What a client says of a new run."""

    prompts: Sequence[PromptWish]
    options: AgentOptions = AgentOptions()
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel did."""

    run: RunRow
    is_already_finished: bool


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

    async def create_session(self, caller: Caller, wish: SessionWish) -> SessionRow:
        """Create a session without a run."""
        self.policy.check(wish.options, allows_bypass=caller.allow_bypass)
        new = self._new_session(wish)
        async with self.database.begin() as connection:
            await create_session(connection, caller.tenant_id, new)
            row = await find_session(connection, caller.tenant_id, new.id)
        if row is None:
            raise RuntimeError("a session is gone in the transaction that made it")
        return row

    async def start(
        self, caller: Caller, session: SessionWish | str, wish: RunWish
    ) -> tuple[RunRow, SessionRow]:
        """Put a run into a new session, or into the session of the given id.

        Committed when this returns: the run survives whatever happens next. A host with a free
        slot has claimed it on the spot when nothing older waits.
        """
        with self.worker.slot() if self.worker else nullcontext() as host:
            if isinstance(session, SessionWish):
                return await self._start_new(caller, session, wish, host)
            return await self._start_in(caller, session, wish, host)

    async def _start_new(
        self, caller: Caller, session: SessionWish, wish: RunWish, host: Host | None
    ) -> tuple[RunRow, SessionRow]:
        new = self._new_session(session)
        options = self._effective(caller, wish.options.over(session.options))
        run = _new_run(new.id, options, wish)
        started = await start_session(self.database, caller.tenant_id, new, run, host=host)
        claim = None
        if started.epoch is not None:
            lease = Lease(caller.tenant_id, new.id, run.id, started.epoch)
            work = Work(run.options, new.workspace, None, 0, caller.allow_bypass)
            claim = Claim(
                lease, 1, 0, QUEUED_SEQ, is_new_session=True, work=work, prompts=run.prompts
            )
        self._enqueued(caller.tenant_id, new.id, Enqueued(QUEUED_SEQ, 0, claim))
        worker = host.id if host and claim else None
        return new_run_row(run, new.id, started, worker), new_session_row(new, run.id, started)

    async def _start_in(
        self, caller: Caller, session_id: str, wish: RunWish, host: Host | None
    ) -> tuple[RunRow, SessionRow]:
        async with self.database.begin() as connection:
            found = await find_session(connection, caller.tenant_id, session_id)
            if found is None:
                raise NotFound("There is no such session.")
            options = self._effective(caller, wish.options.over(_options(found.options)))
            run = _new_run(session_id, options, wish)
            enqueued = await queue.enqueue(
                connection,
                caller.tenant_id,
                session_id,
                run,
                queue_limit=self.queue_per_session,
                host=host,
            )
            run_row = await find_run(connection, caller.tenant_id, run.id)
            session_row = await find_session(connection, caller.tenant_id, session_id)
        if run_row is None or session_row is None:
            raise RuntimeError("a run is gone in the transaction that made it")
        self._enqueued(caller.tenant_id, session_id, enqueued)
        return run_row, session_row

    def _effective(self, caller: Caller, options: AgentOptions) -> AgentOptions:
        return self.policy.effective(
            options, allows_bypass=caller.allow_bypass, now=datetime.now(UTC)
        )

    async def fork(
        self,
        caller: Caller,
        session_id: str,
        *,
        at_message: str | None,
        title: str | None,
        new_id: str | None,
    ) -> SessionRow:
        """Make a new session with the messages of another one, up to a message of it.

        The new session works in an empty workspace, or in the same folder of the host.
        """
        tenant_id = caller.tenant_id
        before, _ = await spends(self.database, tenant_id, session_id, "")
        async with self.database.begin() as connection:
            parent = await find_session(connection, tenant_id, session_id)
            if parent is None:
                raise NotFound("There is no such session.")
            up_to = parent.last_seq
            if at_message is not None:
                up_to = await self._seq_of(tenant_id, session_id, at_message)
            wish = SessionWish(new_id, title or parent.title, _options(parent.options))
            new = self._new_session(wish)
            workspace = dict(parent.workspace) | {"token": new.workspace["token"]}
            new = NewSession(
                new.id, new.title, parent.options, workspace, parent.metadata, new.created_body
            )
            await fork_session(
                connection,
                tenant_id,
                session_id,
                new,
                up_to_seq=up_to,
                inherited=spend_json(spend_of(parent.inherited).merged(before)),
                forked_body=_event(new.id, "session.forked", {"parent_id": session_id}),
            )
            row = await find_session(connection, tenant_id, new.id)
        if row is None:
            raise RuntimeError("a session is gone in the transaction that made it")
        return row

    async def cancel(self, caller: Caller, run_id: str, *, reason: str | None) -> Cancelled:
        """Cancel a run, wherever it is. Repeating it, or cancelling a finished run, is fine."""
        tenant_id = caller.tenant_id
        seq: int | None = None
        async with self.database.begin() as connection:
            run = await find_run(connection, tenant_id, run_id)
            if run is None:
                raise NotFound("There is no such run.")
            if run.status == "finished":
                return Cancelled(run, is_already_finished=True)
            await queue.request_cancel(connection, tenant_id, run_id, reason)
            if run.status == "queued":
                seq = await self._end_unstarted(connection, tenant_id, run)
            run = await find_run(connection, tenant_id, run_id)
        if run is None:
            raise NotFound("There is no such run.")
        if seq is not None:
            self.hub.grew(tenant_id, run.session_id, seq)
        elif self.worker is None or not self.worker.cancel(run_id):
            self.bus.say(CancelAsked(run_id))
        return Cancelled(run, is_already_finished=False)

    async def _end_unstarted(self, connection: Any, tenant_id: str, run: RunRow) -> int | None:  # noqa: ANN401 - a connection, which only the store knows
        session = await find_session(connection, tenant_id, run.session_id)
        before, _ = await spends(self.database, tenant_id, run.session_id, run.id)
        inherited = spend_of(session.inherited if session else None)
        info = RunInfo(run.session_id, run.id, AgentOptions.model_validate(dict(run.options)))
        state = LoopState(info, spent_before=inherited.merged(before))
        batch = abandoned(
            state, self.stamps, end_reason="cancelled", why="The run was cancelled before it began."
        )
        message = batch.entries[-1].message
        if not isinstance(message, ResultMessage):
            raise TypeError("the last message of a run is its result")
        return await queue.finish_unstarted(
            connection,
            tenant_id,
            run.id,
            result=message.model_copy(update={"duration_ms": 0}),
            end_reason="cancelled",
            finished_body=_event(
                run.session_id,
                "run.finished",
                {"result_subtype": message.subtype, "end_reason": "cancelled"},
                run_id=run.id,
            ),
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
            _event(session_id, "session.created", {}),
        )

    def _enqueued(self, tenant_id: str, session_id: str, enqueued: Enqueued) -> None:
        self.hub.grew(tenant_id, session_id, enqueued.queued_seq)
        if enqueued.claim is not None and self.worker is not None:
            self.worker.start(enqueued.claim)
            return
        self.bus.say(WorkWaiting())
        if self.worker is not None:
            self.worker.wake()


def _options(stored: Mapping[str, Any]) -> AgentOptions:
    return AgentOptions.model_validate(dict(stored))


def _new_run(session_id: str, options: AgentOptions, wish: RunWish) -> NewRun:
    run_id = f"run_{ULID()}"
    prompts = [
        Prompt(f"in_{ULID()}", p.uuid or str(uuid.uuid4()), p.content, p.uuid is not None)
        for p in wish.prompts
    ]
    queued = _event(session_id, "run.queued", {}, run_id=run_id)
    return NewRun(run_id, options.stored(), prompts, wish.metadata or {}, queued)


def _event(
    session_id: str, kind: str, data: Mapping[str, Any], *, run_id: str | None = None
) -> str:
    return service_body(ServiceEvent(kind, data), session_id, run_id, datetime.now(UTC))
