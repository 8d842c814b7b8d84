"""What a host offers to runs: workspace, sandbox, tools and model of each."""

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from app.agent.effects import Clock, Effects, Inbox
from app.agent.model_effects import Model, Models
from app.agent.retries import RetryRules
from app.agent.state import RunInfo
from app.agent.tool_effects import Toolbox as Tools
from app.compaction.window import Window
from app.domain.briefing import Briefing
from app.domain.ceiling import OperatorRules
from app.domain.options import AgentOptions
from app.domain.skills import SKILL_TOOL, UploadedSkill
from app.domain.tools import ToolResult, ToolSpec
from app.errors import NoProvider, ToolFailed, WorkspaceUnavailable
from app.hooks.command import Shell
from app.hooks.registry import HostHooks, Owner
from app.mcp.servers import McpRules
from app.providers.catalog import ModelCatalog
from app.providers.registry import DEMO_MODEL, ProviderSet
from app.runs.asking import PersonAsker
from app.runs.classifying import Classifier
from app.runs.client_tools import ClientToolbox, client_specs
from app.runs.desk import Desk
from app.runs.errands import ReadingErrands
from app.runs.live import Hub
from app.runs.prepared import Prepared, PreparedToolbox
from app.runs.previews import LivePreviews, QuietPreviews, live_previews
from app.runs.progress import ToldToolbox
from app.sandbox.guarded_http import Guard
from app.store.claims import Claim
from app.store.engine import Database
from app.store.leases import Lease
from app.store.runs import Work
from app.tools.agent_tool import no_shells
from app.tools.decoder import Decoder
from app.tools.git_state import NO_REPOSITORY
from app.tools.pages import Pages
from app.tools.project import Project, environment, nothing
from app.tools.shells import Shells
from app.tools.skills import Shelf, Uploaded
from app.tools.stored_output import is_long, shortened
from app.tools.structured_output import OutputToolbox, output_spec
from app.tools.tool import MOST_CHARS, Beyond, Tool
from app.tools.toolbox import Toolbox
from app.tools.workspace import Workspace
from app.wiring.agents import AgentRules
from app.wiring.folders import Folders
from app.wiring.hooks import hooked
from app.wiring.mcp import adopting, run_servers, with_servers
from app.wiring.permissions import disabled_tools, offered, on_offer, open_gate
from app.wiring.side_models import SideModels
from app.wiring.skills import bring_files, chosen

_AT_THE_OPENING = frozenset({"Setup", "SessionStart", "UserPromptSubmit"})
"""Events before a run's first message: they take time that a POST does not wait."""


@dataclass(frozen=True, slots=True)
class SystemStamps:
    """The real clock and the price table."""

    clock: Clock
    models: Models


