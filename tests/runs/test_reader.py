"""A reader's buffer: bounded, in order, and honest about what was lost."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.model import StreamPart
from app.runs.items import Comment, Delta, End, Framed, Item, Piece, Preview, aborted, piece_of
from app.runs.reader import TAKE_BYTES, Bounds, Reader
from app.store.rows import Row
from tests.runs.pieces import Screen, parts_of
from tests.store.seeds import dice

WIDE = Bounds(frames=1000, bytes=1_000_000)
SLOW = Bounds(frames=1000, bytes=1_000_000, coalesce_s=0.05)


def pieces_of(parts: list[StreamPart]) -> list[Piece]:
    return [
        piece_of(part, session_id="s", run_id="run_1", uuid=f"u{n}") for n, part in enumerate(parts)
    ]


def row(seq: int, size: int = 10) -> Framed:
    return Framed(Row(seq, "run_1", "message", "user", "{}"), b"x" * size)


def texts(items: list[Item] | None) -> list[str]:
    return [item.text for item in items or () if isinstance(item, Delta)]


# -- properties -------------------------------------------------------------------------------

MESSAGES = st.lists(
    st.lists(st.lists(st.text(min_size=1, max_size=40), max_size=6), max_size=3),
    min_size=1,
    max_size=4,
)


@given(
    MESSAGES,
    st.integers(1, 12),
    st.integers(200, 3000),
    st.sampled_from([0.0, 60.0]),
    st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
async def test_whatever_is_shed_the_reader_holds_a_prefix_of_each_block_and_dense_rows(
    said: list[list[list[str]]], frames: int, size: int, coalesce_s: float, seed: int
) -> None:
    reader, screen, chance = Reader(Bounds(frames, size, coalesce_s)), Screen(), dice(seed)
    seq = cursor = 0

    def take() -> None:
        nonlocal cursor
        items = reader.take_now()
        if items is None:
            cursor = seq  # it reads the journal instead
        for item in items or ():
            if isinstance(item, Framed):
                assert item.row.seq <= cursor + 1
                cursor = max(cursor, item.row.seq)
            screen.show(item)

    final: dict[tuple[str, int], str] = {}
    for n, blocks in enumerate(said):
        message_id = f"msg_{n}"
        final |= {(message_id, i): "".join(pieces) for i, pieces in enumerate(blocks)}
        for piece in pieces_of(parts_of(message_id, blocks)):
            reader.put(piece)
            if chance.random() < 0.2:
                seq += 1
                reader.put(row(seq, chance.choice((5, 500))))
            if chance.random() < 0.3:
                take()
            assert len(reader._items) <= frames
            assert reader._bytes <= size or len(reader._items) == 1
    while reader._items or reader._has_overflowed:
        take()
    reader.close()
    assert cursor == seq
    assert all(final[block].startswith(text) for block, text in screen.texts.items())


@given(MESSAGES, st.floats(0, 1), st.sampled_from([0.0, 60.0]))
@settings(max_examples=100, deadline=None)
async def test_who_joins_anywhere_with_a_snapshot_holds_the_whole_message(
    said: list[list[list[str]]], place: float, coalesce_s: float
) -> None:
    pieces = pieces_of(parts_of("msg_1", said[0]))
    at = max(1, round(place * len(pieces)))
    reader, screen = Reader(Bounds(1000, 1_000_000, coalesce_s)), Screen()
    reader.join(pieces[:at])
    for piece in pieces[at:]:
        reader.put(piece)
    reader.join(pieces[:at])  # a second one changes nothing
    for item in reader.take_now() or ():
        screen.show(item)
    reader.close()
    assert screen.kinds[:2] == ["snapshot", "message_start"]
    assert screen.kinds.count("snapshot") == 1
    assert screen.texts == {("msg_1", i): "".join(block) for i, block in enumerate(said[0])}
    assert screen.open == set()


# -- case by case -----------------------------------------------------------------------------


async def test_deltas_that_wait_are_joined_when_they_are_taken() -> None:
    reader = Reader(SLOW)
    for piece in pieces_of(parts_of("msg_1", [["a", "b", "c"], ["d", "e"]])):
        reader.put(piece)
    items = reader.take_now()
    assert texts(items) == ["abc", "de"]
    screen = Screen()
    for item in items or ():
        screen.show(item)
    assert screen.texts == {("msg_1", 0): "abc", ("msg_1", 1): "de"}
    reader.close()


async def test_raw_readers_get_each_delta_as_it_came() -> None:
    reader = Reader(WIDE)
    for piece in pieces_of(parts_of("msg_1", [["a", "b", "c"]])):
        reader.put(piece)
    assert texts(reader.take_now()) == ["a", "b", "c"]


async def test_one_readers_joining_changes_nothing_for_another() -> None:
    first, second = Reader(SLOW), Reader(WIDE)
    for piece in pieces_of(parts_of("msg_1", [["a", "b"]])):
        first.put(piece)
        second.put(piece)
    assert texts(first.take_now()) == ["ab"]
    assert texts(second.take_now()) == ["a", "b"]
    first.close()


async def test_the_first_delta_goes_out_at_once_and_the_next_ones_together() -> None:
    reader = Reader(Bounds(1000, 1_000_000, coalesce_s=0.2))
    start, begun, *deltas = pieces_of(parts_of("msg_1", [["a", "b", "c", "d"]]))[:6]
    loop = asyncio.get_running_loop()
    reader.put(start)
    reader.put(begun)
    reader.put(deltas[0])
    assert texts(await reader.take()) == ["a"]
    began_s = loop.time()
    taking = asyncio.ensure_future(reader.take())
    for delta in deltas[1:]:
        await asyncio.sleep(0)
        reader.put(delta)
    assert texts(await taking) == ["bcd"]
    assert loop.time() - began_s >= 0.19
    reader.close()


async def test_a_row_does_not_wait_for_deltas_to_be_joined_and_keeps_its_place() -> None:
    reader = Reader(Bounds(1000, 1_000_000, coalesce_s=60))
    start, begun, first, second, *_ = pieces_of(parts_of("msg_1", [["a", "b"]]))
    for piece in (start, begun, first):
        reader.put(piece)
    await reader.take()
    taking = asyncio.ensure_future(reader.take())
    await asyncio.sleep(0)
    reader.put(second)
    reader.put(row(1))
    async with asyncio.timeout(30):
        items = await taking
    assert [type(item) for item in items or ()] == [Delta, Framed]
    reader.close()


async def test_a_message_with_a_hole_is_given_up_and_the_next_one_is_whole() -> None:
    reader, screen = Reader(Bounds(frames=4, bytes=10_000)), Screen()
    for piece in pieces_of(parts_of("msg_1", [["a", "b", "c", "d", "e"]])):
        reader.put(piece)
    for item in reader.take_now() or ():
        screen.show(item)
    for piece in pieces_of(parts_of("msg_1", [["a", "b", "c", "d", "e"]]))[1:]:
        reader.put(piece)  # more of the same message comes to nothing
    assert reader.take_now() == []
    for piece in pieces_of(parts_of("msg_2", [["x"]])):
        reader.put(piece)
        for item in reader.take_now() or ():
            screen.show(item)
    assert screen.texts == {("msg_1", 0): "ab", ("msg_2", 0): "x"}


async def test_who_holds_a_part_of_a_void_message_is_told_and_nobody_else() -> None:
    holding, lost, late = Reader(WIDE), Reader(Bounds(frames=3, bytes=10_000)), Reader(WIDE)
    for piece in pieces_of(parts_of("msg_1", [["a", "b", "c"]]))[:5]:
        holding.put(piece)
        lost.put(piece)
    lost.take_now()
    for reader in (holding, lost, late):
        reader.put(aborted("s", "run_1", "msg_1", "broken"))
    told = [
        [item for item in reader.take_now() or () if isinstance(item, Preview) and item.aborts]
        for reader in (holding, lost, late)
    ]
    assert [len(each) for each in told] == [1, 1, 0]


async def test_rows_beyond_the_bytes_send_the_reader_back_to_the_journal() -> None:
    reader = Reader(Bounds(frames=1000, bytes=1000))
    for seq in range(1, 200):
        reader.put(row(seq, 100))
        assert reader._bytes <= 1000
    assert await reader.take() is None
    reader.put(row(200, 5000))  # too large for the bound, but alone
    items = await reader.take()
    assert [item.row.seq for item in items or () if isinstance(item, Framed)] == [200]


async def test_an_end_is_not_lost_with_the_rows_that_did_not_fit() -> None:
    reader = Reader(Bounds(frames=1, bytes=1000))
    reader.put(row(1))
    reader.put(row(2))
    reader.put(End("server_shutdown"))
    assert await reader.take() is None
    assert await reader.take() == [End("server_shutdown")]


async def test_much_is_given_piece_by_piece() -> None:
    reader = Reader(Bounds(frames=1000, bytes=100_000_000))
    for seq in range(1, 11):
        reader.put(row(seq, TAKE_BYTES // 2))
    taken: list[int] = []
    async with asyncio.timeout(30):
        while sum(taken) < 10:
            taken.append(len(await reader.take() or ()))
    assert taken == [2] * 5


async def test_events_that_are_no_plain_deltas_pass_as_they_are() -> None:
    citation = {"type": "citations_delta", "citation": {"cited_text": "x"}}
    event = {"type": "content_block_delta", "index": 0, "delta": citation}
    signature = {"type": "signature_delta", "signature": "abc"}
    signed = {"type": "content_block_delta", "index": 0, "delta": signature}
    reader = Reader(SLOW)
    reader.put(pieces_of([StreamPart({"type": "message_start", "message": {}}, "msg_1")])[0])
    for piece in pieces_of([StreamPart(event, "msg_1"), StreamPart(signed, "msg_1")] * 2):
        reader.put(piece)
    kept = [item for item in reader.take_now() or () if isinstance(item, Preview) and item.part]
    assert [item.part.event for item in kept[1:] if item.part] == [event, signed] * 2
    reader.close()


async def test_comments_tell_of_snapshots_only() -> None:
    reader = Reader(WIDE)
    reader.join([])
    reader.join(pieces_of(parts_of("msg_1", [["a"]])))
    items = reader.take_now() or []
    assert [item.text for item in items if isinstance(item, Comment)] == ["snapshot"]
