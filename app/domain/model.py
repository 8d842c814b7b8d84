"""A model request and its answer, in the Messages API's terms."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from app.domain.blocks import Block
from app.domain.briefing import Briefing
from app.domain.notices import RateLimitInfo
from app.domain.usage import Purpose, Usage
from app.domain.value import value


def encode_context_message(role: str, blocks: Iterable[bytes]) -> bytes:
    """Join encoded blocks to a message's JSON."""
    return b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(blocks))


@value
class ContextMessage:
    """A message as the model sees it: its content blocks, each encoded once.

    Blocks are encoded so that a request body is joined, never built anew (cost of a turn
    stays flat while the history grows).
    """

    role: Literal["user", "assistant"]
    blocks: tuple[bytes, ...]
    """JSON of one content block each, Messages API form."""
    whole: bytes | None = field(default=None, compare=False)
    """JSON of the whole message; set once the message cannot change any more."""
    uuids: tuple[str, ...] = field(default=(), compare=False)
    """Of the journalled messages that it is made of."""
    tokens_before: int = field(default=0, compare=False)
    """Of an assistant message: what its request held, as the provider counted; 0 if unknown."""
    known: Briefing = field(default=Briefing(), compare=False)
    """Of an assistant message: what the model knew then of the place it works in."""

    def plus(self, blocks: tuple[bytes, ...], uuids: tuple[str, ...]) -> "ContextMessage":
        """Give the message with more blocks at its end."""
        # Not by `replace`: a resumed session does this for each of its messages.
        return ContextMessage(
            self.role,
            (*self.blocks, *blocks),
            None,
            (*self.uuids, *uuids),
            self.tokens_before,
            self.known,
        )

    def closed(self) -> "ContextMessage":
        """Give the message with its whole JSON, so that requests need not join it again."""
        if self.whole is not None:
            return self
        whole = encode_context_message(self.role, self.blocks)
        return ContextMessage(
            self.role, self.blocks, whole, self.uuids, self.tokens_before, self.known
        )


@value
class ModelRequest:
    """Everything that goes to the provider for one response."""

    model: str
    max_tokens: int
    system: tuple[str, ...]
    """Texts of the system blocks, in order; the last carries the cache mark."""
    tools: tuple[bytes, ...]
    """JSON of `{name, description, input_schema}` each; the last carries the cache mark."""
    messages: tuple[ContextMessage, ...]
    """Oldest first; roles alternate. The last is from the user, but for a response that paused
    (`pause_turn`): it comes last, for the model to go on with."""
    deferred_tools: tuple[bytes, ...] = ()
    """The same with `defer_loading`: behind the others, out of the cached prefix."""
    effort: str | None = None
    """`output_config.effort`, verbatim; absent when None."""
    thinking: Mapping[str, Any] | None = None
    """`thinking`, verbatim; absent when None."""
    task_budget_tokens: int | None = None
    """`output_config.task_budget`; absent when None."""
    betas: tuple[str, ...] = ()
    """Beta features to ask for."""
    metadata_user_id: str | None = None
    tool_choice: Mapping[str, Any] | None = None
    """`tool_choice`, verbatim; absent when None."""
    is_cached: bool = True
    """Whether it carries cache marks: another request will begin like it."""


@dataclass(frozen=True, slots=True)
class SideRequest:
    """A request beside the conversation: a page's question, a search, a verdict.

    Nothing of the conversation goes with it, and nothing of it enters the conversation.
    """

    system: str
    prompt: str
    purpose: Purpose = "tool"
    model: str | None = None
    """Asked instead of the small model, and no other then."""
    max_tokens: int = 8192
    """Of the answer; less for a model that gives less."""
    tools: tuple[bytes, ...] = ()
    """JSON of tools that the provider itself runs."""
    tool_choice: Mapping[str, Any] | None = None
    """Thinking is turned off for it; a model that cannot do without it is not forced."""


@value
class ModelResponse:
    """A complete response. Blocks in order, with final usage."""

    id: str
    """The provider's message id (`msg_…`)."""
    model: str
    blocks: tuple[Block, ...]
    stop_reason: str | None
    stop_sequence: str | None
    usage: Usage
    request_id: str | None
    ttft_ms: int
    """From sending the request to the first event."""
    duration_ms: int
    rate_limit: RateLimitInfo | None = None
    """Where the provider's limit stands, if it said."""


@value
class StreamPart:
    """One raw event of a response that is on its way: a preview, never journalled."""

    event: dict[str, Any]
    """The API event, decoded: message_start, content_block_delta, …"""
    message_id: str
    ttft_ms: int | None = None
    """Only on message_start."""


Hear: TypeAlias = Callable[[StreamPart], None]
"""Takes each event of a response as it comes. Never blocks, never raises."""


def unheard(part: StreamPart) -> None:
    """Let an event pass by: only the whole response is wanted."""


@dataclass(frozen=True, slots=True)
class PartialResponse:
    """What had come of a response when it was cut off."""

    message_id: str
    model: str
    texts: tuple[str, ...]
    """Its text blocks so far, in order; the last may be incomplete. No calls, no thinking."""
    usage: Usage
    """Input as told at the start; output is an estimate from what came."""