@dataclass(frozen=True, slots=True)
class HostParts:
    """What this host offers to runs: fits `runs.parts.Parts`."""

    stamps: SystemStamps
    database: Database
    hub: Hub
    providers: ProviderSet
    tools: Sequence[Tool[Any]]
    folders: Folders
    api_key_source: str
    retries: RetryRules
    tool_progress_s: float
    max_output_attempts: int
    auto_compact: bool
    catalog: ModelCatalog | None
    """Asks the provider about models; None where there is no provider."""
    version: str
    decoder: Decoder
    guard: Guard
    """For requests to places that strangers name."""
    pages: Pages
    mcp: McpRules
    agents: AgentRules
    operator: OperatorRules
    forbidden_modes: frozenset[str]
    side_models: SideModels
    hooks: HostHooks

    def describe(self, lease: Lease, work: Work) -> RunInfo:
        options = AgentOptions.model_validate(dict(work.options))
        model = options.model or ""
        if self.catalog is not None and model != DEMO_MODEL:
            self.catalog.want(model)
        return RunInfo(
            session_id=lease.session_id,
            run_id=lease.run_id,
            options=options,
            cwd=self.folders.root(work.workspace),
            api_key_source="demo" if options.model == DEMO_MODEL else self.api_key_source,
            version=f"{self.version} (Treadle)",
            sandbox=self.folders.sandbox,
            retries=self.retries,
            max_output_attempts=self.max_output_attempts,
            window=Window(self.stamps.models.limits(model).context_window, self.auto_compact),
            elapsed_ms=work.elapsed_ms,
            began_s=self.stamps.clock.monotonic(),
            follows=work.follows,
            hooks=self.hooks.events(options.hooks),
            withheld=tuple(self.operator.over(work.ceiling)),
        )

    async def first_look(
        self, info: RunInfo, work: Work
    ) -> tuple[Briefing, Sequence[ToolSpec]] | None:
        if info.options.mcp_servers or info.hooks & _AT_THE_OPENING:
            return None
        skills = self._skills(work, info)
        if work.workspace["source"] == "empty":  # it has no folder yet
            place = environment(self.stamps.clock, info.cwd, self._platform, NO_REPOSITORY)
            return Briefing(place, skills=tuple(each.note for each in skills)), self._specs(info)
        try:
            with self.folders.workspace(self.folders.place(work.workspace, skills)) as workspace:
                project = self._project(workspace, self._shelf(workspace, info, skills), info)
                return await project.look(Briefing(), info.cwd), self._specs(info, workspace)
        except (OSError, ToolFailed, WorkspaceUnavailable):
            return None

    def _skills(self, work: Work, info: RunInfo) -> Sequence[UploadedSkill]:
        if not work.skills:
            return ()
        disabled = disabled_tools(self.tools, on_offer(info.options, info.withheld))
        return chosen(work.skills, info.options, is_offered=SKILL_TOOL not in disabled)

    @property
    def _platform(self) -> str:
        name = platform.system()
        return (
            name
            if self.folders.sandbox == "none"
            else f"{name}; commands run in a sandbox, offline"
        )

    def _specs(self, info: RunInfo, workspace: Workspace | None = None) -> Sequence[ToolSpec]:
        options = on_offer(info.options, info.withheld)
        specs = (*offered(self.tools, options), *self.agents.specs(options, workspace))
        output = info.options.output_format
        return (*specs, output_spec(output.json_schema)) if output else specs

    def _shelf(self, workspace: Workspace, info: RunInfo, skills: Sequence[UploadedSkill]) -> Shelf:
        options = info.options
        return Shelf(
            workspace,
            options.setting_sources,
            None if options.skills == "all" else options.skills,
            is_offered=SKILL_TOOL
            not in disabled_tools(self.tools, on_offer(options, info.withheld)),
            uploaded=[Uploaded(each.note, self.folders.skill_folder(each)) for each in skills],
        )

    def _project(
        self,
        workspace: Workspace,
        shelf: Shelf,
        info: RunInfo,
        prepare: Callable[[], Awaitable[None]] = nothing,
    ) -> Project:
        sources = info.options.setting_sources
        return Project(workspace, self.stamps.clock, self._platform, shelf, sources, prepare)

    @asynccontextmanager
    async def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> AsyncIterator[Effects]:
        self._check_mode(info, work)
        options = info.options
        lease = claim.lease
        skills = self._skills(work, info)
        place = self.folders.place(work.workspace, skills)
        desk.hold_for(options.actions.hold_seconds)

        async def prepare() -> None:
            await asyncio.to_thread(self.folders.prepare, work.workspace, place)
            await bring_files(self.database, self.folders.bundles, lease.tenant_id, skills)

        prepared = Prepared(prepare)
        async with AsyncExitStack() as stack:
            workspace = stack.enter_context(self.folders.workspace(place))
            previews = (
                QuietPreviews()  # readers of the session are shown its own run's
                if claim.is_beside
                else stack.enter_context(live_previews(self.hub, self.stamps.clock, lease))
            )
            commands = self.folders.commands(place)
            model = self._model(options)
            side = self.side_models.small_of(info, model)
            hooks = await stack.enter_async_context(
                self.hooks.open(
                    Owner(lease.tenant_id, lease.session_id, lease.run_id),
                    options.hooks,
                    Shell(commands, info.cwd, prepared.ready),
                )
            )
            person = PersonAsker(desk, options.actions)
            shelf = self._shelf(workspace, info, skills)
            gate = open_gate(
                options,
                workspace,
                self.operator,
                work.ceiling,
                hooked(person, info),
                Classifier(side, self.side_models.classifier_of(info)),
                shelf.names_of,
                [tool.spec.name for tool in self.tools],
            )
            offer = on_offer(options, info.withheld)
            disabled = disabled_tools(self.tools, offer)

            def toolbox(shells: Shells) -> Tools:
                return with_servers(
                    servers,
                    lambda of_servers: Toolbox(
                        (*self.tools, *of_servers),
                        workspace,
                        commands,
                        shells=shells,
                        disabled=disabled,
                        decoder=self.decoder,
                        shelf=shelf,
                        beyond=Beyond(self.pages, side, f"{lease.tenant_id}/{lease.session_id}"),
                        beside=client_specs(options),
                        hidden=gate.hidden,
                    ),
                    offer,
                )

            def project() -> Project:
                return self._project(workspace, shelf, info, prepared.ready)

            servers = await stack.enter_async_context(
                run_servers(
                    options,
                    self.mcp,
                    self.guard,
                    commands,
                    cwd=info.cwd,
                    prepare=prepared.ready,
                    taken=[tool.spec.name for tool in self.tools],
                    desk=desk,
                )
            )

            async def shorter(result: ToolResult) -> ToolResult:
                if is_long(result, MOST_CHARS):
                    with suppress(WorkspaceUnavailable):  # then it is cut
                        await prepared.ready()
                return await shortened(result, MOST_CHARS, workspace)

            desk.on_options = adopting(gate, servers)
            mine: Tools = PreparedToolbox(toolbox(shells), prepared)
            if isinstance(previews, LivePreviews):
                mine = ToldToolbox(mine, previews, self.tool_progress_s)
            theirs: Tools = PreparedToolbox(toolbox(no_shells()), prepared)
            own = mine
            if options.client_tools:
                own = ClientToolbox(mine, options, desk, shorter)
                theirs = ClientToolbox(theirs, options, desk, shorter)
            tools, agents = self.agents.open(
                offer,
                workspace,
                own=own,
                theirs=theirs,
                make_place=project,
                previews=previews,
            )
            output = options.output_format
            yield Effects(
                model=model,
                tools=OutputToolbox(tools, output.json_schema) if output else tools,
                gate=gate,
                errands=ReadingErrands(mine, gate),
                desk=desk,
                hooks=hooks,
                inbox=inbox,
                place=project(),
                tasks=shells,
                previews=previews,
                models=self.stamps.models,
                clock=self.stamps.clock,
                side=side,
                servers=servers,
                agents=agents,
            )

    def _check_mode(self, info: RunInfo, work: Work) -> None:
        """Raise `WorkspaceUnavailable` for a mode that was taken away since the run was accepted."""
        mode = info.options.permission_mode
        if mode == "bypassPermissions" and not (
            work.allows_bypass and self.folders.sandbox == "bubblewrap"
        ):
            raise WorkspaceUnavailable("bypassPermissions is not allowed on this host any more.")
        if mode in self.forbidden_modes | work.ceiling.forbidden_modes:
            raise WorkspaceUnavailable(f"The permission mode {mode} is not allowed any more.")

    def _model(self, options: AgentOptions) -> Model:
        try:
            for name in filter(None, (options.model, options.fallback_model)):
                self.providers.model(name)
        except NoProvider as error:
            raise WorkspaceUnavailable(error.detail) from None
        return self.providers
