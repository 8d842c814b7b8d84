"""Differences of approvals and of control: callbacks become actions, control reaches the session."""

from tests.traces.differences_compaction import CAVEAT
from tests.traces.normal import Form, Json
from tests.traces.scenario import Scenario

_SET = "<local-command-stdout>Set model to "
_FAILED = "Tool permission request failed: Error: "
_HI = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
_BY_SERVICE = {"decision": "reject", "source": "config", "reason_type": "other"}


def control_changes_the_session(form: Form, scenario: Scenario) -> None:
    """Take out what the reference says of a change between turns, and its probe of the model.

    Between runs nobody drives a session: the change is the session's, and the next `init` tells it.
    """
    asked = {act.body["subtype"]: act.body for act in scenario.acts if act.kind == "control"}
    if not asked:
        return
    model, mode = asked["set_model"]["model"], asked["set_permission_mode"]["mode"]
    said = f"{_SET}`{model}`</local-command-stdout>"
    at = next(n for n, message in enumerate(form.messages) if message["type"] == "result") + 1
    if form.messages[at : at + 2] != [_told(said), _status(mode)]:
        raise ValueError("the change is told otherwise")
    del form.messages[at : at + 2]
    if form.requests.pop(1) != {"model": model, "stream": False, "max_tokens": 1, **_HI}:
        raise ValueError("the model is tried in another way")
    content = form.requests[1]["messages"][-1]["content"]
    texts = (CAVEAT, "<long:0+ words>", f"{said}\n")
    if content[:3] != [{"type": "text", "text": text} for text in texts]:
        raise ValueError("the model is told otherwise")
    del content[:3]


def _told(said: str) -> Json:
    return {
        "type": "user",
        "session_id": "session-1",
        "keys": ["message", "parent_tool_use_id", "session_id", "timestamp", "type", "uuid"],
        "parent_tool_use_id": None,
        "isReplay": True,
        "message": {"keys": ["content", "role"], "content": [{"type": "text", "text": said}]},
    }


def _status(mode: str) -> Json:
    return {
        "type": "system",
        "session_id": "session-1",
        "keys": ["permissionMode", "session_id", "subtype", "type", "uuid"],
        "subtype": "status",
        "status": None,
        "permissionMode": mode,
    }


def failed_callbacks_are_denials(form: Form, _: Scenario) -> None:
    """Let a person have denied what a callback failed at: an action cannot fail."""
    for message in form.messages:
        if message["type"] == "user" and _FAILED in str(message.get("message")):
            (meta,) = message["tool_result_meta"]
            if meta["permission_decision"] != _BY_SERVICE:
                raise ValueError("a failed callback is told otherwise")
            meta["permission_decision"] = {"decision": "reject", "source": "user_reject"}
