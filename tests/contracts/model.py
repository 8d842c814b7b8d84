"""What every `Model` promises, run against the scripted Messages API.

A provider's test module subclasses `ModelContract` and says how to build its model.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from app.agent.model_effects import Model
from app.domain.blocks import OtherBlock, TextBlock, ThinkingBlock, ToolUseBlock
from app.domain.model import ModelRequest, ModelResponse, StreamPart
from app.domain.usage import Usage
from app.errors import (
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRejected,
    ModelThrottled,
    ModelUnauthorized,
    ModelUnreachable,
)
from tests.fakes.messages_api import MessagesApi
from tests.providers.requests import scripted


@dataclass(frozen=True, slots=True)
class Silence:
    """Time-outs that the model under test is built with, in seconds."""

    connect_s: float = 5.0
    first_byte_s: float = 10.0
    idle_s: float = 10.0


async def outcome(model: Model, request: ModelRequest) -> tuple[list[StreamPart], ModelResponse]:
    """Run a request to its end; give the events that were told, and the response."""
    parts: list[StreamPart] = []
    response = await model.respond(request, parts.append)
    return parts, response


async def failure(model: Model, request: ModelRequest) -> ModelError:
    """Run a request that must fail."""
    try:
        response = await model.respond(request)
    except ModelError as error:
        return error
    pytest.fail(f"no error came, but {response}")


class ModelContract(ABC):
    @abstractmethod
    def model_at(self, base_url: str, silence: Silence) -> Any:  # Any: an async context manager
        """Give the model under test, bound to a Messages API at `base_url`."""

    @asynccontextmanager
    async def playing(
        self, silence: Silence | None = None
    ) -> AsyncGenerator[tuple[MessagesApi, Model]]:
        async with (
            MessagesApi() as api,
            self.model_at(api.base_url, silence or Silence()) as model,
        ):
            yield api, model

    async def test_a_text_comes_in_parts_and_then_whole(self) -> None:
        async with self.playing() as (_, model):
            parts, response = await outcome(model, scripted({"text": "Hello, world", "chunk": 5}))
        assert [part.event["type"] for part in parts] == [
            "message_start",
            "content_block_start",
            *["content_block_delta"] * 3,
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        assert [part.ttft_ms is None for part in parts] == [False, *[True] * 7]
        assert {part.message_id for part in parts} == {response.id}
        assert response.blocks == (TextBlock(text="Hello, world"),)
        assert (response.stop_reason, response.model) == ("end_turn", "claude-sonnet-5")
        assert response.usage == Usage(input_tokens=100, output_tokens=10)
        assert response.request_id == "req_1"
        assert 0 <= response.ttft_ms <= response.duration_ms

    async def test_thinking_text_and_tool_calls_keep_their_order_and_fields(self) -> None:
        step = {
            "blocks": [
                {"thinking": "Let me see", "signature": "abc"},
                {"text": "Looking"},
                {"tool": "Bash", "input": {"command": "ls", "list": [1, {"a": None}]}},
                {"tool": "Read", "input": {}},
            ],
            "chunk": 3,
        }
        async with self.playing() as (_, model):
            _, response = await outcome(model, scripted(step))
        thinking, text, bash, read = response.blocks
        assert thinking == ThinkingBlock(thinking="Let me see", signature="abc")
        assert text == TextBlock(text="Looking")
        assert isinstance(bash, ToolUseBlock)
        assert isinstance(read, ToolUseBlock)
        assert (bash.name, bash.input) == ("Bash", {"command": "ls", "list": [1, {"a": None}]})
        assert (read.name, read.input) == ("Read", {})
        assert bash.id != read.id
        assert response.stop_reason == "tool_use"

    async def test_blocks_of_other_kinds_pass_through_verbatim(self) -> None:
        redacted = {"type": "redacted_thinking", "data": "opaque=="}
        novel = {"type": "hologram", "frames": [1, 2], "nested": {"a": "b"}}
        async with self.playing() as (_, model):
            _, response = await outcome(model, scripted([{"block": redacted}, {"block": novel}]))
        assert response.blocks == (OtherBlock(**redacted), OtherBlock(**novel))

    async def test_a_refusal_is_a_response_with_its_stop_reason(self) -> None:
        step = {"text": "I cannot help.", "stop_reason": "refusal"}
        async with self.playing() as (_, model):
            _, response = await outcome(model, scripted(step))
        assert response.stop_reason == "refusal"
        assert response.blocks == (TextBlock(text="I cannot help."),)

    async def test_usage_is_that_of_the_end_with_cache_writes_told_apart(self) -> None:
        usage = {
            "input_tokens": 7,
            "output_tokens": 900,
            "cache_read_input_tokens": 40,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            "output_tokens_details": {"thinking_tokens": 50},
            "server_tool_use": {"web_search_requests": 3},
        }
        async with self.playing() as (_, model):
            _, response = await outcome(model, scripted({"text": "ok", "usage": usage}))
        assert response.usage == Usage(7, 900, 40, 10, 20, 50, 3)

    async def test_tool_input_that_is_no_json_object_is_marked_as_unparsed(self) -> None:
        async with self.playing() as (_, model):
            _, cut = await outcome(
                model, scripted({"tool": "Bash", "input": {"command": "ls"}, "garbage": True})
            )
            _, listed = await outcome(model, scripted({"tool": "Bash", "input": [1, 2]}))
        assert isinstance(cut.blocks[0], ToolUseBlock)
        assert cut.blocks[0].input == {
            "__unparsedToolInput": {"raw": '{"command": "ls\\x', "len": 17}
        }
        assert isinstance(listed.blocks[0], ToolUseBlock)
        assert listed.blocks[0].input == {"__unparsedToolInput": {"raw": "[1, 2]", "len": 6}}

    async def test_text_that_cannot_be_stored_is_repaired_visibly(self) -> None:
        step = [
            {"text": "a\ud800b\0c"},
            {"thinking": "\udfff"},
            {"tool": "B\0sh", "id": "t\ud801", "input": {"k\0": "v\udc00"}},
        ]
        async with self.playing() as (_, model):
            parts, response = await outcome(model, scripted(step))
        text, thinking, call = response.blocks
        assert text == TextBlock(text="a\ufffdb\u2400c")
        assert isinstance(thinking, ThinkingBlock)
        assert thinking.thinking == "\ufffd"
        assert isinstance(call, ToolUseBlock)
        assert (call.id, call.name, call.input) == ("t\ufffd", "B\u2400sh", {"k\u2400": "v\ufffd"})
        deltas = [part.event["delta"] for part in parts if "delta" in part.event]
        assert deltas[0] == {"type": "text_delta", "text": "a\ufffdb\u2400c"}

    async def test_a_response_of_20_megabytes_is_received_whole(self) -> None:
        step = {"deltas": 4, "delta_chars": 5 * 1024 * 1024}
        async with self.playing() as (_, model):
            _, response = await outcome(model, scripted(step))
        assert isinstance(response.blocks[0], TextBlock)
        assert len(response.blocks[0].text) == 20 * 1024 * 1024

    async def test_lines_that_end_with_cr_lf_are_understood(self) -> None:
        async with self.playing() as (_, model):
            _, response = await outcome(
                model, scripted({"text": "hi there", "chunk": 1, "crlf": True})
            )
        assert response.blocks == (TextBlock(text="hi there"),)

    @pytest.mark.parametrize(
        ("step", "kind", "category", "can_retry"),
        [
            ({"http": 400, "error": "invalid_request_error"}, ModelRejected, "unknown", False),
            (
                {"http": 400, "message": "prompt is too long: 205000 tokens > 200000 maximum"},
                ContextTooLong,
                "invalid_request",
                False,
            ),
            (
                {"http": 400, "message": "Your credit balance is too low to access the API."},
                ModelRejected,
                "billing_error",
                False,
            ),
            ({"http": 401}, ModelUnauthorized, "authentication_failed", True),
            ({"http": 403}, ModelUnauthorized, "authentication_failed", False),
            ({"http": 404}, ModelRejected, "model_not_found", False),
            ({"http": 413}, ModelRejected, "invalid_request", False),
            ({"http": 429}, ModelThrottled, "rate_limit", True),
            ({"http": 500}, ModelOverloaded, "server_error", True),
            ({"http": 503}, ModelOverloaded, "server_error", True),
            ({"http": 529}, ModelOverloaded, "overloaded", True),
            ({"http": 529, "x_should_retry": False}, ModelOverloaded, "overloaded", False),
            ({"http": 400, "x_should_retry": True}, ModelRejected, "unknown", True),
        ],
    )
    async def test_an_http_error_becomes_the_error_of_its_kind(
        self, step: dict[str, Any], kind: type[ModelError], category: str, can_retry: bool
    ) -> None:
        async with self.playing() as (_, model):
            error = await failure(model, scripted({"error": "some_error", **step}))
        assert type(error) is kind
        assert (error.category, error.can_retry) == (category, can_retry)
        assert (error.status, error.request_id) == (step["http"], "req_1")
        assert error.error_type == step.get("error", "some_error")
        assert error.message == step.get("message", "scripted error")
        assert error.usage is None

    @pytest.mark.parametrize(
        ("value", "least_s", "most_s"),
        [
            (4, 4, 4),
            ("1.5", 1.5, 1.5),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
            ("Wed, 21 Oct 2099 07:28:00 GMT", 86_400, 86_400),
        ],
    )
    async def test_a_throttled_request_says_how_long_to_wait(
        self, value: object, least_s: float, most_s: float
    ) -> None:
        step = {"http": 429, "error": "rate_limit_error", "retry_after": value}
        async with self.playing() as (_, model):
            error = await failure(model, scripted(step))
        assert error.retry_after_s is not None
        assert least_s <= error.retry_after_s <= most_s

    @pytest.mark.parametrize("reset", [False, True])
    async def test_a_stream_that_is_cut_is_lost_and_says_what_it_cost(self, reset: bool) -> None:
        step = {"text": "hello wonderful world", "chunk": 7, "cut": 5, "reset": reset}
        async with self.playing() as (_, model):
            error = await failure(model, scripted(step))
        assert isinstance(error, ModelUnreachable)
        assert error.can_retry
        assert error.status is None
        assert error.usage is not None
        assert error.usage.input_tokens == 100
        assert 1 <= error.usage.output_tokens <= 6

    async def test_a_stream_that_ends_without_message_stop_is_lost(self) -> None:
        events = 'event: ping\ndata: {"type": "ping"}\n\n'
        async with self.playing() as (_, model):
            empty = await failure(model, scripted({"raw": ""}))
            pings = await failure(model, scripted({"raw": events}))
        assert isinstance(empty, ModelUnreachable)
        assert isinstance(pings, ModelUnreachable)
        assert empty.usage is None

    @pytest.mark.parametrize(
        "step",
        [
            {"raw": "<html>gateway</html>", "content_type": "text/html"},
            {"raw": '{"id": "msg_1"}', "content_type": "application/json"},
            {"raw": "data: {not json}\n\n"},
            {"raw": "data: [1]\n\n"},
            {"raw": 'data: {"type": "content_block_delta", "index": 0, "delta": {}}\n\n'},
            {"raw": 'data: {"type": "message_stop"}\n\n'},
            {"raw": 'data: {"type": "message_start", "message": 1}\n\n'},
            {"raw": "data: " + "[" * 5_000 + "\n\n"},
        ],
    )
    async def test_an_answer_that_is_garbage_is_a_lost_one(self, step: dict[str, Any]) -> None:
        async with self.playing() as (_, model):
            error = await failure(model, scripted(step))
        assert isinstance(error, ModelUnreachable)
        assert error.can_retry

    @pytest.mark.parametrize(
        ("error_type", "kind", "status"),
        [
            ("overloaded_error", ModelOverloaded, 529),
            ("rate_limit_error", ModelThrottled, 429),
            ("invalid_request_error", ModelRejected, 400),
            ("never_heard_of", ModelOverloaded, 500),
        ],
    )
    async def test_an_error_event_in_a_stream_is_typed_like_its_status(
        self, error_type: str, kind: type[ModelError], status: int
    ) -> None:
        step = {"text": "abcd", "chunk": 2, "error_after": 3, "error": error_type}
        async with self.playing() as (_, model):
            error = await failure(model, scripted(step))
        assert type(error) is kind
        assert (error.status, error.error_type) == (status, error_type)
        assert error.usage is not None
        assert error.usage.input_tokens == 100

    async def test_a_refused_connection_is_unreachable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        async with self.model_at(f"http://127.0.0.1:{port}", Silence()) as model:
            error = await failure(model, scripted({"text": "never"}))
        assert isinstance(error, ModelUnreachable)
        assert "connection refused" in error.message
        assert error.status is None

    async def test_silence_before_the_first_byte_ends_at_its_time_out(self) -> None:
        silence = Silence(first_byte_s=0.2)
        async with self.playing(silence) as (api, model):
            slow = await failure(model, scripted({"text": "late", "delay": 30}))
            stalled = await failure(model, scripted({"text": "late", "stall": 0}))
            await api.until(lambda: [each.disconnected for each in api.requests] == [True, True])
        assert isinstance(slow, ModelUnreachable)
        assert isinstance(stalled, ModelUnreachable)
        assert "timed out" in slow.message

    async def test_silence_in_mid_stream_ends_at_its_time_out(self) -> None:
        async with self.playing(Silence(idle_s=0.2)) as (api, model):
            error = await failure(model, scripted({"text": "abcd", "chunk": 1, "stall": 4}))
            await api.until(lambda: api.requests[0].disconnected)
        assert isinstance(error, ModelUnreachable)
        assert "timed out" in error.message
        assert error.usage == Usage(input_tokens=100, output_tokens=1)

    async def test_a_slow_stream_that_keeps_talking_is_not_timed_out(self) -> None:
        step = {"text": "abcdefgh", "chunk": 1, "chunk_delay": 0.1}
        async with self.playing(Silence(first_byte_s=0.5, idle_s=0.5)) as (_, model):
            _, response = await outcome(model, scripted(step))
        assert response.blocks == (TextBlock(text="abcdefgh"),)

    @pytest.mark.parametrize("step", [{"text": "x", "delay": 30}, {"text": "ab", "stall": 2}])
    async def test_cancelling_the_task_closes_its_connection_at_once(
        self, step: dict[str, Any]
    ) -> None:
        async with self.playing() as (api, model):
            async with asyncio.TaskGroup() as group:
                running = group.create_task(failure(model, scripted(step)))
                await api.until(lambda: bool(api.requests) and bool(api.requests[0].body))
                running.cancel()
            await api.until(lambda: api.requests[0].disconnected)
        assert running.cancelled()
