"""The groups of settings, one for each part of the program that an operator can tune."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FilePath, SecretStr

Positive = Annotated[float, Field(gt=0)]


Count = Annotated[int, Field(ge=1)]


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DatabaseSettings(Group):
    url: SecretStr | None = None
    """Postgres to use. Unset: an embedded one in the data directory."""
    pool_size: Count = 10
    """Connections a process keeps for requests, and as many for journals."""
    connect_s: Positive = 30.0
    """How long a start waits for the database before it gives up (exit status 2)."""
    migrate_on_start: bool = True
    """Whether a start brings the schema up to date. Off: run `treadle migrate` yourself."""


class ModelSettings(Group):
    api_key: SecretStr | None = None
    """Provider key, sent as `x-api-key`."""
    auth_token: SecretStr | None = None
    """Provider token, sent as `Authorization: Bearer`; used when there is no key."""
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] = "https://api.anthropic.com"
    """Where the Messages API is."""
    extra_headers: dict[str, str] = {}
    """Further headers of each model request."""
    default: str = "claude-sonnet-5"
    """Model of runs that name none."""
    small: str = "haiku"
    """Model, or alias, that answers small questions beside a run: about a page that WebFetch
    fetched, and WebSearch. `inherit`: the run's own model."""
    classifier: str | None = None
    """Model, or alias, that judges calls in the permission mode `auto` before a person is asked.
    Unset: the small one."""
    aliases: dict[str, str] = {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
    }
    """Short names that clients may use, and the model ids they stand for."""
    prices: dict[str, dict[str, Decimal]] = {}
    """Prices and sizes that add to or override the known ones, by model: `input`, `output`,
    `cache_read`, `cache_write_5m`, `cache_write_1h` in USD per million tokens,
    `context_window`, `max_output` in tokens."""
    abilities: dict[str, dict[str, list[str] | str]] = {}
    """What models take of thinking, effort and tool search, where it adds to or overrides what is known, by
    model: `efforts` (list of levels), `thinking` (list of `adaptive`, `budget`), `off`
    (`disabled`, `between_tools` or `never`), `off_efforts` (levels that go with that),
    `tool_search` (`yes` or `no`)."""
    tool_search: bool = True
    """Whether tools that are marked as deferred are loaded by search, with models that know it. Off:
    every request holds them all."""
    rate_limit_near: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the provider's rate limit at which runs are told that it is near."""
    auto_compact: bool = True
    """Whether a conversation that has nearly filled its model's window is compacted by itself. Off:
    a run whose next request would not fit ends."""
    connect_s: Positive = 10.0
    """Longest wait for a connection."""
    first_byte_s: Positive = 120.0
    """Longest wait for the first byte of an answer."""
    idle_s: Positive = 120.0
    """Longest silence inside an answer."""
    max_retries: Annotated[int, Field(ge=0, le=100)] = 10
    """Tries after the first one, for each model request."""
    retry_first_delay_s: Positive = 0.5
    """Wait before the first of them. It doubles from one to the next; a provider's `retry-after`
    comes before it."""
    retry_longest_delay_s: Positive = 32.0
    """Where the doubling stops."""
    retry_longest_asked_delay_s: Positive = 300.0
    """Longest wait that a provider may ask for."""
    retry_jitter: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Share of each wait that is added at random, at the most."""
    overloads_before_fallback: Count = 3
    """Tries that find a model overloaded before a run's `fallback_model` is asked."""


class EngineSettings(Group):
    max_runs: Count = 200
    """Runs that one host drives at once."""
    max_background_commands: Count = 200
    """Commands that one host runs in the background at once, those of all sessions together."""
    lease_s: Positive = 30.0
    """How long a host owns a session without renewing."""
    heartbeat_s: Positive = 5.0
    """How often leases are renewed."""
    drain_s: Annotated[float, Field(ge=0)] = 20.0
    """How long a stop waits for runs to reach a message boundary."""
    poll_s: Positive = 1.0
    """How often work and watched sessions are looked for when no notification came."""
    max_attempts: Count = 3
    """Hosts that may take a run over without a new message before it is given up."""
    queue_per_session: Count = 20
    """Runs that may wait in one session."""
    hold_s: Annotated[float, Field(ge=0)] = 60.0
    """How long a run that waits for a client's answer keeps its place on its host, at the most. Then
    it holds nothing but its rows, and an answer lets any host go on with it."""


class WorkspaceSettings(Group):
    allowed_roots: list[Path] = []
    """Host folders beneath which `workspace.source: "directory"` may lie. JSON list."""
    allow_root_owned: bool = False
    """Whether a `directory` workspace may belong to root (a service that runs as root)."""
    sandbox_uid: Annotated[int, Field(ge=1)] = 200001
    """User id that agents run under when the service runs as root."""


class PolicySettings(Group):
    allow_bypass: bool = False
    """Whether the default tenant may use `bypassPermissions`."""
    forbidden_modes: list[str] = []
    """Permission modes that no run may have. JSON list."""
    deny_tools: list[str] = []
    """Deny rules over all runs, such as `WebFetch` or `Bash(curl *)`: no option can allow what they
    forbid. JSON list, as the next two. A tenant's own come on top (`treadle policy`)."""
    ask_tools: list[str] = []
    """Ask rules over all runs."""
    allow_tools: list[str] = []
    """Allow rules for all runs."""


