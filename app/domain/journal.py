"""What becomes durable together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.messages import Message, encode_message
from app.domain.runs import Outcome
from app.domain.usage import LedgerRow
from app.domain.value import value


@value
class Entry:
    """A message on its way into the journal."""

    message: Message
    body: bytes
    """The exact JSON that is stored, and sent to every reader."""
    facts: Mapping[str, Any] | None = None
    """What the loop must remember and no client sees; folded with the message."""
    audit: Mapping[str, Any] | None = None
    """The decision that the message follows from, for the audit: it commits with the message."""
    thread: str | None = None
    """The call that began the subagent whose row it is; None for the main conversation."""
    is_aside: bool = False
    """Whether only those see it who read the thread by itself."""

    @staticmethod
    def of(
        message: Message,
        facts: Mapping[str, Any] | None = None,
        audit: Mapping[str, Any] | None = None,
    ) -> "Entry":
        """Encode a new message."""
        return Entry(message, encode_message(message), facts, audit)


@value
class ServiceEvent:
    """A fact about the service in a session's log; never shown to readers of messages alone."""

    type: str
    """`run.queued`, `run.started`, `run.finished`, …"""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the event."""
    thread: str | None = None
    """The call that began the subagent in the background whose run it is of."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A subagent that goes on in the background: it is a run from the moment it is begun."""

    run_id: str
    options: Mapping[str, Any]
    """Its own, in stored form: the parent's with what differs."""
    launched: Mapping[str, Any]
    """All that it was given, so that any host can begin it, or go on with it."""


@value
class Batch:
    """One step's writes: stored in one transaction, or not at all."""

    entries: tuple[Entry, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    consumed: tuple[str, ...] = ()
    """Inbox rows that the entries contain."""
    steered: int = 0
    """How many of those were sent into the run while it was going on."""
    outcome: Outcome | None = None
    """Set on the last batch of a run: its terminal state commits with its terminal message."""
    events: tuple[ServiceEvent, ...] = ()
    """Written after the entries."""
    launches: tuple[Launch, ...] = ()
    """Runs that begin with it, in the background."""
    told: tuple[str, ...] = ()
    """Runs of subagents in the background whose ends the entries tell."""


def batch(*messages: Message, ledger: tuple[LedgerRow, ...] = ()) -> Batch:
    """Make a batch of messages without facts."""
    return Batch(tuple(Entry.of(message) for message in messages), ledger)


def joined(batches: Sequence[Batch]) -> Batch:
    """Give batches that are ready together as one. None of them takes prompts in or ends a run."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        tuple(entry for one in batches for entry in one.entries),
        tuple(row for one in batches for row in one.ledger),
        events=tuple(event for one in batches for event in one.events),
        launches=tuple(launch for one in batches for launch in one.launches),
        told=tuple(run_id for one in batches for run_id in one.told),
    )
