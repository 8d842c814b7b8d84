"""Settings become parts: the one place that knows which concrete thing fills which seam."""

import asyncio
import importlib.metadata
import logging
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr
from sqlalchemy.exc import DBAPIError
from ulid import ULID

from app.agent.effects import Clock, Effects, Inbox, Model, Models
from app.agent.retries import RetryRules
from app.agent.state import RunInfo
from app.compaction.window import Window
from app.domain.briefing import Briefing
from app.domain.options import AgentOptions
from app.domain.tools import ToolSpec
from app.errors import (
    ConfigError,
    NoProvider,
    Unavailable,
    ValidationFailed,
    WorkspaceUnavailable,
)
from app.providers.anthropic import AnthropicModel, Timeouts
from app.providers.catalog import ModelCatalog
from app.providers.demo import demo_model_server
from app.providers.endpoint import messages_url, request_headers
from app.providers.pool import model_http_client
from app.providers.pricing import PriceTable
from app.providers.registry import DEMO_MODEL, HOW_TO_SET_A_KEY, ProviderSet, resolve_model
from app.runs.callers import Callers
from app.runs.clock import SystemClock
from app.runs.commands import Commands
from app.runs.gate import RuleGate
from app.runs.indexing import Indexer
from app.runs.live import Hub
from app.runs.mirrors import Mirrors
from app.runs.policy import Policy
from app.runs.prepared import PreparedToolbox
from app.runs.previews import live_previews
from app.runs.progress import ToldToolbox
from app.runs.queries import Queries
from app.runs.relay import open_relay
from app.runs.service import Service
from app.runs.sessions import Sessions
from app.runs.slots import StreamSlots
from app.runs.window import WindowReader
from app.runs.worker import Worker, open_worker
from app.runs.workspaces import WorkspaceRules
from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.dirs import check_reachable, make_session_dirs, session_dirs
from app.sandbox.driver import Sandbox, SessionDirs
from app.sandbox.programs import Programs, install_programs
from app.sandbox.selftest import check_sandbox
from app.sandbox.strays import end_strays
from app.sandbox.unsandboxed import Unsandboxed
from app.settings import ModelSettings, Settings, StreamSettings
from app.store.bus import Bus, open_bus
from app.store.embedded import EmbeddedPostgres, ensure_running
from app.store.engine import GONE, Database, open_database
from app.store.journal import Lease
from app.store.keys import DEFAULT_TENANT, ensure_bootstrap_key, ensure_tenant
from app.store.migrate import check_schema, migrate
from app.store.queue import Claim, Host
from app.store.runs import Work
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.custom import installed_tools
from app.tools.decoder import Decoder
from app.tools.git_state import NO_REPOSITORY
from app.tools.project import Project, environment
from app.tools.shells import Shells
from app.tools.structured_output import OutputToolbox, output_spec
from app.tools.tool import Tool
from app.tools.toolbox import Toolbox
from app.tools.workspace import Workspace

log = logging.getLogger(__name__)

Role = Literal["serve", "api", "worker"]
SDK_VERSION = "0.2.189"
"""The SDK whose message parser the compatibility test runs over our messages."""


def version() -> str:
    """Give the program's version."""
    return importlib.metadata.version("treadle")


# -- the database -----------------------------------------------------------------------------


def embedded_place(settings: Settings) -> EmbeddedPostgres:
    """Give where the embedded Postgres lies."""
    return EmbeddedPostgres(settings.data_path / "postgres", settings.runtime_path)


async def database_dsn(
    settings: Settings, *, on_progress: Callable[[str], None] | None = None
) -> str:
    """Give the database to use; start the embedded one when none is named."""
    if settings.database.url is not None:
        return settings.database.url.get_secret_value()
    prepare_data_dir(settings)
    return await ensure_running(embedded_place(settings), on_progress=on_progress)


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Database]:
    """Connect to the database and bring its schema and first tenant up to date."""
    dsn = await database_dsn(settings, on_progress=log.info)
    async with open_database(
        dsn, pool_size=settings.database.pool_size, connect_s=settings.database.connect_s
    ) as database:
        try:
            await _prepare(settings, database)
        except (*GONE, DBAPIError, Unavailable) as error:
            raise ConfigError(
                f"The database went away during the start ({type(error).__name__}). Start again "
                "when it is back."
            ) from error
        yield database


