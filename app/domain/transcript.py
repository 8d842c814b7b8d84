"""An entry of a transcript as Claude Code writes it, as far as a conversation is made of it.

Source: "loop 7.5" in `tests/requirements.py`. What else an entry holds is of no use here.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.domain.blocks import Block

Uuid = Annotated[
    str,
    StringConstraints(
        to_lower=True, pattern=r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
    ),
]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Link(_Read):
    """What ties an entry to the one before it; entries without a uuid are no part of the chain."""

    type: str
    uuid: Uuid
    parentUuid: Uuid | None = None  # noqa: N815 - the file's name, as are those below
    isSidechain: bool = False  # noqa: N815
    isMeta: bool = False  # noqa: N815


class Segment(_Read):
    """The messages that a compaction kept, from `headUuid` to `tailUuid`, behind its summary."""

    headUuid: Uuid  # noqa: N815
    anchorUuid: Uuid  # noqa: N815
    tailUuid: Uuid  # noqa: N815


class CompactMetadata(_Read):
    preservedSegment: Segment | None = None  # noqa: N815


class Boundary(_Read):
    """Where a conversation was compacted: the chain begins anew, with a summary."""

    type: Literal["system"]
    subtype: Literal["compact_boundary"]
    compactMetadata: CompactMetadata = CompactMetadata()  # noqa: N815


class UserTurn(_Read):
    role: Literal["user"]
    content: str | list[Block]


class ModelTurn(_Read):
    role: Literal["assistant"]
    id: Annotated[str, Field(min_length=1, max_length=200)]
    model: Annotated[str, Field(max_length=200)] = "unknown"
    content: Annotated[list[Block], Field(min_length=1)]
    stop_reason: Annotated[str, Field(max_length=100)] | None = None
    stop_sequence: Annotated[str, Field(max_length=1000)] | None = None


class UserEntry(_Read):
    """What the user, or a tool, said."""

    type: Literal["user"]
    uuid: Uuid
    timestamp: datetime
    message: UserTurn
    isMeta: bool = False  # noqa: N815
    isCompactSummary: bool = False  # noqa: N815
    toolUseResult: Any = None  # noqa: N815


class ModelEntry(_Read):
    """What the model said: one block of a response, or several."""

    type: Literal["assistant"]
    uuid: Uuid
    timestamp: datetime
    message: ModelTurn
    isApiErrorMessage: bool = False  # noqa: N815


class ModelCost(_Read):
    inputTokens: Annotated[int, Field(ge=0, le=10**15)] = 0  # noqa: N815
    outputTokens: Annotated[int, Field(ge=0, le=10**15)] = 0  # noqa: N815
    cacheReadInputTokens: Annotated[int, Field(ge=0, le=10**15)] = 0  # noqa: N815
    cacheCreationInputTokens: Annotated[int, Field(ge=0, le=10**15)] = 0  # noqa: N815
    webSearchRequests: Annotated[int, Field(ge=0, le=10**15)] = 0  # noqa: N815
    costUSD: Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)] = 0.0  # noqa: N815


class CostState(_Read):
    """What the session had cost when it was written."""

    type: Literal["cost-state"]
    modelUsage: Annotated[dict[str, ModelCost], Field(max_length=100)] = {}  # noqa: N815
