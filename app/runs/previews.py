"""Partial messages: from the model's stream to the readers, here and on other hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.agent.effects import Clock
from app.agent.model_effects import Previews
from app.agent.notices import CHARACTERS_PER_TOKEN
from app.agent.run_info import Thread
from app.domain.agents import AGENT_TOOL
from app.domain.messages import ApiRetryMessage, encode_message
from app.domain.model import PartialResponse, StreamPart
from app.domain.notices import (
    Ephemeral,
    StatusMessage,
    ThinkingTokensMessage,
    ToolProgressMessage,
)
from app.domain.tools import ToolCall
from app.runs.items import Piece, Preview, aborted, piece_of
from app.runs.live import Hub
from app.runs.open_message import OpenMessage
from app.store.leases import Lease

TOLD_EVERY_TOKENS = 50
"""Of a thought that is on its way."""


@dataclass(slots=True, eq=False)
class LivePreviews:
    """Makes a piece of each event, but only when somebody looks. Made by `live_previews`."""

    hub: Hub
    clock: Clock
    tenant_id: str
    session_id: str
    run_id: str
    epoch: int
    """Of the lease that the run is driven under: a higher one is newer."""
    open: OpenMessage = field(default_factory=OpenMessage)
    """What came so far of the message that is on its way."""
    _thought_chars: int = 0
    """Of the thinking block that is on its way."""
    _told_tokens: int = 0
    """What was told last of it."""
    _void_id: str | None = None
    """A message that will not be completed, though its text is still wanted."""

    def requesting(self) -> None:
        if self._is_watched:
            self._tell(
                StatusMessage(
                    session_id=self.session_id, uuid=self.clock.uuid(), status="requesting"
                )
            )

    def progress(self, call: ToolCall, elapsed_s: int) -> None:
        """Say that a call is still running. Never blocks, never raises."""
        if self._is_watched:
            self._tell(
                ToolProgressMessage(
                    session_id=self.session_id,
                    uuid=self.clock.uuid(),
                    tool_use_id=call.id,
                    tool_name=call.name,
                    elapsed_time_seconds=elapsed_s,
                )
            )

    def retrying(self, thread: Thread, retry: ApiRetryMessage) -> None:
        if self._is_watched:
            self._tell(
                ToolProgressMessage(
                    session_id=self.session_id,
                    uuid=self.clock.uuid(),
                    tool_use_id=thread.call_id,
                    tool_name=AGENT_TOOL,
                    parent_tool_use_id=thread.call_id,
                    elapsed_time_seconds=0,
                    subagent_type=thread.agent_type,
                    subagent_retry={
                        "agent_id": thread.agent_id,
                        "attempt": retry.attempt,
                        "max_retries": retry.max_retries,
                        "retry_delay_ms": retry.retry_delay_ms,
                        "error_status": retry.error_status,
                        "error_category": retry.error,
                    },
                )
            )

    def publish(self, part: StreamPart) -> None:
        self.open.feed(part)
        if self.hub.wants_previews(self.tenant_id, self.session_id):
            self.hub.preview(self.tenant_id, self.session_id, self._piece(part))
        kind = part.event.get("type")
        if kind == "content_block_delta":
            thought = part.event["delta"].get("thinking")
            if isinstance(thought, str):
                self._estimate(thought)
        elif kind == "content_block_start":
            self._thought_chars = self._told_tokens = 0

    def _estimate(self, thought: str) -> None:
        """Say about how long a thought is already; the whole estimate comes before its block."""
        self._thought_chars += len(thought)
        tokens = self._thought_chars // CHARACTERS_PER_TOKEN
        new = tokens - self._told_tokens
        if new >= TOLD_EVERY_TOKENS and self._is_watched:
            self._told_tokens = tokens
            self._tell(
                ThinkingTokensMessage(
                    session_id=self.session_id,
                    uuid=self.clock.uuid(),
                    estimated_tokens=tokens,
                    estimated_tokens_delta=new,
                )
            )

    def complete(self) -> None:
        self.open.close()
        self.hub.message_completed(self)

    def abort(self, message_id: str, reason: str) -> None:
        self._void_id = message_id
        if reason != "cancelled":  # a cancel still wants the text
            self.open.close()
        piece = aborted(self.session_id, self.run_id, message_id, reason)
        self.hub.preview(self.tenant_id, self.session_id, piece)
        self.hub.message_completed(self)

    def partial(self) -> PartialResponse | None:
        return self.open.partial()

    def snapshot(self) -> list[Piece]:
        """Give what came so far of the message that is on its way."""
        if self.open.message_id == self._void_id:
            return []
        return [self._piece(part) for part in self.open.snapshot()]

    @property
    def _is_watched(self) -> bool:
        return self.hub.wants_previews(self.tenant_id, self.session_id)

    def _tell(self, note: Ephemeral) -> None:
        piece = Preview(self.run_id, encode_message(note))
        self.hub.preview(self.tenant_id, self.session_id, piece)

    def _piece(self, part: StreamPart) -> Piece:
        return piece_of(
            part, session_id=self.session_id, run_id=self.run_id, uuid=self.clock.uuid()
        )


@dataclass(slots=True)
class QuietPreviews:
    """Keeps what comes of a subagent's messages: nobody is shown it, a cancel still counts it."""

    shown: Previews | None = None
    """Of the run, where readers hear that a request is made again; None: of a run beside another."""
    open: OpenMessage = field(default_factory=OpenMessage)

    def requesting(self) -> None:
        pass

    def retrying(self, thread: Thread, retry: ApiRetryMessage) -> None:
        if self.shown is not None:
            self.shown.retrying(thread, retry)

    def publish(self, part: StreamPart) -> None:
        self.open.feed(part)

    def complete(self) -> None:
        self.open.close()

    def abort(self, message_id: str, reason: str) -> None:  # noqa: ARG002 - the seam's signature
        if reason != "cancelled":
            self.open.close()

    def partial(self) -> PartialResponse | None:
        return self.open.partial()


@contextmanager
def live_previews(hub: Hub, clock: Clock, lease: Lease) -> Iterator[LivePreviews]:
    """Give where a run's partial messages go while this host drives it."""
    previews = LivePreviews(
        hub, clock, lease.tenant_id, lease.session_id, lease.run_id, lease.epoch
    )
    with hub.driving(previews):
        yield previews
