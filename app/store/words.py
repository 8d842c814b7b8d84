"""Words between hosts, and how they are packed into the payloads of notifications."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import orjson

from app.domain.value import value

PAYLOAD_BYTES = 7900
"""Postgres takes payloads below 8,000 bytes."""


@value
class RowsWritten:
    """A session's journal has grown to `seq`."""

    tenant_id: str
    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class WorkWaiting:
    """A run became claimable."""


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A run's cancel is asked for."""

    run_id: str


@dataclass(frozen=True, slots=True)
class MailArrived:
    """A prompt was sent into a run."""

    run_id: str


@dataclass(frozen=True, slots=True)
class TaskStopAsked:
    """A command in the background is to be stopped, by the host that runs it."""

    tenant_id: str
    session_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class TaskStopped:
    """It is stopped."""

    session_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class ServerAsked:
    """An MCP server is to be connected anew, by the host that drives the session."""

    tenant_id: str
    session_id: str
    server: str


@dataclass(frozen=True, slots=True)
class ServerReached:
    """It is on its way."""

    session_id: str
    server: str


@dataclass(frozen=True, slots=True)
class PreviewsWanted:
    """Somebody on the sender's host reads a session's partial messages. Holds for a while."""

    tenant_id: str
    session_id: str
    is_fresh: bool
    """Whether it has nothing yet of the message that is on its way."""


@dataclass(frozen=True, slots=True)
class PreviewPart:
    """A part of what a session's run sends; it follows on the part before it, or is of no use."""

    tenant_id: str
    session_id: str
    epoch: int
    """Of the lease that the run is driven under: a higher one is newer."""
    stream: str
    n: int
    """Its number in the stream."""
    kind: Literal["snapshot", "events", "more"]
    """What begins with it; `more` goes on with the last."""
    is_last: bool
    text: str
    """A part of JSON, which is whole with the last one."""


@dataclass(frozen=True, slots=True)
class Here:
    """The sender is there. Between buses alone: `on_word` is not told."""

    is_new: bool
    """It has just begun to listen, and knows of nobody yet."""


Word: TypeAlias = (
    RowsWritten
    | WorkWaiting
    | CancelAsked
    | MailArrived
    | TaskStopAsked
    | TaskStopped
    | ServerAsked
    | ServerReached
    | PreviewsWanted
    | PreviewPart
    | Here
)


def pack(host_id: str, words: list[Word]) -> list[str]:
    """Give payloads that hold all words, each small enough."""
    payloads: list[str] = []
    pending: list[list[object]] = []
    size = 0
    for word in words:
        item = _item(word)
        item_size = len(orjson.dumps(item)) + 1
        if pending and size + item_size > PAYLOAD_BYTES - 100:
            payloads.append(orjson.dumps([host_id, pending]).decode())
            pending, size = [], 0
        pending.append(item)
        size += item_size
    if pending:
        payloads.append(orjson.dumps([host_id, pending]).decode())
    return payloads


def unpack(host_id: str, payload: str) -> list[Word]:
    """Read a payload; words of one's own are left out, as are those of a newer program."""
    try:
        sender, items = orjson.loads(payload)
    except (ValueError, TypeError):
        return []
    if sender == host_id or not isinstance(items, list):
        return []
    return [word for item in items if (word := _word(item)) is not None]


def _item(word: Word) -> list[object]:  # noqa: C901 - a table
    match word:
        case RowsWritten(tenant, session, seq):
            return ["rows", tenant, session, seq]
        case WorkWaiting():
            return ["work"]
        case CancelAsked(run):
            return ["cancel", run]
        case MailArrived(run):
            return ["mail", run]
        case TaskStopAsked(tenant, session, task):
            return ["stop", tenant, session, task]
        case TaskStopped(session, task):
            return ["stopped", session, task]
        case ServerAsked(tenant, session, server):
            return ["server", tenant, session, server]
        case ServerReached(session, server):
            return ["reached", session, server]
        case Here(is_new):
            return ["here", is_new]
        case PreviewsWanted(tenant, session, is_fresh):
            return ["want", tenant, session, is_fresh]
        case PreviewPart(tenant, session, epoch, stream, n, kind, is_last, text):
            return ["part", tenant, session, epoch, stream, n, kind, is_last, text]


def _word(item: object) -> Word | None:  # noqa: C901 - a table
    match item:
        case ["rows", str(tenant), str(session), int(seq)]:
            return RowsWritten(tenant, session, seq)
        case ["work"]:
            return WorkWaiting()
        case ["cancel", str(run)]:
            return CancelAsked(run)
        case ["mail", str(run)]:
            return MailArrived(run)
        case ["stop", str(tenant), str(session), str(task)]:
            return TaskStopAsked(tenant, session, task)
        case ["stopped", str(session), str(task)]:
            return TaskStopped(session, task)
        case ["server", str(tenant), str(session), str(server)]:
            return ServerAsked(tenant, session, server)
        case ["reached", str(session), str(server)]:
            return ServerReached(session, server)
        case ["here", bool(is_new)]:
            return Here(is_new)
        case ["want", str(tenant), str(session), bool(is_fresh)]:
            return PreviewsWanted(tenant, session, is_fresh)
        case [
            "part",
            str(tenant),
            str(session),
            int(epoch),
            str(stream),
            int(n),
            "snapshot" | "events" | "more" as kind,
            bool(is_last),
            str(text),
        ]:
            return PreviewPart(tenant, session, epoch, stream, n, kind, is_last, text)
        case _:
            return None
