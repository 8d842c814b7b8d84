"""What the engine's store in memory keeps of sessions, runs and prompts."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from app.domain.messages import Prompt
from app.domain.runs import EndReason, Outcome, RunEvent, RunStatus, after
from app.store.queue import NewRun
from app.store.rows import Row
from app.store.sessions import NewSession


@dataclass(slots=True)
class SessionRecord:
    tenant_id: str
    new: NewSession
    created_at: datetime
    epoch: int = 0
    owner: str | None = None
    expires_at: datetime | None = None
    num_runs: int = 0
    pending_steers: int = 0
    journal: list[tuple[Row, str | None, str | None]] = field(default_factory=list)
    """Each row with its message's uuid and its facts."""

    @property
    def last_seq(self) -> int:
        return len(self.journal)


@dataclass(slots=True)
class RunRecord:
    session: SessionRecord
    new: NewRun
    number: int
    """In the order of creation, over all tenants."""
    priority: int
    queued_seq: int
    created_at: datetime
    deadline_at: datetime | None
    upfront_steers: int
    status: RunStatus = "queued"
    attempt: int = 0
    stalled_attempts: int = 0
    claim_seq: int | None = None
    last_seq: int | None = None
    started_at: datetime | None = None
    outcome: Outcome | None = None
    cancel_end_reason: EndReason | None = None
    cancel_reason: str | None = None
    cancel_spares_tasks: bool = False
    follows: str | None = None
    cost_usd: Decimal = Decimal(0)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The highest of a session's unfinished runs is the one that can be claimed."""
        return self.attempt > 0, self.priority, -self.queued_seq

    def happens(self, *events: RunEvent) -> None:
        self.status = after(self.status, *events)


@dataclass(slots=True)
class Mail:
    prompt: Prompt
    run: RunRecord
    consumed_seq: int | None = None
