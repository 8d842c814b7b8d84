"""What clients ask for, checked as to its form, not yet as to what is allowed."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from ulid import ULID

from app.domain.journal import ServiceEvent
from app.domain.messages import Prompt
from app.domain.options import AgentOptions
from app.errors import ValidationFailed
from app.runs.workspaces import WorkspaceRules, WorkspaceSource, workspace_key
from app.store.queue import NewRun
from app.store.rows import service_body
from app.store.sessions import NewSession

MOST_METADATA = 50
OnBusy = Literal["queue", "reject", "interrupt", "steer"]


@dataclass(frozen=True, slots=True)
class SessionWish:
    """What a client says of a new session."""

    id: str | None = None
    title: str | None = None
    options: AgentOptions = AgentOptions()
    workspace: WorkspaceSource = WorkspaceSource()
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] = ()
    user: str | None = None
    is_continuation: bool = False
    """Whether the newest session of this user, or of this place, is meant if there is one."""


@dataclass(frozen=True, slots=True)
class ForkWish:
    """What a client says of a copy of a session."""

    at_message: str | None = None
    """The last message that is copied; None: the newest."""
    id: str | None = None
    title: str | None = None
    """None, and so below: as the original has it."""
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What a client wants otherwise about a session. None: as it is."""

    title: str | None = None
    """Empty: none."""
    options: AgentOptions = AgentOptions()
    metadata: Mapping[str, str | None] | None = None
    """Merged; a null takes a name away."""
    tags: Sequence[str] | None = None
    is_archived: bool | None = None


@dataclass(frozen=True, slots=True)
class PromptWish:
    """One user message that a client sends."""

    content: str | list[dict[str, Any]]
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class RunWish:
    """What a client says of a new run."""

    prompts: Sequence[PromptWish]
    options: AgentOptions = AgentOptions()
    metadata: Mapping[str, Any] | None = None
    on_busy: OnBusy = "queue"
    priority: int = 0
    deadline_s: int | None = None
    recovery_policy: Literal["resume", "fail"] = "resume"
    max_attempts: int | None = None
    on_disconnect: Literal["continue", "cancel"] = "continue"
    resume_at: str | None = None
    """The last message of the conversation that it goes on with."""
    retries: str | None = None
    """The failed run that it tries again."""


@dataclass(frozen=True, slots=True)
class RetryWish:
    """What a client says of a failed run that is to be tried again."""

    goes_on: bool = False
    """Whether it goes on where the run stopped, instead of sending its prompts again."""
    options: AgentOptions = AgentOptions()
    """Laid over the run's."""
    metadata: Mapping[str, Any] | None = None
    """None: the run's."""
    deadline_s: int | None = None
    on_disconnect: Literal["continue", "cancel"] = "continue"


@dataclass(frozen=True, slots=True)
class RunChange:
    """What a client wants otherwise about a run that waits. None: as it is."""

    prompts: Sequence[PromptWish] | None = None
    options: AgentOptions = AgentOptions()
    metadata: Mapping[str, str | None] | None = None
    """Merged; a null takes a name away."""
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Which runs a client means."""

    ids: Sequence[str] | None = None
    session_id: str | None = None
    statuses: Sequence[str] = ()


def new_prompts(wishes: Sequence[PromptWish], *, steers: bool) -> list[Prompt]:
    """Give prompts their ids. The first begins a run, unless all of them steer one."""
    return [
        Prompt(
            f"in_{ULID()}",
            wish.uuid or str(uuid.uuid4()),
            wish.content,
            wish.uuid is not None,
            is_steer=steers or index > 0,
        )
        for index, wish in enumerate(wishes)
    ]


def new_run(session_id: str, options: AgentOptions, wish: RunWish) -> NewRun:
    """Give a run its id; `options` are the effective ones."""
    run_id = f"run_{ULID()}"
    queued = {"parent_run_id": wish.retries} if wish.retries else {}
    return NewRun(
        run_id,
        options.stored(),
        new_prompts(wish.prompts, steers=False),
        wish.metadata or {},
        event_body(session_id, "run.queued", queued, run_id=run_id),
        priority=wish.priority,
        deadline_s=wish.deadline_s,
        recovery_policy=wish.recovery_policy,
        max_attempts=wish.max_attempts,
        on_disconnect=wish.on_disconnect,
        retries=wish.retries,
    )


def new_session(workspaces: WorkspaceRules, wish: SessionWish) -> NewSession:
    """Give a session its id and its place. Raises `ValidationFailed`."""
    session_id = wish.id or str(uuid.uuid4())
    workspace = workspaces.place(wish.workspace)
    return NewSession(
        session_id,
        wish.title,
        wish.options.stored(),
        workspace,
        wish.metadata or {},
        event_body(session_id, "session.created", {}),
        wish.tags,
        wish.user,
        workspace_key(workspace),
    )


def merged_metadata(
    what: str, old: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    """Lay changes over metadata; a None takes a name away. Raises `ValidationFailed`."""
    merged = {k: v for k, v in {**old, **changes}.items() if v is not None}
    if len(merged) > MOST_METADATA:
        raise ValidationFailed(
            f"A {what} has {MOST_METADATA} names of metadata at the most.",
            errors=[{"pointer": "/metadata", "code": "too_long", "message": "too many names"}],
        )
    return merged


def event_body(
    session_id: str, kind: str, data: Mapping[str, Any], *, run_id: str | None = None
) -> str:
    """Encode a service event that happens now, all but its `seq`."""
    return service_body(ServiceEvent(kind, data), session_id, run_id, datetime.now(UTC))
