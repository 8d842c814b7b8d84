"""The gate of a run: rules of the operator, the tenant, the options and the project, in one."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from app.domain.agents import AGENT_TOOL
from app.domain.ceiling import Ceiling, OperatorRules
from app.domain.options import AgentOptions, SettingSource
from app.domain.tools import ToolSpec
from app.permissions.permissions import Permissions
from app.permissions.place import Place
from app.runs.asking import ASK_USER
from app.runs.classifying import Classifier
from app.runs.client_tools import client_specs
from app.runs.gate import EXIT_PLAN, Asker, RuleGate
from app.tools.project_rules import project_rules
from app.tools.tool import Tool
from app.tools.workspace import Workspace

GONE_TOOLS = frozenset({"LS", "MultiEdit", "NotebookRead"})
"""Tools that settings files for other programs still name; none is offered here."""


def open_gate(
    options: AgentOptions,
    workspace: Workspace,
    operator: OperatorRules,
    ceiling: Ceiling,
    asker: Asker,
    classifier: Classifier,
    names_of: Callable[[str], frozenset[str]],
    tools: Collection[str],
) -> RuleGate:
    """Give a run's gate. Raises `MalformedRule` for a tenant's policy that holds what is no rule.

    `tools` are the names of all tools of the service.
    """
    known = {*tools, AGENT_TOOL, *(spec.name for spec in client_specs(options)), *GONE_TOOLS}
    base = _base(workspace, operator, ceiling)
    return RuleGate(
        Permissions.of(options, base),
        asker,
        base,
        lambda now: _with_project_rules(now, workspace, options.setting_sources, known),
        classifier,
        names_of,
    )


def _base(workspace: Workspace, operator: OperatorRules, ceiling: Ceiling) -> Permissions:
    """Give what no option of a run changes."""
    view = workspace.view
    return (
        Permissions(
            place=Place(view.root, view.home, (view.tmp,), workspace.real, tuple(view.readable))
        )
        .with_rules("deny", operator.denied, "operator")
        .with_rules("ask", operator.asked, "operator")
        .with_rules("allow", operator.allowed, "operator")
        .with_rules("deny", ceiling.denied, "tenant")
        .with_rules("ask", ceiling.asked, "tenant")
    )


def _with_project_rules(
    now: Permissions,
    workspace: Workspace,
    sources: Collection[SettingSource] | None,
    known: Collection[str],
) -> Permissions:
    for found in project_rules(workspace, sources):
        behavior, text, source = found.behavior, found.text, found.source
        if found.misread is None:
            now = now.with_rules(behavior, [text], source)
        else:
            now = now.with_misread(behavior, text, source, where=found.misread, known=known)
    return now


def on_offer(options: AgentOptions, withheld: Sequence[str]) -> AgentOptions:
    """Give options for the question which tools are on offer; `withheld` are deny rules of others."""
    denied = [*options.disallowed_tools, *withheld]
    return options.model_copy(update={"disallowed_tools": denied}) if withheld else options


def offered(tools: Sequence[Tool[Any]], options: AgentOptions) -> Sequence[ToolSpec]:
    """Give the tools that a run is offered."""
    disabled = disabled_tools(tools, options)
    own = tuple(tool.spec for tool in tools if tool.spec.name not in disabled)
    return (*own, *client_specs(options))


def disabled_tools(tools: Sequence[Tool[Any]], options: AgentOptions) -> frozenset[str]:
    """Give the names of tools that a run is not offered."""
    names = {tool.spec.name for tool in tools}
    removed: set[str] = set()
    if options.disallowed_tools:
        rules = Permissions.of(options).rules
        removed = {name for name in names if rules.bare("deny", [name])}
    if options.actions.questions == "deny":
        removed.add(ASK_USER)
    if options.actions.permissions == "deny":
        removed.add(EXIT_PLAN)
    if options.tools is not None:
        removed |= names - set(options.tools)
    return frozenset(removed)
