"""Cancelling runs, wherever they are; runs that have not begun end at once, with their result."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from app.agent.broken_off import abandoned
from app.agent.effects import Stamps
from app.agent.state import LoopState, RunInfo
from app.domain.messages import parse_message
from app.domain.options import AgentOptions
from app.domain.results import ErrorResult, SuccessResult
from app.domain.subagent_stats import SubagentCounts, SubagentStats
from app.errors import NotFound, RunAlreadyStarted
from app.runs.wishes import RunChoice, event_body
from app.store import cancels
from app.store.engine import Database
from app.store.ledger import spend_of, spends
from app.store.runs import RunRow, find_run
from app.store.sessions import find_session
from app.store.waiting import hold_session, hold_sessions_of, unfinished_runs

MOST_AT_ONCE = 100
UNSTARTED = "The run was cancelled before it began."


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel did to a run."""

    run: RunRow
    is_already_finished: bool
    asked_seq: int | None = None
    """Of the event that tells it of a run that has begun; None when it was told before."""


@dataclass(frozen=True, slots=True)
class ManyCancelled:
    """What a cancel of several runs did."""

    runs: Sequence[Cancelled]
    missing: Sequence[str] = field(default=())
    """Ids that the tenant does not have."""
    has_more: bool = False
    """Whether more runs were meant than are cancelled at once."""


@dataclass(frozen=True, slots=True)
class Canceller:
    """Cancels inside the caller's transaction; who drives a run is told after the commit."""

    database: Database
    stamps: Stamps
    tenant_id: str

    async def one(
        self,
        connection: AsyncConnection,
        run_id: str,
        *,
        reason: str | None,
        spares_tasks: bool = False,
    ) -> Cancelled:
        """Cancel a run; `spares_tasks` lets background tasks go on. Raises `NotFound`."""
        done = await self._all(connection, [run_id], reason, spares_tasks=spares_tasks)
        if not done:
            raise NotFound("There is no such run.")
        return done[0]

    async def many(
        self,
        connection: AsyncConnection,
        choice: RunChoice,
        *,
        reason: str | None,
        spares_tasks: bool = False,
    ) -> ManyCancelled:
        """Cancel several runs. Raises `NotFound` for an unknown session."""
        if choice.ids is not None:
            runs = await self._all(connection, choice.ids, reason, spares_tasks=spares_tasks)
            known = {cancelled.run.id for cancelled in runs}
            return ManyCancelled(runs, [run_id for run_id in choice.ids if run_id not in known])
        if choice.session_id is not None:
            await hold_session(connection, self.tenant_id, choice.session_id)
        found = await unfinished_runs(
            connection,
            self.tenant_id,
            session_id=choice.session_id,
            statuses=choice.statuses,
            limit=MOST_AT_ONCE + 1,
        )
        chosen = found[:MOST_AT_ONCE]
        runs = await self._all(connection, chosen, reason, spares_tasks=spares_tasks)
        return ManyCancelled(runs, has_more=len(found) > MOST_AT_ONCE)

    async def remove(self, connection: AsyncConnection, run_id: str) -> RunRow:
        """End a run that has not begun. Raises `NotFound`, `RunAlreadyStarted`."""
        run = await self.waiting_run(connection, run_id)
        await cancels.request_cancel(connection, self.tenant_id, run_id, None)
        await self._end_unstarted(connection, run)
        return await self._again(connection, run_id)

    async def waiting_run(self, connection: AsyncConnection, run_id: str) -> RunRow:
        """Give a run that has not begun, and keep it from beginning. Raises as `remove` does."""
        await hold_sessions_of(connection, self.tenant_id, [run_id])
        run = await find_run(connection, self.tenant_id, run_id)
        if run is None:
            raise NotFound("There is no such run.")
        if not _is_waiting(run):
            raise RunAlreadyStarted(
                "The run has begun, or is over: only a queued run can be changed or removed.",
                context={"status": run.status},
            )
        return run

    async def _all(
        self,
        connection: AsyncConnection,
        run_ids: Sequence[str],
        reason: str | None,
        *,
        spares_tasks: bool,
    ) -> list[Cancelled]:
        known = await hold_sessions_of(connection, self.tenant_id, run_ids)
        return [
            await self._cancel(connection, run_id, reason, spares_tasks=spares_tasks)
            for run_id in known
        ]

    async def _cancel(
        self, connection: AsyncConnection, run_id: str, reason: str | None, *, spares_tasks: bool
    ) -> Cancelled:
        run = await self._again(connection, run_id)
        if run.status == "finished":
            return Cancelled(run, is_already_finished=True)
        seq = await cancels.request_cancel(
            connection, self.tenant_id, run_id, reason, spares_tasks=spares_tasks
        )
        if _is_waiting(run):
            await self._end_unstarted(connection, run)
        return Cancelled(await self._again(connection, run_id), False, seq)  # noqa: FBT003 - is_already_finished

    async def _again(self, connection: AsyncConnection, run_id: str) -> RunRow:
        run = await find_run(connection, self.tenant_id, run_id)
        if run is None:
            raise NotFound("There is no such run.")
        return run

    async def _end_unstarted(self, connection: AsyncConnection, run: RunRow) -> None:
        session = await find_session(connection, self.tenant_id, run.session_id)
        before, _ = await spends(self.database, self.tenant_id, run.session_id, run.id)
        inherited = spend_of(session.inherited if session else None)
        info = RunInfo(run.session_id, run.id, AgentOptions.model_validate(dict(run.options)))
        last = await cancels.newest_result(connection, self.tenant_id, run.session_id)
        counts = SubagentCounts(_stats_of(last)) if last else SubagentCounts()
        state = LoopState(info, spent_before=inherited.merged(before), subagents=counts)
        batch = abandoned(state, self.stamps, end_reason="cancelled", why=UNSTARTED)
        message = batch.entries[-1].message
        if not isinstance(message, ErrorResult):
            raise TypeError("the last message of a run is its result")
        finished = {"result_subtype": message.subtype, "end_reason": "cancelled"}
        await cancels.finish_unstarted(
            connection,
            self.tenant_id,
            run.id,
            result=message.model_copy(update={"duration_ms": 0}),
            end_reason="cancelled",
            finished_body=event_body(run.session_id, "run.finished", finished, run_id=run.id),
        )


def _stats_of(result: str) -> SubagentStats:
    message = parse_message(result)
    if not isinstance(message, SuccessResult | ErrorResult):
        raise TypeError("a row of the type result is one")
    return message.subagent_stats


def _is_waiting(run: RunRow) -> bool:
    # A subagent in the background is its driver's to end, also one that waits for a place.
    return run.status == "queued" and run.attempt == 0 and run.origin != "subagent"
