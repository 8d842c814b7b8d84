"""A response, put together from the events of its stream."""

from collections.abc import Mapping
from typing import Any

import orjson

from app.domain.blocks import Block, parse_block
from app.domain.model import ModelResponse
from app.domain.notices import RateLimitInfo
from app.domain.usage import Usage
from app.providers.repair import loads_repaired

_FIELD_OF_DELTA = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
_MAX_COUNT = 10**12
_CHARS_A_TOKEN = 4


class MalformedEvent(ValueError):
    """An event that does not follow the protocol."""


class _OpenBlock:
    """A block that is still growing. Text is kept in pieces and joined once."""

    __slots__ = ("field", "parts", "start")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.field: str | None = None
        self.parts: list[str] = []

    def add(self, delta: dict[str, Any]) -> None:
        kind = delta["type"]
        field = _FIELD_OF_DELTA.get(kind)
        if field is not None:
            self.field = field
            self.parts.append(delta[field])
        elif kind == "citations_delta":
            self.start["citations"] = [*(self.start.get("citations") or []), delta["citation"]]
        else:
            self._merge(delta)

    def _merge(self, delta: dict[str, Any]) -> None:
        # Kinds that we do not know (and signatures): text grows, anything else is replaced.
        for key, value in delta.items():
            if key == "type":
                continue
            old = self.start.get(key)
            both_text = isinstance(old, str) and isinstance(value, str)
            self.start[key] = f"{old}{value}" if both_text else value

    def finished(self) -> Block:
        value = self.start
        text = "".join(self.parts)
        if self.field == "partial_json":
            value["input"] = _tool_input(text)
        elif self.field is not None:
            value[self.field] = (value.get(self.field) or "") + text
        if value.get("type") == "tool_use" and not isinstance(value.get("input"), dict):
            value["input"] = _unparsed(orjson.dumps(value.get("input")).decode())
        orjson.dumps(value)  # what cannot be written again must not get further than here
        return parse_block(value)


class ResponseBuilder:
    """Takes events in order; says when the response is complete. One for each response."""

    __slots__ = (
        "_blocks",
        "_model",
        "_stop_reason",
        "_stop_sequence",
        "_usage",
        "is_complete",
        "message_id",
    )

    def __init__(self) -> None:
        self.message_id: str | None = None
        """Known once message_start was seen."""
        self.is_complete = False
        """True after message_stop, if a stop reason was seen."""
        self._model = ""
        self._blocks: dict[int, _OpenBlock] = {}
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None
        self._usage: dict[str, Any] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add one event. Raises `MalformedEvent`; unknown events are ignored."""
        try:
            kind = event["type"]
            if kind == "content_block_delta":
                self._blocks[event["index"]].add(event["delta"])
            elif kind == "content_block_start":
                if event["index"] in self._blocks:
                    raise MalformedEvent("two content blocks with one index")
                self._blocks[event["index"]] = _OpenBlock(dict(event["content_block"]))
            elif kind == "message_delta":
                self._end(event)
            elif kind == "message_start":
                self._begin(event["message"])
            elif kind == "message_stop":
                if self.message_id is None or self._stop_reason is None:
                    raise MalformedEvent("the message stopped without a stop reason")
                self.is_complete = True
        except (KeyError, TypeError, AttributeError) as error:
            raise MalformedEvent(f"malformed {event.get('type')} event") from error

    def _begin(self, message: dict[str, Any]) -> None:
        if self.message_id is not None:
            raise MalformedEvent("two messages in one stream")
        if not isinstance(message["id"], str) or not isinstance(message["model"], str):
            raise MalformedEvent("a message without id or model")
        self.message_id = message["id"]
        self._model = message["model"]
        self._usage = dict(message.get("usage") or {})

    def _end(self, event: dict[str, Any]) -> None:
        delta = event["delta"]
        reason, sequence = delta.get("stop_reason"), delta.get("stop_sequence")
        if reason is not None:
            self._stop_reason = str(reason)
        if sequence is not None:
            self._stop_sequence = str(sequence)
        final = event.get("usage") or {}
        self._usage.update((key, value) for key, value in final.items() if value is not None)

    def billed(self) -> Usage | None:
        """Give what an unfinished response has cost so far; its output is an estimate."""
        if self.message_id is None:
            return None
        chars = sum(len(part) for block in self._blocks.values() for part in block.parts)
        estimate = -(-chars // _CHARS_A_TOKEN)
        known = _count(self._usage.get("output_tokens"))
        return usage_of({**self._usage, "output_tokens": max(known, estimate)})

    def response(
        self,
        *,
        request_id: str | None,
        ttft_ms: int,
        duration_ms: int,
        rate_limit: RateLimitInfo | None = None,
    ) -> ModelResponse:
        """Give the complete response. Raises `MalformedEvent` when a block is not valid."""
        try:
            blocks = tuple(self._blocks[index].finished() for index in sorted(self._blocks))
        except (ValueError, TypeError) as error:
            raise MalformedEvent("a content block that is not valid") from error
        return ModelResponse(
            id=self.message_id or "",
            model=self._model,
            blocks=blocks,
            stop_reason=self._stop_reason,
            stop_sequence=self._stop_sequence,
            usage=usage_of(self._usage),
            request_id=request_id,
            ttft_ms=ttft_ms,
            duration_ms=duration_ms,
            rate_limit=rate_limit,
        )


def usage_of(raw: Mapping[str, Any]) -> Usage:
    """Give token counts from the API's usage object. Cache writes untold are five-minute ones."""
    written = _count(raw.get("cache_creation_input_tokens"))
    split = _object(raw.get("cache_creation"))
    one_hour = _count(split.get("ephemeral_1h_input_tokens"))
    written = max(written, one_hour + _count(split.get("ephemeral_5m_input_tokens")))
    return Usage(
        input_tokens=_count(raw.get("input_tokens")),
        output_tokens=_count(raw.get("output_tokens")),
        cache_read_tokens=_count(raw.get("cache_read_input_tokens")),
        cache_write_5m_tokens=written - one_hour,
        cache_write_1h_tokens=one_hour,
        thinking_tokens=_count(_object(raw.get("output_tokens_details")).get("thinking_tokens")),
        web_search_requests=_count(_object(raw.get("server_tool_use")).get("web_search_requests")),
    )


def _count(value: object) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(int(value), 0), _MAX_COUNT) if is_count else 0  # type: ignore[call-overload]  # narrowed by is_count


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _tool_input(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = loads_repaired(text.encode("utf-8", "replace"))
        orjson.dumps(value)  # JSON may nest deeper than can be written again
    except (ValueError, TypeError):
        return _unparsed(text)
    return value if isinstance(value, dict) else _unparsed(text)


def _unparsed(text: str) -> dict[str, Any]:
    return {"__unparsedToolInput": {"raw": text, "len": len(text.encode("utf-8", "replace"))}}