async def _prepare(settings: Settings, database: Database) -> None:
    if settings.database.migrate_on_start:
        await migrate(database.engine)
    else:
        await check_schema(database.engine)
    async with database.begin() as connection:
        await ensure_tenant(connection, DEFAULT_TENANT, allow_bypass=settings.policy.allow_bypass)
        if (key := settings.auth.bootstrap_key) is not None:
            await ensure_bootstrap_key(connection, DEFAULT_TENANT, key.get_secret_value())


def prepare_data_dir(settings: Settings) -> Path:
    """Make the data directory. Raises `ConfigError` when it cannot be written."""
    folder = settings.data_path
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}-{ULID()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"The data directory {folder} cannot be written ({error.strerror}). Set "
            "TREADLE_DATA_DIR to a folder that this user may write."
        ) from None
    return folder


# -- what runs need ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SystemStamps:
    """The real clock and the price table."""

    clock: Clock
    models: Models


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a session works on this host, and as whom."""

    dirs: SessionDirs
    uid: int | None
    gid: int | None


def _unavailable(error: Exception) -> WorkspaceUnavailable:
    log.warning("The workspace cannot be opened: %s", error)
    return WorkspaceUnavailable("The session's workspace is not available here.")


@dataclass(frozen=True, slots=True)
class HostParts:
    """What this host offers to runs: fits `runs.execute.Parts`."""

    stamps: SystemStamps
    database: Database
    hub: Hub
    providers: ProviderSet
    tools: Sequence[Tool[Any]]
    sessions_dir: Path
    programs: Programs
    rules: WorkspaceRules
    sandbox: Literal["bubblewrap", "none"]
    sandbox_uid: int
    api_key_source: str
    retries: RetryRules
    tool_progress_s: float
    max_output_attempts: int
    auto_compact: bool
    catalog: ModelCatalog | None
    """Asks the provider about models; None where there is no provider."""
    version: str
    decoder: Decoder

    def describe(self, lease: Lease, work: Work) -> RunInfo:
        options = AgentOptions.model_validate(dict(work.options))
        model = options.model or ""
        if self.catalog is not None and model != DEMO_MODEL:
            self.catalog.want(model)
        return RunInfo(
            session_id=lease.session_id,
            run_id=lease.run_id,
            options=options,
            cwd=self._root(work),
            api_key_source="demo" if options.model == DEMO_MODEL else self.api_key_source,
            version=f"{self.version} (Treadle)",
            sandbox=self.sandbox,
            retries=self.retries,
            max_output_attempts=self.max_output_attempts,
            window=Window(self.stamps.models.limits(model).context_window, self.auto_compact),
            elapsed_ms=work.elapsed_ms,
            began_s=self.stamps.clock.monotonic(),
            follows=work.follows,
        )

    def first_briefing(self, info: RunInfo, work: Work) -> Briefing | None:
        if work.workspace["source"] != "empty":
            return None
        place = environment(self.stamps.clock, info.cwd, self._platform, NO_REPOSITORY)
        return Briefing(place)

    @property
    def _platform(self) -> str:
        name = platform.system()
        return name if self.sandbox == "none" else f"{name}; commands run in a sandbox, offline"

    def specs(self, info: RunInfo) -> Sequence[ToolSpec]:
        specs = offered(self.tools, info.options)
        output = info.options.output_format
        return (*specs, output_spec(output.json_schema)) if output else specs

    @asynccontextmanager
    async def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells
    ) -> AsyncIterator[Effects]:
        options = info.options
        if options.permission_mode == "bypassPermissions" and not (
            work.allows_bypass and self.sandbox == "bubblewrap"
        ):
            raise WorkspaceUnavailable("bypassPermissions is not allowed on this host any more.")
        lease = claim.lease
        place = self._place(work)
        with (
            self._workspace(place) as workspace,
            live_previews(self.hub, self.stamps.clock, lease) as previews,
        ):
            prepared = PreparedToolbox(
                Toolbox(
                    self.tools,
                    workspace,
                    self._sandbox(place),
                    shells=shells,
                    disabled=_disabled(self.tools, options),
                    decoder=self.decoder,
                ),
                lambda: asyncio.to_thread(self._prepare, work, place),
            )
            told = ToldToolbox(prepared, previews, self.tool_progress_s)
            output = options.output_format
            yield Effects(
                model=self._model(options),
                tools=OutputToolbox(told, output.json_schema) if output else told,
                gate=RuleGate(options),
                inbox=inbox,
                place=Project(
                    workspace, self.stamps.clock, self._platform, options.setting_sources
                ),
                tasks=shells,
                previews=previews,
                models=self.stamps.models,
                clock=self.stamps.clock,
            )

    def _model(self, options: AgentOptions) -> Model:
        try:
            for name in filter(None, (options.model, options.fallback_model)):
                self.providers.model(name)
        except NoProvider as error:
            raise WorkspaceUnavailable(error.detail) from None
        return self.providers

    def _root(self, work: Work) -> str:
        if self.sandbox == "bubblewrap":
            return "/workspace"
        folder = work.workspace.get("path") or self.sessions_dir / work.workspace["token"] / "ws"
        return str(folder)

    def _place(self, work: Work) -> "_Place":
        """Look where the session works. Raises `WorkspaceUnavailable`."""
        uid = self.sandbox_uid if os.geteuid() == 0 and self.sandbox == "bubblewrap" else None
        dirs = session_dirs(self.sessions_dir, work.workspace["token"])
        if (path := work.workspace.get("path")) is None:
            return _Place(dirs, uid, uid)
        try:
            folder = self.rules.allowed(path)
            owner = folder.stat()
            if uid is None:
                return _Place(SessionDirs(folder, dirs.tmp, dirs.home), None, None)
            uid, gid = owner.st_uid or uid, owner.st_gid or uid
            check_reachable(folder, uid=uid)
        except (ValidationFailed, ConfigError, OSError) as error:
            raise _unavailable(error) from None
        return _Place(SessionDirs(folder, dirs.tmp, dirs.home), uid, gid)

    def _prepare(self, work: Work, place: "_Place") -> None:
        """Make the session's folders. Blocking. Raises `WorkspaceUnavailable`."""
        try:
            make_session_dirs(self.sessions_dir, work.workspace["token"], uid=place.uid)
        except OSError as error:
            raise _unavailable(error) from None

    def _workspace(self, place: "_Place") -> Workspace:
        make = Workspace.sandboxed if self.sandbox == "bubblewrap" else Workspace.bare
        return make(place.dirs, uid=place.uid, gid=place.gid)

    def _sandbox(self, place: "_Place") -> Sandbox:
        if self.sandbox == "bubblewrap":
            return BubblewrapSandbox(place.dirs, self.programs, place.uid, place.gid)
        return Unsandboxed(place.dirs, self.programs, place.uid, place.gid)


