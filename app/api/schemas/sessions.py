"""Sessions as we show them, and what a prompt to one answers with."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from app.api.schemas.common import Out, Page, shown_time, usd
from app.api.schemas.runs import RunObject, Tokens
from app.domain.messages import wire_time
from app.domain.options import shown_options
from app.runs.listing import RunRow, SessionRow

SessionStatus = Literal["idle", "running", "requires_action", "archived"]


class SessionCost(Out):
    session_usd: str
    """This session's own ledger."""
    inherited_usd: str
    """What the parent of a fork had spent; the wire's `total_cost_usd` starts there."""


class SessionObject(Out):
    """A session."""

    object: Literal["session"] = "session"
    id: str
    status: SessionStatus
    """Derived: running while a host holds the session, archived while it can only be read."""
    title: str | None
    tags: list[str]
    user: str | None
    """Your id of the person that it is for."""
    active_run_id: str | None
    queued_runs: int
    pending_actions: int
    """What it asks that nobody has answered."""
    last_seq: int
    last_message_uuid: str | None
    num_runs: int
    cost: SessionCost
    usage: Tokens | None
    """Of all its runs, their children included; not what a fork took over. Null in lists."""
    options: dict[str, Any]
    workspace: dict[str, Any]
    parent_id: str | None
    forked_at: str | None
    metadata: dict[str, str]
    archived_at: str | None
    created_at: str
    updated_at: str
    etag: str
    """For `If-Match`: changes with what can be edited, not with the log."""

    @staticmethod
    def of(row: SessionRow) -> "SessionObject":
        """Show a session. The host's own folder names stay private."""
        return SessionObject(
            id=row.id,
            status=_status(row),
            title=row.title,
            tags=list(row.tags),
            user=row.user,
            active_run_id=row.active_run_id,
            queued_runs=row.queued_runs,
            pending_actions=row.pending_actions,
            last_seq=row.last_seq,
            last_message_uuid=row.last_message_uuid,
            num_runs=row.num_runs,
            cost=SessionCost(
                session_usd=usd(row.cost_usd), inherited_usd=usd(_inherited(row.inherited))
            ),
            usage=None if row.usage is None else _tokens(row.usage),
            options=shown_options(row.options),
            workspace={k: v for k, v in row.workspace.items() if k != "token"},
            parent_id=row.parent_id,
            forked_at=shown_time(row.forked_at),
            metadata=dict(row.metadata),
            archived_at=shown_time(row.archived_at),
            created_at=wire_time(row.created_at),
            updated_at=wire_time(row.updated_at),
            etag=f'"{row.version}"',
        )


def _tokens(usage: Mapping[str, int]) -> Tokens:
    return Tokens(**{name: usage.get(name, 0) for name in Tokens.model_fields})


class CreatedSession(SessionObject):
    """A new session, with its first run when one was asked for."""

    run: RunObject | None = None


class Imported(Out):
    messages: int
    """Messages that the session begins with."""
    skipped_lines: int
    """Lines that are no part of the conversation: other branches, notes of the program."""


class ImportedSession(SessionObject):
    """A session that was made of a transcript."""

    imported: Imported


class SessionPage(Page):
    data: list[SessionObject]


class Links(Out):
    run: str
    stream: str
    events: str
    session: str


class Started(Out):
    """What a prompt answers with."""

    run: RunObject
    session: SessionObject
    links: Links
    steered_into: str | None = None
    """The run that takes the prompt in, when it makes no run of its own: `run` is that one."""

    @staticmethod
    def of(run: RunRow, session: SessionRow, steered_into: str | None) -> "Started":
        """Show what became of a prompt."""
        return Started(
            run=RunObject.of(run),
            session=SessionObject.of(session),
            links=Links(
                run=f"/v1/runs/{run.id}",
                stream=f"/v1/runs/{run.id}/stream",
                events=f"/v1/sessions/{session.id}/events?run_id={run.id}",
                session=f"/v1/sessions/{session.id}",
            ),
            steered_into=steered_into,
        )


def _inherited(value: Mapping[str, Any] | None) -> Decimal:
    return sum((Decimal(part["cost_usd"]) for part in (value or {}).values()), Decimal(0))


def _status(row: SessionRow) -> SessionStatus:
    if row.archived_at is not None:
        return "archived"
    if row.requires_action:
        return "requires_action"
    return "running" if row.is_running else "idle"
