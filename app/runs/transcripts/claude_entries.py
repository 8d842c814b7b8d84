"""A conversation as the transcript of Claude Code: one entry a line, linked by `parentUuid`.

Source: the entries that the SDK's session store was seen to get ("loop 7.5" in
`tests/requirements.py`). Messages go in as they are; thoughts keep their signatures. Subagents'
messages are left out: their transcripts are files of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.domain.usage import Spend


@dataclass(slots=True)
class ClaudeEntries:
    """Writes the lines of one session. Give it the messages in order, then ask for the last lines."""

    session_id: str
    version: str = "unknown"
    cwd: str = "/workspace"
    _parent: str | None = None
    _at: str = "1970-01-01T00:00:00.000Z"
    """Of the newest message that has a time."""
    _summary: str | None = None
    """The message that is the newest compaction's summary."""
    _askers: dict[str, str] = field(default_factory=dict)
    """Call → the message that made it, while it has no result."""

    def line(self, body: str) -> bytes:
        """Give the line of a message; nothing for one that is no part of the conversation."""
        message = orjson.loads(body)
        if message["type"] == "system" and message["subtype"] == "init":
            self.version, self.cwd = message["claude_code_version"], message["cwd"]
        if message["type"] == "system" and message["subtype"] == "compact_boundary":
            return self._boundary(message)
        if message["type"] not in {"user", "assistant"} or message["parent_tool_use_id"]:
            return b""
        own = self._of_user(message) if message["type"] == "user" else self._of_model(message)
        self._at = message["timestamp"]
        return self._entry(message, {"message": message["message"], **own})

    def _boundary(self, message: Mapping[str, Any]) -> bytes:
        """Begin a new chain: what follows is a summary, and what it keeps is named by its ends."""
        told = message["compact_metadata"]
        kept = told["preserved_segment"]
        own = {
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "logicalParentUuid": message["logical_parent_uuid"],
            "compactMetadata": {
                "trigger": told["trigger"],
                "preTokens": told["pre_tokens"],
                "preservedSegment": {
                    "headUuid": kept["head_uuid"],
                    "anchorUuid": kept["anchor_uuid"],
                    "tailUuid": kept["tail_uuid"],
                },
            },
        }
        self._parent, self._summary = None, kept["anchor_uuid"]
        return self._entry(message, own)

    def _entry(self, message: Mapping[str, Any], own: Mapping[str, Any]) -> bytes:
        entry = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "userType": "external",
            "entrypoint": "sdk-py",
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": self.version,
            "gitBranch": "",
            "type": message["type"],
            **own,
            "uuid": message["uuid"],
            "timestamp": self._at,
        }
        self._parent = message["uuid"]
        return orjson.dumps(entry) + b"\n"

    def last_lines(self, title: str | None, spent: Spend) -> bytes:
        """Give the title, and what the session has cost so far."""
        entries: list[dict[str, Any]] = []
        if title:
            entries.append(
                {"type": "custom-title", "customTitle": title, "sessionId": self.session_id}
            )
        entries.append(
            {
                "type": "cost-state",
                "sessionId": self.session_id,
                "totalCostUSD": float(spent.cost_usd),
                "totalAPIDuration": spent.api_ms,
                "modelUsage": {
                    model: {
                        "inputTokens": part.usage.input_tokens,
                        "outputTokens": part.usage.output_tokens,
                        "cacheReadInputTokens": part.usage.cache_read_tokens,
                        "cacheCreationInputTokens": part.usage.cache_write_tokens,
                        "webSearchRequests": part.usage.web_search_requests,
                        "costUSD": float(part.cost_usd),
                    }
                    for model, part in spent.by_model.items()
                },
            }
        )
        return b"".join(orjson.dumps(entry) + b"\n" for entry in entries)

    def _of_user(self, message: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if message["uuid"] == self._summary:
            own |= {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        elif message.get("isSynthetic"):
            own["isMeta"] = True
        if "tool_use_result" in message:
            own["toolUseResult"] = message["tool_use_result"]
        for call in _ids(message, "tool_result", "tool_use_id"):
            own["sourceToolAssistantUUID"] = self._askers.pop(call, self._parent)
        return own

    def _of_model(self, message: Mapping[str, Any]) -> dict[str, Any]:
        for call in _ids(message, "tool_use", "id"):
            self._askers[call] = message["uuid"]
        own: dict[str, Any] = {}
        if "request_id" in message:
            own["requestId"] = message["request_id"]
        if message.get("error"):
            own |= {"isApiErrorMessage": True, "error": message["error"]}
        return own


def _ids(message: Mapping[str, Any], kind: str, name: str) -> list[str]:
    content = message["message"]["content"]
    if isinstance(content, str):
        return []
    return [block[name] for block in content if block["type"] == kind]
