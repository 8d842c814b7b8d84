"""A host of the service, from its settings."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ulid import ULID

from app.agent.offer import STAND_IN
from app.agent.state import RunInfo
from app.compaction.window import Window
from app.domain.options import AgentOptions
from app.domain.tools import ToolSpec
from app.providers.catalog import ModelCatalog
from app.providers.pricing import PriceTable
from app.providers.registry import ProviderSet, resolve_model
from app.runs.actions import Actions
from app.runs.callers import Callers
from app.runs.clock import SystemClock
from app.runs.commands import Commands
from app.runs.controls import Controls
from app.runs.desk import WaitingRules
from app.runs.indexing import Indexer
from app.runs.live import Hub
from app.runs.mirrors import Mirrors
from app.runs.queries import Queries
from app.runs.relay import open_relay
from app.runs.servers import ServerControls
from app.runs.service import Service
from app.runs.sessions import Sessions
from app.runs.skills import KnownSkills, Skills
from app.runs.slots import StreamSlots
from app.runs.starts import Starts
from app.runs.stored_outputs import StoredOutputs
from app.runs.telling import Teller
from app.runs.window import WindowReader
from app.runs.worker import Worker, open_worker
from app.runs.workspaces import WorkspaceRules
from app.sandbox.programs import Programs, install_programs
from app.sandbox.selftest import check_sandbox
from app.sandbox.strays import end_strays
from app.settings.groups import StreamSettings
from app.settings.settings import Settings
from app.store.bus import Bus, open_bus
from app.store.engine import Database
from app.store.leases import Host
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.bundle_folders import BundleFolders
from app.tools.custom import installed_tools
from app.tools.decoder import Decoder
from app.tools.pages import Pages
from app.tools.shells import HostRoom
from app.tools.tool import Tool
from app.wiring.agents import AgentRules, agent_rules
from app.wiring.answers import input_check
from app.wiring.database import open_store, prepare_data_dir
from app.wiring.folders import Folders
from app.wiring.hooks import host_hooks
from app.wiring.host_parts import HostParts, SystemStamps
from app.wiring.keep_running import keep_running
from app.wiring.mcp import mcp_rules
from app.wiring.permissions import offered
from app.wiring.providers import api_key_source, open_catalog, open_providers, retry_rules
from app.wiring.rules import (
    meta,
    open_guard,
    operator_rules,
    policy_of,
    version,
)
from app.wiring.side_models import side_models

log = logging.getLogger(__name__)

Role = Literal["serve", "api", "worker"]


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the worker of a host and its answers to clients stand on."""

    settings: Settings
    database: Database
    bus: Bus
    hub: Hub
    providers: ProviderSet
    stamps: SystemStamps
    rules: WorkspaceRules
    folders: Folders
    tools: Sequence[Tool[Any]]
    agents: AgentRules


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
        providers = await open_providers(stack, settings)
        prices = PriceTable(
            settings.model.prices,
            settings.model.abilities,
            has_tool_search=settings.model.tool_search,
        )
        stamps = SystemStamps(SystemClock(), prices)
        await asyncio.to_thread(prices.warm_up, settings.model.default, stamps.clock.now())
        rules = WorkspaceRules(
            settings.workspace.allowed_roots, settings.workspace.allow_root_owned
        )
        for root in rules.missing_roots():
            log.warning(
                "The allowed root %s (TREADLE_WORKSPACE__ALLOWED_ROOTS) is no folder on this host.",
                root,
                extra={"action": "missing_root"},
            )
        folders = Folders(
            sessions_dir,
            programs,
            rules,
            settings.sandbox,
            settings.workspace.sandbox_uid,
            BundleFolders(_open_folder(folder / "skills")),
        )
        ground = _Ground(
            *(settings, database, bus, hub, providers, stamps, rules, folders),
            _all_tools(extra_tools),
            agent_rules(settings, providers),
        )
        worker: Worker | None = None
        if role != "api":
            parts = _host_parts(ground, await open_catalog(stack, settings, prices))
            worker = await stack.enter_async_context(open_worker(_worker(ground, host, parts)))
            await keep_running(stack, Indexer(database).forever)
        service = _service(ground, worker)
        try:
            yield service
        finally:
            await service.drain()


