"""MCP servers as a client names them in the options, and as clients see them again.

Literal values of headers and variables are often credentials. They are stored, since any host may
have to open the server, and never shown again: names are, values are masked; so is what looks like a
credential in a URL or an argument. What comes back masked means the value that is stored, as long as
it is the same server.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from app.domain.masks import MASK as MASK
from app.domain.masks import masked_args, masked_url
from app.domain.mcp import nameable

MAX_SERVERS = 20
"""Of one run."""
_RESERVED = frozenset({"client"})
"""Tools that clients run themselves are offered as `mcp__client__…`."""
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
    env: Annotated[dict[VariableName, Text], Field(max_length=100, repr=False)] = {}
    """Its environment, beside that of every command in the sandbox. Values are not shown again."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """Give what is masked where it is shown, by name."""
        return self.env

    @property
    def place(self) -> Mapping[str, Any]:
        """Give what says which server it is."""
        return {"command": self.command, "args": self.args}

    @property
    def shown_place(self) -> Mapping[str, Any]:
        """Give the same as it is shown."""
        return {"command": self.command, "args": masked_args(self.args)}


class _WebServer(_Server):
    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s@]+$")]
    headers: Annotated[
        dict[HeaderName, HeaderValue],
        Field(max_length=50, repr=False),
        AfterValidator(_headers),
    ] = {}
    """Sent with each request. `${NAME}` stands for an environment variable of the operator's, where
    the operator lets the URL's host have it (`TREADLE_MCP__HEADER_VARIABLES`). Other words of the values
    are not shown again."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """Give what is masked where it is shown, by name."""
        return self.headers

    @property
    def place(self) -> Mapping[str, Any]:
        """Give what says which server it is."""
        return {"url": self.url}

    @property
    def shown_place(self) -> Mapping[str, Any]:
        """Give the same as it is shown."""
        return {"url": masked_url(self.url)}

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


_Known: TypeAlias = StdioServer | HttpServer | SseServer
_HIDDEN = ("env", "headers")
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


# -- what is not shown again ------------------------------------------------------------------


def masked(value: str) -> str:
    """Give a value as it is shown: names of variables stay."""
    words = _VARIABLE.split(value)  # every second is a variable's name
    return "".join(
        f"${{{word}}}" if index % 2 else MASK if word else "" for index, word in enumerate(words)
    )


def shown_servers(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Give stored servers as clients see them."""
    return {name: _shown(server) for name, server in stored.items()}


def _shown(server: Mapping[str, Any]) -> dict[str, Any]:
    hidden: dict[str, Any] = {
        field: {name: masked(value) for name, value in server[field].items()}
        for field in _HIDDEN
        if server.get(field)
    }
    if "url" in server:
        hidden["url"] = masked_url(server["url"])
    if "args" in server:
        hidden["args"] = masked_args(server["args"])
    return {**server, **hidden}


def unmasked(given: Mapping[str, _Known], stored: Mapping[str, _Known]) -> dict[str, _Known]:
    """Put stored values in for masked ones that come back, where it is the same server as then.

    Else a value would go to whatever place a client names next.
    """
    return {name: _unmasked(server, stored.get(name)) for name, server in given.items()}


def _unmasked(server: _Known, old: _Known | None) -> _Known:
    if old is not None and server.place == old.shown_place:
        server = server.model_copy(update=old.place)
    if old is None or old.identity != server.identity:
        return server
    found = {
        name: old.secrets[name] if _is_mask_of(value, old.secrets.get(name)) else value
        for name, value in server.secrets.items()
    }
    if found == server.secrets:
        return server
    return server.model_copy(
        update={"env" if isinstance(server, StdioServer) else "headers": found}
    )


def _is_mask_of(value: str, stored: str | None) -> bool:
    return stored is not None and value == masked(stored)


def still_masked(server: _Known) -> Iterator[tuple[str, str]]:
    """Give the field and name of each value that is a mask: nobody knows what it stands for."""
    field = "env" if isinstance(server, StdioServer) else "headers"
    yield from ((field, name) for name, value in server.secrets.items() if MASK in value)
    if isinstance(server, StdioServer):
        yield from (("args", str(at)) for at, value in enumerate(server.args) if MASK in value)
    elif MASK in server.url:
        yield "url", ""
