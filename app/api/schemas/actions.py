"""Actions: what is asked, and how it is answered."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag
from pydantic_core import PydanticCustomError

from app.api.problems import Problem
from app.api.schemas.common import In, Out, Page, example, shown_time
from app.domain.actions import ActionStatus, ActionType
from app.domain.messages import wire_time
from app.domain.permissions import PermissionUpdate
from app.runs.actions import ActionRow, AnswerWish

MOST_AT_ONCE = 100


def _behavior(value: object) -> object:
    if value not in ("allow", "deny"):
        raise PydanticCustomError("no_answer", 'must be "allow" or "deny"')
    return value


class AllowBody(In):
    """The call may run."""

    model_config = example(behavior="allow")

    behavior: Annotated[Literal["allow"], BeforeValidator(_behavior)]
    updated_input: dict[str, Any] | None = None
    """What runs instead of the call's own input; it must fit the tool's schema."""

    updated_permissions: Annotated[list[PermissionUpdate], Field(max_length=50)] | None = None
    """What spares the next question of its like, as `suggestions` offer it. It applies to the session
    at once, its waiting and later runs included, wherever its `destination` lies."""

    def wish(self) -> AnswerWish:
        """Give the command's form."""
        return AnswerWish(
            "allow", self.model_dump(exclude_none=True), self.updated_permissions or ()
        )


class DenyBody(In):
    """The call may not run; a question is not answered."""

    model_config = example(behavior="deny", message="Not on production.")

    behavior: Literal["deny"]
    message: Annotated[str, Field(max_length=10_000)] = ""
    """What the model reads, to the letter."""
    interrupt: bool = False
    """Whether the whole run ends with it."""

    def wish(self) -> AnswerWish:
        """Give the command's form."""
        return AnswerWish("deny", self.model_dump())


class AnswersBody(In):
    """The answers to a question's questions."""

    model_config = example(answers={"Which database?": "Postgres"})

    answers: Annotated[
        dict[
            Annotated[str, StringConstraints(max_length=10_000)],
            Annotated[str, StringConstraints(max_length=10_000)],
        ],
        Field(max_length=20),
    ]
    """By the question's text: labels of options, several joined by commas, or other words."""

    def wish(self) -> AnswerWish:
        """Give the command's form."""
        return AnswerWish("answers", {"answers": self.answers})


class TextContent(In):
    type: Literal["text"]
    text: Annotated[str, Field(max_length=100_000)]


class ImageSource(In):
    type: Literal["base64"]
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    data: Annotated[str, Field(max_length=5_000_000, pattern=r"^[A-Za-z0-9+/]+={0,2}$")]


class ImageContent(In):
    type: Literal["image"]
    source: ImageSource


Content = Annotated[TextContent | ImageContent, Field(discriminator="type")]


class ContentBody(In):
    """The result of a tool that the client carries out."""

    model_config = example(content=[{"type": "text", "text": "42"}])

    content: (
        Annotated[str, Field(max_length=100_000)] | Annotated[list[Content], Field(max_length=20)]
    )
    """A text, or blocks as the Messages API has them."""
    is_error: bool = False
    """Whether the call failed."""

    def wish(self) -> AnswerWish:
        """Give the command's form."""
        return AnswerWish("content", self.model_dump())


Plain = bool | int | float | Annotated[str, Field(max_length=10_000)]


class ElicitationBody(In):
    """The answer to what an MCP server asks."""

    model_config = example(action="accept", content={"name": "Ada"})

    action: Literal["accept", "decline", "cancel"]
    content: (
        Annotated[
            dict[
                Annotated[str, StringConstraints(max_length=200)],
                Plain
                | Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(max_length=100)],
            ],
            Field(max_length=100),
        ]
        | None
    ) = None
    """Of an `accept`: the fields of `requested_schema`. The server checks them."""

    def wish(self) -> AnswerWish:
        """Give the command's form."""
        return AnswerWish("elicitation", self.model_dump(exclude_none=True))


