"""Hooks of a recording: what was registered, what was answered, and what they were told.

Callbacks of the recording are HTTP hooks here; commands of its settings are the operator's.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.hook_server import NEVER, Said
from tests.fakes.site import answer
from tests.traces.previews import Json
from tests.traces.story import Line

SHOWN = (
    *("hook_event_name", "permission_mode", "tool_name", "tool_input", "prompt", "error"),
    *("is_interrupt", "stop_hook_active", "last_assistant_message", "trigger"),
    *("custom_instructions", "source"),
)
"""What recordings show of an event; of the rest they name the keys."""
_TIMEOUT_S = 1
"""Of hooks that have one; recordings only say that it is there."""
_SCRIPT = re.compile(r"\s*<<script .*>>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HookScript:
    registered: Sequence[tuple[str, int | None]] = ()
    """Events in their order, each with a time-out in seconds, if it has one."""
    said: Mapping[str, Sequence[Said]] = field(default_factory=dict)
    """What each event's hook answers, one after the other."""
    settings: str | None = None
    """The settings file that names commands."""


def hook_script_of(lines: Sequence[Line]) -> HookScript:
    """Read what was registered and answered."""
    registered: list[tuple[str, int | None]] = []
    answers = {line["request_id"]: line for line in lines[1:] if _is_answer(line)}
    said: dict[str, list[Said]] = {}
    for line in lines[1:]:
        match line:
            case {"dir": "send", "request": {"subtype": "initialize", "hooks": dict() as hooks}}:
                for event, (keys, *_) in hooks.items():
                    registered.append((event, _TIMEOUT_S if "timeout" in keys else None))
            case {"request": {"subtype": "hook_callback", "hook_event_name": str() as event}}:
                said.setdefault(event, []).append(_said(answers.get(line["request_id"])))
    settings = (ast.literal_eval(o["settings"]) for o in lines[0]["options"] if "settings" in o)
    commands = (text for text in settings if "hooks" in json.loads(text))
    return HookScript(registered, said, next(commands, None))


def told_in_trace(line: Line) -> Json:
    """Give the form of what a hook was told in a recording. Raises `KeyError` for another line."""
    request = line["request"]
    if line["type"] != "control_request" or not line.keys() >= {"dir", "request_id"}:
        raise KeyError("type")
    if not request.keys() >= {"callback_id", "tool_use_id"}:
        raise KeyError("callback_id")
    return {"keys": sorted(request["input_keys"]), **_shown(request)}


def told_here(bodies: Iterable[Json], cwd: str) -> list[Json]:
    """Give the forms of what our hooks were told."""
    return [{"keys": sorted(body), **_shown(_plain(body, cwd))} for body in bodies]


def _shown(source: Mapping[str, Any]) -> Json:
    return {name: source[name] for name in SHOWN if name in source}


def _plain(value: Any, cwd: str) -> Any:  # any JSON value
    if isinstance(value, str):
        return _SCRIPT.sub(" <script>", value).replace(cwd, "<cwd>")
    if isinstance(value, dict):
        return {key: _plain(item, cwd) for key, item in value.items()}
    return [_plain(item, cwd) for item in value] if isinstance(value, list) else value


def _is_answer(line: Line) -> bool:
    return line.get("dir") == "send" and line.get("type") == "control_response"


def _said(line: Line | None) -> Said:
    if line is None:
        return NEVER
    if line["subtype"] == "error":
        return answer(b"it raised", 500)
    return dict(json.loads(json.dumps(line["response"])))
