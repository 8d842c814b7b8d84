"""The worker of a host: claims runs, drives them, stops them when it must.

Theory of operation. `claim_forever` takes runs while slots are free, woken by a word or by the
poll. The heartbeat keeps their leases. The database decides in every case: what this process
believes only saves time.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from app.runs.background import Background
from app.runs.beside import Yard
from app.runs.chores import Chores
from app.runs.crew import Crew
from app.runs.desk import WaitingRules
from app.runs.execute import Execution
from app.runs.heartbeat import Heartbeat
from app.runs.keeping import Keeper
from app.runs.live import Hub
from app.runs.parts import Parts
from app.store.beside import take_orphans
from app.store.bus import Bus
from app.store.claims import Claim, claim_many
from app.store.engine import TROUBLE, Database
from app.store.group_commit import GroupCommit
from app.store.leases import Host, Lease
from app.store.words import (
    CancelAsked,
    MailArrived,
    ServerAsked,
    ServerReached,
    TaskStopAsked,
    TaskStopped,
    Word,
    WorkWaiting,
)
from app.telemetry.logging import run_context
from app.tools.shells import HostRoom, Shells

log = logging.getLogger(__name__)

CLAIMS_AT_ONCE = 20
"""Runs taken by one statement: it costs about as much as taking one."""


@dataclass(slots=True)
class Worker:
    """Drives runs on this host. Made by `open_worker`, which owns its tasks."""

    host: Host
    database: Database
    bus: Bus
    hub: Hub
    parts: Parts
    max_runs: int
    heartbeat_s: float
    poll_s: float
    max_attempts: int
    background: HostRoom
    """For the commands that its sessions leave in the background."""
    waiting: WaitingRules = WaitingRules()
    agents_at_once: int = 8
    """Subagents that work in the background of a session; more wait."""
    is_draining: bool = False
    appends: GroupCommit = field(init=False)
    _yard: Yard = field(init=False)
    keeper: Keeper = field(init=False)
    """Sessions without a run, whose commands go on in the background."""
    chores: Chores = field(init=False)
    heartbeat: Heartbeat = field(init=False)
    _running: dict[Lease, tuple[Execution, asyncio.Task[None]]] = field(default_factory=dict)
    _errands: set[asyncio.Task[None]] = field(default_factory=set)
    """What is done for other hosts."""
    _claiming: int = 0
    """Slots held for claims under way, so that many at once cannot take more than there are."""
    _has_work: asyncio.Event = field(default_factory=asyncio.Event)
    _has_ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.appends = GroupCommit(self.database)
        self._yard = Yard(
            *(self.host, self.database, self.hub, self.parts, self.appends, self.max_attempts),
            *(self.waiting, self.agents_at_once),
        )
        self.keeper = Keeper(
            self.host, self.database, self.poll_s, self.slot, self.start, self._grew
        )
        self.chores = Chores(
            *(self.database, self.bus, self.hub, self.poll_s),
            *(self.mail, self.wake, self._adopt),
        )
        self.heartbeat = Heartbeat(
            *(self.host, self.database, self.heartbeat_s, self.keeper),
            lambda: {lease: execution for lease, (execution, _) in self._running.items()},
            lambda: self._crews,
        )

    def _grew(self, lease: Lease, seq: int) -> None:
        self.hub.grew(lease.tenant_id, lease.session_id, seq)

    @contextmanager
    def slot(self) -> Iterator[Host | None]:
        """Hold a slot during a claim, `start` included: this host, or None when it takes no run."""
        with self._slots(1) as held:
            yield self.host if held else None

    @contextmanager
    def _slots(self, most: int) -> Iterator[int]:
        """Hold up to `most` slots during a claim; gives how many."""
        free = 0 if self.is_draining else self.max_runs - len(self._running) - self._claiming
        held = max(0, min(most, free))
        self._claiming += held
        try:
            yield held
        finally:
            self._claiming -= held
            if held:
                self._has_ended.set()

    @property
    def running(self) -> int:
        """How many runs this host drives now."""
        return len(self._running)

    def start(self, claim: Claim) -> None:
        """Drive a run that was claimed for this host."""
        for lease, (older, _) in self._running.items():
            if lease.run_id == claim.lease.run_id:
                older.stop("lost")  # our own lease had run out, and we are the new owner
        execution = Execution(
            claim,
            self.host,
            self.database,
            self.hub,
            self.parts,
            self.appends,
            self.max_attempts,
            self.keeper.take(claim.lease) or self._background(claim.lease),
            self.keeper,
            self.waiting,
        )
        task = asyncio.create_task(self._drive(execution))
        self._running[claim.lease] = (execution, task)
        if self.is_draining:
            execution.drain()

    def _background(self, lease: Lease) -> Background:
        return Background(Shells(self.background), Crew(self._yard, lease))

    @property
    def _crews(self) -> list[Crew]:
        running = [execution.background.crew for execution, _ in self._running.values()]
        return [*running, *self.keeper.crews]

    def wake(self) -> None:
        """Look for work now."""
        self._has_work.set()

    def heard(self, word: Word) -> None:
        """Take a word of another host, or of this one."""
        match word:
            case WorkWaiting():
                self.wake()
            case CancelAsked(run_id):
                self.cancel(run_id)
            case MailArrived(run_id):
                self.mail(run_id)
            case TaskStopAsked():
                self._run_errand(self._stop_for(word))
            case ServerAsked():
                self._run_errand(self._reconnect_for(word))
            case _:
                pass

    def cancel(self, run_id: str) -> bool:
        """Cancel a run when it is driven here; its cancel is in the database already."""
        found = [e for lease, (e, _) in self._running.items() if lease.run_id == run_id]
        for execution in found:
            execution.stop("cancel")
        return bool(found) or any(crew.cancel(run_id) for crew in self._crews)

    def mail(self, run_id: str) -> bool:
        """Say that a prompt was sent into a run, when it is driven here."""
        found = [e for lease, (e, _) in self._running.items() if lease.run_id == run_id]
        for execution in found:
            execution.mail()
        return bool(found) or any(crew.mail(run_id) for crew in self._crews)

    async def stop_task(self, tenant_id: str, session_id: str, task_id: str) -> bool:
        """End a command or a subagent in the background, when it runs here."""
        key = (tenant_id, session_id)
        here = [e.background for lease, (e, _) in self._running.items() if lease.session == key]
        if (kept := self.keeper.background_of(key)) is not None:
            here.append(kept)
        stopped = [await background.stop(task_id) for background in here]
        return any(task is not None for task in stopped)

    async def reconnect(self, tenant_id: str, session_id: str, server: str) -> bool:
        """Connect an MCP server of a session anew, when this host drives it."""
        here = [
            execution
            for lease, (execution, _) in self._running.items()
            if lease.session == (tenant_id, session_id)
        ]
        return any([await execution.reconnect(server) for execution in here])

    def _run_errand(self, work: Coroutine[Any, Any, None]) -> None:
        errand = asyncio.create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _reconnect_for(self, word: ServerAsked) -> None:
        if await self.reconnect(word.tenant_id, word.session_id, word.server):
            self.bus.say(ServerReached(word.session_id, word.server))

    async def _stop_for(self, word: TaskStopAsked) -> None:
        if await self.stop_task(word.tenant_id, word.session_id, word.task_id):
            self.bus.say(TaskStopped(word.session_id, word.task_id))

    async def claim_forever(self) -> None:
        """Take runs while there are slots, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), self.poll_s)
            self._has_work.clear()
            try:
                while await self._claim():
                    pass
            except TROUBLE as error:
                log.warning("Work cannot be looked for: %s", type(error).__name__)
                await asyncio.sleep(self.poll_s)

    async def _claim(self) -> bool:
        with self._slots(CLAIMS_AT_ONCE) as free:
            claims = await claim_many(self.database, self.host, free) if free else []
            for claim in claims:
                self.start(claim)
        return bool(claims)

    async def _adopt(self) -> bool:
        """Take one such session, when there is one and this host has room."""
        with self.slot() as host:
            found = await take_orphans(self.database, host) if host is not None else None
            if found is None:
                return False
            await self.keeper.adopt(found, self._background(found.lease))
        return True

    async def drain(self, drain_s: float) -> None:
        """Take nothing more; let runs reach a message boundary, then let them all go."""
        self.is_draining = True
        for execution, _ in self._running.values():
            execution.drain()
        closing = asyncio.create_task(self.keeper.close())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self._running or self._claiming:
                    self._has_ended.clear()
                    await self._has_ended.wait()
                await asyncio.shield(closing)
        for execution, _ in list(self._running.values()):
            execution.stop("drain")
        self.keeper.hurry()
        await asyncio.wait([closing], timeout=5.0)
        tasks = [task for _, task in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)
        self.bus.say(WorkWaiting())

    async def close(self) -> None:
        """Stop everything at once; leases that are still held run out by themselves."""
        tasks = [task for _, task in self._running.values()]
        for execution, task in list(self._running.values()):
            execution.stop("lost")
            task.cancel()
        for errand in self._errands:
            errand.cancel()
        await asyncio.gather(*tasks, *self._errands, return_exceptions=True)
        self.keeper.hurry()
        closing = asyncio.create_task(self.keeper.close())
        await asyncio.wait([closing], timeout=5.0)
        for crew in self.keeper.crews:
            crew.lose()  # what is not let go by now waits for the database, or for a lease
        await closing

    async def _drive(self, execution: Execution) -> None:
        lease = execution.claim.lease
        with run_context(session_id=lease.session_id, run_id=lease.run_id):
            try:
                await execution.run()
            except Exception:  # the edge: one run's failure must not take the host down
                log.exception("A run's execution failed", extra={"action": "execution_failed"})
            finally:
                self._running.pop(lease, None)
                self._has_ended.set()
                self.wake()


@asynccontextmanager
async def open_worker(worker: Worker) -> AsyncIterator[Worker]:
    """Run the worker's tasks."""
    worker.bus.on_word(worker.heard)
    worker.bus.on_reconnect(worker.wake)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(worker.claim_forever()),
            tasks.create_task(worker.heartbeat.renew_forever()),
            tasks.create_task(worker.chores.expire_forever()),
            tasks.create_task(worker.chores.adopt_forever()),
            tasks.create_task(worker.chores.tidy_forever()),
        ]
        worker.wake()
        try:
            yield worker
        finally:
            for task in running:
                task.cancel()
            await worker.close()
