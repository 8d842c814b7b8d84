"""The engine's store as its contract sees it, and a pen that writes into one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import count
from typing import Any, Protocol

from app.agent.broken_off import abandoned
from app.agent.result_batch import result_batch
from app.agent.state import LoopState, RunInfo
from app.domain.blocks import TextBlock
from app.domain.journal import Batch, Entry, ServiceEvent
from app.domain.messages import Prompt, UserContent, UserMessage
from app.domain.options import AgentOptions
from app.domain.results import ErrorResult
from app.domain.usage import LedgerRow, Spend, Usage
from app.store.cancels import CancelAsked
from app.store.claims import Claim
from app.store.follow_up import FollowUp
from app.store.leases import Host, Lease
from app.store.queue import Enqueued, NewRun
from app.store.rows import Row
from app.store.runs import Work
from app.store.sessions import NewSession
from app.store.starting import Started
from tests.fakes.effects import effects

A, B = Host("host_a", 101.0), Host("host_b", 41.0)
TENANTS = ("default", "quiet")
"""A store is given with these."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, as far as its life goes."""

    status: str
    attempt: int
    stalled_attempts: int
    end_reason: str | None
    last_seq: int | None
    cost_usd: Decimal
    is_cancelled: bool


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session, as far as its ownership goes."""

    epoch: int
    owner: str | None
    is_live: bool
    last_seq: int
    num_runs: int
    pending_steers: int
    cost_usd: Decimal


class EngineStore(Protocol):
    """The functions of `app.store` that the engine stands on; their contracts are there."""

    async def create_session(self, tenant_id: str, session: NewSession) -> None: ...

    async def start_session(
        self, tenant_id: str, session: NewSession, run: NewRun, *, host: Host | None
    ) -> Started: ...

    async def enqueue(
        self,
        tenant_id: str,
        session_id: str,
        run: NewRun,
        *,
        queue_limit: int,
        host: Host | None,
        is_next: bool = False,
    ) -> Enqueued: ...

    async def steer(self, tenant_id: str, session_id: str, prompts: Sequence[Prompt]) -> str | None:
        """Send prompts into the run that a live host drives; give its id, or None."""
        ...

    async def claim(self, host: Host) -> Claim | None: ...

    async def claim_many(self, host: Host, most: int) -> list[Claim]: ...

    async def renew(self, host: Host, leases: Sequence[Lease]) -> dict[Lease, bool]: ...

    async def release(self, lease: Lease) -> None: ...

    async def append(
        self,
        lease: Lease,
        batch: Batch,
        *,
        first: Sequence[ServiceEvent] = (),
        keeps_session: bool = False,
    ) -> list[Row]: ...

    async def follow_up(self, host: Host, kept: Lease, *, may_claim: bool) -> FollowUp | None: ...

    async def request_cancel(
        self,
        tenant_id: str,
        run_id: str,
        reason: str | None,
        *,
        end_reason: Any = "cancelled",
        spares_tasks: bool = False,
    ) -> int | None: ...

    async def cancel_asked(self, lease: Lease) -> CancelAsked: ...

    async def finish_unstarted(
        self,
        tenant_id: str,
        run_id: str,
        *,
        result: ErrorResult,
        end_reason: Any,
        finished_body: str,
    ) -> int | None: ...

    async def waiting_prompts(self, lease: Lease) -> list[Prompt]: ...

    async def work_of(self, tenant_id: str, run_id: str) -> Work: ...

    async def read(self, tenant_id: str, session_id: str) -> list[Row]: ...

    async def history(
        self, tenant_id: str, session_id: str
    ) -> list[tuple[str | None, str, str | None]]: ...

    async def spends(self, tenant_id: str, session_id: str, run_id: str) -> tuple[Spend, Spend]: ...

    async def run(self, tenant_id: str, run_id: str) -> RunView: ...

    async def session(self, tenant_id: str, session_id: str) -> SessionView: ...

    async def dump(self) -> Any:
        """Give all that a write could change, to compare."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let that much time have passed."""
        ...


