"""The normal form: what a trace fixes, of a golden trace and of a record of ours alike.

Left out is what stands on no list here: durations, timestamps, the values of uuids, offered
tools, and fields that describe the reference's own product.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.traces.fields import (
    API_ERROR,
    BLOCK_FIELDS,
    FAILURE_FIELDS,
    KEYS,
    LOCAL_COMMAND,
    MESSAGE_KEYS,
    MODEL_USAGE_FIELDS,
    NO_SUBAGENTS,
    OF_SUBAGENTS,
    ONLY_NAMED,
    OPTIONAL_REQUEST_FIELDS,
    OPTIONAL_RESULT_FIELDS,
    OPTIONAL_SYSTEM_FIELDS,
    ORIGIN_FIELDS,
    REQUEST_FIELDS,
    RESULT_FIELDS,
    SAID,
    SYSTEM_FIELDS,
    TASK_FIELDS,
    USAGE_FIELDS,
)
from tests.traces.hook_script import told_in_trace
from tests.traces.previews import Json as Json
from tests.traces.previews import event_form, joined_deltas, name_previews
from tests.traces.side_by_side import asked_apart, in_background, told_apart
from tests.traces.story import Line

COST_DIGITS = 10
_IDS = {
    "api_message_id": "msg",
    "hook_id": "hook",
    "message_id": "msg",
    "agent_id": "task",
    "parent_task_id": "task",
    "task_id": "task",
    "tool_use_id": "tool",
}
"""Ids that stand in messages themselves, and what they are called."""

_REMINDER = re.compile(
    r"<reminder>|<system-reminder>((?!</system-reminder>).)*</system-reminder>", re.DOTALL
)
_SCRIPT = re.compile(r"\s*<<script .*>>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Like:
    """Stands in an expected form where our text only has to match."""

    pattern: str
    example: str
    """A text that matches."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is compared."""

    messages: list[Json]
    """In wire order, all sessions of the scenario together."""
    requests: list[Json]
    """Of the model, in order."""
    tool_events: list[str] = field(default_factory=list)
    """`start ro a`, `end ro a`: seen from inside the custom tools."""
    prompts: list[str] = field(default_factory=list)
    """As they were sent. Of a golden trace only."""
    hooks: list[Json] = field(default_factory=list)
    """What hooks were told, in order."""
    crashes: list[int] = field(default_factory=list)
    """How many messages came before each kill. Of a golden trace only."""


@dataclass(frozen=True, slots=True)
class Record:
    """What our service did for a scenario."""

    messages: list[Json]
    """The journal rows of every run, decoded, in the order of the runs."""
    requests: list[Json]
    """Bodies of the model requests."""
    tool_events: list[str]
    hooks: list[Json] = field(default_factory=list)
    """What hooks were told, in the form of `hook_script`."""


# -- a golden trace ---------------------------------------------------------------------------


def form_of_trace(lines: Sequence[Line]) -> Form:
    """Give the normal form of a trace file."""
    form = Form([], [])
    for number, line in enumerate(lines[1:], 2):
        try:
            _take(form, with_said(line))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} of the trace is malformed") from error
    form.messages[:] = told_apart(form.messages)
    if in_background(form.messages):
        _number_responses(form.messages)
    _number_calls(form)
    _name_agents(form)
    name_previews(form.messages)
    form.messages[:] = joined_deltas(form.messages)
    form.requests[:] = asked_apart(form.requests, form.messages)
    return form


def _name_agents(form: Form) -> None:
    """Say whose the messages of subagents are: the reference's trace tells it by the key alone.

    Where it tells more, it numbers subagents as it numbers tasks.
    """
    tasks = {
        message["tool_use_id"]: message["task_id"]
        for message in form.messages
        if message.get("subtype") == "task_started"
    }
    for message in form.messages:
        if "parent_task_id" in message:
            message["parent_task_id"] = message["parent_task_id"].strip("<>")
        if message.get("subtype") == "permission_denied" and "agent_id" in message:
            message["agent_id"] = message["agent_id"].replace("agent-", "task-")
        elif "agent_id" in message["keys"] and message["type"] != "system":
            message["agent_id"] = tasks.get(message["parent_tool_use_id"])


def _number_responses(messages: Sequence[Json]) -> None:
    """Number responses anew, in the order in which they stand now."""
    names: dict[str, str] = {}
    for message in messages:
        if message["type"] == "assistant" and _RESPONSE.fullmatch(message["message"]["id"]):
            body = message["message"]
            name = names.setdefault(body["id"], f"msg-{len(names) + 1}")
            message["message"] = {**body, "id": name}


