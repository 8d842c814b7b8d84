"""Entries become messages, in an order in which they can be told to a model again.

What a crash left open is closed as the loop would close it; marks for the cache are taken off.
"""

import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from app.agent.results import LOST_TEXT
from app.domain.blocks import Block, TextBlock, ToolResultBlock, ToolUseBlock
from app.domain.messages import (
    ApiMessage,
    AssistantMessage,
    UserContent,
    UserMessage,
    WireUsage,
    wire_time,
)
from app.domain.transcript import ModelEntry, UserEntry
from app.domain.usage import Usage
from app.runs.transcripts.branch import Node, parsed, refuse

Said = UserMessage | AssistantMessage

_OF_USERS = {"text", "image", "document", "tool_result"}
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_YEARS = range(1970, 3000)
_NO_USAGE = WireUsage.of(Usage())
"""What responses used was counted where they were made."""


@dataclass(slots=True)
class Assembly:
    """Messages in the order in which they can be told to a model again."""

    messages: list[Said] = field(default_factory=list)
    taken: int = 0
    """Entries that became messages."""
    _response: str | None = None
    """Id of the newest response."""
    _end: int = 0
    """Where its blocks end; results may have come in between."""
    _calls: set[str] = field(default_factory=set)
    """All calls so far."""
    _open: dict[str, None] = field(default_factory=dict)
    """Calls of the newest response without a result, in order."""

    def take(self, node: Node) -> None:
        """Add an entry. Raises `ValidationFailed` that names its line."""
        before = len(self.messages)
        if node.link.type == "user":
            self._take_user(node.number, parsed(node.number, UserEntry, node.raw))
        else:
            entry = parsed(node.number, ModelEntry, node.raw)
            if not entry.isApiErrorMessage:  # no model said it, and none is told
                self._take_model(node.number, entry)
        self.taken += len(self.messages) > before

    # -- the model ------------------------------------------------------------------------

    def _take_model(self, number: int, entry: ModelEntry) -> None:
        said = [block for block in entry.message.content if not _is_blank(block)]
        if not said:
            return
        at = _time(number, entry.timestamp)
        if entry.message.id != self._response:
            self._close(at)
            self._response, self._end = entry.message.id, len(self.messages)
        for index, block in enumerate(said):
            if isinstance(block, ToolUseBlock):
                self._take_call(number, block)
            message = AssistantMessage(
                session_id="",
                uuid=_uuid(entry.uuid, index),
                message=ApiMessage(
                    id=entry.message.id,
                    model=entry.message.model,
                    content=[_bare(block)],
                    stop_reason=entry.message.stop_reason,
                    stop_sequence=entry.message.stop_sequence,
                    usage=_NO_USAGE,
                ),
                timestamp=at,
            )
            self.messages.insert(self._end, message)
            self._end += 1

    def _take_call(self, number: int, call: ToolUseBlock) -> None:
        if not _CALL_ID.fullmatch(call.id):
            refuse(number, "/message/content", "a tool use has an id that no model gives")
        if call.id in self._calls:
            refuse(number, "/message/content", "a tool use has the id of an earlier one")
        if not _TOOL_NAME.fullmatch(call.name):
            refuse(number, "/message/content", "a tool use names what cannot be a tool")
        self._calls.add(call.id)
        self._open[call.id] = None

    def _close(self, at: str) -> None:
        """Answer what has no answer: the host was lost, or the user went on."""
        for call in self._open:
            block = ToolResultBlock(tool_use_id=call, content=LOST_TEXT, is_error=True)
            self.messages.append(
                UserMessage(
                    session_id="",
                    uuid=str(uuid.uuid4()),
                    message=UserContent(content=[block]),
                    timestamp=at,
                )
            )
        self._open.clear()

    # -- users and tools ------------------------------------------------------------------

    def _take_user(self, number: int, entry: UserEntry) -> None:
        content = entry.message.content
        if isinstance(content, str):
            kept: str | list[Block] = content if content.strip() else []
        else:
            kept = [_bare(block) for block in content if not _is_blank(block)]
        if not kept:
            return
        answers = [block for block in kept if isinstance(block, ToolResultBlock)]
        self._check_blocks(number, kept)
        for answer in answers:
            if answer.tool_use_id not in self._open:
                why = "a tool result answers no open call of the newest response"
                refuse(number, "/message/content", why)
            del self._open[answer.tool_use_id]
        is_note = entry.isMeta or entry.isCompactSummary
        self.messages.append(
            UserMessage(
                session_id="",
                uuid=entry.uuid,
                message=UserContent(content=kept),
                timestamp=_time(number, entry.timestamp),
                tool_use_result=entry.toolUseResult if answers else None,
                isSynthetic=True if is_note else None,
                isReplay=None if is_note or answers else True,
            )
        )

    def _check_blocks(self, number: int, content: str | list[Block]) -> None:
        for block in () if isinstance(content, str) else content:
            if block.type not in _OF_USERS:
                why = f"a user cannot say a block of the type {block.type[:50]!r}"
                refuse(number, "/message/content", why)
            is_media = block.type in {"image", "document"}
            if is_media and not isinstance((block.model_extra or {}).get("source"), dict):
                refuse(number, "/message/content", "an image or document needs a `source`")


def _is_blank(block: Block) -> bool:
    """Whether it is a text that says nothing: the Messages API refuses it."""
    return isinstance(block, TextBlock) and not block.text.strip()


def _bare(block: Block) -> Block:
    """Give a block without a mark for the cache: those are set when a request is made."""
    extra = block.model_extra or {}
    if "cache_control" in extra:
        others = block.model_dump(exclude={"cache_control"})
        block = type(block).model_validate(others)
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        inner = [
            {name: value for name, value in part.items() if name != "cache_control"}
            for part in block.content
        ]
        block = block.model_copy(update={"content": inner})
    return block


def _uuid(given: str, index: int) -> str:
    """Give the uuid of an entry's first block, and derive those of the others."""
    return given if index == 0 else str(uuid.uuid5(uuid.UUID(given), str(index)))


def _time(number: int, at: datetime) -> str:
    if at.year not in _YEARS:
        refuse(number, "/timestamp", "is no time of a conversation")
    return wire_time(at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC))
