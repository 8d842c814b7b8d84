"""The subagents of a run, from options, settings and the workspace's files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.agent.effects import AgentLimits, Place
from app.agent.model_effects import Previews
from app.agent.tool_effects import Toolbox
from app.domain.agents import AgentDefinition
from app.domain.options import AgentOptions
from app.domain.tools import ToolSpec
from app.providers.registry import DEMO_MODEL, ProviderSet, resolve_model
from app.runs.run_agents import RunAgents
from app.settings.settings import Settings
from app.tools.agent_files import read_agents
from app.tools.agent_tool import BUILT_IN, AgentToolbox, agent_spec, is_forbidden, is_offered
from app.tools.workspace import Workspace


@dataclass(frozen=True, slots=True)
class AgentRules:
    """The operator's rules for subagents."""

    limits: AgentLimits
    find_model: Callable[[str], str | None]
    """Gives a model's id by its name or alias; None when nobody serves it."""

    def specs(
        self, options: AgentOptions, workspace: Workspace | None = None
    ) -> tuple[ToolSpec, ...]:
        """Give the tool as a run is offered it; `workspace` is None where that holds no files."""
        return (agent_spec(self.kinds(options, workspace)),) if self.are_offered(options) else ()

    def are_offered(self, options: AgentOptions) -> bool:
        """Whether a run may begin subagents."""
        return self.limits.depth > 0 and is_offered(options)

    def may_begin(self, options: AgentOptions) -> bool:
        """Whether a run may have subagents at all: skills begin them too."""
        return self.limits.depth > 0 and not is_forbidden(options)

    def kinds(
        self, options: AgentOptions, workspace: Workspace | None
    ) -> Mapping[str, AgentDefinition]:
        """Give the kinds of subagents: the client's win over the workspace's, these over ours."""
        if not self.may_begin(options):
            return {}
        sources = options.setting_sources
        is_read = sources is None or "project" in sources
        found = read_agents(workspace) if workspace is not None and is_read else {}
        if not found and not options.agents:
            return BUILT_IN  # whose description is made once
        return {**BUILT_IN, **found, **options.agents}

    def open(
        self,
        options: AgentOptions,
        workspace: Workspace,
        *,
        own: Toolbox,
        theirs: Toolbox,
        make_place: Callable[[], Place],
        previews: Previews,
    ) -> tuple[Toolbox, RunAgents]:
        """Give a run's tools, and what its subagents have. `own` and `theirs` are without Agent."""
        kinds = self.kinds(options, workspace)
        if self.are_offered(options):
            own, theirs = AgentToolbox(own, kinds), AgentToolbox(theirs, kinds)
        return own, RunAgents(self.limits, kinds, theirs, self.find_model, make_place, previews)


def agent_rules(settings: Settings, providers: ProviderSet) -> AgentRules:
    """Give the rules that settings make."""

    def find_model(name: str) -> str | None:
        model = resolve_model(name, settings.model.aliases, settings.model.default)
        return model if model == DEMO_MODEL or providers.is_configured else None

    limits = settings.limits
    return AgentRules(
        AgentLimits(
            limits.agents_depth, limits.agents_at_once, limits.agents_a_run, limits.agent_max_turns
        ),
        find_model,
    )
