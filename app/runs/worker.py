"""The worker of a host: claims runs, keeps their leases, stops them when it must.

Theory of operation. `claim_forever` takes runs while slots are free, woken by a word or by the
poll. `renew_forever` renews all leases in one statement a heartbeat; a lease that is missing from
the answer is lost, and its execution is stopped at once. The database decides in every case: what
this process believes only saves time.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.runs.execute import Execution, Parts
from app.runs.live import Hub
from app.store import queue
from app.store.bus import Bus, CancelAsked, Word, WorkWaiting
from app.store.engine import GONE, Database
from app.store.queue import Claim, Host
from app.telemetry.logging import run_context

log = logging.getLogger(__name__)


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
    is_draining: bool = False
    _running: dict[str, tuple[Execution, asyncio.Task[None]]] = field(default_factory=dict)
    _has_work: asyncio.Event = field(default_factory=asyncio.Event)
    _has_ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def claiming_host(self) -> Host | None:
        """This host when it can take one more run on the spot, else None."""
        return None if self.is_draining or len(self._running) >= self.max_runs else self.host

    @property
    def running(self) -> int:
        """How many runs this host drives now."""
        return len(self._running)

    def start(self, claim: Claim) -> None:
        """Drive a run that was claimed for this host."""
        execution = Execution(claim, self.database, self.hub, self.parts, self.max_attempts)
        task = asyncio.create_task(self._drive(execution))
        self._running[claim.lease.run_id] = (execution, task)

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
            case _:
                pass

    def cancel(self, run_id: str) -> bool:
        """Cancel a run when it is driven here; its cancel is in the database already."""
        if found := self._running.get(run_id):
            found[0].stop("cancel")
        return found is not None

    async def claim_forever(self) -> None:
        """Take runs while there are slots, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), self.poll_s)
            self._has_work.clear()
            try:
                while (host := self.claiming_host) and (
                    claim := await queue.claim(self.database, host)
                ):
                    self.start(claim)
            except GONE as error:
                log.warning("Work cannot be looked for: %s", type(error).__name__)
                await asyncio.sleep(self.poll_s)

    async def renew_forever(self) -> None:
        """Renew leases, stop what is lost or cancelled, until cancelled."""
        while True:
            await asyncio.sleep(self.heartbeat_s)
            held = {run_id: execution for run_id, (execution, _) in self._running.items()}
            if not held:
                continue
            leases = [execution.claim.lease for execution in held.values()]
            try:
                renewed = await queue.renew(self.database, self.host, leases)
            except GONE as error:
                log.warning("Leases cannot be renewed: %s", type(error).__name__)
                continue
            for run_id, execution in held.items():
                if run_id not in renewed:
                    execution.stop("lost")
                elif renewed[run_id]:
                    execution.stop("cancel")

    async def drain(self, drain_s: float) -> None:
        """Take nothing more; let runs reach a message boundary, then let them all go."""
        self.is_draining = True
        for execution, _ in self._running.values():
            execution.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self._running:
                    self._has_ended.clear()
                    await self._has_ended.wait()
        for execution, _ in list(self._running.values()):
            execution.stop("drain")
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
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drive(self, execution: Execution) -> None:
        lease = execution.claim.lease
        with run_context(session_id=lease.session_id, run_id=lease.run_id):
            try:
                await execution.run()
            except Exception:  # the edge: one run's failure must not take the host down
                log.exception("A run's execution failed", extra={"action": "execution_failed"})
            finally:
                self._running.pop(lease.run_id, None)
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
            tasks.create_task(worker.renew_forever()),
        ]
        worker.wake()
        try:
            yield worker
        finally:
            for task in running:
                task.cancel()
            await worker.close()
