"""Drive one claimed run: fold the journal, run the loop, store each batch, show it.

The loop runs in a task of its own, so that stopping it (cancel, lost lease, drain) leaves this code
free to write what has to be written afterwards.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

from app.agent.audit import with_audit
from app.agent.broken_off import abandoned, interrupted
from app.agent.effects import Effects, Servers
from app.agent.hook_points import fire
from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.agent.state import Advance, LoopState, RunInfo
from app.agent.steps import AwaitSubagents, next_step
from app.agent.suggest_step import closed_by_result, lost_suggestion
from app.agent.task_notes import ends_told
from app.domain.hooks import SessionEnd
from app.domain.journal import Batch, Entry, ServiceEvent
from app.domain.messages import WorkerShuttingDownMessage
from app.domain.runs import EndReason, Outcome
from app.domain.usage import Spend
from app.errors import LeaseLost, NobodyAnswered, Parked, WorkspaceUnavailable
from app.runs.activity import Activity, Stopped, watched
from app.runs.background import Background
from app.runs.desk import Desk, WaitingRules
from app.runs.driving import until_ended, why_given_up
from app.runs.inbox import StoredInbox
from app.runs.keeping import Keeper, Kept, end_of_tasks, options_left
from app.runs.live import Hub
from app.runs.loading import load, unread
from app.runs.ownership import Ownership
from app.runs.parts import Parts
from app.runs.purse import Share
from app.runs.writing import Writer, begun
from app.sandbox.process import uninterrupted
from app.store import actions, cancels
from app.store.beside import tell_no_more
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Host, release, renew
from app.store.ledger import spend_of, spends
from app.store.runs import Work, work_of

log = logging.getLogger(__name__)

Stop = Literal["cancel", "deadline", "drain", "lost"]


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
    _activity: Activity = field(default_factory=Activity)
    _stopped: Stopped | None = None
    _stop: Stop | None = None
    _task: asyncio.Task[None] | None = None
    _is_draining: bool = False
    _spares_tasks: bool = False
    """Whether a cancel lets background tasks go on."""
    _is_kept: bool = False
    _state: LoopState | None = None
    _servers: Servers | None = None
    _spent_before: Spend = field(default_factory=Spend)
    """As the session's spend was when the run was loaded."""
    _share: Share = field(init=False)
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
        )
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
        if self._stop is None or why == "lost":
            self._stop = why
            self._writer.is_lost = why == "lost"
            self._stopped = self._activity.now()
            if self._task is not None:
                self._task.cancel()
            if why == "drain":
                self.background.crew.hurry()
            if why == "lost" and not self._is_kept:
                self.background.crew.lose()  # this run may be waiting for their ends

    def drain(self) -> None:
        """Let the run go at the next message boundary, or where it waits for an answer."""
        self._is_draining = True
        self._desk.leave()
        self.background.crew.drain()
        if self._state is not None and self._is_at_boundary and self._waits_for_subagents:
            self.stop("drain")

    async def run(self) -> None:
        """Drive the run until it is finished, or until this host has to let it go."""
        try:
            await self._attempt()
        except LeaseLost:
            log.warning("The lease was lost", extra={"action": "lease_lost"})
        finally:
            if not self._is_kept:
                self.background.crew.lose()
                await uninterrupted(self.background.shells.close())

    async def _attempt(self) -> None:
        lease = self.claim.lease
        work = self.claim.work
        if work is None:
            work = await self._writer.outlast(
                lambda: work_of(self.database, lease.tenant_id, lease.run_id)
            )
        await self._attempt_with(work)

    async def _attempt_with(self, work: Work) -> None:
        why = why_given_up(
            work,
            stalled_attempts=self.claim.stalled_attempts,
            was_lost=self.claim.was_lost,
            max_attempts=self.max_attempts,
        )
        self._state = self.claim.state or await self._read(work, is_given_up=why is not None)
        self._spent_before = self._now().spent_before
        await self._take_up(work)
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
                    opened, tasks=self.background, purse=self._share, learn=self._learn
                )
                self._servers = effects.servers
                await self._drive(work, watched(effects, self.ownership, self._activity))
                await self._leave(effects)
        except WorkspaceUnavailable as error:
            log.warning("The run cannot be opened on this host: %s", error)
            await self._end(end_reason="internal", why=str(error))

    async def _drive(self, work: Work, effects: Effects) -> None:
        if self.claim.was_lost and (lost := lost_request(self._now(), effects)) is not None:
            await self._store(self._now().after(lost))
        if self.claim.is_cancelled:
            self.stop("cancel")
        if self._stop is None:
            self._task = asyncio.create_task(self._loop(effects))
            failed = await until_ended(
                self._task, work.deadline_left_s, lambda: self.stop("deadline")
            )
            await self._settle(effects)
            if isinstance(failed, Exception):
                await self._stopped_by(failed, effects)
        await self._after_stop(effects)

    async def _settle(self, effects: Effects) -> None:
        """Store what a loop that was stopped had asked beside the conversation."""
        if self._stop != "lost" and not self._now().is_over and (rows := effects.side.settle()):
            await self._store(self._now().after(Batch(ledger=rows)))

    async def _stopped_by(self, error: Exception, effects: Effects) -> None:
        """Do what follows from an error that ended the loop."""
        match error:
            case Parked() | NobodyAnswered() if self._stop is not None:
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
            await self._store(self._now().after(told))
        waits_for = self._desk.parked_for
        await self._writer.outlast(lambda: actions.park(self.database, self.claim.lease, waits_for))

    async def _leave(self, effects: Effects) -> None:
        """Tell hooks that the run has left its session. The result is there already."""
        state = self._now()
        if state.result is not None and state.run.follows is None and self._stop != "lost":
            await fire(SessionEnd("end", "other"), state, effects)

    async def _failed(self, error: Exception) -> None:
        log.error("The loop failed", exc_info=error, extra={"action": "run_failed"})
        if not self._now().is_over:
            why = "The service failed inside this run; the operator's log has the details."
            await self._end(end_reason="internal", why=why)

    async def _loop(self, effects: Effects) -> None:
        async with aclosing(run_agent(self._now(), effects, self._learn)) as advances:
            async for advance in advances:
                await self._store(advance)
                if self._is_draining and self._is_at_boundary:
                    self._stop = "drain"
                    return

    async def _end(self, *, end_reason: EndReason, why: str) -> None:
        if self._now().result is not None:
            await self._close_by_result(None)
            return
        state = await self._all_told(end_reason)
        ended = abandoned(state, self.parts.stamps, end_reason=end_reason, why=why)
        await self._store(state.after(ended))

    async def _all_told(self, end_reason: EndReason) -> LoopState:
        """Give the state for a result that is not the loop's: what subagents cost is part of it.

        Those that end with the run end first, so that what they had asked for is counted too.
        """
        spares = self._spares_tasks or self._stop is None
        if end_of_tasks(end_reason, spares_tasks=spares, is_over_budget=False) is not None:
            await self.background.crew.stop_all()
        return self._learn(self._now())

    async def _close_by_result(self, effects: Effects | None) -> None:
        """End a run that had its result when it was stopped: it ends as that says."""
        ended = closed_by_result(self._now())
        if effects is not None and self._stopped is not None and self._stopped.model_request:
            ended = replace(ended, ledger=(lost_suggestion(self._now(), effects),))
        await self._store(self._now().after(ended))

    async def _after_stop(self, effects: Effects) -> None:
        if self._now().is_over:
            return
        if self._now().result is not None and self._stop not in {None, "lost"}:
            await self._close_by_result(effects)
            return
        match self._stop:
            case "cancel":
                asked = await self._writer.outlast(
                    lambda: cancels.cancel_asked(self.database, self.claim.lease)
                )
                self._spares_tasks = asked.spares_tasks
                if self._stopped and not self._spares_tasks:
                    self._stopped = replace(self._stopped, tasks=self.background.running)
                state = await self._all_told(asked.end_reason)
                ended = interrupted(
                    state,
                    effects,
                    end_reason=asked.end_reason,
                    partial=effects.previews.partial(),
                    asides=effects.agents.partials(),
                    begun=self._stopped.tools if self._stopped else (),
                    refused=await self._withdraw(),
                )
                await self._store(state.after(ended))
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
                await self._store(self._now().after(last))
                await self._writer.outlast(lambda: release(self.database, self.claim.lease))
            case _:
                pass

    @property
    def _is_at_boundary(self) -> bool:
        state = self._now()
        return not state.is_over and not state.open_calls

    @property
    def _waits_for_subagents(self) -> bool:
        return isinstance(next_step(self._now()), AwaitSubagents)

    def _now(self) -> LoopState:
        if self._state is None:
            raise RuntimeError("the run is not loaded")
        return self._state

    async def _read(self, work: Work, *, is_given_up: bool) -> LoopState:
        """Give where the run stands, or what it takes to end it where nobody can read that."""
        try:
            info = self.parts.describe(self.claim.lease, work)
            return await self._writer.outlast(lambda: self._load(info, work))
        except LeaseLost:
            raise
        except Exception:
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

    async def _take_up(self, work: Work) -> None:
        """Take over what the session has in its background, as its journal tells."""
        crew, state = self.background.crew, self._now()
        run_id, options = state.run.run_id, state.run.options
        self._share = crew.share(run_id, options, follows=work.follows)
        agents = {task.id: task.own_run_id for task in state.tasks.values() if task.own_run_id}
        if not all(map(crew.knows, agents)):
            await self._writer.outlast(crew.take_up)
        if self.claim.attempt > 1 and options.max_budget_usd is not None:
            # What those have spent that are told of already is in no state.
            await self._writer.outlast(lambda: crew.know_family(run_id))
        if work.follows is not None:
            lease, shown = self.claim.lease, list(agents.values())
            await self._writer.outlast(lambda: tell_no_more(self.database, lease, shown))
        crew.drawn(state.run.run_id, state.spend.cost_usd)

    def _learn(self, state: LoopState) -> LoopState:
        """Give the state that knows what has been spent beside it."""
        spent = self._spent_before.merged(self.background.crew.meter)
        others_usd = self._share.others_usd()
        if (others_usd, spent) == (state.others_usd, state.spent_before):
            return state  # as mostly: a state has many fields to copy
        return replace(state, others_usd=others_usd, spent_before=spent)

    async def _store(self, advance: Advance) -> None:
        """Store a batch, then show it. Once begun it is not cut off: half known is worst."""
        writing = asyncio.create_task(self._write(advance))
        # When we are stopped meanwhile nobody asks how it ended: a lost lease is no news then.
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await asyncio.wait([writing])

    async def _write(self, advance: Advance) -> None:
        batch = advance.batch
        kept = None
        if batch.outcome is not None:
            await self._withdraw()
            kept = await self._part_from_tasks(batch.outcome, advance.state)
            self._is_kept = kept is not None
            finished: dict[str, object] = {
                "result_subtype": batch.outcome.subtype,
                "end_reason": batch.outcome.end_reason,
            }
            if self._stopped is not None:
                finished["stopped"] = self._stopped.to_json()
                for note in self._stopped.allowed:
                    batch = replace(batch, entries=with_audit(batch.entries, note))
            batch = replace(batch, events=(*batch.events, ServiceEvent("run.finished", finished)))
        try:
            rows = await self._writer.append(batch, keeps_session=kept is not None)
        except BaseException:
            if kept and self.keeper:
                self.keeper.forget(kept)
                self._is_kept = False
            raise
        if kept and self.keeper:
            self.background.crew.hold(kept.lease)
            self.keeper.watch(kept)
        self._state = advance.state
        crew, lease = self.background.crew, self.claim.lease
        crew.drawn(lease.run_id, advance.state.spend.cost_usd)
        if batch.launches:
            crew.launch(batch.launches, advance.state)
        self.hub.wrote(lease.tenant_id, lease.session_id, rows)

    async def _withdraw(self) -> Collection[str]:
        """Take back what the run still asks, before it ends; give the calls that it asked for."""
        lease = self.claim.lease
        if not self._desk.has_asked and self.claim.attempt == 1:
            return ()
        withdrawn = await self._writer.outlast(
            lambda: actions.withdraw_pending(self.database, lease)
        )
        if withdrawn.seq is not None:
            self.hub.grew(lease.tenant_id, lease.session_id, withdrawn.seq)
        return withdrawn.approvals

    async def _part_from_tasks(self, outcome: Outcome, ended: LoopState) -> Kept | None:
        """Keep the session while tasks of it run on; or end them, and say so before the result.

        Before the commit that ends the run, since another host may begin right after it.
        """
        shells, crew = self.background.shells, self.background.crew
        why = end_of_tasks(
            outcome.end_reason,
            spares_tasks=self._spares_tasks or self._stop is None,
            is_over_budget=ended.is_over_budget,
        )
        is_stopping = self._is_draining or self.keeper is None or self.keeper.is_closed
        if why is not None:
            await crew.stop_all("budget" if ended.is_over_budget else "cancel")
        elif is_stopping:
            await crew.leave()
        elif ended.tasks and self.keeper is not None:
            await shells.keep_only(ended.tasks)
            options = options_left(ended)
            lease = replace(self.claim.lease, epoch=self.claim.lease.epoch + 1)
            kept = Kept(
                lease, options, self.background, tuple(ended.tasks), self.ownership.renewed_s
            )
            self.keeper.keep(kept)
            return kept
        await shells.close(why or "was ended, since its host stopped")
        if told := ends_told(self._now(), self.background, self.parts.stamps):
            await self._write(self._now().after(told))
        return None
