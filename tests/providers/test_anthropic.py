import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.agent.model_effects import Model
from app.domain.blocks import ToolUseBlock
from app.domain.model import ContextMessage, ModelRequest, ModelResponse
from app.errors import ConfigError, ModelRejected, ModelUnreachable
from app.providers.anthropic import AnthropicModel, Timeouts
from app.providers.pool import model_transport
from tests.contracts.model import ModelContract, Silence, failure, outcome
from tests.fakes.messages_api import MessagesApi
from tests.providers.requests import asking, scripted


class TestAnthropicModel(ModelContract):
    @asynccontextmanager
    async def model_at(self, base_url: str, silence: Silence) -> AsyncGenerator[Model]:
        timeouts = Timeouts(silence.connect_s, silence.first_byte_s, silence.idle_s)
        async with model_transport() as transport:
            yield AnthropicModel(
                transport=transport, base_url=base_url, api_key="k-123456", timeouts=timeouts
            )


def block(text: str) -> bytes:
    return orjson.dumps({"type": "text", "text": text})


async def test_the_request_is_sent_as_the_api_wants_it() -> None:
    request = ModelRequest(
        model="claude-sonnet-5",
        max_tokens=64_000,
        system=("You are terse.", "Be kind."),
        tools=(b'{"name":"A","input_schema":{}}', b'{"name":"B","input_schema":{}}'),
        messages=(
            ContextMessage("user", (block("one"),)),
            ContextMessage("assistant", (b'{"type":"thinking","thinking":"","signature":"s"}',)),
            ContextMessage("user", (block("two"), block("three"))),
            ContextMessage("assistant", (block("four"),)),
            ContextMessage("user", (block("five"), block(""))),
        ),
        effort="xhigh",
        metadata_user_id="s-1",
    )
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(
            transport=transport,
            base_url=api.base_url + "/",
            auth_token="token-1234\n",
            extra_headers={"anthropic-beta": "x-1", "X-Team": "blue"},
        )
        await outcome(model, request)
    [seen] = api.requests
    mark = {"cache_control": {"type": "ephemeral"}}

    def text(words: str) -> dict[str, object]:
        return {"type": "text", "text": words}

    assert seen.body == {
        "model": "claude-sonnet-5",
        "max_tokens": 64_000,
        "stream": True,
        "metadata": {"user_id": "s-1"},
        "output_config": {"effort": "xhigh"},
        "system": [text("You are terse."), {**text("Be kind."), **mark}],
        "tools": [{"name": "A", "input_schema": {}}, {"name": "B", "input_schema": {}, **mark}],
        "messages": [
            {"role": "user", "content": [text("one")]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "", "signature": "s"}],
            },
            {"role": "user", "content": [text("two"), {**text("three"), **mark}]},
            {"role": "assistant", "content": [text("four")]},
            {"role": "user", "content": [{**text("five"), **mark}, text("")]},
        ],
    }
    headers = {name: seen.headers.get(name) for name in HEADERS}
    assert headers == HEADERS


HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "x-1",
    "x-team": "blue",
    "authorization": "Bearer token-1234",
    "x-api-key": None,
    "accept-encoding": "identity",
    "content-type": "application/json",
    "cookie": None,
}


@pytest.mark.requirement("loop:thinking")
async def test_thinking_a_task_budget_and_betas_are_sent_as_the_api_wants_them() -> None:
    request = replace(
        asking("hi"),
        thinking={"type": "enabled", "budget_tokens": 5000},
        task_budget_tokens=64_000,
        betas=("b-1", "x-1"),
    )
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(
            transport=transport, base_url=api.base_url, extra_headers={"anthropic-beta": "x-1, x-2"}
        )
        await outcome(model, request)
        await outcome(model, asking("plain"))
    first, second = api.requests
    assert first.body["thinking"] == {"type": "enabled", "budget_tokens": 5000}
    budget = {"type": "tokens", "total": 64_000}
    assert first.body["output_config"] == {"task_budget": budget}
    assert first.headers["anthropic-beta"] == "x-1,x-2,b-1,task-budgets-2026-03-13"
    assert second.headers["anthropic-beta"] == "x-1, x-2"


async def test_what_is_not_asked_for_is_not_sent() -> None:
    async with MessagesApi() as api, model_transport() as transport:
        await outcome(AnthropicModel(transport=transport, base_url=api.base_url), asking("hi"))
    [seen] = api.requests
    assert seen.body.keys() == {"model", "max_tokens", "stream", "system", "messages"}
    assert seen.headers.keys().isdisjoint({"x-api-key", "authorization"})


async def test_a_connection_is_used_again_after_a_complete_response_only() -> None:
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url)
        for step in ({"text": "a"}, {"text": "b", "cut": 2}, {"text": "c"}, {"http": 500}, {}):
            if step.keys() & {"cut", "http"}:
                await failure(model, scripted(step))
            else:
                await outcome(model, scripted(step or {"text": "d"}))
    assert [seen.connection for seen in api.requests] == [1, 1, 2, 2, 2]


