"""What is left when it is quiet: the tables, the model's log, the files."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import asyncpg

Record = Mapping[str, Any]
_ERROR = re.compile(r'"level":"(ERROR|CRITICAL)"|^Traceback')
_CUT_STREAM = "ASGI callable returned without completing response"
"""What uvicorn says of a stream that a stop cuts while it waits for a database that is away."""


@dataclass
class Evidence:
    """All of it, in memory. Rows are in their natural order."""

    sessions: dict[str, Record]
    runs: dict[str, Record]
    journal: dict[str, list[Record]]
    """By session, by seq."""
    messages: dict[str, list[tuple[Record, dict[str, Any]]]]
    """The same without service events, with the message read."""
    inbox: list[Record]
    actions: list[Record]
    ledger: list[Record]
    log: dict[str, list[Record]]
    """What the triggers wrote, by session, in commit order."""
    requests: list[dict[str, Any]]
    """What the model saw, in the order of its numbers."""
    traces: dict[str, list[str]]
    """Lines of each session's trace file."""
    hurts: Mapping[str, list[tuple[float, str]]] = field(default_factory=dict)
    """What was done to each host, and when (wall time)."""
    full_s: Sequence[tuple[float, float]] = ()
    """When the disk was full (wall time)."""
    errors: Sequence[str] = ()
    """What hosts logged as errors."""

    @cached_property
    def children(self) -> dict[str, Record]:
        """Runs of subagents in the background: these go on beside others of their session."""
        return {id_: run for id_, run in self.runs.items() if run["origin"] == "subagent"}

    def rows_of(self, session_id: str) -> Iterator[Record]:
        """Yield all rows of a session."""
        yield self.sessions[session_id]
        yield from self.journal.get(session_id, ())
        for rows in (self.runs.values(), self.inbox, self.actions, self.ledger):
            yield from (row for row in rows if row["session_id"] == session_id)
        yield from self.log.get(session_id, ())

    @property
    def felt_full(self) -> int:
        """How many tool results speak of a full disk."""
        return sum(
            "No space left" in row["body"]
            for rows in self.journal.values()
            for row in rows
            if row["type"] == "user" and row["run_id"]
        )


async def collect(dsn: str, model_log: Path, sessions_dir: Path, trace: str) -> Evidence:
    """Read it all."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = {
            name: await connection.fetch(f"SELECT * FROM {name} ORDER BY {order}")  # noqa: S608 - constants
            for name, order in {
                "sessions": "created_at",
                "runs": "session_id, queued_seq",
                "journal": "session_id, seq",
                "inbox": "position",
                "actions": "created_at, id",
                "ledger": "id",
                "chaos_log": "id",
            }.items()
        }
    finally:
        await connection.close()
    sessions: dict[str, Record] = {row["id"]: dict(row) for row in tables["sessions"]}
    journal = _by_session(tables["journal"])
    return Evidence(
        sessions,
        {row["id"]: dict(row) for row in tables["runs"]},
        journal,
        {
            session: [(row, json.loads(row["body"])) for row in rows if row["kind"] == "message"]
            for session, rows in journal.items()
        },
        list(tables["inbox"]),
        list(tables["actions"]),
        list(tables["ledger"]),
        _by_session(tables["chaos_log"]),
        _requests(model_log),
        {id_: _lines(_workspace(row, sessions_dir) / trace) for id_, row in sessions.items()},
    )


def token_of(session: Record) -> str:
    """Give the name of a session's folder."""
    return str(json.loads(session["workspace"])["token"])


def _workspace(session: Record, sessions_dir: Path) -> Path:
    return sessions_dir / token_of(session) / "ws"


def _by_session(rows: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        found[row["session_id"]].append(row)
    return dict(found)


def _requests(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda r: int(r["request_id"][4:]))


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def errors_of(log: Path) -> list[str]:
    """Give what a host logged as errors."""
    lines = log.read_text(errors="replace").splitlines()
    return [f"{log.stem}: {line}" for line in lines if _is_error(line)]


def _is_error(line: str) -> bool:
    return _ERROR.search(line) is not None and _CUT_STREAM not in line