def _host_parts(ground: _Ground, catalog: ModelCatalog | None) -> HostParts:
    settings = ground.settings
    decoder, guard = Decoder(), open_guard(settings.egress)
    retries = retry_rules(settings.model)
    return HostParts(
        stamps=ground.stamps,
        database=ground.database,
        hub=ground.hub,
        providers=ground.providers,
        tools=ground.tools,
        folders=ground.folders,
        api_key_source=api_key_source(settings),
        retries=retries,
        tool_progress_s=settings.stream.tool_progress_s,
        max_output_attempts=settings.limits.structured_output_attempts,
        auto_compact=settings.model.auto_compact,
        catalog=catalog,
        version=version(),
        decoder=decoder,
        guard=guard,
        pages=Pages(guard, decoder),
        mcp=mcp_rules(settings.mcp, version()),
        operator=operator_rules(settings),
        forbidden_modes=frozenset(settings.policy.forbidden_modes),
        side_models=side_models(settings.model, ground.stamps, retries),
        hooks=host_hooks(settings.hooks, guard),
        agents=ground.agents,
    )


def _worker(ground: _Ground, host: Host, parts: HostParts) -> Worker:
    engine = ground.settings.engine
    return Worker(
        host,
        ground.database,
        ground.bus,
        ground.hub,
        parts,
        max_runs=engine.max_runs,
        heartbeat_s=engine.heartbeat_s,
        poll_s=engine.poll_s,
        max_attempts=engine.max_attempts,
        background=HostRoom(engine.max_background_commands),
        waiting=WaitingRules(engine.hold_s, engine.poll_s),
        agents_at_once=ground.settings.limits.agents_at_once,
    )


def _service(ground: _Ground, worker: Worker | None) -> Service:
    settings, database, bus, hub = ground.settings, ground.database, ground.bus, ground.hub
    policy = policy_of(settings, ground.providers, ground.stamps.models)
    queries = Queries(database, hub)
    teller = Teller(hub, bus, worker)
    starts = Starts(
        database,
        worker,
        policy,
        ground.rules,
        settings.engine.queue_per_session,
        teller,
        KnownSkills(database),
    )
    commands = Commands(database, starts, teller, ground.stamps)
    controls = Controls(commands, queries, policy, teller)
    bus.on_word(controls.heard)
    servers = ServerControls(controls)
    bus.on_word(servers.heard)
    return Service(
        database=database,
        hub=hub,
        worker=worker,
        starts=starts,
        commands=commands,
        sessions=Sessions(database, hub, policy, ground.rules),
        skills=Skills(database),
        actions=Actions(database, teller, policy, input_check(ground.tools)),
        controls=controls,
        servers=servers,
        queries=queries,
        outputs=StoredOutputs(queries, ground.folders.own),
        window=_window_reader(ground, queries),
        callers=Callers(database),
        meta=lambda: meta(settings),
        stream_heartbeat_s=settings.stream.heartbeat_s,
        stream_send_timeout_s=settings.stream.send_timeout_s,
        stream_max_age_s=settings.stream.max_age_s,
        stream_slots=StreamSlots(settings.stream.max_per_session, settings.stream.max_per_key),
        drain_s=settings.engine.drain_s,
    )


def _all_tools(extra: Sequence[Tool[Any]]) -> tuple[Tool[Any], ...]:
    """Give the built-in tools, those that operators installed, and `extra`."""
    taken = [*(tool.spec.name for tool in (*BUILTIN_TOOLS, *extra)), STAND_IN]
    return (*BUILTIN_TOOLS, *installed_tools(taken), *extra)


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
    await keep_running(stack, hub.pump_forever, hub.poll_forever)
    if stream.preview_relay == "notify":
        await stack.enter_async_context(open_relay(hub, bus))
        mirrors = Mirrors(hub, bus, SystemClock())
        hub.elsewhere = mirrors
        bus.on_word(mirrors.heard)
        bus.on_reconnect(mirrors.look_everywhere)
        await keep_running(stack, mirrors.declare_forever)
    return hub


def _window_reader(ground: _Ground, queries: Queries) -> WindowReader:
    rules, models = ground.settings.model, ground.stamps.models

    def describe(session_id: str, stored: Mapping[str, Any]) -> RunInfo:
        given = AgentOptions.model_validate(dict(stored))
        model = resolve_model(given.model, rules.aliases, rules.default)
        window = Window(models.limits(model).context_window, rules.auto_compact)
        options = given.model_copy(update={"model": model})
        return RunInfo(session_id, "", options, window=window)

    def specs(info: RunInfo) -> Sequence[ToolSpec]:
        return (*offered(ground.tools, info.options), *ground.agents.specs(info.options))

    return WindowReader(queries, describe, specs, models)
