"""Parses what our service says with the `claude-agent-sdk` of the environment that runs this.

    python check.py JOURNALS [--live BASE_URL --key KEY]

JOURNALS is a folder of `*.jsonl` files, one message a line. With `--live` a run is started at the
service and its stream is parsed as it comes. Exit status 1 and a line each for what does not
parse. Nothing but the standard library and the SDK is needed.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# The SDK is only in the environment of this check, so type checkers do not see it: hence `Any`.
SDK: Any = importlib.import_module("claude_agent_sdk")
PARSE: Any = importlib.import_module("claude_agent_sdk._internal.message_parser").parse_message

TYPES = {
    "system": "SystemMessage",
    "assistant": "AssistantMessage",
    "user": "UserMessage",
    "result": "ResultMessage",
    "stream_event": "StreamEvent",
    "rate_limit_event": "RateLimitEvent",
}
SYSTEM_TYPES = {
    "hook_started": "HookEventMessage",
    "hook_response": "HookEventMessage",
    "task_started": "TaskStartedMessage",
    "task_progress": "TaskProgressMessage",
    "task_updated": "TaskUpdatedMessage",
    "task_notification": "TaskNotificationMessage",
}
"""By subtype; all others are plain."""
SELDOM = {"conversation_reset": "ConversationResetMessage"}
"""By type: what a live run has no occasion for."""
SKIPPED = frozenset(("prompt_suggestion", "service_preview_aborted", "tool_progress"))
"""Types that the SDK does not know, and passes over: a word of ours, and one of its own CLI."""
BLOCKS = {
    "text": "TextBlock",
    "thinking": "ThinkingBlock",
    "tool_use": "ToolUseBlock",
    "tool_result": "ToolResultBlock",
}
NEAR_LIMIT = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "5",
    "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:00Z",
}
SCRIPT = [
    {
        "blocks": [
            {"thinking": "hmm"},
            {"text": "I will look."},
            {"tool": "Bash", "input": {"command": "sleep 1"}},
        ],
        "headers": NEAR_LIMIT,
    },
    {"text": "done", "delay": 0.2},
]
TOLD = ("init", "thinking_tokens", "status", "informational", "tool_progress", "rate_limit_event")
"""Types, and subtypes of `system`, that the live run has beside the conversation."""

Message = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journals", type=Path)
    parser.add_argument("--live", metavar="BASE_URL")
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    files = sorted(options.journals.glob("*.jsonl"))
    if not files:
        return complain([f"no journals in {options.journals}"])
    troubles = []
    for path in files:
        messages = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        troubles += [f"{path.stem} {trouble}" for trouble in troubles_of(messages)]
    if options.live:
        live = list(live_messages(options.live, options.key))
        say(f"a live run sent {len(live)} messages and previews")
        troubles += [f"live {trouble}" for trouble in [*troubles_of(live), *missing_of(live)]]
        troubles += unread_of(options.live, options.key, live)
    version = SDK.__version__
    say(f"claude-agent-sdk {version}: {len(files)} journals, {len(troubles)} troubles")
    return complain(troubles)


def _type_of(message: Message) -> str | None:
    usual = (TYPES | SELDOM).get(message["type"])
    return SYSTEM_TYPES.get(message.get("subtype", ""), usual)


def troubles_of(messages: list[Message]) -> Iterator[str]:
    for number, message in enumerate(messages, 1):
        try:
            parsed = PARSE(message)
        except SDK.ClaudeSDKError as error:
            yield f"message {number}: {error}"
            continue
        if message["type"] in SKIPPED:
            if parsed is not None:
                yield f"message {number}: {message['type']} was not passed over"
        elif type(parsed).__name__ != _type_of(message):
            yield f"message {number}: {message['type']} was parsed as {type(parsed).__name__}"
        elif (wrong := wrong_of(message, parsed)) is not None:
            yield f"message {number}: {wrong}"


def wrong_of(message: Message, parsed: Any) -> str | None:  # an object of the SDK
    """Say what the parsed message lost, if it did."""
    fields = {"uuid": "uuid", "session_id": "session_id", "subtype": "subtype"}
    if message["type"] == "result":
        fields |= {"modelUsage": "model_usage", "usage": "usage", "result": "result"}
        fields |= {"errors": "errors", "total_cost_usd": "total_cost_usd"}
    for name, attribute in fields.items():
        if hasattr(parsed, attribute) and getattr(parsed, attribute) != message.get(name):
            return f"{name} is {getattr(parsed, attribute)!r}, not {message.get(name)!r}"
    if message["type"] == "rate_limit_event":
        said, read = message["rate_limit_info"], parsed.rate_limit_info
        figures = [said["status"], said["resetsAt"], said["utilization"]]
        if [read.status, read.resets_at, read.utilization] != figures:
            return f"its figures were parsed as {read}"
    told = message.get("message")
    content = told.get("content") if isinstance(told, dict) else None
    if isinstance(content, list):
        kinds = [type(block).__name__ for block in parsed.content]
        if kinds != [BLOCKS[block["type"]] for block in content]:
            return f"its blocks were parsed as {kinds}"
    return None


def missing_of(messages: list[Message]) -> Iterator[str]:
    """Say what a live run should have had and did not."""
    shown = [message.get("subtype", message["type"]) for message in messages]
    if shown[:1] != ["init"] or shown[-1:] != ["success"]:
        yield f"does not go from init to success: {shown}"
    for kind in {*TYPES, *TOLD} - {*shown, *(message["type"] for message in messages)}:
        yield f"has no {kind}"


# -- a live run -------------------------------------------------------------------------------


def live_messages(base_url: str, key: str) -> Iterator[Message]:
    """Start a run and yield its messages and previews as they come."""
    address = urlsplit(base_url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    body = {
        "prompt": f"Do it. <<script {json.dumps(SCRIPT)} >>",
        "stream": True,
        "options": {
            "model": "claude-sonnet-5",
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "allowed_tools": ["Bash"],
            "include_partial_messages": True,
        },
    }
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/runs", json.dumps(body), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"the run was refused: {answer.status} {answer.read().decode()}")
    for event, data in frames(line.decode().rstrip("\n") for line in answer):
        if event == "end":
            break
        if event in {"message", "preview"}:
            yield json.loads(data)
    else:
        raise SystemExit("the stream broke off")
    connection.close()


def frames(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield the event and the data of each frame of a stream."""
    event, data = "", ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            data = value
        elif not line and event:
            yield event, data
            event, data = "", ""


def unread_of(base_url: str, key: str, live: list[Message]) -> Iterator[str]:
    """Say what the SDK does not read of the live session's exported transcript."""
    session_id = live[0]["session_id"]
    address = urlsplit(base_url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    path = f"/v1/sessions/{session_id}/export?format=claude-jsonl"
    connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    file = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"the export was refused: {answer.status} {file.decode()}")
    with tempfile.TemporaryDirectory() as home:
        project = Path(home) / "projects" / "-workspace"
        project.mkdir(parents=True)
        (project / f"{session_id}.jsonl").write_bytes(file)
        os.environ["CLAUDE_CONFIG_DIR"] = home
        read = [message.uuid for message in SDK.get_session_messages(session_id)]
    said = [m["uuid"] for m in live if m["type"] in {"user", "assistant"}]
    if read != said:
        yield f"the exported transcript is read as {read}, not as {said}"


def complain(troubles: list[str]) -> int:
    for trouble in troubles:
        say(trouble)
    return 1 if troubles else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