async def test_cookies_of_an_answer_are_not_sent_back() -> None:
    step = {"text": "a", "headers": {"set-cookie": "tenant=1; Path=/"}}
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url)
        await outcome(model, scripted(step))
        await outcome(model, scripted(step))
    assert [seen.headers.get("cookie") for seen in api.requests] == [None, None]


async def test_an_error_text_never_holds_the_credential() -> None:
    told = "bad my-secret-1, my-secret-2, my-secret-3 or sk-ant-api03-abcdefgh"
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(
            transport=transport,
            base_url=api.base_url,
            api_key=" my-secret-1\n",
            auth_token="my-secret-2",
            extra_headers={"X-Gateway-Token": "my-secret-3"},
        )
        answer = await failure(model, scripted({"http": 401, "message": told}))
        event = await failure(model, scripted({"text": "a", "error_after": 1, "message": told}))
    redacted = "bad [redacted], [redacted], [redacted] or [redacted]"
    assert (answer.message, event.message) == (redacted, redacted)


async def test_what_follows_the_end_of_a_message_is_not_part_of_it() -> None:
    start: dict[str, Any] = {
        "type": "message_start",
        "message": {"id": "msg_1", "model": "m", "usage": {}},
    }
    events = [
        start,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
        start,
    ]
    raw = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url)
        parts, response = await outcome(model, scripted({"raw": raw}))
    assert [part.event["type"] for part in parts] == [each["type"] for each in events[:3]]
    assert (response.id, response.blocks) == ("msg_1", ())


async def test_an_error_that_is_no_json_is_named_by_its_status() -> None:
    step = {"http": 502, "raw": "<html>bad gateway</html>", "content_type": "text/html"}
    async with MessagesApi() as api, model_transport() as transport:
        error = await failure(
            AnthropicModel(transport=transport, base_url=api.base_url), scripted(step)
        )
    assert (error.message, error.category) == ("HTTP 502 Bad Gateway", "server_error")


async def test_a_frame_and_a_response_that_outgrow_their_bounds_are_refused() -> None:
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(
            transport=transport,
            base_url=api.base_url,
            max_frame_bytes=100_000,
            max_response_bytes=400_000,
        )
        _, fits = await outcome(model, scripted({"deltas": 3, "delta_chars": 90_000}))
        frame = await failure(model, scripted({"deltas": 1, "delta_chars": 200_000}))
        whole = await failure(model, scripted({"deltas": 5, "delta_chars": 90_000}))
    assert isinstance(fits, ModelResponse)
    assert isinstance(frame, ModelRejected)
    assert isinstance(whole, ModelRejected)
    assert whole.usage is not None
    assert whole.usage.input_tokens == 100


async def test_tool_input_nested_too_deep_to_be_written_again_is_unparsed() -> None:
    deep = "[" * 400 + "]" * 400
    step = {"tool": "Bash", "input": {"a": json.loads(deep)}}
    async with MessagesApi() as api, model_transport() as transport:
        _, response = await outcome(
            AnthropicModel(transport=transport, base_url=api.base_url), scripted(step)
        )
    [call] = response.blocks
    assert isinstance(call, ToolUseBlock)
    raw = '{"a": ' + deep + "}"
    assert call.input == {"__unparsedToolInput": {"raw": raw, "len": len(raw)}}


async def test_a_handshake_that_never_ends_is_cut_by_the_connect_time_out() -> None:
    async with MessagesApi() as api, model_transport() as transport:
        url = api.base_url.replace("http://", "https://")  # the server waits for plain HTTP
        timeouts = Timeouts(connect_s=0.2, first_byte_s=60)
        model = AnthropicModel(transport=transport, base_url=url, timeouts=timeouts)
        error = await failure(model, asking("hi"))
    assert isinstance(error, ModelUnreachable)
    assert "connecting took too long" in error.message


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "http://", "h:80", "https://user:pw@host", "http://h:99999"]
)
async def test_a_base_url_that_cannot_be_used_is_refused_at_start(url: str) -> None:
    async with model_transport() as transport:
        with pytest.raises(ConfigError):
            AnthropicModel(transport=transport, base_url=url)


@pytest.mark.parametrize(
    "headers", [{"a": "b\r\nc: d"}, {"Host": "x"}, {"a b": "c"}, {"accept-encoding": "gzip"}]
)
async def test_extra_headers_that_would_break_a_request_are_refused(
    headers: dict[str, str],
) -> None:
    async with model_transport() as transport:
        with pytest.raises(ConfigError):
            AnthropicModel(transport=transport, base_url="http://h", extra_headers=headers)
        with pytest.raises(ConfigError) as caught:
            AnthropicModel(transport=transport, base_url="http://h", api_key="s3cret\x00")
    assert "s3cret" not in str(caught.value)
