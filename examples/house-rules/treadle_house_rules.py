"""Two hooks: one that keeps an agent from something, and one that tells it something."""

from collections.abc import Mapping
from typing import Any

from app.hooks.custom import hook


@hook("PreToolUse", matcher="Bash", on_failure="block")
async def no_force_push(told: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Deny what rewrites the history that others work on. None: nothing to say."""
    command = str(told["tool_input"].get("command", ""))
    if "push" not in command or "--force" not in command:
        return None
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "Nobody force-pushes here. Push a new branch instead.",
        }
    }


@hook("SessionStart", matcher="startup")
async def house_style(_: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tell the model what holds in this house, once a conversation."""
    return {
        "hookSpecificOutput": {
            "hookEventName": "SessionStart",
            "additionalContext": "Commit messages here begin with the name of the area.",
        }
    }


HOOKS = (no_force_push, house_style)
