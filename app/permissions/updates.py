"""What an answer changes of a run's permissions, in the SDK's form. Pure."""

from collections.abc import Sequence
from typing import Any

from app.domain.options import AgentOptions
from app.domain.permissions import (
    Behavior,
    DirectoriesUpdate,
    ModeUpdate,
    PermissionUpdate,
    RulesUpdate,
)

_OPTIONS: dict[Behavior, str] = {
    "allow": "allowed_tools",
    "deny": "disallowed_tools",
    "ask": "ask_tools",
}


def with_updates(options: AgentOptions, updates: Sequence[PermissionUpdate]) -> AgentOptions:
    """Give options with permission updates applied, in order.

    Wherever an update is meant to be kept, a service has the session alone. Folders beyond the workspace
    change nothing, since nothing outside is reachable. Raises pydantic's `ValidationError` for a
    rule or a mode that is not taken here.
    """
    changed: dict[str, Any] = {}
    for update in updates:
        match update:
            case ModeUpdate(mode=mode):
                changed["permission_mode"] = mode
            case RulesUpdate():
                name = _OPTIONS[update.behavior]
                known = changed.get(name, getattr(options, name, []))
                changed[name] = _with_rules(known, update)
            case DirectoriesUpdate():
                pass
    return AgentOptions.model_validate({**options.stored(), **changed}) if changed else options


def _with_rules(known: Sequence[str], update: RulesUpdate) -> list[str]:
    rules = list(dict.fromkeys(str(rule) for rule in update.rules))
    match update.type:
        case "addRules":
            return [*known, *(rule for rule in rules if rule not in known)]
        case "replaceRules":
            return rules
        case "removeRules":
            return [rule for rule in known if rule not in rules]