class EgressSettings(Group):
    """Where the service itself goes when a client, an agent or a page says where."""

    private_hosts: list[str] = []
    """Hosts that may be at private or loopback addresses, as `name`, `*.name`, `address`, each
    with `:port` or for all ports. JSON list."""
    allowed_hosts: list[str] | None = None
    """The only hosts (`name`, `*.name`, `address`) beside the private ones. JSON list; empty: none.
    Unset: all that are public."""
    denied_hosts: list[str] = []
    """Hosts that are never reached. JSON list."""
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = [80, 443]
    """Ports of hosts that are not private. JSON list."""
    ca_file: FilePath | None = None
    """File of certificates (PEM) that are trusted beside the public ones."""


class McpSettings(Group):
    """Servers of tools that clients name."""

    start_s: Positive = 30.0
    """Longest wait until a server is ready."""
    wait_s: Positive = 10.0
    """How long a run waits for servers that it does not require, before it begins without them."""
    call_s: Positive = 600.0
    """Longest wait for the answer to a call, where the server's configuration names none."""
    max_message_bytes: Annotated[int, Field(ge=65_536)] = 16_000_000
    """Largest message that a server may send."""
    header_variables: dict[str, list[str]] = {}
    """Environment variables that headers may name as `${NAME}`, and the hosts (`name`, `*.name`)
    that each may be sent to. JSON object."""
    folders: list[Path] = []
    """Host folders that servers run as programs may read, at their own paths: where you installed
    them, if not below /usr. JSON list."""

    def variables(self) -> dict[str, str]:
        """Give the values of variables that headers may name, as far as they are set."""
        return {name: os.environ[name] for name in self.header_variables if name in os.environ}


class HookSettings(Group):
    """Programs and servers that are asked at fixed points of runs."""

    secret: Annotated[SecretStr, Field(min_length=32)] | None = None
    """What the requests of HTTP hooks are signed with: each tenant's own secret is made of it
    (`treadle keys hook-secret` shows it). At least 32 characters. Unset: runs cannot have HTTP hooks."""
    file: Path | None = None
    """A settings file in the SDK's form whose `hooks` name commands. They run in the sandbox of
    every session of this host; all else in the file is left alone."""


class LimitSettings(Group):
    default_max_turns: Count = 100
    """`max_turns` of runs that set none."""
    ceiling_max_turns: Count = 1000
    """Largest `max_turns` that a client may ask for."""
    default_max_budget_usd: Annotated[Decimal, Field(gt=0)] = Decimal("5.00")
    """`max_budget_usd` of runs that set none."""
    ceiling_max_budget_usd: Annotated[Decimal, Field(gt=0)] = Decimal("100.00")
    """Largest `max_budget_usd` that a client may ask for."""
    structured_output_attempts: Count = 5
    """Failed attempts at structured output after which a run ends with
    `error_max_structured_output_retries`."""
    agents_depth: Annotated[int, Field(ge=0, le=10)] = 3
    """How deep subagents may begin others. 0: there are none."""
    agents_at_once: Annotated[int, Field(ge=1, le=64)] = 8
    """Subagents of a run that work at the same time, on each depth."""
    agents_a_run: Count = 100
    """Subagents that a run may begin."""
    agent_max_turns: Count = 200
    """Rounds of tool use of a subagent: the default, and the most that a definition can set."""
    max_body_bytes: Count = 10_000_000
    """Largest request body."""


class StreamSettings(Group):
    heartbeat_s: Annotated[float, Field(gt=0, le=25)] = 15.0
    """Silence after which a stream gets a comment."""
    send_timeout_s: Positive = 30.0
    """How long a reader may take nothing before it is cut; its cursor works afterwards."""
    max_age_s: Positive = 3600.0
    """Age at which a stream ends with `max_age`; readers come back with their cursor."""
    buffer_frames: Count = 1000
    """Frames kept in memory for one reader; a slower one is served from the journal again."""
    buffer_bytes: Count = 4_000_000
    """The same bound in bytes."""
    coalesce_ms: Annotated[int, Field(ge=0, le=5000)] = 50
    """Shortest time between two previews of a block: what comes meanwhile is joined. 0 sends each
    piece as it comes."""
    tool_progress_s: Positive = 5.0
    """How often readers of partial messages are told of a call that is still running."""
    preview_relay: Literal["notify", "off"] = "notify"
    """How previews reach readers on a host that does not drive the run. `off`: not at all."""
    max_per_session: Count = 50
    """Streams of one session that one host serves at once."""
    max_per_key: Count = 200
    """Streams of one API key that one host serves at once."""


class AuthSettings(Group):
    bootstrap_key: Annotated[SecretStr, Field(min_length=32)] | None = None
    """Creates the default tenant's admin key at start. At least 32 characters."""


class LogSettings(Group):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe record that is written."""
    format: Literal["json", "text"] | None = None
    """One JSON object a line, or lines for people. Default: the latter at a terminal alone."""