def offered(tools: Sequence[Tool[Any]], options: AgentOptions) -> Sequence[ToolSpec]:
    """Give the tools that a run is offered."""
    disabled = _disabled(tools, options)
    return tuple(tool.spec for tool in tools if tool.spec.name not in disabled)


def _disabled(tools: Sequence[Tool[Any]], options: AgentOptions) -> frozenset[str]:
    names = {tool.spec.name for tool in tools}
    removed = set(options.disallowed_tools)
    if options.tools is not None:
        removed |= names - set(options.tools)
    return frozenset(removed & names)


# -- the service ------------------------------------------------------------------------------


@asynccontextmanager
async def open_service(
    settings: Settings,
    role: Role = "serve",
    *,
    extra_tools: Sequence[Tool[Any]] = (),
) -> AsyncIterator[Service]:
    """Start a host; stop it at the end. Raises `ConfigError` with what to do."""
    folder = prepare_data_dir(settings)
    programs = await asyncio.to_thread(install_programs, _open_folder(folder / "programs"))
    sessions_dir = _open_folder(folder / "sessions")
    if role != "api":
        await _check_sandbox(settings, sessions_dir, programs)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_store(settings))
        host = Host(f"host_{ULID()}", settings.engine.lease_s)
        bus = await stack.enter_async_context(open_bus(database, host.id))
        hub = await _open_hub(stack, settings.engine.poll_s, settings.stream, database, bus)
        providers = await _open_providers(stack, settings)
        prices = PriceTable(settings.model.prices, settings.model.abilities)
        await asyncio.to_thread(prices.warm_up)
        stamps = SystemStamps(SystemClock(), prices)
        rules = WorkspaceRules(
            settings.workspace.allowed_roots, settings.workspace.allow_root_owned
        )
        tools = _all_tools(extra_tools)
        worker: Worker | None = None
        if role != "api":
            parts = HostParts(
                stamps=stamps,
                database=database,
                hub=hub,
                providers=providers,
                tools=tools,
                sessions_dir=sessions_dir,
                programs=programs,
                rules=rules,
                sandbox=settings.sandbox,
                sandbox_uid=settings.workspace.sandbox_uid,
                api_key_source=_api_key_source(settings),
                retries=_retry_rules(settings.model),
                tool_progress_s=settings.stream.tool_progress_s,
                max_output_attempts=settings.limits.structured_output_attempts,
                auto_compact=settings.model.auto_compact,
                catalog=await _open_catalog(stack, settings, prices),
                version=version(),
                decoder=Decoder(),
            )
            worker = await stack.enter_async_context(
                open_worker(
                    Worker(
                        host,
                        database,
                        bus,
                        hub,
                        parts,
                        max_runs=settings.engine.max_runs,
                        heartbeat_s=settings.engine.heartbeat_s,
                        poll_s=settings.engine.poll_s,
                        max_attempts=settings.engine.max_attempts,
                    )
                )
            )
            await _keep_running(stack, Indexer(database).forever)
        policy = _policy(settings, providers, stamps.models)
        queries = Queries(database, hub)
        service = Service(
            database=database,
            hub=hub,
            worker=worker,
            commands=Commands(
                database,
                hub,
                bus,
                worker,
                policy,
                rules,
                stamps,
                settings.engine.queue_per_session,
            ),
            sessions=Sessions(database, hub, policy, rules),
            queries=queries,
            window=_window_reader(settings, queries, stamps.models, tools),
            callers=Callers(database),
            meta=lambda: _meta(settings),
            stream_heartbeat_s=settings.stream.heartbeat_s,
            stream_send_timeout_s=settings.stream.send_timeout_s,
            stream_max_age_s=settings.stream.max_age_s,
            stream_slots=StreamSlots(settings.stream.max_per_session, settings.stream.max_per_key),
            drain_s=settings.engine.drain_s,
        )
        try:
            yield service
        finally:
            await service.drain()


