"""What a client must answer: permission requests, questions, its own tools, servers' questions."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ActionType = Literal["permission", "question", "client_tool", "elicitation"]
ActionStatus = Literal["pending", "resolved", "expired", "withdrawn"]
OnTimeout = Literal["deny", "error", "fail"]
LONGEST_TIMEOUT_S = 2_592_000
Timeout = Annotated[int, Field(ge=1, le=LONGEST_TIMEOUT_S)]

ACTION_OPENED = "action.opened"
ACTION_RESOLVED = "action.resolved"
ACTION_EXPIRED = "action.expired"
ACTION_WITHDRAWN = "action.withdrawn"
RUN_WAITS = "run.requires_action"
RUN_RESUMED = "run.resumed"


class ActionRules(BaseModel):
    """Whether a run asks somebody, and for how long it waits."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    permissions: Literal["deny", "ask"] = "deny"
    """What becomes of a call that needs an approval: it is denied at once, or it becomes an action."""
    questions: Literal["deny", "ask"] = "deny"
    """Whether the model is offered AskUserQuestion; a question becomes an action."""
    elicitations: Literal["deny", "ask"] = "deny"
    """Whether MCP servers may ask in the middle of a call; what they ask becomes an action. They
    wait for as long as a run keeps its place (`hold_seconds`)."""
    permission_timeout_seconds: Timeout = 86_400
    """How long an approval may be given."""
    question_timeout_seconds: Timeout = 86_400
    """How long a question may be answered."""
    on_timeout: Literal["deny", "fail"] = "deny"
    """What happens when nobody answers in time. `deny`: the call is denied, and the model is told.
    `fail`: the run ends as `action_expired`."""
    hold_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """How long a run that waits keeps its place on its host; then it is let go, and an answer lets
    any host go on with it. Default, and at the most: the operator's."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, before it is stored."""

    type: ActionType
    tool_use_id: str
    tool_name: str
    sha256: bytes
    """Of the input in canonical form: the answer is bound to it."""
    shown: dict[str, Any]
    """What a person reads: the body of the action under the name of its type."""
    timeout_s: int
    on_timeout: OnTimeout
    parent_tool_use_id: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, or that nobody did, as a run finds it."""

    action_id: str
    is_expired: bool
    ends_run: bool
    """Whether the run ends with it, since nobody answered in time."""
    body: dict[str, Any]
    """The answer in the form of its type; empty for one that expired."""
    by: str
    """Id of the key that answered."""
