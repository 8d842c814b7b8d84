"""MCP servers: as a client names them, what a session remembers of them, what is told of them."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

MAX_SERVERS = 20
"""Of one run."""
MAX_NAME = 128
"""Characters that the Messages API takes in the name of a tool."""
PREFIX = "mcp__"
MCP_STATUS = "mcp.status"
"""The event that tells how a run's servers stand."""
_RESERVED = frozenset({"client"})
"""Tools that clients run themselves are offered as `mcp__client__…`."""
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_-]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OURS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept"}
    | {"accept-encoding", "mcp-session-id", "mcp-protocol-version", "last-event-id"}
)
"""Headers that the transport writes itself."""

Text = Annotated[str, Field(max_length=8192)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]
HeaderValue = Annotated[str, Field(max_length=8192, pattern=r"^[\t\x20-\x7e]*$")]


def _headers(headers: dict[str, str]) -> dict[str, str]:
    names = [name.lower() for name in headers]
    for name in names:
        if name in _OURS:
            raise ValueError(f"the header {name!r} is written by the transport")
        if names.count(name) > 1:
            raise ValueError(f"the header {name!r} is given twice")
    return headers


class _Server(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    enabled: bool = True
    """Whether it is connected. The control requests `mcp_toggle` change it."""
    required: bool = False
    """Whether a run that cannot have the server ends before its first model request
    (`end_reason: mcp_required`). Else it goes on without."""
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Longest wait for the answer to one call. Default: the operator's."""
    accept_tools: (
        Literal["any"] | Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None
    ) = None
    """Consent to the server's tools as they are now. A session remembers the tools that it first
    saw; one that is new or otherwise than then is withheld until its list is accepted: by the
    `tools_hash` that `mcp.status` tells, or by `any`, which accepts every change."""

    @property
    def identity(self) -> str:
        """Tell whether two configurations mean the same server: another one is another server."""
        told = self.model_dump(include={"type", "command", "args", "url"}, mode="json")
        return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


class StdioServer(_Server):
    """A program that speaks over its standard input and output, in the session's sandbox."""

    type: Literal["stdio"] = "stdio"
    command: Annotated[str, Field(min_length=1, max_length=4096)]
    """A program of the sandbox, by name or path. There is no network in it."""
    args: Annotated[list[Text], Field(max_length=200)] = []
    env: Annotated[dict[VariableName, Text], Field(max_length=100)] = {}
    """Its environment, beside that of every command in the sandbox."""


class _WebServer(_Server):
    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s@]+$")]
    headers: Annotated[
        dict[HeaderName, HeaderValue], Field(max_length=50), AfterValidator(_headers)
    ] = {}
    """Sent with each request. `${NAME}` stands for an environment variable of the operator's, where
    the operator lets the URL's host have it (`TREADLE_MCP__HEADER_VARIABLES`)."""

    def variables(self) -> Iterator[tuple[str, str]]:
        """Give each header that names a variable, and the variable."""
        for header, value in self.headers.items():
            yield from ((header, name) for name in _VARIABLE.findall(value))

    def filled_headers(self, values: Mapping[str, str]) -> dict[str, str]:
        """Give the headers with the values of variables. Raises `KeyError` for one that is not set."""
        return {
            header: _VARIABLE.sub(lambda found: values[found[1]], value)
            for header, value in self.headers.items()
        }


class HttpServer(_WebServer):
    """A server that speaks streamable HTTP."""

    type: Literal["http"]


class SseServer(_WebServer):
    """A server that speaks the older HTTP transport, with a stream of events."""

    type: Literal["sse"]


def _kind(value: object) -> object:
    if not isinstance(value, dict):
        return getattr(value, "type", None)
    kind = value.get("type", "stdio")
    return kind if isinstance(kind, str) else None


McpServer: TypeAlias = Annotated[
    Annotated[StdioServer, Tag("stdio")]
    | Annotated[HttpServer, Tag("http")]
    | Annotated[SseServer, Tag("sse")],
    Discriminator(
        _kind,
        custom_error_type="unknown_server_type",
        custom_error_message=(
            "a server is an object whose type is `stdio`, `http` or `sse`; one inside the client's "
            "process (`sdk`) cannot be reached from here"
        ),
    ),
]
ServerName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]


def check_names(servers: dict[str, Any]) -> dict[str, Any]:
    """Refuse names that cannot be told apart in the names of tools."""
    taken: dict[str, str] = {}
    for name in servers:
        shown = nameable(name)
        if "__" in shown or shown.strip("_-") == "":
            raise ValueError(f"the server name {name!r} must not look like {shown!r} to the model")
        if shown in _RESERVED:
            raise ValueError(f"the server name {name!r} is taken by the service")
        if shown in taken:
            raise ValueError(f"the server names {taken[shown]!r} and {name!r} look the same")
        taken[shown] = name
    return servers


McpServers: TypeAlias = Annotated[
    dict[ServerName, McpServer], Field(max_length=MAX_SERVERS), AfterValidator(check_names)
]


# -- names ------------------------------------------------------------------------------------


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
        }
        return {name: value for name, value in told.items() if value}


@dataclass(frozen=True, slots=True)
class Readiness:
    """How a run stands with its servers when it begins."""

    statuses: tuple[ServerStatus, ...] = ()
    missing: tuple[str, ...] = ()
    """Why the run cannot begin: a sentence for each required server that it does not have."""
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
