"""What is told after a commit: to readers, to the owner of a run, to hosts with a free slot."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.runs.cancelling import Cancelled
from app.runs.live import Hub
from app.runs.worker import Worker
from app.store.bus import Bus
from app.store.queue import Enqueued
from app.store.rows import Row
from app.store.runs import RunRow
from app.store.sessions import SessionRow
from app.store.words import CancelAsked, MailArrived, WorkWaiting


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a prompt."""

    run: RunRow
    """Its own run, or the one that takes it in."""
    session: SessionRow
    enqueued: Enqueued | None
    """None when it was sent into a run that goes on."""
    superseded: str | None = None
    """The run that makes room for it."""
    known: Sequence[Row] = ()
    """The run's first rows, when they committed with it: a stream can begin with them."""

    @property
    def steered_into(self) -> str | None:
        return None if self.enqueued else self.run.id


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells this host directly, and the others by words. A lost word costs time only."""

    hub: Hub
    bus: Bus
    worker: Worker | None

    def accepted(self, tenant_id: str, accepted: Accepted) -> None:
        """Tell of a prompt."""
        if accepted.superseded is not None:
            self._stop(accepted.superseded)
        enqueued = accepted.enqueued
        if enqueued is None:
            self._mail(accepted.run.id)
            return
        self.hub.grew(tenant_id, accepted.session.id, enqueued.queued_seq)
        if enqueued.claim is not None and self.worker is not None:
            self.worker.start(enqueued.claim)
        else:
            self._wake()

    def cancelled(self, tenant_id: str, cancelled: Cancelled) -> None:
        """Tell of a cancel."""
        run = cancelled.run
        if cancelled.is_already_finished:
            return
        if run.status == "finished" and run.last_seq is not None:
            self.hub.grew(tenant_id, run.session_id, run.last_seq)
            self._wake()  # another run of the session may be next now
            return
        if cancelled.asked_seq is not None:
            self.hub.grew(tenant_id, run.session_id, cancelled.asked_seq)
        self._stop(run.id)

    def answered(self, run_id: str) -> None:
        """Tell of an answer: its run may wait here, on another host, or on none."""
        self._mail(run_id)
        self._wake()

    def changed(self, run_id: str) -> None:
        """Tell of other options of a run."""
        self._mail(run_id)

    def _stop(self, run_id: str) -> None:
        if self.worker is None or not self.worker.cancel(run_id):
            self.bus.say(CancelAsked(run_id))

    def _mail(self, run_id: str) -> None:
        if self.worker is None or not self.worker.mail(run_id):
            self.bus.say(MailArrived(run_id))

    def _wake(self) -> None:
        self.bus.say(WorkWaiting())
        if self.worker is not None:
            self.worker.wake()