def _all_tools(extra: Sequence[Tool[Any]]) -> tuple[Tool[Any], ...]:
    """Give the built-in tools, those that operators installed, and `extra`."""
    known = (*BUILTIN_TOOLS, *extra)
    return (*BUILTIN_TOOLS, *installed_tools(tool.spec.name for tool in known), *extra)


def _open_folder(folder: Path) -> Path:
    # The sandbox's user passes through, but cannot look around.
    folder.mkdir(mode=0o711, exist_ok=True)
    return folder


async def _check_sandbox(settings: Settings, sessions_dir: Path, programs: Programs) -> None:
    if settings.sandbox == "none":
        log.warning(
            "TREADLE_SANDBOX=none: commands of agents run UNPROTECTED as this user. Serve one "
            "trusted tenant on loopback only.",
            extra={"action": "sandbox_off"},
        )
        return
    uid = settings.workspace.sandbox_uid if os.geteuid() == 0 else None
    end_strays(os.geteuid() if uid is None else uid)
    await check_sandbox(sessions_dir, programs, uid=uid)


async def _open_hub(
    stack: AsyncExitStack, poll_s: float, stream: StreamSettings, database: Database, bus: Bus
) -> Hub:
    hub = Hub(
        database,
        bus,
        poll_s,
        stream.buffer_frames,
        stream.buffer_bytes,
        stream.coalesce_ms / 1000,
    )
    bus.on_word(hub.heard)
    bus.on_reconnect(hub.look_everywhere)
    await _keep_running(stack, hub.pump_forever, hub.poll_forever)
    if stream.preview_relay == "notify":
        await stack.enter_async_context(open_relay(hub, bus))
        mirrors = Mirrors(hub, bus, SystemClock())
        hub.elsewhere = mirrors
        bus.on_word(mirrors.heard)
        bus.on_reconnect(mirrors.look_everywhere)
        await _keep_running(stack, mirrors.declare_forever)
    return hub


async def _keep_running(stack: AsyncExitStack, *loops: Callable[[], Awaitable[None]]) -> None:
    group = await stack.enter_async_context(asyncio.TaskGroup())

    async def run(loop: Callable[[], Awaitable[None]]) -> None:
        await loop()

    for loop in loops:
        stack.callback(group.create_task(run(loop)).cancel)


