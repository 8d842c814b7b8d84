"""Drive one claimed run: fold the journal, run the loop, store each batch, show it."""

import logging
import time
from dataclasses import dataclass, field, replace

from app.agent.broken_off import abandoned, interrupted
from app.agent.effects import Effects, Servers
from app.agent.hook_points import fire
from app.agent.result_batch import recounted
from app.agent.state import Advance, LoopState, RunInfo
from app.agent.steps import AwaitSubagents, next_step
from app.agent.suggest_step import closed_by_result, lost_suggestion
from app.agent.task_notes import ends_told
from app.domain.hooks import SessionEnd
from app.domain.journal import Batch, Entry
from app.domain.messages import WorkerShuttingDownMessage
from app.domain.runs import EndReason
from app.domain.usage import Spend
from app.errors import LeaseLost, NobodyAnswered, Parked, WorkspaceUnavailable
from app.runs.activity import watched
from app.runs.attempt import Attempt, Stop
from app.runs.background import Background
from app.runs.desk import Desk, WaitingRules
from app.runs.driving import why_given_up
from app.runs.inbox import StoredInbox
from app.runs.keeping import Keeper
from app.runs.live import Hub
from app.runs.loading import load, unread
from app.runs.ownership import Ownership
from app.runs.parts import Parts
from app.runs.run_tasks import RunTasks
from app.runs.writing import Writer, begun
from app.sandbox.process import uninterrupted
from app.store import actions, cancels
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Host, release, renew
from app.store.ledger import spend_of, spends
from app.store.runs import Work, work_of

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Execution:
    """One claimed run on this host."""

    claim: Claim
    host: Host
    database: Database
    hub: Hub
    parts: Parts
    appends: GroupCommit
    max_attempts: int
    background: Background
    """What goes on in the session's background. Commands end with the run, unless the session is
    kept; so do subagents, unless the session has another holder then."""
    keeper: Keeper | None = None
    """Keeps sessions between runs; None: what is in the background ends with its run."""
    waiting: WaitingRules = WaitingRules()
    ownership: Ownership = field(init=False)
    _writer: Writer = field(init=False)
    _inbox: StoredInbox = field(init=False)
    _desk: Desk = field(init=False)
    _attempt: Attempt = field(init=False)
    _tasks: RunTasks = field(init=False)
    _servers: Servers | None = None
    _options_mark: int | None = None
    """Of the options as they were at the last heartbeat."""

    def __post_init__(self) -> None:
        # The lease was taken a moment ago; a heartbeat will tell more.
        self.ownership = Ownership(self.host.lease_s / 2, self._renew, time.monotonic())
        first = () if self.claim.state else (begun(self.claim),)
        self._writer = Writer(
            *(self.database, self.claim.lease, self.appends, self.mail), self.claim.last_seq, first
        )
        self._inbox = StoredInbox(self.database, self.claim.lease, self.claim.prompts)
        self._desk = Desk(
            self.database,
            self.claim.lease,
            self.hub,
            self.waiting,
            self._writer.outlast,
            is_held=lambda: bool(self.background.running),
            may_have_asked=self.claim.attempt > 1,
        )
        self._tasks = RunTasks(self.claim, self.background, self.keeper, self._writer)
        self._attempt = Attempt(self._writer, self._write, self._tasks.learn)
        self.background.crew.hold(self.claim.lease)

    async def _renew(self) -> bool:
        lease = self.claim.lease
        return lease in await self._writer.outlast(lambda: renew(self.database, self.host, [lease]))

    def mail(self) -> None:
        """Say that something came for the run: a prompt, an answer."""
        self._inbox.ring()
        self._desk.ring()

    def options_are(self, mark: int | None) -> None:
        """Look at the run's options again if their mark is a new one: a word may have been lost.

        Prompts that were sent into the run need no such look: each append tells of them.
        """
        if mark is None or mark != self._options_mark or self._desk.has_asked:
            self._options_mark = mark
            self._desk.ring()

    async def reconnect(self, server: str) -> bool:
        """Connect an MCP server anew, if the run has it."""
        return self._servers is not None and await self._servers.reconnect(server)

    def stop(self, why: Stop) -> None:
        """Stop the loop at once: kill its tools, close its model request."""
        if self._attempt.stop(why):
            if why == "drain":
                self.background.crew.hurry()
            if why == "lost" and not self._tasks.is_kept:
                self.background.crew.lose()  # this run may be waiting for their ends

    def drain(self) -> None:
        """Let the run go at the next message boundary, or where it waits for an answer."""
        self._attempt.is_draining = True
        self._desk.leave()
        self.background.crew.drain()
        if self._attempt.is_loaded and self._attempt.is_at_boundary and self._waits_for_subagents:
            self.stop("drain")

    async def run(self) -> None:
        """Drive the run until it is finished, or until this host has to let it go."""
        try:
            await self._begin()
        except LeaseLost:
            log.warning("The lease was lost", extra={"action": "lease_lost"})
        finally:
            if not self._tasks.is_kept:
                self.background.crew.lose()
                await uninterrupted(self.background.shells.close())

    async def _begin(self) -> None:
        lease = self.claim.lease
        work = self.claim.work
        if work is None:
            work = await self._writer.outlast(
                lambda: work_of(self.database, lease.tenant_id, lease.run_id)
            )
        await self._begin_with(work)

    async def _begin_with(self, work: Work) -> None:
        why = why_given_up(
            work,
            stalled_attempts=self.claim.stalled_attempts,
            was_lost=self.claim.was_lost,
            max_attempts=self.max_attempts,
        )
        state = self.claim.state or await self._read(work, is_given_up=why is not None)
        self._attempt.state = state
        self._desk.notes_begun = state.run.options.actions.permissions == "ask"
        await self._tasks.take_up(state, work)
        if why is not None:
            await self._end(end_reason="worker_lost", why=why)  # its parts may be what fails
            return
        if self.claim.attempt > 1:
            self._desk.open_calls = self._now().open_everywhere
        try:
            async with self.parts.open(
                *(self.claim, work, self._now().run, self._inbox),
                *(self.background.shells, self._desk),
            ) as opened:
                effects = replace(
                    opened,
                    tasks=self.background,
                    purse=self._tasks.share,
                    learn=self._tasks.learn,
                )
                self._servers = effects.servers
                await self._drive(work, watched(effects, self.ownership, self._attempt.activity))
                await self._leave(effects)
        except WorkspaceUnavailable as error:
            log.warning("The run cannot be opened on this host: %s", error)
            await self._end(end_reason="internal", why=str(error))

    async def _drive(self, work: Work, effects: Effects) -> None:
        failed = await self._attempt.drive(
            effects,
            deadline_left_s=work.deadline_left_s,
            was_lost=self.claim.was_lost,
            is_cancelled=self.claim.is_cancelled,
        )
        if isinstance(failed, Exception):
            await self._stopped_by(failed, effects)
        await self._after_stop(effects)

    async def _stopped_by(self, error: Exception, effects: Effects) -> None:
        """Do what follows from an error that ended the loop."""
        match error:
            case Parked() | NobodyAnswered() if self._attempt.why is not None:
                pass  # what stopped it came first
            case Parked():
                await self._park(effects)
            case NobodyAnswered():
                await self._end(end_reason="action_expired", why=str(error))
            case _:
                await self._failed(error)

    async def _park(self, effects: Effects) -> None:
        """Let the run go until it is answered. It holds nothing then but its rows."""
        await self.background.shells.close()
        await self.background.crew.leave()
        if told := ends_told(self._now(), self.background, effects):
            await self._attempt.store(self._now().after(told))
        waits_for = self._desk.parked_for
        await self._writer.outlast(lambda: actions.park(self.database, self.claim.lease, waits_for))

    async def _leave(self, effects: Effects) -> None:
        """Tell hooks that the run has left its session. The result is there already."""
        state = self._now()
        if state.result is not None and state.run.follows is None and self._attempt.why != "lost":
            await fire(SessionEnd("end", "other"), state, effects)

    async def _failed(self, error: Exception) -> None:
        log.error("The loop failed", exc_info=error, extra={"action": "run_failed"})
        if not self._now().is_over:
            why = "The service failed inside this run; the operator's log has the details."
            await self._end(end_reason="internal", why=why)

    async def _end(self, *, end_reason: EndReason, why: str) -> None:
        if self._now().result is not None:
            await self._close_by_result(None)
            return
        state = await self._all_told(end_reason)
        unbegun = await self._attempt.unbegun(self._desk)
        ended = abandoned(state, self.parts.stamps, end_reason=end_reason, why=why, unbegun=unbegun)
        await self._attempt.store(state.after(ended))

    async def _all_told(self, end_reason: EndReason) -> LoopState:
        is_stopped = self._attempt.why is not None
        return await self._tasks.all_told(end_reason, self._now(), is_stopped=is_stopped)

    async def _close_by_result(self, effects: Effects | None) -> None:
        """End a run that had its result when it was stopped: it ends as that says."""
        ended = closed_by_result(self._now())
        at_stop = self._attempt.at_stop
        if effects is not None and at_stop is not None and at_stop.model_request:
            ended = replace(ended, ledger=(lost_suggestion(self._now(), effects),))
        await self._attempt.store(self._now().after(ended))

    async def _after_stop(self, effects: Effects) -> None:
        attempt = self._attempt
        if self._now().is_over:
            return
        if self._now().result is not None and attempt.why not in {None, "lost"}:
            await self._close_by_result(effects)
            return
        match attempt.why:
            case "cancel":
                asked = await self._writer.outlast(
                    lambda: cancels.cancel_asked(self.database, self.claim.lease)
                )
                self._tasks.are_spared = asked.spares_tasks
                if attempt.at_stop and not asked.spares_tasks:
                    attempt.at_stop = replace(attempt.at_stop, tasks=self.background.running)
                state = await self._all_told(asked.end_reason)
                ended = interrupted(
                    state,
                    effects,
                    end_reason=asked.end_reason,
                    partial=effects.previews.partial(),
                    asides=effects.agents.partials(),
                    begun=attempt.at_stop.tools if attempt.at_stop else (),
                    refused=await self._desk.withdraw(),
                )
                await self._attempt.store(state.after(ended))
            case "deadline":
                await self._end(end_reason="deadline", why="The run's deadline has passed.")
            case "drain":
                note = WorkerShuttingDownMessage(
                    session_id=self._now().run.session_id, uuid=effects.clock.uuid()
                )
                await self.background.shells.close()
                await self.background.crew.leave()
                told = ends_told(self._now(), self.background, effects) or Batch()
                last = replace(told, entries=(*told.entries, Entry.of(note)))
                await self._attempt.store(self._now().after(last))
                await self._writer.outlast(lambda: release(self.database, self.claim.lease))
            case _:
                pass

    @property
    def _waits_for_subagents(self) -> bool:
        return isinstance(next_step(self._now()), AwaitSubagents)

    def _now(self) -> LoopState:
        return self._attempt.state

    async def _read(self, work: Work, *, is_given_up: bool) -> LoopState:
        """Give where the run stands, or what it takes to end it where nobody can read that."""
        try:
            info = self.parts.describe(self.claim.lease, work)
            return await self._writer.outlast(lambda: self._load(info, work))
        except LeaseLost:
            raise
        except Exception:  # whatever it is, a run that is given up has to end
            if not is_given_up:
                raise
            log.exception("A run that is given up cannot be read")
        lease, crew = self.claim.lease, self.background.crew
        async with crew.writing:
            before, spend = await self._writer.outlast(
                lambda: spends(self.database, lease.tenant_id, lease.session_id, lease.run_id)
            )
            crew.meter = Spend()
        inherited = spend_of(work.inherited)
        return unread(lease, work, spent_before=inherited.merged(before), spend=spend)

    async def _load(self, info: RunInfo, work: Work) -> LoopState:
        lease = self.claim.lease
        inherited = spend_of(work.inherited)
        if self.claim.is_new_session:
            return LoopState(info, spent_before=inherited)
        crew = self.background.crew
        async with crew.writing:  # what is spent meanwhile is counted once
            state = await load(self.database, lease.tenant_id, lease.session_id, info, inherited)
            crew.meter = Spend()
        # Nothing of a run that waited was under way.
        return replace(state, unsure=frozenset()) if self.claim.has_waited else state

    async def _write(self, advance: Advance) -> None:
        batch, kept = self._attempt.closing(advance.batch), None
        if batch.outcome is not None:
            await self._desk.withdraw()
            kept = await self._tasks.part(
                batch.outcome,
                advance.state,
                is_stopped=self._attempt.why is not None,
                is_draining=self._attempt.is_draining,
                renewed_s=self.ownership.renewed_s,
            )
            if kept is None and (
                told := ends_told(self._now(), self.background, self.parts.stamps)
            ):
                await self._write(self._now().after(told))
                batch = recounted(batch, self._now()) if batch.entries else batch
        try:
            rows = await self._writer.append(batch, keeps_session=kept is not None)
        except BaseException:
            self._tasks.keeps(kept, is_stored=False)
            raise
        self._tasks.keeps(kept, is_stored=True)
        self._attempt.state = advance.state
        crew, lease = self.background.crew, self.claim.lease
        crew.drawn(lease.run_id, advance.state.spend.cost_usd)
        if batch.launches:
            crew.launch(batch.launches, advance.state)
        self.hub.wrote(lease.tenant_id, lease.session_id, rows)
