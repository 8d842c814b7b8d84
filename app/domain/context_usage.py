"""How full a conversation's window is, in the shape of the SDK's `get_context_usage`."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class ContextCategory(_Part):
    name: str
    """`System prompt`, `System tools`, `MCP tools`, `Memory files`, `Messages`, `Free space`, `Autocompact buffer`."""
    tokens: int
    color: str
    """For charts."""


class MessageBreakdown(_Part):
    """Estimates of what the messages consist of."""

    userMessageTokens: int  # noqa: N815 - the SDK's name, as are those below
    assistantMessageTokens: int  # noqa: N815
    toolCallTokens: int  # noqa: N815
    toolResultTokens: int  # noqa: N815
    attachmentTokens: int  # noqa: N815
    """Images and documents of prompts."""
    summaryTokens: int  # noqa: N815
    """The summary that stands for compacted messages."""


class ContextUsage(_Part):
    """What the next request of a session holds, by source.

    The total is what the provider counted last, plus an estimate of what is newer. Its parts are
    estimates; `Messages` is the rest of the total.
    """

    model: str
    totalTokens: int  # noqa: N815 - the SDK's name, as are those below
    maxTokens: int  # noqa: N815
    """Size up to which a request is made without a compaction."""
    rawMaxTokens: int  # noqa: N815
    """The model's window."""
    percentage: float
    """Share of the window, 0 to 100."""
    isAutoCompactEnabled: bool  # noqa: N815
    autoCompactThreshold: int  # noqa: N815
    """Size from which on a conversation is compacted."""
    categories: list[ContextCategory]
    messageBreakdown: MessageBreakdown  # noqa: N815
    systemPromptSections: list[dict[str, Any]]  # noqa: N815
    """`{name, tokens}` each."""
    systemTools: list[dict[str, Any]]  # noqa: N815
    """`{name, tokens}` each."""
    memoryFiles: list[dict[str, Any]]  # noqa: N815
    """Instruction files of the project: `{path, type, tokens}` each."""
    mcpTools: list[dict[str, Any]] = []  # noqa: N815
    """`{name, serverName, tokens, isLoaded}` each: tools of MCP servers, as the newest run had them, and
    of the client (`client`). One that ToolSearch has not loaded yet takes no room."""
    agents: list[dict[str, Any]] = []
    gridRows: list[list[dict[str, Any]]] = []  # noqa: N815
    """For the SDK's types alone: nothing is drawn here."""
    apiUsage: dict[str, int]  # noqa: N815
    """Tokens of all model requests of the session."""
