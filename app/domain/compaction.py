"""The wire message that says where a conversation was compacted, and what a compaction leaves."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from app.domain.wire import WireMessage

CompactTrigger = Literal["manual", "auto"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)


class PreservedSegment(_Part):
    """The messages that stay as they are: the first of them, the last, and what they follow."""

    head_uuid: str
    anchor_uuid: str
    """The summary: for the model they stand right after it."""
    tail_uuid: str


class PreservedMessages(_Part):
    """The same, one by one."""

    anchor_uuid: str
    uuids: list[str]
    all_uuids: list[str]


class CompactMetadata(_Part):
    """Sizes are in tokens: as the provider counted them, plus an estimate of what is newer."""

    trigger: CompactTrigger
    pre_tokens: int
    post_tokens: int
    """An estimate, the summary included."""
    cumulative_dropped_tokens: int
    """By all compactions of the session so far."""
    duration_ms: int
    preserved_segment: PreservedSegment
    preserved_messages: PreservedMessages


class CompactBoundaryMessage(WireMessage):
    """From here on the model sees a summary (the next message) and the newest messages."""

    type: Literal["system"] = "system"
    subtype: Literal["compact_boundary"] = "compact_boundary"
    compact_metadata: CompactMetadata
    logical_parent_uuid: str
    """The message of the conversation that came last before it."""
