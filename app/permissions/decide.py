"""May this call run? The order of evaluation, in one pure function.

Bare tool names only: scoped rules are refused where options come in.
"""

from dataclasses import dataclass

from app.domain.options import AgentOptions
from app.domain.tools import ToolCall, ToolSpec


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""

    reason: str | None
    """`rule` or `mode`: the wire's `reason_type`. None: the call needs no permission at all."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run; the model is told why."""

    reason: str
    message: str


Decision = Allow | Deny


def decide(call: ToolCall, spec: ToolSpec, options: AgentOptions) -> Decision:
    """Decide a call of a tool that is on offer. First match wins; nobody is asked here.

    Deny rules beat every mode. What no rule and no mode covers is denied, since there is
    nobody to ask (decisions B27).
    """
    names = {call.name, spec.name}  # a call may use an older name of the tool
    if not names.isdisjoint(options.disallowed_tools):
        return Deny("rule", f"Permission to use {call.name} has been denied by a rule.")
    mode = options.permission_mode
    if mode == "bypassPermissions":
        return Allow("mode")
    if mode == "acceptEdits" and spec.edits_files:
        return Allow("mode")
    if not names.isdisjoint(options.allowed_tools):
        return Allow("rule")
    if spec.read_only or spec.is_internal:
        return Allow("other")
    if mode == "dontAsk":
        return Deny("mode", f"{call.name} is not among the allowed tools, and this run never asks.")
    return Deny("mode", f"{call.name} needs an approval, and this run has nobody to give it.")