async def _open_providers(stack: AsyncExitStack, settings: Settings) -> ProviderSet:
    client = await stack.enter_async_context(model_http_client())
    timeouts = Timeouts(
        connect_s=settings.model.connect_s,
        first_byte_s=settings.model.first_byte_s,
        idle_s=settings.model.idle_s,
    )
    demo = await stack.enter_async_context(demo_model_server())
    provider = None
    if settings.has_provider:
        provider = AnthropicModel(
            client=client,
            base_url=settings.model.base_url,
            api_key=_secret(settings.model.api_key),
            auth_token=_secret(settings.model.auth_token),
            extra_headers=settings.model.extra_headers,
            timeouts=timeouts,
            near_limit=settings.model.rate_limit_near,
        )
    else:
        log.warning(
            "No model provider: only the demo model answers. %s",
            HOW_TO_SET_A_KEY,
            extra={"action": "no_provider"},
        )
    return ProviderSet(
        provider=provider,
        demo=AnthropicModel(
            client=client,
            base_url=demo.base_url,
            auth_token=demo.auth_token,
            timeouts=timeouts,
        ),
    )


async def _open_catalog(
    stack: AsyncExitStack, settings: Settings, prices: PriceTable
) -> ModelCatalog | None:
    if not settings.has_provider:
        return None
    model = settings.model
    catalog = ModelCatalog(
        await stack.enter_async_context(model_http_client()),
        messages_url(model.base_url),
        request_headers(_secret(model.api_key), _secret(model.auth_token), model.extra_headers),
        prices.learn,
    )
    await _keep_running(stack, catalog.ask_forever)
    return catalog


def _window_reader(
    settings: Settings, queries: Queries, models: Models, tools: Sequence[Tool[Any]]
) -> WindowReader:
    def describe(session_id: str, stored: Mapping[str, Any]) -> RunInfo:
        given = AgentOptions.model_validate(dict(stored))
        model = resolve_model(given.model, settings.model.aliases, settings.model.default)
        window = Window(models.limits(model).context_window, settings.model.auto_compact)
        options = given.model_copy(update={"model": model})
        return RunInfo(session_id, "", options, window=window)

    return WindowReader(queries, describe, lambda info: offered(tools, info.options))


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value else None


def _api_key_source(settings: Settings) -> str:
    if settings.model.api_key is not None:
        return "ANTHROPIC_API_KEY"
    return "ANTHROPIC_AUTH_TOKEN" if settings.model.auth_token is not None else "none"


def _retry_rules(model: ModelSettings) -> RetryRules:
    return RetryRules(
        max_retries=model.max_retries,
        first_delay_s=model.retry_first_delay_s,
        longest_delay_s=model.retry_longest_delay_s,
        longest_asked_delay_s=model.retry_longest_asked_delay_s,
        jitter=model.retry_jitter,
        overloads_before_fallback=model.overloads_before_fallback,
    )


def _policy(settings: Settings, providers: ProviderSet, models: Models) -> Policy:
    limits = settings.limits
    return Policy(
        default_model=settings.model.default,
        aliases=settings.model.aliases,
        default_max_turns=limits.default_max_turns,
        ceiling_max_turns=limits.ceiling_max_turns,
        default_max_budget_usd=limits.default_max_budget_usd,
        ceiling_max_budget_usd=limits.ceiling_max_budget_usd,
        has_sandbox=settings.sandbox == "bubblewrap",
        resolve_model=resolve_model,
        is_served=lambda model: model == DEMO_MODEL or providers.is_configured,
        how_to_serve=f"No model provider is configured. {HOW_TO_SET_A_KEY}",
        models=models,
    )


def _meta(settings: Settings) -> Mapping[str, Any]:
    limits = settings.limits
    return {
        "version": version(),
        "wire": {"claude_code_version": f"{version()} (Treadle)", "claude_agent_sdk": SDK_VERSION},
        "features": [
            *("runs", "sessions", "fork", "rewind", "continue", "export", "import", "search"),
            *("sse", "previews", "cancel", "compact"),
        ],
        "sandbox": settings.sandbox,
        "models": {
            "default": settings.model.default,
            "aliases": dict(settings.model.aliases),
            "demo": DEMO_MODEL,
            "provider": "configured" if settings.has_provider else f"none. {HOW_TO_SET_A_KEY}",
        },
        "limits": {
            "default_max_turns": limits.default_max_turns,
            "ceiling_max_turns": limits.ceiling_max_turns,
            "default_max_budget_usd": str(limits.default_max_budget_usd),
            "ceiling_max_budget_usd": str(limits.ceiling_max_budget_usd),
            "max_body_bytes": limits.max_body_bytes,
            "queue_per_session": settings.engine.queue_per_session,
        },
        "retention": {"log": "kept", "resume": "any cursor of the log works"},
    }
