"""Bytes and back: what is stored is what was born, and what readers get."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.blocks import (
    Block,
    OtherBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from app.domain.journal import Batch, Entry, batch
from app.domain.messages import (
    ApiMessage,
    ApiRetryMessage,
    AssistantMessage,
    InitMessage,
    Message,
    ModelFallbackMessage,
    OtherSystemMessage,
    PermissionDeniedMessage,
    UserContent,
    UserMessage,
    WireModelUsage,
    WireUsage,
    WorkerShuttingDownMessage,
    encode_message,
    parse_message,
    wire_time,
)
from app.domain.notices import (
    HookResponseMessage,
    HookStartedMessage,
    InformationalMessage,
    NotificationMessage,
    RateLimitEvent,
    RateLimitInfo,
    StatusMessage,
    ThinkingTokensMessage,
    ToolProgressMessage,
)
from app.domain.results import ErrorResult, SuccessResult
from app.domain.usage import ModelLimits, ModelSpend, Usage

IDS: dict[str, Any] = {"session_id": st.just("s"), "uuid": st.text(max_size=8)}
TEXTS = st.text(max_size=20)
COUNTS = st.integers(0, 2**53)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2)
BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(TextBlock, text=TEXTS),
    st.builds(ThinkingBlock, thinking=TEXTS, signature=TEXTS),
    st.builds(ToolUseBlock, id=TEXTS, name=TEXTS, input=OBJECTS),
    st.builds(
        ToolResultBlock,
        tool_use_id=TEXTS,
        content=TEXTS | PARTS,
        is_error=st.sampled_from([None, True, False]),
    ),
    st.builds(OtherBlock, type=st.just("image"), source=JSON),
)
USAGES = st.builds(lambda *counts: WireUsage.of(Usage(*counts)), *[COUNTS] * 7)
MODEL_USAGES = st.builds(
    lambda tokens, cents, unpriced: WireModelUsage.of(
        ModelSpend(Usage(tokens), cents, unpriced=unpriced), ModelLimits(1, 2), "m"
    ),
    COUNTS,
    st.decimals(0, 100, places=6),
    st.booleans(),
)
MAYBE = st.none() | TEXTS
RESULTS: dict[str, Any] = {
    **IDS,
    "duration_ms": COUNTS,
    "duration_api_ms": COUNTS,
    "num_turns": COUNTS,
    "stop_reason": MAYBE,
    "terminal_reason": st.sampled_from([None, "completed", "api_error"]),
    "total_cost_usd": st.floats(0, 1e6),
    "usage": USAGES,
    "modelUsage": st.dictionaries(TEXTS, MODEL_USAGES, max_size=2),
    "model_usage_since_last_result": st.just({}),
    "permission_denials": st.lists(OBJECTS, max_size=1),
    "safety_stops": COUNTS,
}
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        InitMessage,
        **IDS,
        cwd=TEXTS,
        tools=st.lists(TEXTS, max_size=2),
        model=TEXTS,
        permissionMode=TEXTS,
        apiKeySource=TEXTS,
        claude_code_version=TEXTS,
        user_message_uuids=st.none() | st.lists(TEXTS, min_size=1, max_size=2),
    ),
    st.builds(
        ApiRetryMessage,
        **IDS,
        attempt=COUNTS,
        max_retries=COUNTS,
        retry_delay_ms=COUNTS,
        error_status=st.none() | COUNTS,
        error=TEXTS,
    ),
    st.builds(
        ModelFallbackMessage,
        **IDS,
        trigger=st.sampled_from(["overloaded", "last_resort"]),
        original_model=TEXTS,
        fallback_model=TEXTS,
        content=TEXTS,
    ),
    st.builds(
        PermissionDeniedMessage,
        **IDS,
        tool_name=TEXTS,
        tool_use_id=TEXTS,
        message=TEXTS,
        decision_reason_type=MAYBE,
    ),
    st.builds(WorkerShuttingDownMessage, **IDS),
    st.builds(
        OtherSystemMessage, **IDS, subtype=st.sampled_from(["mirror_error", "new"]), more=JSON
    ),
    st.builds(
        HookStartedMessage, **IDS, hook_id=TEXTS, hook_name=TEXTS, hook_event=st.just("Stop")
    ),
    st.builds(
        HookResponseMessage,
        **IDS,
        hook_id=TEXTS,
        hook_name=TEXTS,
        hook_event=st.just("Stop"),
        output=TEXTS,
        stdout=TEXTS,
        stderr=TEXTS,
        exit_code=st.sampled_from([None, 0, 2]),
        outcome=st.sampled_from(["success", "error", "cancelled"]),
    ),
    st.builds(NotificationMessage, **IDS, key=TEXTS, text=TEXTS, priority=st.just("immediate")),
    st.builds(StatusMessage, **IDS, status=st.sampled_from(["requesting", "compacting", None])),
    st.builds(ThinkingTokensMessage, **IDS, estimated_tokens=COUNTS, estimated_tokens_delta=COUNTS),
    st.builds(
        InformationalMessage,
        **IDS,
        content=TEXTS,
        level=st.sampled_from(["notice", "warning"]),
        tag=MAYBE,
    ),
    st.builds(
        RateLimitEvent,
        **IDS,
        rate_limit_info=st.builds(
            RateLimitInfo,
            status=st.sampled_from(["allowed", "allowed_warning", "rejected"]),
            resetsAt=st.none() | COUNTS,
            rateLimitType=MAYBE,
            utilization=st.none() | st.floats(0, 1),
            resource=MAYBE,
        ),
    ),
    st.builds(
        ToolProgressMessage,
        **IDS,
        tool_use_id=TEXTS,
        tool_name=TEXTS,
        elapsed_time_seconds=COUNTS,
    ),
    st.builds(
        AssistantMessage,
        **IDS,
        message=st.builds(
            ApiMessage,
            id=TEXTS,
            model=TEXTS,
            content=st.lists(BLOCKS, min_size=1, max_size=1),
            stop_reason=MAYBE,
            usage=USAGES,
        ),
        timestamp=TEXTS,
        error=MAYBE,
        api_error_status=st.none() | COUNTS,
    ),
    st.builds(
        UserMessage,
        **IDS,
        message=st.builds(UserContent, content=TEXTS | st.lists(BLOCKS, max_size=2)),
        timestamp=TEXTS,
        tool_use_result=JSON,
        tool_result_meta=st.none() | st.lists(OBJECTS, max_size=1),
        isReplay=st.sampled_from([None, True]),
    ),
    st.builds(
        SuccessResult,
        **RESULTS,
        result=TEXTS,
        structured_output=JSON,
        ttft_ms=st.none() | COUNTS,
    ),
    st.builds(
        ErrorResult,
        **RESULTS,
        subtype=st.sampled_from(["error_max_turns", "error_during_execution"]),
        errors=st.lists(TEXTS, max_size=2),
        api_error_status=st.none() | COUNTS,
        api_error_type=MAYBE,
        api_error=MAYBE,
    ),
)


@pytest.mark.requirement("wire:round-trip")
@given(MESSAGES)
def test_a_message_read_back_is_the_one_that_was_stored(message: Message) -> None:
    body = encode_message(message)
    again = parse_message(body)
    assert type(again) is type(message)
    assert again == message
    assert encode_message(again) == body


def test_fields_without_a_value_are_absent_and_nulls_that_parsers_look_for_are_there() -> None:
    message = UserMessage(
        session_id="s",
        uuid="u",
        message=UserContent(content=[ToolResultBlock(tool_use_id="a", content="x")]),
        timestamp="t",
    )
    assert orjson.loads(encode_message(message)) == {
        "session_id": "s",
        "uuid": "u",
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}],
        },
        "parent_tool_use_id": None,
        "timestamp": "t",
    }


def test_a_field_of_a_later_version_is_kept() -> None:
    body = b'{"type":"system","subtype":"api_retry","session_id":"s","uuid":"u","attempt":1,'
    body += b'"max_retries":1,"retry_delay_ms":1,"error_status":null,"error":"x","later":[1]}'
    assert orjson.loads(encode_message(parse_message(body))) == orjson.loads(body)


def test_a_system_message_of_an_unknown_kind_is_read() -> None:
    found = parse_message(b'{"type":"system","subtype":"mirror_error","session_id":"s","uuid":"u"}')
    assert isinstance(found, OtherSystemMessage)


@pytest.mark.parametrize("body", ["{}", '{"type":"system"}', '{"type":"stream_event"}', "nonsense"])
def test_what_is_no_message_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match=r"expected ident|validation error"):
        parse_message(body)


def test_a_number_keeps_all_its_digits() -> None:
    body = b'{"type":"user","session_id":"s","uuid":"u","timestamp":"t","parent_tool_use_id":null,'
    body += b'"message":{"role":"user","content":"x"},"tool_use_result":%d}' % 2**70
    found = parse_message(body)
    assert isinstance(found, UserMessage)
    assert found.tool_use_result == 2**70


def test_times_are_utc_with_milliseconds() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 67_999, tzinfo=UTC)
    assert wire_time(at) == "2026-01-02T03:04:05.067Z"


def test_an_entry_holds_the_bytes_that_are_stored() -> None:
    message = WorkerShuttingDownMessage(session_id="s", uuid="u")
    entry = Entry.of(message, {"k": 1})
    assert (entry.message, entry.body, entry.facts) == (message, encode_message(message), {"k": 1})
    assert batch(message) == Batch((Entry.of(message),))
