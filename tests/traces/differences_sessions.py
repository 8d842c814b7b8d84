"""Differences of sessions."""

from tests.traces.normal import Form, Json
from tests.traces.scenario import Scenario
from tests.traces.turns import USAGE

_NOT_FOUND: Json = {
    "type": "result",
    "subtype": "error_during_execution",
    "session_id": "session-1",
    "is_error": True,
    "num_turns": 0,
    "stop_reason": None,
    "permission_denials": [],
    "errors": ["No conversation found with session ID: <session-1>"],
    "total_cost_usd": 0,
    "usage": dict.fromkeys(USAGE, 0),
    "modelUsage": {},
}


def unknown_sessions_are_refused(form: Form, scenario: Scenario) -> None:
    """Take out the result that says that there is no such session: HTTP says it by 404."""
    if scenario.prompts:
        return
    (result,) = form.messages
    if result != _NOT_FOUND | {"keys": sorted({*_NOT_FOUND, *_TIMES, "uuid"})}:
        raise ValueError("not the end of a session that was not found")
    form.messages.clear()


_TIMES = ("duration_api_ms", "duration_ms")