def _number_calls(form: Form) -> None:
    """Number calls anew: the reference counts callbacks of hooks too, which are left out."""
    names: dict[str, str] = {}

    def numbered(value: Any) -> Any:  # any JSON value
        if isinstance(value, list):
            return [numbered(item) for item in value]
        if not isinstance(value, dict):
            return value
        copy = {key: numbered(item) for key, item in value.items()}
        for key in ("id", "tool_use_id", "parent_tool_use_id"):
            if key in copy and _CALL.fullmatch(str(copy[key])):
                copy[key] = names.setdefault(copy[key], f"tool-{len(names) + 1}")
        return copy

    form.messages[:] = numbered(form.messages)
    form.requests[:] = numbered(form.requests)


_CALL = re.compile(r"tool-\d+")
_RESPONSE = re.compile(r"msg-\d+")


def with_said(line: Line) -> Json:
    """Call the text of a notice otherwise than a message with content."""
    if not isinstance(line.get("message"), str):
        return dict(line)
    return {SAID if key == "message" else key: value for key, value in line.items()}


def _take(form: Form, line: Line) -> None:
    match line:
        case {"type": "_request"}:
            form.requests.append(_request(line))
        case {"type": "_note", "event": "tool_start" | "tool_end" as event}:
            form.tool_events.append(f"{event.removeprefix('tool_')} {line['tool']} {line['n']}")
        case {"dir": "send", "type": "user"}:
            form.prompts.append(line["content"])
        case {"request": {"subtype": "hook_callback"}}:
            form.hooks.append(told_in_trace(line))
        case {"type": "_note", "event": "process_exit", "code": -9}:
            form.crashes.append(len(form.messages))
        case _ if is_left_out(line):
            return
        case _:
            form.messages.append(_message(line, line["keys"], line.get("message", {}).get("keys")))


def is_left_out(line: Line) -> bool:
    """Whether a line of a trace says nothing that a service over HTTP could say or do."""
    match line:
        case {
            "type": "_note"
            | "control_request"
            | "control_response"
            | "control_cancel_request"
            | "command_lifecycle"
        }:
            # The reference's own control channel, and what was seen of its process.
            return True
        case {"type": "tool_progress"}:
            return True  # ours are no rows
        case {"type": "transcript_mirror"}:
            return True  # what it asks its host to store
        case {"subtype": "task_started", "task_type": "local_bash", "is_backgrounded": False}:
            return True  # of a Bash in the foreground: depends on how long it took
        case {"subtype": "task_notification", "task_id": _, "output_file": ""}:
            return True  # its end
    return False


# -- a record of ours -------------------------------------------------------------------------


