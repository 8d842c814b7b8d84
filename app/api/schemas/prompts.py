"""What a user says to an agent: a text, or messages of the SDK's streaming input."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
)
from pydantic_core import PydanticCustomError

from app.api.schemas.common import In, Uuid
from app.runs.wishes import PromptWish


class TextPart(In):
    type: Literal["text"]
    text: Annotated[str, StringConstraints(pattern=r"\S")]
    """Not blank: the Messages API refuses blank text."""


def _reachable(source: dict[str, Any]) -> dict[str, Any]:
    if source.get("type") == "file":
        raise PydanticCustomError(
            "unsupported_option", "files are not stored here: send the data itself, or a URL"
        )
    return source


class MediaPart(BaseModel):
    """An image or a document, passed on to the model as it is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["image", "document"]
    source: Annotated[dict[str, Any], AfterValidator(_reachable)]


class UserTurn(In):
    role: Literal["user"] = "user"
    content: Annotated[
        Annotated[str, Tag("text")]
        | Annotated[
            list[Annotated[TextPart | MediaPart, Field(discriminator="type")]], Tag("parts")
        ],
        # So that what is wrong with a part is said of that part.
        Discriminator(lambda content: "parts" if isinstance(content, list) else "text"),
    ]

    @field_validator("content")
    @classmethod
    def _says_something(cls, content: Any) -> Any:  # noqa: ANN401 - either form
        if not content or (isinstance(content, str) and not content.strip()):
            raise ValueError("must say something")
        return content


class InputMessage(In):
    """A user message as the SDK's streaming input has it."""

    type: Literal["user"] = "user"
    message: UserTurn
    uuid: Uuid | None = None
    """Of the message; a second one with the same uuid in the session is refused."""
    parent_tool_use_id: None = None
    session_id: str | None = None
    """Ignored: the address names the session."""

    def wish(self) -> PromptWish:
        """Give the command's form."""
        content = self.message.content
        if isinstance(content, str):
            return PromptWish(content, self.uuid)
        return PromptWish([part.model_dump() for part in content], self.uuid)


def _said(prompt: str | None) -> str | None:
    if prompt is not None and not prompt.strip():
        raise ValueError("must say something")
    return prompt


def _different(messages: list[InputMessage] | None) -> list[InputMessage] | None:
    uuids = [message.uuid for message in messages or () if message.uuid]
    if len(set(uuids)) < len(uuids):
        raise ValueError("two messages have the same uuid")
    return messages


PromptText = Annotated[str | None, AfterValidator(_said)]
Messages = Annotated[
    Annotated[list[InputMessage], Field(min_length=1, max_length=100)] | None,
    AfterValidator(_different),
]


def wishes(prompt: str | None, messages: list[InputMessage] | None) -> list[PromptWish]:
    """Give the command's form of whichever of the two was said."""
    if prompt is not None:
        return [PromptWish(prompt)]
    return [message.wish() for message in messages or ()]
