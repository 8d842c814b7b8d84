"""Rows of a session's log: as they are read, and on their way in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import orjson

from app.domain.journal import Batch, Entry, ServiceEvent
from app.domain.messages import wire_time
from app.domain.usage import LedgerRow
from app.domain.value import value


@value
class Row:
    """A durable entry of a session's log."""

    seq: int
    run_id: str | None
    kind: Literal["message", "service"]
    type: str
    body: str
    """The message's exact JSON. Of a service event, all but its `seq`."""
    at: datetime | None = None
    thread: str | None = None
    """The call that began the subagent whose row it is."""
    is_aside: bool = False
    """Whether it is shown to readers of its thread alone."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> "Row":
        """Read a row that was selected with `ROW_COLUMNS`."""
        kind = found["kind"]
        return Row(
            found["seq"],
            found["run_id"],
            _kind(kind),
            found["type"],
            found["body"],
            found["at"],
            found["parent_tool_use_id"],
            kind == "aside",
        )


PAGE = 500
"""Rows read at a time."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Up to `limit` rows of a log with `after < seq < before`, oldest first unless it `is_descending`."""

    after: int = 0
    before: int | None = None
    limit: int = PAGE
    is_descending: bool = False

    @property
    def and_one(self) -> "LogRange":
        """The same and one row more, which says that there are more."""
        return replace(self, limit=self.limit + 1)

    def page(self, rows: list[Row]) -> tuple[list[Row], bool]:
        """Give a page of what `and_one` has found, and whether there is more."""
        return rows[: self.limit], len(rows) > self.limit


BEGINNING = LogRange()
"""As much of a log as is read at a time, from its first row on."""

ROW_COLUMNS = "seq, run_id, kind, type, body, at, parent_tool_use_id"


@value
class NewRow:
    """A row on its way in, without its seq."""

    kind: str
    type: str
    subtype: str | None
    uuid: str | None
    parent: str | None
    body: str
    facts: str | None
    audit: str | None = None
    """The decision that the row follows from, as JSON."""


def service_body(event: ServiceEvent, session_id: str, run_id: str | None, at: datetime) -> str:
    """Encode a service event, all but its `seq`, which is not known before the insert."""
    head = {"type": event.type, "session_id": session_id, "run_id": run_id, "at": wire_time(at)}
    return orjson.dumps({**head, **event.data}).decode()


def new_rows(
    batch: Batch,
    session_id: str,
    run_id: str,
    now: datetime,
    *,
    first: Sequence[ServiceEvent] = (),
) -> list[NewRow]:
    """Give a batch's rows in their order; `first` events come before its entries."""
    return [
        *(_service_row(event, session_id, run_id, now) for event in first),
        *(message_row(entry) for entry in batch.entries),
        *(_service_row(event, session_id, run_id, now) for event in batch.events),
    ]


def stored_rows(new: Sequence[NewRow], run_id: str, last_seq: int, now: datetime) -> list[Row]:
    """Give rows as readers see them, the last of which got `last_seq`."""
    start = last_seq - len(new) + 1
    return [
        Row(
            start + index,
            run_id,
            _kind(row.kind),
            row.type,
            row.body,
            now,
            row.parent,
            row.kind == "aside",
        )
        for index, row in enumerate(new)
    ]


def row_values(row: NewRow) -> tuple[str | None, ...]:
    """Give a row as values in the order of its fields."""
    return (
        *(row.kind, row.type, row.subtype, row.uuid, row.parent, row.body, row.facts),
        row.audit,
    )


def ledger_values(row: LedgerRow) -> tuple[Any, ...]:
    """Give a ledger row as values, in the order of the table's columns."""
    usage = row.usage
    return (
        *(row.thread, row.purpose, row.model, row.request_id, row.http_status),
        *(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens),
        *(usage.cache_write_5m_tokens, usage.cache_write_1h_tokens, usage.thinking_tokens),
        *(usage.web_search_requests, row.cost_usd, row.estimated, row.duration_ms),
    )


def columns(rows: Sequence[NewRow]) -> list[object]:
    """Give rows as the arrays that statements of many rows unnest; the audit is left out."""
    return _arrays([row_values(row)[:-1] for row in rows], 7)


def ledger_columns(rows: Sequence[LedgerRow]) -> list[object]:
    """Give ledger rows as the arrays that statements of many rows unnest."""
    return _arrays([ledger_values(row) for row in rows], 15)


def _arrays(rows: Sequence[Sequence[Any]], width: int) -> list[object]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def message_row(entry: Entry) -> NewRow:
    """Give a message as a row on its way in."""
    message = entry.message
    fields = vars(message)  # a model's `getattr` is slow at what it does not have
    return NewRow(
        "aside" if entry.is_aside else "message",
        message.type,
        fields.get("subtype"),
        message.uuid,
        entry.thread or fields.get("parent_tool_use_id"),
        entry.body.decode(),
        orjson.dumps(entry.facts).decode() if entry.facts else None,
        orjson.dumps(entry.audit).decode() if entry.audit else None,
    )


def _service_row(event: ServiceEvent, session_id: str, run_id: str, now: datetime) -> NewRow:
    body = service_body(event, session_id, run_id, now)
    return NewRow("service", event.type, None, None, event.thread, body, None)


def _kind(kind: str) -> Literal["message", "service"]:
    return "service" if kind == "service" else "message"