def form_of_record(record: Record) -> Form:
    """Give the normal form of what our service did.

    Raises `ValueError` for messages that share a uuid or lack what every message has.
    """
    uuids = [message["uuid"] for message in record.messages if "uuid" in message]
    if len(set(uuids)) != len(uuids):
        raise ValueError("two messages share a uuid")
    try:
        return _form_of_record(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the record is malformed: {error!r}") from error


def _form_of_record(record: Record) -> Form:
    told = told_apart([with_said(message) for message in record.messages])
    names = _Names(told)
    messages = [names.shown(message) for message in told]
    for message in messages:
        names.rename(message)
    requests = [names.shown(body) for body in record.requests]
    for body in requests:
        for message in body["messages"]:
            names.rename_blocks(message["content"])
    own = [_message(m, _keys(m), m["message"].keys() if "message" in m else None) for m in messages]
    for form, message in zip(own, messages, strict=True):
        form.update(_picked(message, ("api_message_id",)))
    asked = asked_apart([_request(body) for body in requests], own)
    return Form(joined_deltas(own), asked, record.tool_events, hooks=record.hooks)


def _keys(message: Json) -> list[str]:
    return ["message" if key == SAID else key for key in message]


def _cwd(messages: Iterable[Json]) -> str:
    return next((str(message["cwd"]) for message in messages if "cwd" in message), "")


def _all_blocks(messages: Iterable[Json]) -> Iterator[Json]:
    for message in messages:
        content = message.get("message", {}).get("content", ())
        yield from content if isinstance(content, list) else ()


class _Names:
    """Symbolic names of ids, numbered in order of first appearance."""

    def __init__(self, messages: Sequence[Json]) -> None:
        self._cwd = _cwd(messages)
        self._known: dict[str, dict[str, str]] = {}
        self._signatures = {b["signature"] for b in _all_blocks(messages) if b.get("signature")}
        self._prompts = {m["uuid"] for m in messages if m.get("isReplay") and "uuid" in m}

    def name(self, kind: str, value: str) -> str:
        known = self._known.setdefault(kind, {})
        return known.setdefault(value, f"{kind}-{len(known) + 1}")

    def shown(self, value: Any) -> Any:  # any JSON value
        """Give a copy in which texts show `<cwd>` and `<script>`."""
        if isinstance(value, str):
            return _SCRIPT.sub(" <script>", value).replace(self._cwd or "<cwd>", "<cwd>")
        if isinstance(value, dict):
            return {key: self.shown(item) for key, item in value.items()}
        return [self.shown(item) for item in value] if isinstance(value, list) else value

    def rename(self, message: Json) -> None:
        """Put names in place of the ids of a message."""
        message["session_id"] = self.name("session", message["session_id"])
        if message.get("parent_tool_use_id"):
            message["parent_tool_use_id"] = self.name("tool", message["parent_tool_use_id"])
        if message["type"] == "assistant":
            message["message"]["id"] = self.name("msg", message["message"]["id"])
        for key, kind in _IDS.items():
            if key in message:
                message[key] = self.name(kind, message[key])
        if "event" in message:
            self._rename_event(message["event"])
        if "message" in message:
            self.rename_blocks(message["message"]["content"])
        if "user_message_uuid" in message:
            message["user_message_uuid"] = self._prompt(message["user_message_uuid"])
        if "user_message_uuids" in message:
            message["user_message_uuids"] = [*map(self._prompt, message["user_message_uuids"])]
        for entry in _naming_calls(message):
            key = "id" if "id" in entry else "tool_use_id"
            entry[key] = self.name("tool", entry[key])

    def _prompt(self, uuid: str) -> str:
        return "<uuid>" if uuid in self._prompts else uuid

    def _rename_event(self, event: Json) -> None:
        if "message" in event:
            event["message"]["id"] = self.name("msg", event["message"]["id"])
        self.rename_blocks([event.get("content_block", {"type": ""})])
        delta = event.get("delta", {})
        if delta.get("signature") in self._signatures:
            delta["signature"] = "<sig>"

    def rename_blocks(self, content: str | list[Json]) -> None:
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                block["id"] = self.name("tool", block["id"])
            elif block["type"] == "tool_result":
                block["tool_use_id"] = self.name("tool", block["tool_use_id"])
            elif block.get("signature") in self._signatures:
                block["signature"] = "<sig>"  # another one than on the wire stays, and is noticed


def _naming_calls(message: Json) -> list[Json]:
    """Give the parts of a message that name a call by its id."""
    deferred = [message["deferred_tool_use"]] if "deferred_tool_use" in message else []
    named = ("tool_use_meta", "tool_result_meta", "permission_denials")
    return [*deferred, *(entry for key in named for entry in message.get(key, ()))]


# -- both -------------------------------------------------------------------------------------


_SHOWN_BY_KEY: Mapping[str, object] = {
    "api_error": API_ERROR,
    "local_command": LOCAL_COMMAND,
    "subagent_stats": NO_SUBAGENTS,
}


def _message(line: Line, keys: Iterable[str], message_keys: Iterable[str] | None) -> Json:
    kind = line["type"]
    form: Json = {
        "type": kind,
        "session_id": line["session_id"],
        "keys": sorted(KEYS[kind] & set(keys)),
    }
    named = {k: v for k, v in ONLY_NAMED.items() if k in form["keys"]}
    form |= _needed(line, named) if kind == "result" else {**named, **_picked(line, named)}
    form |= {k: line.get(k, v) for k, v in _SHOWN_BY_KEY.items() if k in form["keys"]}
    match kind:
        case "system":
            form |= _system(line)
        case "assistant":
            _assistant(line, form, message_keys)
        case "user":
            form |= _needed(line, ("parent_tool_use_id",))
            form |= _picked(line, ("tool_result_meta", "isReplay", "isSynthetic"))
            form |= _picked(line, OF_SUBAGENTS)
            form["message"] = _content(line["message"], message_keys)
            if "tool_use_result" in line:
                form["tool_use_result"] = _structured(line["tool_use_result"])
        case "result":
            form |= _needed(line, RESULT_FIELDS) | _picked(line, OPTIONAL_RESULT_FIELDS)
            form["total_cost_usd"] = round(line["total_cost_usd"], COST_DIGITS)
            if "origin" in line:
                form["origin"] = _needed(line["origin"], ORIGIN_FIELDS)
            form["usage"] = _needed(line["usage"], USAGE_FIELDS)
            form["modelUsage"] = {m: _spend(spend) for m, spend in line["modelUsage"].items()}
        case "conversation_reset":
            form |= _needed(line, ("trigger", "user_message_uuid"))
        case "stream_event":
            form |= _needed(line, ("parent_tool_use_id",))
            form["event"] = event_form(line["event"])
        case "service_preview_aborted":
            form |= _needed(line, ("message_id", "reason"))
    return form


def _system(line: Line) -> Json:
    form = _needed(line, ("subtype", *SYSTEM_FIELDS.get(line["subtype"], ())))
    form |= _picked(line, OPTIONAL_SYSTEM_FIELDS)
    if "compact_metadata" in line:
        form["compact_metadata"] = _metadata(line["compact_metadata"])
    if "tasks" in form:
        kinds = ("subagent_type",)
        form["tasks"] = [_needed(t, TASK_FIELDS) | _picked(t, kinds) for t in form["tasks"]]
    if "usage" in line:
        form["usage"] = _needed(line["usage"], ("tool_uses",))
    if "patch" in form:
        form["patch"] = _needed(form["patch"], ("status",))
    return form


def _metadata(told: Json) -> Json:
    """Give what does not depend on the product's own texts: the trigger, and what there is."""
    return {
        "trigger": told["trigger"],
        "keys": sorted(told),
        **{part: sorted(told[part]) for part in ("preserved_segment", "preserved_messages")},
    }


def _assistant(line: Line, form: Json, message_keys: Iterable[str] | None) -> None:
    form |= _needed(line, ("parent_tool_use_id",)) | _picked(line, FAILURE_FIELDS)
    form |= _picked(line, OF_SUBAGENTS)
    if "tool_use_meta" in form["keys"]:  # traces show its key alone
        form["tool_use_meta"] = line.get("tool_use_meta", _meta(line["message"]))
    form["message"] = _content(line["message"], message_keys)
    form["message"] |= _needed(line["message"], ("id", "model", "stop_reason"))
    form["message"]["usage"] = _needed(line["message"]["usage"], USAGE_FIELDS)


def _meta(body: Json) -> list[Json]:
    """Say of a call whose tool it is, by the tool's name."""
    (block,) = body["content"]
    _, server, name = block["name"].split("__")
    display = {"display_name": name, "server_display_name": server}
    return [{"id": block["id"], **display, "tool_name": name}]


def _content(body: Json, keys: Iterable[str] | None) -> Json:
    return {"keys": sorted(MESSAGE_KEYS & set(keys or ())), "content": _blocks(body["content"])}


def _request(body: Line) -> Json:
    fields = _needed(body, REQUEST_FIELDS) | _picked(body, OPTIONAL_REQUEST_FIELDS)
    return {**fields, "messages": _conversation(body["messages"])}


def _needed(source: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: source[name] for name in names}


def _picked(source: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: source[name] for name in names if name in source}


def _spend(spend: Mapping[str, Any]) -> Json:
    return {**_needed(spend, MODEL_USAGE_FIELDS), "costUSD": round(spend["costUSD"], COST_DIGITS)}


def _structured(value: object) -> object:
    """Give a tool's structured output as traces show it: a text, `list`, or the keys."""
    if isinstance(value, dict):
        golden = value.get("keys")
        return {"keys": golden if isinstance(golden, list) else sorted(value)}
    return "list" if isinstance(value, list) else value


def _blocks(content: str | Sequence[Json]) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = [{key: item for key, item in b.items() if key != "cache_control"} for b in content]
    for block in blocks:
        _needed(block, BLOCK_FIELDS.get(block["type"], ()))
    return blocks


def _is_reminder(block: Json) -> bool:
    return block["type"] == "text" and _REMINDER.fullmatch(block["text"]) is not None


def _conversation(messages: Iterable[Json]) -> list[Json]:
    """Drop reminders, theirs and ours, and their system-role messages, which are nothing else."""
    kept = []
    for message in messages:
        blocks = [block for block in _blocks(message["content"]) if not _is_reminder(block)]
        if message["role"] != "system" or blocks:
            kept.append({"role": message["role"], "content": blocks})
    return kept
