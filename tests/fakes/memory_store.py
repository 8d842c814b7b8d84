"""The engine's store in memory: what `app.store` does to sessions, runs, inbox, journal and ledger.

It is held to the same contract as the real one (`tests/contracts/engine_store.py`), so that the
pure rooms can be driven through whole lives of runs in no time. No method waits inside, so each is
atomic; time is a `FakeClock`'s. A status changes by the table of `app.domain.runs` alone.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import orjson

from app.domain.journal import Batch, Entry, ServiceEvent
from app.domain.messages import Prompt, encode_message
from app.domain.results import ErrorResult
from app.domain.runs import EndReason, Outcome, after
from app.domain.usage import LedgerRow, Spend
from app.errors import IdTaken, LeaseLost, NotFound, QueueFull
from app.store.cancels import CancelAsked
from app.store.claims import Claim
from app.store.follow_up import FollowUp
from app.store.leases import Host, Lease
from app.store.queue import Enqueued, NewRun
from app.store.rows import Row, service_body
from app.store.runs import Work
from app.store.sessions import NewSession
from app.store.starting import Started
from tests.contracts.engine_seam import RunView, SessionView
from tests.fakes.effects import FakeClock
from tests.fakes.memory_rows import Mail, RunRecord, SessionRecord


@dataclass(slots=True)
class MemoryStore:
    """The twin of `app.store`'s engine."""

    clock: FakeClock = field(default_factory=FakeClock)
    is_fenced: bool = True
    """False shows that checks which rely on the fence can fail."""
    _sessions: dict[tuple[str, str], SessionRecord] = field(default_factory=dict)
    _runs: dict[tuple[str, str], RunRecord] = field(default_factory=dict)
    _inbox: list[Mail] = field(default_factory=list)
    _ledger: list[tuple[RunRecord, LedgerRow]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    # -- in -------------------------------------------------------------------------------

    async def create_session(self, tenant_id: str, session: NewSession) -> None:
        self._add_session(tenant_id, session)

    async def start_session(
        self, tenant_id: str, session: NewSession, run: NewRun, *, host: Host | None
    ) -> Started:
        is_ours = host is not None and not self._claimable()
        added = self._add_session(tenant_id, session)
        queued = self._add_run(added, run)
        if host is not None and is_ours:
            self._take(queued, host)
        return Started(
            added.epoch or None,
            added.expires_at,
            added.created_at,
            queued.created_at,
            queued.started_at,
            queued.deadline_at,
        )

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
        session = self._sessions.get((tenant_id, session_id))
        if session is None:
            raise NotFound("There is no such session.")
        unfinished = self._unfinished(session)
        self._refuse_known(session, run.prompts)
        if len(unfinished) > queue_limit:
            raise QueueFull(f"{queue_limit} runs wait in this session already.")
        is_kept = host is not None and session.owner == host.id
        is_ours = not (unfinished or self._claimable() or (self._is_live(session) and not is_kept))
        first = [other.priority + 1 for other in unfinished if not other.attempt]
        queued = self._add_run(session, run, at_least=max(first) if first and is_next else None)
        if host is None or not is_ours:
            return Enqueued(queued.queued_seq, len(unfinished), None)
        claim = self._take(queued, host)
        return Enqueued(queued.queued_seq, 0, replace(claim, is_new_session=session.num_runs == 1))

    async def steer(self, tenant_id: str, session_id: str, prompts: Sequence[Prompt]) -> str | None:
        session = self._sessions[tenant_id, session_id]
        first = max(self._unfinished(session), key=lambda run: run.rank, default=None)
        if first is None or not first.attempt or first.cancel_end_reason:
            return None
        if not self._is_live(session):
            return None
        self._add_mail(first, prompts)
        session.pending_steers += len(prompts)
        return first.new.id

    # -- ownership ------------------------------------------------------------------------

    async def claim(self, host: Host) -> Claim | None:
        busy = Counter(s.tenant_id for s in self._sessions.values() if self._is_live(s))
        waiting = sorted(
            self._claimable(host),
            key=lambda run: (busy[run.session.tenant_id], -run.priority, run.number),
        )
        return self._take(waiting[0], host) if waiting else None

    async def claim_many(self, host: Host, most: int) -> list[Claim]:
        one_by_one = [await self.claim(host) for _ in range(most)]
        return [claim for claim in one_by_one if claim is not None]

    async def renew(self, host: Host, leases: Sequence[Lease]) -> dict[Lease, bool]:
        renewed = {}
        for lease in leases:
            session = self._sessions[lease.tenant_id, lease.session_id]
            if (session.epoch, session.owner) == (lease.epoch, host.id):
                session.expires_at = self.clock.now() + timedelta(seconds=host.lease_s)
                run = self._runs[lease.tenant_id, lease.run_id]
                renewed[lease] = run.cancel_end_reason is not None
        return renewed

    async def release(self, lease: Lease) -> None:
        session = self._sessions[lease.tenant_id, lease.session_id]
        if session.epoch != lease.epoch or session.owner is None:
            return
        session.owner = session.expires_at = None
        run = self._runs[lease.tenant_id, lease.run_id]
        if run.status != "finished":
            run.happens("released")
            run.claim_seq = None

    # -- the journal ----------------------------------------------------------------------

    async def append(
        self,
        lease: Lease,
        batch: Batch,
        *,
        first: Sequence[ServiceEvent] = (),
        keeps_session: bool = False,
    ) -> list[Row]:
        session = self._sessions[lease.tenant_id, lease.session_id]
        if self.is_fenced and (session.epoch != lease.epoch or session.owner is None):
            raise LeaseLost(f"session {lease.session_id} has another owner")
        run = self._runs[lease.tenant_id, lease.run_id]
        written = [
            *(self._add_event(session, run, event) for event in first),
            *(self._add_entry(session, run, entry) for entry in batch.entries),
            *(self._add_event(session, run, event) for event in batch.events),
        ]
        for spent in batch.ledger:
            self._ledger.append((run, spent))
            run.cost_usd += spent.cost_usd or 0
        for mail in self._inbox:
            if mail.prompt.id in batch.consumed and mail.run.session is session:
                mail.consumed_seq = session.last_seq
        session.pending_steers = max(0, session.pending_steers - batch.steered)
        if batch.outcome is not None:
            written += self._end(run, batch.outcome, keeps_session=keeps_session)
        return written

    def _end(self, run: RunRecord, outcome: Outcome, *, keeps_session: bool) -> list[Row]:
        if self.is_fenced:
            run.happens("ended")
        else:
            run.status = "finished"
        run.outcome = outcome
        session = run.session
        run.last_seq = session.last_seq
        if keeps_session:
            session.epoch += 1
        else:
            session.owner = session.expires_at = None
        if not session.pending_steers:
            return []
        session.pending_steers = 0
        late = [mail for mail in self._waiting(run) if mail.prompt.is_steer]
        return [self._own_run(run, mail) for mail in late]

    def _own_run(self, ended: RunRecord, mail: Mail) -> Row:
        """Make a run of a prompt that came too late for the one that it was sent into."""
        session = ended.session
        run_id = f"run_{self.clock.uuid()}"
        body = service_body(ServiceEvent("run.queued"), session.new.id, run_id, self.clock.now())
        own = NewRun(
            run_id,
            ended.new.options,
            (),
            ended.new.metadata,
            body,
            ended.priority,
            recovery_policy=ended.new.recovery_policy,
            max_attempts=ended.new.max_attempts,
        )
        mail.run, mail.prompt = self._add_run(session, own), replace(mail.prompt, is_steer=False)
        return session.journal[-1][0]

    async def follow_up(self, host: Host, kept: Lease, *, may_claim: bool) -> FollowUp | None:
        session = self._sessions[kept.tenant_id, kept.session_id]
        is_held = (session.epoch, session.owner) == (kept.epoch, host.id)
        if not is_held or self._unfinished(session):
            return None
        ended = self._runs[kept.tenant_id, kept.run_id]
        run_id = f"run_{self.clock.uuid()}"
        body = service_body(ServiceEvent("run.queued"), session.new.id, run_id, self.clock.now())
        own = NewRun(run_id, {}, (), ended.new.metadata, body, ended.priority)
        run = self._add_run(session, own)
        run.follows = ended.new.id
        session.pending_steers = 0
        session.expires_at = self.clock.now() + timedelta(seconds=host.lease_s)
        claim = self._take(run, host) if may_claim else None
        return FollowUp(run_id, session.last_seq, claim)

    # -- cancelling -----------------------------------------------------------------------

    async def request_cancel(
        self,
        tenant_id: str,
        run_id: str,
        reason: str | None,
        *,
        end_reason: EndReason = "cancelled",
        spares_tasks: bool = False,
    ) -> int | None:
        run = self._runs[tenant_id, run_id]
        if run.status == "finished" or run.cancel_end_reason is not None:
            return None
        run.cancel_end_reason, run.cancel_reason = end_reason, reason
        run.cancel_spares_tasks = spares_tasks
        if not run.attempt:
            return None
        told = {"reason": reason, "end_reason": end_reason}
        return self._add_event(run.session, run, ServiceEvent("run.cancel_requested", told)).seq

    async def cancel_asked(self, lease: Lease) -> CancelAsked:
        run = self._runs[lease.tenant_id, lease.run_id]
        return CancelAsked(run.cancel_end_reason or "cancelled", run.cancel_spares_tasks)

    async def finish_unstarted(
        self,
        tenant_id: str,
        run_id: str,
        *,
        result: ErrorResult,
        end_reason: EndReason,
        finished_body: str,
    ) -> int | None:
        run = self._runs[tenant_id, run_id]
        if run.status != "queued" or run.attempt:
            return None
        run.happens("cancelled_unstarted")
        run.outcome = Outcome(
            result.subtype,
            end_reason,
            is_error=True,
            stop_reason=None,
            terminal_reason=None,
            num_turns=0,
            result_text=None,
        )
        body = encode_message(result).decode()
        self._add_row(run.session, run_id, "message", "result", body, uuid=result.uuid)
        row = self._add_row(run.session, run_id, "service", "run.finished", finished_body)
        run.last_seq = row.seq
        return row.seq

    # -- reads ----------------------------------------------------------------------------

    async def waiting_prompts(self, lease: Lease) -> list[Prompt]:
        run = self._runs[lease.tenant_id, lease.run_id]
        return [mail.prompt for mail in self._waiting(run)]

    async def work_of(self, tenant_id: str, run_id: str) -> Work:
        run, now = self._runs[tenant_id, run_id], self.clock.now()
        return Work(
            run.new.options,
            run.session.new.workspace,
            None,
            round((now - (run.started_at or now)).total_seconds() * 1000),
            allows_bypass=False,
            deadline_left_s=(run.deadline_at - now).total_seconds() if run.deadline_at else None,
            recovery_policy=run.new.recovery_policy,
            max_attempts=run.new.max_attempts,
            follows=run.follows,
        )

    async def read(self, tenant_id: str, session_id: str) -> list[Row]:
        session = self._sessions.get((tenant_id, session_id))
        return [row for row, _, _ in session.journal] if session else []

    async def history(
        self, tenant_id: str, session_id: str
    ) -> list[tuple[str | None, str, str | None]]:
        rows = self._sessions[tenant_id, session_id].journal
        return [(row.run_id, row.body, facts) for row, _, facts in rows if row.kind == "message"]

    async def spends(self, tenant_id: str, session_id: str, run_id: str) -> tuple[Spend, Spend]:
        session = self._sessions[tenant_id, session_id]
        before, mine = Spend(), Spend()
        for run, row in self._ledger:
            if run.session is session and run.new.id == run_id:
                mine = mine.plus(row)
            elif run.session is session:
                before = before.plus(row)
        return before, mine

    async def run(self, tenant_id: str, run_id: str) -> RunView:
        run = self._runs[tenant_id, run_id]
        return RunView(
            status=run.status,
            attempt=run.attempt,
            stalled_attempts=run.stalled_attempts,
            end_reason=run.outcome.end_reason if run.outcome else None,
            last_seq=run.last_seq,
            cost_usd=run.cost_usd,
            is_cancelled=run.cancel_end_reason is not None,
        )

    async def session(self, tenant_id: str, session_id: str) -> SessionView:
        session = self._sessions[tenant_id, session_id]
        spent = [row.cost_usd or Decimal(0) for run, row in self._ledger if run.session is session]
        return SessionView(
            session.epoch,
            session.owner,
            self._is_live(session),
            session.last_seq,
            session.num_runs,
            session.pending_steers,
            sum(spent, Decimal(0)),
        )

    async def dump(self) -> Any:
        return copy.deepcopy((self._sessions, self._runs, self._inbox, self._ledger))

    async def pass_time(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    # -- parts ----------------------------------------------------------------------------

    def _is_live(self, session: SessionRecord) -> bool:
        return session.expires_at is not None and session.expires_at > self.clock.now()

    def _unfinished(self, session: SessionRecord) -> list[RunRecord]:
        runs = self._runs.values()
        return [run for run in runs if run.session is session and run.status != "finished"]

    def _waiting(self, run: RunRecord) -> list[Mail]:
        return [mail for mail in self._inbox if mail.run is run and mail.consumed_seq is None]

    def _claimable(self, host: Host | None = None) -> list[RunRecord]:
        """Give the first unfinished run of each session that no live host holds.

        The host that asks may also keep a session in which no run is going on.
        """
        queues = (self._unfinished(session) for session in self._sessions.values())
        first = [max(queue, key=lambda run: run.rank) for queue in queues if queue]
        return [
            run
            for run in first
            if not self._is_live(run.session)
            or (host is not None and run.session.owner == host.id and not run.attempt)
        ]

    def _take(self, run: RunRecord, host: Host) -> Claim:
        session = run.session
        was_lost = session.owner is not None and run.attempt > 0
        run.happens("taken_over" if was_lost else "claimed")
        session.epoch += 1
        session.owner = host.id
        session.expires_at = self.clock.now() + timedelta(seconds=host.lease_s)
        if not run.attempt:
            session.pending_steers = run.upfront_steers
        if run.claim_seq is not None:
            told = session.journal[run.claim_seq :]
            is_on = any(r.run_id == run.new.id and r.kind == "message" for r, _, _ in told)
            run.stalled_attempts = 0 if is_on else run.stalled_attempts + 1
        run.attempt += 1
        run.claim_seq = session.last_seq
        run.started_at = run.started_at or self.clock.now()
        return Claim(
            Lease(session.tenant_id, session.new.id, run.new.id, session.epoch),
            run.attempt,
            run.stalled_attempts,
            session.last_seq,
            was_lost=was_lost,
            is_cancelled=run.cancel_end_reason is not None,
        )

    def _add_session(self, tenant_id: str, new: NewSession) -> SessionRecord:
        if (tenant_id, new.id) in self._sessions:
            raise IdTaken(f"There is a session {new.id} already.")
        session = SessionRecord(tenant_id, new, self.clock.now())
        self._sessions[tenant_id, new.id] = session
        self._add_row(session, None, "service", "session.created", new.created_body)
        return session

    def _add_run(
        self, session: SessionRecord, new: NewRun, at_least: int | None = None
    ) -> RunRecord:
        now = self.clock.now()
        row = self._add_row(session, new.id, "service", "run.queued", new.queued_body)
        session.num_runs += 1
        run = RunRecord(
            session,
            new,
            next(self._numbers),
            new.priority if at_least is None else max(new.priority, at_least),
            row.seq,
            now,
            None if new.deadline_s is None else now + timedelta(seconds=new.deadline_s),
            new.steers,
            status=after(None, "accepted"),
        )
        self._runs[session.tenant_id, new.id] = run
        self._add_mail(run, new.prompts)
        return run

    def _add_mail(self, run: RunRecord, prompts: Iterable[Prompt]) -> None:
        self._refuse_known(run.session, prompts)
        self._inbox += [Mail(prompt, run) for prompt in prompts]

    def _refuse_known(self, session: SessionRecord, prompts: Iterable[Prompt]) -> None:
        known = {mail.prompt.uuid for mail in self._inbox if mail.run.session is session}
        for prompt in prompts:
            if prompt.uuid in known:
                raise IdTaken(f"The session has a message {prompt.uuid} already.")

    def _add_entry(self, session: SessionRecord, run: RunRecord, entry: Entry) -> Row:
        facts = orjson.dumps(entry.facts).decode() if entry.facts else None
        message = entry.message
        body = entry.body.decode()
        return self._add_row(
            session, run.new.id, "message", message.type, body, uuid=message.uuid, facts=facts
        )

    def _add_event(self, session: SessionRecord, run: RunRecord, event: ServiceEvent) -> Row:
        body = service_body(event, session.new.id, run.new.id, self.clock.now())
        return self._add_row(session, run.new.id, "service", event.type, body)

    def _add_row(
        self,
        session: SessionRecord,
        run_id: str | None,
        kind: str,
        type_: str,
        body: str,
        *,
        uuid: str | None = None,
        facts: str | None = None,
    ) -> Row:
        row = Row(
            session.last_seq + 1,
            run_id,
            "service" if kind == "service" else "message",
            type_,
            body,
            self.clock.now(),
            is_aside=kind == "aside",
        )
        session.journal.append((row, uuid, facts))
        return row