@dataclass(slots=True)
class Pen:
    """Writes what is put into a store, with ids that count: the same again for the next store."""

    store: EngineStore
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def new_session(self) -> NewSession:
        return NewSession(f"session-{next(self._ids)}", None, {}, {}, {}, "{}")

    def prompt(self, words: str = "hello", *, is_steer: bool = False) -> Prompt:
        number = next(self._ids)
        return Prompt(f"in-{number}", f"prompt-{number}", words, is_steer=is_steer)

    def new_run(self, *prompts: Prompt, **fields: Any) -> NewRun:
        run_id = f"run-{next(self._ids)}"
        return NewRun(run_id, {}, prompts or (self.prompt(),), {}, "{}", **fields)

    async def session(self, tenant_id: str = "default") -> str:
        new = self.new_session()
        await self.store.create_session(tenant_id, new)
        return new.id

    async def enqueued(
        self,
        session_id: str,
        host: Host | None = None,
        *prompts: Prompt,
        tenant_id: str = "default",
        **fields: Any,
    ) -> tuple[str, Enqueued]:
        """Put a run into a session; give its id, and what became of it."""
        is_next = fields.pop("is_next", False)
        run = self.new_run(*prompts, **fields)
        enqueued = await self.store.enqueue(
            tenant_id, session_id, run, queue_limit=3, host=host, is_next=is_next
        )
        return run.id, enqueued

    async def begun(self, *prompts: Prompt, host: Host = A) -> Claim:
        """A run of a new session, claimed on the spot."""
        _, enqueued = await self.enqueued(await self.session(), host, *prompts)
        assert enqueued.claim is not None
        return enqueued.claim

    async def lost(self, claim: Claim, host: Host = B) -> Claim:
        """The same run in the hands of a host that took it over."""
        await self.store.pass_time(A.lease_s + 1)
        taken = await self.store.claim(host)
        assert taken is not None
        assert taken.lease.run_id == claim.lease.run_id
        return taken

    async def kept(self, claim: Claim) -> Lease:
        """End a run whose host keeps its session; give the lease of the keeping."""
        await self.store.append(claim.lease, self.last(claim.lease), keeps_session=True)
        return replace(claim.lease, epoch=claim.lease.epoch + 1)

    def note(self, lease: Lease, facts: dict[str, Any] | None = None) -> Entry:
        message = UserMessage(
            session_id=lease.session_id,
            uuid=f"note-{next(self._ids)}",
            message=UserContent(content=[TextBlock(text="hi")]),
            timestamp="2030-01-01T00:00:00.000Z",
        )
        return Entry.of(message, facts)

    def last(self, lease: Lease, ledger: tuple[LedgerRow, ...] = ()) -> Batch:
        """The batch that ends a run."""
        info = RunInfo(lease.session_id, lease.run_id, AgentOptions())
        batch = result_batch(LoopState(info), effects(), ledger=ledger)
        return replace(batch, events=(ServiceEvent("run.finished"),))

    async def cancelled_unstarted(
        self, session_id: str, run_id: str, *, tenant_id: str = "default"
    ) -> int | None:
        info = RunInfo(session_id, run_id, AgentOptions())
        batch = abandoned(LoopState(info), effects(), end_reason="cancelled", why="Cancelled.")
        result = batch.entries[-1].message
        assert isinstance(result, ErrorResult)
        return await self.store.finish_unstarted(
            tenant_id, run_id, result=result, end_reason="cancelled", finished_body="{}"
        )

    async def kinds(self, session_id: str, tenant_id: str = "default") -> list[tuple[int, str]]:
        return [(row.seq, row.type) for row in await self.store.read(tenant_id, session_id)]


def spent(usd: str, tokens: int = 1) -> LedgerRow:
    return LedgerRow("priced-model", Usage(tokens), Decimal(usd))