def _kind(body: object) -> str | None:
    if not isinstance(body, dict):
        return None
    if "behavior" not in body and "action" in body:
        return "an elicitation"
    if "behavior" not in body and "answers" in body:
        return "an answer"
    if "behavior" not in body and "content" in body:
        return "a result"
    return "a deny" if body.get("behavior") == "deny" else "an allow"


ResolveBody = Annotated[
    Annotated[AllowBody, Tag("an allow")]
    | Annotated[DenyBody, Tag("a deny")]
    | Annotated[AnswersBody, Tag("an answer")]
    | Annotated[ContentBody, Tag("a result")]
    | Annotated[ElicitationBody, Tag("an elicitation")],
    Discriminator(
        _kind, custom_error_type="no_answer", custom_error_message="must be a JSON object"
    ),
]
"""An answer; which form fits is a matter of the action's type."""


class Resolution(In):
    """An answer to one of several actions."""

    id: Annotated[str, Field(min_length=1, max_length=100)]
    answer: ResolveBody


class ResolveManyBody(In):
    model_config = example(
        resolutions=[{"id": "act_01JDZX5E5V8M2Q4T6Y8A0C2E4G", "answer": {"behavior": "allow"}}]
    )

    resolutions: Annotated[list[Resolution], Field(min_length=1, max_length=MOST_AT_ONCE)]


class ActionObject(Out):
    """Something that a client must answer before a run can go on."""

    object: Literal["action"] = "action"
    id: Annotated[str, Field(examples=["act_01JDZX5E5V8M2Q4T6Y8A0C2E4G"])]
    type: ActionType
    """More types may come."""
    status: ActionStatus
    version: int
    """1 while it is pending, 2 once it is settled: it changes once."""
    session_id: str
    run_id: str
    tool_use_id: str
    parent_tool_use_id: str | None
    """Where a subagent asks: the call that began it."""
    agent_id: str | None
    """Where a subagent asks: its id."""
    opened_seq: int
    """Of the event `action.opened` in the session's log."""
    permission: dict[str, Any] | None = None
    """Of a `permission`: `tool_name`, `input`, `title`, `decision_reason`, `decision_reason_type`,
    `blocked_path`, `suggestions`."""
    question: dict[str, Any] | None = None
    """Of a `question`: `questions`, as the tool AskUserQuestion takes them."""
    client_tool: dict[str, Any] | None = None
    """Of a `client_tool`: `name`, as the client gave it, and `input`."""
    elicitation: dict[str, Any] | None = None
    """Of an `elicitation`: `server`, `message`, `mode` (`form`, `url`), `requested_schema` or `url`."""
    resolution: dict[str, Any] | None
    """The answer, once there is one."""
    answered_by: str | None
    """Id of the key that answered."""
    on_timeout: str
    expires_at: str
    requested_at: str
    settled_at: str | None

    @staticmethod
    def of(row: ActionRow) -> "ActionObject":
        """Show an action. One whose time is over is not pending any more."""
        status: ActionStatus = "expired" if row.is_overdue else row.status
        return ActionObject(
            id=row.id,
            type=row.type,
            status=status,
            version=1 if status == "pending" else 2,
            session_id=row.session_id,
            run_id=row.run_id,
            tool_use_id=row.tool_use_id,
            parent_tool_use_id=row.parent_tool_use_id,
            agent_id=row.agent_id,
            opened_seq=row.opened_seq,
            resolution=row.answer,
            answered_by=row.answered_by,
            on_timeout=row.on_timeout,
            expires_at=wire_time(row.expires_at),
            requested_at=wire_time(row.created_at),
            settled_at=shown_time(row.settled_at),
            **{row.type: row.request},
        )


class ActionPage(Page):
    data: list[ActionObject]
    as_of_seq: dict[str, int]
    """By session: where its log stood when this was read. A stream from there on misses nothing."""


class ResolvedItem(Out):
    id: str
    action: ActionObject | None
    problem: Problem | None
    """Why this answer was refused."""


class ResolvedItems(Out):
    data: list[ResolvedItem]
    """In the order of the answers."""
