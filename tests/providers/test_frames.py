from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.frames import FrameSplitter, frame_data
from app.providers.repair import loads_repaired, repaired_text

NEWLINES = ("\n", "\r\n", "\r")


@given(
    texts=st.lists(st.text(), max_size=5),
    newline=st.sampled_from(NEWLINES),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_frames_do_not_depend_on_how_the_bytes_were_cut(
    texts: list[str], newline: str, cuts: list[int]
) -> None:
    frames = [b"event: x\ndata: " + orjson.dumps({"text": text}) + b"\n\n" for text in texts]
    stream = b"".join(frames).replace(b"\n", newline.encode())
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = FrameSplitter()
    seen: list[object] = []
    for begin, end in pairwise(edges):
        for frame in splitter.feed(stream[begin:end]):
            data = frame_data(frame)
            assert data is not None
            seen.append(orjson.loads(data))
    # A lone CR at the very end may be half a CR LF: that frame waits for the next byte.
    held = 1 if newline == "\r" and texts else 0
    assert seen == [{"text": text} for text in texts][: len(texts) - held]


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (b"event: a\ndata: {}", b" {}"),
        (b"data: {}", b" {}"),
        (b"data:{}", b"{}"),
        (b"id: 1\ndata: {}", b"{}"),
        (b"data: 1\ndata: 2", b"1\n2"),
        (b": data: comment", None),
        (b"event: a", None),
        (b"", None),
        (b"\ndata: {}", b"{}"),
    ],
)
def test_the_data_of_a_frame_is_found(frame: bytes, data: bytes | None) -> None:
    assert frame_data(frame) == data


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'"\\u0000"', "\u2400"),
        (b'"\\\\u0000"', "\\u0000"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\ud83d x"', "\ufffd x"),
        (b'{"\\udc00": ["\\ud800\\u0000"]}', {"\ufffd": ["\ufffd\u2400"]}),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'["\\ud800", 12345678901234567890123]', ["\ufffd", 1.2345678901234568e22]),
    ],
)
def test_damaged_json_text_is_mended(raw: bytes, value: object) -> None:
    assert loads_repaired(raw) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"NaN", b'["\\ud800", NaN]', b'["\\ud800", 1e999]'])
def test_what_is_no_json_stays_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the whole family is promised
        loads_repaired(raw)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_sound_text_is_left_alone(text: str) -> None:
    assert repaired_text(text) == text.replace("\0", "\u2400")
