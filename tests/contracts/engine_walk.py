"""A random walk through all that can be done to an engine's store, the same for each store.

What it sees is noted in words of its own (runs that the store names itself are numbered as they
appear), so that two stores can be compared; and for each run the events that happened to it, told
from what was done rather than from what the store says of it.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.journal import Batch, ServiceEvent
from app.domain.runs import RunEvent
from app.errors import TreadleError
from app.store.claims import Claim
from app.store.leases import Host, Lease
from app.store.rows import Row
from tests.contracts.engine_seam import TENANTS, A, B, EngineStore, Pen, spent

STEPS = (
    *("start", "enqueue", "enqueue", "claim", "claim", "claim", "renew", "release", "append"),
    *(
        "append",
        "append",
        "end",
        "end",
        "drop",
        "follow_up",
        "follow_up",
        "steer",
        "steer",
        "cancel",
        "remove",
        "pass_time",
    ),
)


@dataclass(slots=True)
class Walk:
    """Walks over one store. Ids count, so a walk of the same seed does the same again."""

    store: EngineStore
    chance: random.Random
    lives: defaultdict[str, list[RunEvent]] = field(default_factory=lambda: defaultdict(list))
    """What happened to each run, oldest first."""
    seen: list[object] = field(default_factory=list)
    """What was done, and what came of it."""
    runs: list[tuple[str, str, str]] = field(default_factory=list)
    """Tenant, session and id of each run."""
    sessions: list[tuple[str, str]] = field(default_factory=list)
    _held: dict[tuple[str, str], Lease] = field(default_factory=dict)
    """The newest lease of each session, until its owner lets go."""
    _leases: list[Lease] = field(default_factory=list)
    _kept: list[Lease] = field(default_factory=list)
    """Of sessions that a host keeps without a run, or kept once."""
    _names: dict[str, str] = field(default_factory=dict)
    _pen: Pen = field(init=False)

    def __post_init__(self) -> None:
        self._pen = Pen(self.store)

    async def go(self, steps: int) -> None:
        """Take so many steps, then look at everything."""
        for _ in range(steps):
            step = self.chance.choice(STEPS)
            try:
                came = await getattr(self, f"_{step}")()
            except TreadleError as refusal:
                came = type(refusal).__name__
            self.seen.append((step, came))
        self.seen.append(await self.picture())

    async def picture(self) -> dict[str, object]:
        """Give all that can be seen of runs and sessions."""
        picture: dict[str, object] = {}
        for tenant_id, session_id, run_id in self.runs:
            lease = Lease(tenant_id, session_id, run_id, 0)
            waiting = [(p.uuid, p.is_steer) for p in await self.store.waiting_prompts(lease)]
            name = self._name(run_id)
            picture[name] = (await self.store.run(tenant_id, run_id), waiting)
        for tenant_id, session_id in self.sessions:
            rows = await self.store.read(tenant_id, session_id)
            session = await self.store.session(tenant_id, session_id)
            picture[session_id] = (session, [self._told(row) for row in rows])
        return picture

    # -- steps ----------------------------------------------------------------------------

    async def _start(self) -> object:
        tenant_id, host = self.chance.choice(TENANTS), self._host_or_none()
        session, run = self._pen.new_session(), self._pen.new_run(priority=self._priority())
        started = await self.store.start_session(tenant_id, session, run, host=host)
        self.sessions.append((tenant_id, session.id))
        self._accepted(tenant_id, session.id, run.id)
        if started.epoch is not None:
            self._began(Lease(tenant_id, session.id, run.id, started.epoch), "claimed")
        return started.epoch

    async def _enqueue(self) -> object:
        if not self.sessions:
            return None
        tenant_id, session_id = self.chance.choice(self.sessions)
        later = [self._pen.prompt(is_steer=True) for _ in range(self.chance.choice((0, 0, 2)))]
        run_id, enqueued = await self._pen.enqueued(
            session_id,
            self._host_or_none(),
            self._pen.prompt(),
            *later,
            tenant_id=tenant_id,
            priority=self._priority(),
            is_next=self.chance.random() < 0.2,
        )
        self._accepted(tenant_id, session_id, run_id)
        if enqueued.claim is not None:
            self._began(enqueued.claim.lease, "claimed")
        return enqueued.queued_seq, enqueued.ahead, self._claimed(enqueued.claim)

    async def _claim(self) -> object:
        claim = await self.store.claim(self.chance.choice((A, B)))
        if claim is not None:
            key = (claim.lease.tenant_id, claim.lease.session_id)
            self._began(claim.lease, "taken_over" if key in self._held else "claimed")
        return self._claimed(claim)

    async def _renew(self) -> object:
        host = self.chance.choice((A, B))
        leases = [*self._leases[-8:], *self._kept[-4:]]
        renewed = await self.store.renew(host, leases)
        return [renewed.get(lease) for lease in leases]

    async def _drop(self) -> object:
        """A host lets a session go that it keeps, or kept once."""
        if not self._kept:
            return None
        await self.store.release(kept := self.chance.choice(self._kept[-4:]))
        return self._name(kept.run_id)

    async def _follow_up(self) -> object:
        if not self._kept:
            return None
        kept, host = self.chance.choice(self._kept[-4:]), self.chance.choice((A, B))
        made = await self.store.follow_up(host, kept, may_claim=self.chance.random() < 0.7)
        if made is None:
            return None
        self._accepted(kept.tenant_id, kept.session_id, made.run_id)
        if made.claim is not None:
            self._began(made.claim.lease, "claimed")
        follows = (await self.store.work_of(kept.tenant_id, made.run_id)).follows
        return made.last_seq, self._claimed(made.claim), follows and self._name(follows)

    async def _release(self) -> object:
        if (lease := self._lease()) is None:
            return None
        await self.store.release(lease)
        if self._let_go(lease):
            self.lives[lease.run_id].append("released")
        return self._name(lease.run_id)

    async def _append(self) -> object:
        if (lease := self._lease()) is None:
            return None
        first = (ServiceEvent("run.attempt"),) if self.chance.random() < 0.3 else ()
        has_note = self.chance.random() < 0.6
        waiting = await self.store.waiting_prompts(lease)
        taken = waiting[: self.chance.randint(0, 2)]
        batch = Batch(
            (self._pen.note(lease),) if has_note else (),
            (spent(f"0.{self.chance.randint(1, 999)}"),),
            consumed=tuple(prompt.id for prompt in taken),
            steered=sum(prompt.is_steer for prompt in taken),
        )
        return [self._told(row) for row in await self.store.append(lease, batch, first=first)]

    async def _end(self) -> object:
        if (lease := self._lease()) is None:
            return None
        batch = self._pen.last(lease, (spent("0.5"),))
        keeps = self.chance.random() < 0.4
        written = await self.store.append(lease, batch, keeps_session=keeps)
        self.lives[lease.run_id].append("ended")
        self._let_go(lease)
        if keeps:
            self._kept.append(replace(lease, epoch=lease.epoch + 1))
        for row in written:
            if row.run_id is not None and row.run_id != lease.run_id:
                self._accepted(lease.tenant_id, lease.session_id, row.run_id)
        return [self._told(row) for row in written]

    async def _steer(self) -> object:
        if not self.sessions:
            return None
        words = [self._pen.prompt(is_steer=True) for _ in range(self.chance.randint(1, 2))]
        run_id = await self.store.steer(*self.chance.choice(self.sessions), words)
        return run_id and self._name(run_id)

    async def _cancel(self) -> object:
        if not self.runs:
            return None
        tenant_id, session_id, run_id = self.chance.choice(self.runs)
        end_reason = self.chance.choice(("cancelled", "superseded"))
        await self.store.request_cancel(
            tenant_id,
            run_id,
            None,
            end_reason=end_reason,
            spares_tasks=self.chance.random() < 0.5,
        )
        return await self.store.cancel_asked(Lease(tenant_id, session_id, run_id, 0))

    async def _remove(self) -> object:
        if not self.runs:
            return None
        tenant_id, session_id, run_id = self.chance.choice(self.runs)
        seq = await self._pen.cancelled_unstarted(session_id, run_id, tenant_id=tenant_id)
        if seq is not None:
            self.lives[run_id].append("cancelled_unstarted")
        return seq

    async def _pass_time(self) -> object:
        await self.store.pass_time(self.chance.choice((30, 45, 110)))
        return None

    # -- parts ----------------------------------------------------------------------------

    def _host_or_none(self) -> Host | None:
        return self.chance.choice((None, A, B))

    def _priority(self) -> int:
        return self.chance.choice((0, 0, 0, 5))

    def _lease(self) -> Lease | None:
        """A lease that is held, or sometimes one of the past."""
        held = list(self._held.values())
        leases = self._leases if self.chance.random() < 0.2 else held
        return self.chance.choice(leases) if leases else None

    def _accepted(self, tenant_id: str, session_id: str, run_id: str) -> None:
        self.runs.append((tenant_id, session_id, run_id))
        self.lives[run_id].append("accepted")

    def _began(self, lease: Lease, how: RunEvent) -> None:
        self._held[lease.tenant_id, lease.session_id] = lease
        self._leases.append(lease)
        self.lives[lease.run_id].append(how)

    def _let_go(self, lease: Lease) -> bool:
        key = (lease.tenant_id, lease.session_id)
        return self._held.get(key) == lease and bool(self._held.pop(key))

    def _name(self, run_id: str) -> str:
        return self._names.setdefault(run_id, f"#{len(self._names)}")

    def _claimed(self, claim: Claim | None) -> Any:
        if claim is None:
            return None
        lease = replace(claim.lease, run_id=self._name(claim.lease.run_id))
        return replace(claim, lease=lease)

    def _told(self, row: Row) -> tuple[object, ...]:
        body = row.body if row.kind == "message" and row.type != "result" else ""
        return row.seq, row.run_id and self._name(row.run_id), row.type, body
