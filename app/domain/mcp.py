"""MCP servers: names of their tools, what a session remembers of them, what is told of them."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_NAME = 128
"""Characters that the Messages API takes in the name of a tool."""
PREFIX = "mcp__"
MCP_STATUS = "mcp.status"
"""The event that tells how a run's servers stand."""
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_-]")


def nameable(name: str) -> str:
    """Give a name in the characters that names of tools have."""
    return _UNNAMEABLE.sub("_", name)


def tool_name(server: str, tool: str) -> str:
    """Give the name by which the model knows a server's tool, or a client a server's prompt.

    One that would be too long ends with a part of its hash instead.
    """
    full = f"{PREFIX}{nameable(server)}__{nameable(tool)}"
    if len(full) <= MAX_NAME:
        return full
    digest = hashlib.sha256(f"{server}\0{tool}".encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{full[: MAX_NAME - 9]}_{digest}"


# -- what a session remembers -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerPin:
    """The tools of a server as the session has them: from their first use, or as accepted later."""

    identity: str
    """Which server it was."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """A hash of each tool, by its own name."""

    def to_json(self) -> list[Any]:
        """Give the form stored in the journal's private `facts` column."""
        return [self.identity, dict(self.tools)]

    @staticmethod
    def from_json(value: list[Any]) -> "ServerPin":
        """Read what `to_json` wrote."""
        identity, tools = value
        return ServerPin(identity, tools)


# -- what is told -----------------------------------------------------------------------------

ServerState = Literal["connected", "failed", "pending", "needs-auth", "disabled"]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How a run stands with one of its servers."""

    name: str
    state: ServerState
    type: str = "stdio"
    error: str | None = None
    """Why it is not connected, in words for clients."""
    tools: tuple[str, ...] = ()
    """Tools on offer, by the names that the model knows."""
    tools_hash: str | None = None
    """Of all tools that the server lists now; `accept_tools` takes it."""
    withheld: Mapping[str, str] = field(default_factory=dict)
    """Tools that are not on offer, by the server's names, and why."""
    server: Mapping[str, str] = field(default_factory=dict)
    """Name and version as the server tells them."""
    prompts: tuple[str, ...] = ()
    """Its prompts, by the names of commands."""
    resources: int = 0
    tool_tokens: Mapping[str, int] = field(default_factory=dict)
    """Estimated size of each tool on offer as requests hold it, by the name that the model knows."""

    def to_json(self) -> dict[str, Any]:
        """Give the form of the event `mcp.status`: what is empty is left out."""
        told = {
            "name": self.name,
            "status": self.state,
            "type": self.type,
            "error": self.error,
            "tools": list(self.tools),
            "tools_hash": self.tools_hash,
            "withheld": [{"name": name, "reason": why} for name, why in self.withheld.items()],
            "server": dict(self.server),
            "prompts": list(self.prompts),
            "resources": self.resources,
            "tool_tokens": dict(self.tool_tokens),
        }
        return {name: value for name, value in told.items() if value}


@dataclass(frozen=True, slots=True)
class Readiness:
    """How a run stands with its servers when it begins."""

    statuses: tuple[ServerStatus, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why the run cannot begin: a sentence for each required server that it does not have, by name."""
    pins: Mapping[str, ServerPin] = field(default_factory=dict)
    """What the session has to remember from now on: new pins, by the server's name."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """What servers say of their use, by the server's name."""


# -- what servers ask -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elicited:
    """What a server asks for in the middle of a call."""

    server: str
    message: str
    requested_schema: Mapping[str, Any] | None = None
    """Of the answer's content: an object of plain fields. None where a person is sent to `url`."""
    url: str | None = None
    can_repeat: bool = False
    """Whether the call is made again when its host is lost: then the same is asked again."""

    def to_json(self) -> dict[str, Any]:
        """Give what a person is shown."""
        told: dict[str, Any] = {"server": self.server, "message": self.message}
        if self.url is not None:
            return {**told, "mode": "url", "url": self.url}
        return {**told, "mode": "form", "requested_schema": self.requested_schema}


@dataclass(frozen=True, slots=True)
class Elicitation:
    """What a person answered."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None


NOBODY = Elicitation("cancel")
"""What is told where nobody answered."""
