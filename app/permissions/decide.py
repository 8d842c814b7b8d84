"""May this call run? The order of evaluation, in one pure function.

Bare tool names only: scoped rules are refused where options come in.
"""

from dataclasses import dataclass

from app.domain.options import AgentOptions
from app.domain.permissions import HookVerdict, PermissionMode, Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decision import Allow, Ask, Author, Decision, Deny

NOWHERE = Scene()


@dataclass(frozen=True, slots=True)
class Permissions:
    """What decides about calls, but for hooks and people."""

    mode: PermissionMode = "default"
    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    @staticmethod
    def of(options: AgentOptions) -> "Permissions":
        """Take the mode and the rules of a run's options."""
        return Permissions(
            options.permission_mode,
            frozenset(options.allowed_tools),
            frozenset(options.disallowed_tools),
        )


def decide(
    call: ToolCall, spec: ToolSpec, permissions: Permissions, scene: Scene = NOWHERE
) -> Decision:
    """Decide a call of a tool that is on offer. First match wins; nobody is asked here.

    Deny rules beat every hook and every mode; what a hook wants asked, and tools that need a
    person, beat modes; modes beat allow rules.
    """
    names = {call.name, spec.name}  # a call may use an older name of the tool
    mode, hook = Author("mode", permissions.mode), scene.hook
    if hook and hook.decision == "deny":
        return _denied_by_hook(call, hook)
    if denied := names & permissions.denied:
        message = f"Permission to use {call.name} has been denied by a rule."
        return Deny("rule", message, Author("rule", min(denied)), is_announced=hook is None)
    if asked := _asked(call, spec, hook):
        return _never(call, mode) if permissions.mode == "dontAsk" else asked
    if hook:
        return Allow("hook", Author("hook", hook.hook), source="hook")
    if permissions.mode == "bypassPermissions":
        return Allow("mode", mode)
    if permissions.mode == "acceptEdits" and spec.edits_files:
        return Allow("mode", mode)
    if allowed := names & permissions.allowed:
        return Allow("rule", Author("rule", min(allowed)))
    if (spec.read_only and not spec.reaches_out) or spec.is_internal:
        return Allow("other")
    if permissions.mode == "dontAsk":
        return _never(call, mode)
    return Ask(None, f"{call.name} needs an approval, and this run has nobody to give it.")


def _asked(call: ToolCall, spec: ToolSpec, hook: HookVerdict | None) -> Ask | None:
    if hook and hook.decision == "ask":
        message = hook.reason or f"A hook wants {call.name} approved."
        return Ask("hook", message, Author("hook", hook.hook))
    if spec.needs_person:
        return Ask("other", f"{call.name} needs a person to answer, and nobody is there.")
    return None


def _denied_by_hook(call: ToolCall, hook: HookVerdict) -> Deny:
    said = f"PreToolUse:{call.name} hook error: {hook.reason}" if hook.reason else "Blocked by hook"
    return Deny("hook", said, Author("hook", hook.hook), source="hook", is_announced=False)


def _never(call: ToolCall, mode: Author) -> Deny:
    message = f"{call.name} is not among the allowed tools, and this run never asks."
    return Deny("mode", message, mode)
