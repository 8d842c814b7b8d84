"""Runs as we show them."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from app.api.schemas.common import Out, Page, shown_time, usd
from app.domain.messages import wire_time
from app.domain.options import shown_options
from app.errors import TreadleError
from app.runs.listing import RunRow

RunStatus = Literal["queued", "running", "requires_action", "finished"]


class Tokens(Out):
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class ModelUse(Tokens):
    web_search_requests: int
    cost_usd: str | None
    """Null when no price is known."""


class RunCost(Out):
    run_usd: str | None
    """The whole run, its children included. Null when no price is known for what it used."""
    main_thread_usd: str | None
    """Of that, what the session's main conversation cost: without subagents."""
    tree: bool = True
    estimated: bool
    """Whether some part is an estimate or has no known price."""


class RunResult(Out):
    text: str | None
    structured_output: dict[str, Any] | None
    """The object that was asked for by `output_format`."""

    @staticmethod
    def of(row: RunRow) -> "RunResult":
        """Show a run's output. A structured one is kept as its text."""
        is_structured = bool(row.options.get("output_format")) and row.result_subtype == "success"
        text = row.result_text
        return RunResult(
            text=text, structured_output=orjson.loads(text) if is_structured and text else None
        )


class Recovery(Out):
    policy: str
    max_attempts: int | None
    """Null: the operator's bound."""


class RunObject(Out):
    """A run."""

    object: Literal["run"] = "run"
    id: Annotated[str, Field(examples=["run_01JDZX5E5V8M2Q4T6Y8A0C2E4G"])]
    session_id: str
    status: RunStatus
    prompt: str | None
    """The first 500 characters of its first prompt's text."""
    priority: int
    result_subtype: str | None
    """The SDK's word for how the loop ended; set when finished."""
    end_reason: str | None
    """Our word for why. More words may come."""
    is_error: bool | None
    stop_reason: str | None
    terminal_reason: str | None
    attempt: int
    """How many hosts have begun it."""
    worker: str | None
    lease_expires_at: str | None
    queue_position: int | None
    """Runs of the session before it, while it is queued."""
    first_seq: int
    last_seq: int | None
    num_turns: int | None
    resumed_from: str | None
    """The session's last message before this run."""
    options: dict[str, Any]
    """Effective: defaults, aliases and ceilings applied."""
    cost: RunCost
    usage: Tokens
    model_usage: dict[str, ModelUse]
    """What each model was asked for, the run's children included."""
    result: RunResult
    errors: list[str]
    permission_denials: list[dict[str, Any]]
    origin: str
    """What began it: `api`, `retry`, `task-notification`. More words may come."""
    parent_run_id: str | None
    """The run that it tries again, or follows."""
    metadata: dict[str, str]
    cancel_requested_at: str | None
    recovery: Recovery
    created_at: str
    started_at: str | None
    finished_at: str | None
    deadline_at: str | None

    @staticmethod
    def of(row: RunRow) -> "RunObject":
        """Show a run."""
        is_unpriced = row.is_estimated and row.cost_usd == 0 and row.input_tokens > 0
        spent = row.spent or ()
        return RunObject(
            id=row.id,
            session_id=row.session_id,
            status=_status(row.status),
            prompt=row.prompt,
            priority=row.priority,
            result_subtype=row.result_subtype,
            end_reason=row.end_reason,
            is_error=row.is_error,
            stop_reason=row.stop_reason,
            terminal_reason=row.terminal_reason,
            attempt=row.attempt,
            worker=row.worker,
            lease_expires_at=shown_time(row.lease_expires_at),
            queue_position=row.queue_position,
            first_seq=row.first_seq,
            last_seq=row.last_seq,
            num_turns=row.num_turns,
            resumed_from=row.resumed_from,
            options=shown_options(row.options),
            cost=RunCost(
                run_usd=None if is_unpriced else usd(row.cost_usd),
                main_thread_usd=_cost([part for part in spent if part["is_main"]]),
                estimated=row.is_estimated,
            ),
            usage=Tokens(
                input_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
                cache_read_tokens=row.cache_read_tokens,
                cache_write_tokens=row.cache_write_tokens,
            ),
            model_usage=_by_model(spent),
            result=RunResult.of(row),
            errors=list(row.errors or ()),
            permission_denials=[dict(denial) for denial in row.permission_denials or ()],
            origin=row.origin,
            parent_run_id=row.parent_run_id,
            metadata=dict(row.metadata),
            cancel_requested_at=shown_time(row.cancel_requested_at),
            recovery=Recovery(policy=row.recovery_policy, max_attempts=row.max_attempts),
            created_at=wire_time(row.created_at),
            started_at=shown_time(row.started_at),
            finished_at=shown_time(row.finished_at),
            deadline_at=shown_time(row.deadline_at),
        )


_COUNTS = (*Tokens.model_fields, "web_search_requests")


def _by_model(spent: Sequence[Mapping[str, Any]]) -> dict[str, ModelUse]:
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for part in spent:
        parts.setdefault(part["model"], []).append(part)
    return {
        model: ModelUse(
            cost_usd=_cost(of_model),
            **{name: sum(part[name] for part in of_model) for name in _COUNTS},
        )
        for model, of_model in parts.items()
    }


def _cost(spent: Sequence[Mapping[str, Any]]) -> str | None:
    """Add up; None when nothing of it has a price."""
    total = sum((Decimal(part["cost_usd"]) for part in spent), Decimal(0))
    return None if not total and any(part["is_unpriced"] for part in spent) else usd(total)


class RunPage(Page):
    data: list[RunObject]

    @staticmethod
    def of(page: Sequence[RunRow], following: str | None) -> "RunPage":
        """Give a page of runs, and where the rest begins."""
        data = [RunObject.of(row) for row in page]
        return RunPage(data=data, has_more=following is not None, next_cursor=following)


def _status(status: str) -> RunStatus:
    match status:
        case "queued" | "running" | "requires_action" | "finished":
            return status
        case _:
            raise TreadleError(f"a run has the unknown status {status!r}")
