"""The message that is on its way: whoever joins in its middle misses nothing."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.model import StreamPart
from app.runs.open_message import OpenMessage

Event = dict[str, Any]
TEXTS = st.text(max_size=8)


def delta(index: int, kind: str, key: str, text: str) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: text}}


CITATION: Event = {"type": "citations_delta", "citation": {"cited_text": "x", "document_index": 0}}


@st.composite
def block(draw: st.DrawFn, index: int) -> list[Event]:
    kind = draw(st.sampled_from(["text", "thinking", "tool_use", "citing"]))
    pieces = draw(st.lists(TEXTS, max_size=6))
    start: Event
    match kind:
        case "text":
            start, deltas = (
                {"type": "text", "text": ""},
                [delta(index, "text_delta", "text", piece) for piece in pieces],
            )
        case "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [delta(index, "thinking_delta", "thinking", piece) for piece in pieces]
            deltas.append(delta(index, "signature_delta", "signature", "sig"))
        case "tool_use":
            start = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
            deltas = [delta(index, "input_json_delta", "partial_json", piece) for piece in pieces]
        case _:
            start = {"type": "text", "text": "", "citations": []}
            deltas = [delta(index, "text_delta", "text", piece) for piece in pieces]
            deltas.append({"type": "content_block_delta", "index": index, "delta": CITATION})
    begun = {"type": "content_block_start", "index": index, "content_block": start}
    return [begun, *deltas, {"type": "content_block_stop", "index": index}]


@st.composite
def messages(draw: st.DrawFn, message_id: str = "msg_1") -> list[StreamPart]:
    """Give the events of a whole response."""
    start: Event = {"type": "message_start", "message": {"id": message_id, "content": []}}
    events = [start]
    for index in range(draw(st.integers(0, 4))):
        events += draw(block(index))
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
    events.append({"type": "message_stop"})
    return [
        StreamPart(event, message_id, 12 if event["type"] == "message_start" else None)
        for event in events
    ]


def joined(parts: list[StreamPart]) -> list[Event]:
    """Give events with neighbouring deltas of a kind joined: what a reader makes of them."""
    result: list[Event] = []
    for part in parts:
        event = part.event
        if event["type"] != "content_block_delta":
            result.append(event)
            continue
        kind, *_ = (value for key, value in event["delta"].items() if key == "type")
        key = next(key for key in event["delta"] if key != "type")
        last = result[-1]
        if (
            last["type"] == "content_block_delta"
            and last["delta"]["type"] == kind != CITATION["type"]
        ):
            text = last["delta"][key] + event["delta"][key]
            result[-1] = delta(event["index"], kind, key, text)
        else:
            result.append(event)
    return result


@given(messages(), st.data())
@settings(max_examples=150)
def test_a_snapshot_and_what_follows_it_are_the_message(
    parts: list[StreamPart], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(parts)))
    open_message = OpenMessage()
    for part in parts[:cut]:
        open_message.feed(part)
    seen = [*open_message.snapshot(), *parts[cut:]]
    assert joined(seen) == joined(parts)
    assert [part.ttft_ms for part in seen[:1]] == [12]
    assert {part.message_id for part in seen} == {"msg_1"}


@given(messages(), st.data())
@settings(max_examples=50)
def test_who_is_fed_a_snapshot_gives_the_same_snapshot(
    parts: list[StreamPart], data: st.DataObject
) -> None:
    first, second = OpenMessage(), OpenMessage()
    for part in parts[: data.draw(st.integers(0, len(parts)))]:
        first.feed(part)
    for part in first.snapshot():
        second.feed(part)
    assert second.snapshot() == first.snapshot()


@given(messages("msg_1"), messages("msg_2"))
@settings(max_examples=30)
def test_a_retry_begins_anew(first: list[StreamPart], second: list[StreamPart]) -> None:
    open_message = OpenMessage()
    for part in [*first, *second]:
        open_message.feed(part)
    assert open_message.message_id == "msg_2"
    assert joined(open_message.snapshot()) == joined(second)


def test_a_closed_message_is_nobodys() -> None:
    open_message = OpenMessage()
    open_message.feed(StreamPart({"type": "message_start", "message": {}}, "msg_1"))
    open_message.close()
    assert open_message.snapshot() == []
    assert open_message.partial() is None
    assert open_message.message_id is None


def test_a_cut_answer_keeps_its_texts_and_an_estimate_of_what_it_cost() -> None:
    open_message = OpenMessage()
    usage = {"input_tokens": 7, "output_tokens": 1}
    events: list[Event] = [
        {"type": "message_start", "message": {"model": "m", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        delta(0, "thinking_delta", "thinking", "t" * 20),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        delta(1, "text_delta", "text", "half an "),
        delta(1, "text_delta", "text", "answer"),
    ]
    for event in events:
        open_message.feed(StreamPart(event, "msg_1"))
    partial = open_message.partial()
    assert partial is not None
    assert (partial.message_id, partial.model) == ("msg_1", "m")
    assert partial.texts == ("half an answer",)
    assert (partial.usage.input_tokens, partial.usage.output_tokens) == (7, 34 // 4)
