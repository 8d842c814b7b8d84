"""Puts an example of each answer into the OpenAPI document, and what the frames of a stream hold."""

from collections.abc import Mapping
from typing import Any, get_args

import orjson

from app.api.examples.runs import ACTION, RECEIPT, RESULT, RUN, STARTED_RUN, Json
from app.api.examples.sessions import (
    AUDIT_ENTRY,
    CONTEXT,
    IMPORTED_SESSION,
    LOG_EVENT,
    LOG_MESSAGE,
    MESSAGE,
    META,
    RUNNING_SESSION,
    SEARCH_HIT,
    SERVER,
    SESSION,
    SKILL,
    SUBAGENT,
    TASK,
)
from app.api.problem_pages import page
from app.errors import NotFound
from app.runs.items import EndReason

_RUN_PATH, _SESSION_PATH = f"/v1/runs/{RUN['id']}", f"/v1/sessions/{SESSION['id']}"


def _page(item: Json, **more: object) -> Json:
    return {"has_more": False, "next_cursor": None, "prev_cursor": None, "data": [item], **more}


def _part(item: Json, next_after: int | None) -> Json:
    return {"data": [item], "has_more": next_after is not None, "next_after": next_after}


_BY_SCHEMA: Mapping[str, Json] = {
    "RunObject": RUN,
    "RunPage": _page(RUN),
    "Started": {
        "run": STARTED_RUN,
        "session": RUNNING_SESSION,
        "links": {
            "run": _RUN_PATH,
            "stream": f"{_RUN_PATH}/stream",
            "events": f"{_SESSION_PATH}/events?run_id={RUN['id']}",
            "session": _SESSION_PATH,
        },
        "steered_into": None,
    },
    "CancelReceipt": RECEIPT,
    "CancelReceipts": {"data": [RECEIPT], "missing": [], "has_more": False},
    "ActionObject": ACTION,
    "ActionPage": _page(ACTION, as_of_seq={ACTION["session_id"]: 8}),
    "ResolvedItems": {"data": [{"id": ACTION["id"], "action": ACTION, "problem": None}]},
    "SessionObject": SESSION,
    "SessionPage": _page({**SESSION, "usage": None}),
    "CreatedSession": {**RUNNING_SESSION, "run": STARTED_RUN},
    "ImportedSession": IMPORTED_SESSION,
    "ControlAnswer": {"subtype": "success", "response": {"mode": "plan"}},
    "ServerList": {"data": [SERVER]},
    "EventPage": _part(LOG_EVENT, LOG_EVENT["seq"]),
    "MessagePage": _part(MESSAGE, LOG_MESSAGE["seq"]),
    "LogMessage": LOG_MESSAGE,
    "TaskList": {"data": [TASK]},
    "SubagentPage": _part(SUBAGENT, None),
    "ContextUsage": CONTEXT,
    "SearchPage": _page(SEARCH_HIT),
    "AuditPage": _page(AUDIT_ENTRY),
    "SkillObject": SKILL,
    "SkillList": {"data": [{name: value for name, value in SKILL.items() if name != "files"}]},
    "Meta": META,
}


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


_END = {"reason": "run_finished", "last_seq": RUN["last_seq"], "run_id": RUN["id"]}
_STREAM = (
    f"retry: 2000\n: stream open session={SESSION['id']} run={RUN['id']} from=2\n\n"
    f"id: {LOG_EVENT['seq']}\nevent: service\ndata: {_json(LOG_EVENT['data'])}\n\n"
    f"id: 6\nevent: message\ndata: {_json(MESSAGE)}\n\n"
    ": hb\n\n"
    f"event: end\ndata: {_json(_END)}\n\n"
)
_LINES = (
    _json({"event": "message", "id": 6, "data": MESSAGE})
    + f"\n\n{_json({'event': 'end', 'data': _END})}\n"
)

_BY_OPERATION: Mapping[str, object] = {
    "run_result": RESULT,
    "session_export": '# Say hello\n\n## User\n\nWrite "hello" to hello.txt\n',
    "session_output": "collected 1200 items\n",
    "service_health": {"status": "ok"},
    "service_readiness": {"status": "ready"},
    "problem_get": page(NotFound),
}
_BY_TYPE: Mapping[str, str] = {"text/event-stream": _STREAM, "application/x-ndjson": _LINES}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT = {"type": "string"}
_EVENTS: Mapping[str, object] = {
    "message": _ref("SdkMessage"),
    "service": _ref("ServiceEventObject"),
    "preview": {
        "oneOf": [
            _object(
                type={"const": "stream_event"},
                session_id=_TEXT,
                uuid=_TEXT,
                parent_tool_use_id={"type": ["string", "null"]},
                event={"type": "object", "description": "An event of the Messages API."},
            ),
            _object(
                type={"const": "service_preview_aborted"},
                session_id=_TEXT,
                message_id=_TEXT,
                reason=_TEXT,
            ),
            _ref("SdkMessage"),
        ]
    },
    "problem": _ref("Problem"),
    "end": _object(
        reason={"enum": list(get_args(EndReason))},
        last_seq={"type": ["integer", "null"]},
    ),
    "entry": _object(
        seq={"type": "integer"}, run_id={"type": ["string", "null"]}, message=_ref("SdkMessage")
    ),
}
"""What `data` holds, by the name of the frame's event. `entry` takes `message`'s place with `envelope`."""


def add_examples(document: dict[str, Any]) -> None:
    """Complete the document in place."""
    for operation in (o for path in document["paths"].values() for o in path.values()):
        for status, answer in operation["responses"].items():
            if status.startswith("2"):
                for kind, content in answer.get("content", {}).items():
                    content["example"] = _example(operation["operationId"], kind, content["schema"])
                    if kind == "text/event-stream":
                        content["x-sse-events"] = _EVENTS


def _example(operation_id: str, kind: str, schema: Mapping[str, Any]) -> object:
    if operation_id == "session_export" and kind == "application/x-ndjson":
        return f"{_json(MESSAGE)}\n"
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    name = schema.get("$ref", "").rpartition("/")[2]
    return _BY_SCHEMA[name] if name else _BY_OPERATION[operation_id]
