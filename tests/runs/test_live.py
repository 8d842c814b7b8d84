"""Live reading: whatever is lost, late or doubled on the way, readers get the journal."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from app.domain.journal import Batch
from app.errors import Unavailable
from app.runs.clock import SystemClock
from app.runs.items import End, Framed, Item, Preview
from app.runs.live import Hub
from app.runs.previews import live_previews
from app.store.append import append
from app.store.bus import Bus, open_bus
from app.store.claims import Claim
from app.store.engine import Database
from app.store.replay import PAGE_BYTES, read_page
from app.store.rows import PAGE, Row
from app.store.words import RowsWritten
from tests.runs.pieces import Screen, parts_of
from tests.store.proxy import Proxy
from tests.store.seeds import TENANT, begun, dice, enqueue, note, opened, rows, until

Lists = AsyncGenerator[list[Item]]


def hub_of(
    database: Database, *, host: str = "host_1", frames: int = 100, poll_s: float = 60
) -> Hub:
    """A hub whose bus is silent: words are said to nobody."""
    return Hub(database, Bus(database, host), poll_s, frames)


@asynccontextmanager
async def working(*hubs: Hub) -> AsyncIterator[None]:
    loops: list[Callable[[], Awaitable[None]]] = []
    for hub in hubs:
        loops += [hub.pump_forever, hub.poll_forever]
    tasks = [asyncio.ensure_future(loop()) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def write(database: Database, claim: Claim, count: int) -> list[Row]:
    return await append(database, claim.lease, Batch(tuple(note(claim) for _ in range(count))))


def follow(
    hub: Hub,
    claim: Claim,
    after: int = 0,
    *,
    previews: bool = False,
    known: Sequence[Row] = (),
) -> Lists:
    return hub.follow(TENANT, claim.lease.session_id, after=after, previews=previews, known=known)


async def take(
    lists: Lists, last_seq: int, first: "asyncio.Task[list[Item]] | None" = None
) -> list[int]:
    """Read until a row; give the seqs of all rows up to it. `first` asks for a list already."""
    found = seqs_of(await first) if first else []
    async with asyncio.timeout(30):
        while not found or found[-1] < last_seq:
            found += seqs_of(await anext(lists))
    return found


async def waiting(hub: Hub, lists: Lists) -> "asyncio.Task[list[Item]]":
    """Ask for the next list, and give its task when the reader has replayed all there is."""
    task: asyncio.Task[list[Item]] = asyncio.ensure_future(anext(lists))

    async def follows() -> bool:
        return bool(hub._topics) and all(t.cursor is not None for t in hub._topics.values())

    await until(follows)
    return task


async def test_rows_that_are_known_are_taken_for_all_until_more_is_heard_of(
    database: Database,
) -> None:
    claim = await begun(database)
    hub = hub_of(database)
    known = await read_all(database, claim)
    async with working(hub), aclosing(follow(hub, claim, known=known)) as lists:
        first = await waiting(hub, lists)
        more = await write(database, claim, 1)
        hub.wrote(*claim.lease.session, more)
        assert seqs_of(await first) == [row.seq for row in more]


@pytest.mark.parametrize("is_read", [True, False], ids=["by another reader", "by the poll"])
async def test_what_came_behind_known_rows_before_they_were_followed_is_not_missed(
    database: Database, *, is_read: bool
) -> None:
    claim = await begun(database)
    hub = hub_of(database, poll_s=60 if is_read else 0.1)
    known = await read_all(database, claim)
    late = await write(database, claim, 2)
    async with working(hub), aclosing(follow(hub, claim)) as others:
        if is_read:
            await take(others, late[-1].seq)
            (await waiting(hub, others)).cancel()
        async with aclosing(follow(hub, claim, known=known)) as lists:
            assert await take(lists, late[-1].seq) == [row.seq for row in late]


async def read_all(database: Database, claim: Claim) -> list[Row]:
    return (await read_page(database, *claim.lease.session, after=0)).rows


def seqs_of(items: list[Item]) -> list[int]:
    return [item.row.seq for item in items if isinstance(item, Framed)]


async def exact(database: Database, claim: Claim) -> list[tuple[int, str]]:
    stored = await rows(
        database,
        "SELECT seq, body FROM journal WHERE session_id = $1 ORDER BY seq",
        claim.lease.session_id,
    )
    return [(row["seq"], row["body"]) for row in stored]


# -- the property -----------------------------------------------------------------------------


async def read_with_cuts(
    hubs: list[Hub], claim: Claim, chance: random.Random, last_seq: "asyncio.Future[int]"
) -> list[tuple[int, str]]:
    """Read the session from its beginning to its end, cut off at random points."""
    got: list[tuple[int, str]] = []
    cursor = 0
    while not (last_seq.done() and cursor >= last_seq.result()):
        hub, patience = chance.choice(hubs), chance.randint(1, 12)
        lists = follow(hub, claim, cursor, previews=chance.random() < 0.5)
        # All may have come before it is known that it was all: then nothing more comes.
        async with aclosing(lists):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    async for items in lists:
                        for item in items:
                            if isinstance(item, Framed):
                                got.append((item.row.seq, item.row.body))
                                cursor = item.row.seq
                            patience -= 1
                            if patience == 0:
                                break
                        if patience <= 0 or (last_seq.done() and cursor >= last_seq.result()):
                            break
                        if chance.random() < 0.2:
                            await asyncio.sleep(chance.uniform(0, 0.02))
    return got


async def write_with_losses(
    database: Database, here: Hub, there: Hub, claim: Claim, chance: random.Random
) -> int:
    """Write batches; tell the hubs late, twice, in the wrong order or not at all."""
    late: list[RowsWritten] = []
    last_seq = claim.last_seq
    for step in range(40):
        if chance.random() < 0.15:
            _, enqueued = await enqueue(database, claim.lease.session_id, limit=1000)
            here.grew(TENANT, claim.lease.session_id, enqueued.queued_seq)
            last_seq = enqueued.queued_seq
        written = await write(database, claim, chance.randint(1, 5))
        last_seq = written[-1].seq
        if chance.random() < 0.8:
            here.wrote(TENANT, claim.lease.session_id, written)
        late.append(RowsWritten(TENANT, claim.lease.session_id, last_seq))
        if chance.random() < 0.6:
            chance.shuffle(late)
            for word in late:
                there.heard(word)
            late = late[: chance.randint(0, 1)]
        for hub in (here, there):
            preview = Preview(claim.lease.run_id, b"event: preview\ndata: {}\n\n")
            hub.preview(TENANT, claim.lease.session_id, preview)
        if step % 4 == 0:
            await asyncio.sleep(0)
    return last_seq


@pytest.mark.parametrize("seed", range(6))
async def test_readers_cut_at_random_points_get_the_exact_journal_on_either_host(
    database_url: str, seed: int
) -> None:
    chance = dice(seed)
    async with opened(database_url, pool_size=6) as database:
        here, there = (
            hub_of(database, host=host, frames=chance.randint(1, 6), poll_s=0.1)
            for host in ("host_1", "host_2")
        )
        claim = await begun(database)
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(20), working(here, there):
            readers = [
                asyncio.ensure_future(
                    read_with_cuts([here, there], claim, dice(100 * seed + n), end)
                )
                for n in range(8)
            ]
            try:
                end.set_result(await write_with_losses(database, here, there, claim, chance))
                got = await asyncio.gather(*readers)
            finally:
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)
        stored = await exact(database, claim)
        assert [seq for seq, _ in stored] == list(range(1, len(stored) + 1))
        for each in got:
            assert each == stored
        assert (here._topics, there._topics) == ({}, {})


# -- case by case -----------------------------------------------------------------------------


async def test_a_reader_that_comes_before_the_first_row_gets_it(database: Database) -> None:
    hub, claim = hub_of(database), await begun(database)
    async with working(hub), aclosing(follow(hub, claim, claim.last_seq)) as lists:
        task = await waiting(hub, lists)
        hub.wrote(TENANT, claim.lease.session_id, await write(database, claim, 2))
        assert seqs_of(await task) == [3, 4]


async def test_a_buffer_that_overflowed_costs_a_read_and_no_row(database: Database) -> None:
    hub, claim = hub_of(database, frames=2), await begun(database)
    async with working(hub), aclosing(follow(hub, claim)) as lists:
        assert await take(lists, 2) == [1, 2]
        task = await waiting(hub, lists)
        for _ in range(5):
            hub.wrote(TENANT, claim.lease.session_id, await write(database, claim, 10))
        assert await take(lists, 52, task) == list(range(3, 53))


async def test_a_word_that_comes_during_a_replay_is_not_forgotten(database: Database) -> None:
    hub, claim = hub_of(database), await begun(database)
    async with working(hub), aclosing(follow(hub, claim)) as lists:
        assert seqs_of(await anext(lists)) == [1, 2]  # the reader is at its client now
        (row,) = await write(database, claim, 1)
        hub.heard(RowsWritten(TENANT, claim.lease.session_id, row.seq))
        for _ in range(5):
            await asyncio.sleep(0)  # the pump finds nobody to read for yet
        assert await take(lists, row.seq) == [3]  # long before the poll


async def test_words_that_overtake_each_other_change_nothing(database: Database) -> None:
    hub, claim = hub_of(database), await begun(database)
    async with working(hub), aclosing(follow(hub, claim, 2)) as lists:
        task = await waiting(hub, lists)
        first, second = await write(database, claim, 1), await write(database, claim, 1)
        hub.wrote(TENANT, claim.lease.session_id, second)
        hub.wrote(TENANT, claim.lease.session_id, first)
        assert await take(lists, 4, task) == [3, 4]


async def test_lost_words_are_healed_by_the_poll(database: Database) -> None:
    hub, claim = hub_of(database, poll_s=0.05), await begun(database)
    async with working(hub), aclosing(follow(hub, claim, 2)) as lists:
        task = await waiting(hub, lists)
        await write(database, claim, 3)
        assert await take(lists, 5, task) == [3, 4, 5]


async def test_words_lost_with_the_listener_are_made_up_for_when_it_is_back(
    database: Database,
) -> None:
    claim = await begun(database)
    async with open_bus(database, "host_1") as bus:
        hub = Hub(database, bus, poll_s=60, buffer_frames=100)
        bus.on_word(hub.heard)
        bus.on_reconnect(hub.look_everywhere)
        async with working(hub), aclosing(follow(hub, claim, 2)) as lists:
            task = await waiting(hub, lists)
            ended = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query ILIKE 'LISTEN%' AND datname = current_database()"
            )

            async def has_ended() -> bool:
                return bool(await database.raw.fetch(ended))

            await until(has_ended)
            await write(database, claim, 1)  # and no word of it
            async with asyncio.timeout(30):
                assert seqs_of(await task) == [3]


async def test_a_stream_ends_with_the_host_even_when_rows_were_missed(database: Database) -> None:
    hub, claim = hub_of(database), await begun(database)
    async with working(hub), aclosing(follow(hub, claim, 2)) as lists:
        task = await waiting(hub, lists)
        await write(database, claim, 1)
        hub._topics[TENANT, claim.lease.session_id].cursor = 3  # as if it had been handed out
        hub.wrote(TENANT, claim.lease.session_id, await write(database, claim, 1))
        hub.close()
        items = await task
        async with asyncio.timeout(30):
            while not isinstance(items[-1], End):
                items += await anext(lists)
        assert seqs_of(items) == [3, 4]
        assert items[-1] == End("server_shutdown")


async def test_a_host_that_goes_replays_to_late_readers_and_ends(database: Database) -> None:
    hub, claim = hub_of(database), await begun(database)
    hub.close()
    async with aclosing(follow(hub, claim)) as lists:
        assert seqs_of(await anext(lists)) == [1, 2]
        assert await anext(lists) == [End("server_shutdown")]
        with pytest.raises(StopAsyncIteration):
            await anext(lists)


async def test_previews_reach_those_who_want_them_and_go_first(database: Database) -> None:
    hub, claim = hub_of(database, frames=3), await begun(database)
    session = (TENANT, claim.lease.session_id)
    preview = Preview(claim.lease.run_id, b"p", is_text=True)
    async with (
        working(hub),
        aclosing(follow(hub, claim, 2, previews=True)) as with_them,
        aclosing(follow(hub, claim, 2)) as without,
    ):
        assert not hub.wants_previews(*session)
        first = await waiting(hub, with_them)
        assert hub.wants_previews(*session)
        second = await waiting(hub, without)
        for _ in range(5):  # more than the buffer takes
            hub.preview(*session, preview)
        written = await write(database, claim, 1)
        hub.wrote(*session, written)
        assert await first == [preview] * 3
        assert await take(with_them, 3) == [3]
        assert await take(without, 3, second) == [3]
    assert not hub.wants_previews(*session)
    assert hub._topics == {}


async def test_a_replay_that_meets_an_absent_database_says_so(database_url: str) -> None:
    async with Proxy(database_url) as proxy, opened(proxy.url) as database:
        claim = await begun(database)
        hub = hub_of(database)
        await proxy.cut()
        with pytest.raises(Unavailable):
            await anext(follow(hub, claim))
        assert hub._topics == {}
        await proxy.mend()
        async with aclosing(follow(hub, claim)) as lists:
            assert await take(lists, 2) == [1, 2]


async def test_a_page_is_bounded_in_rows_and_in_bytes_and_says_whether_more_comes(
    database: Database,
) -> None:
    claim = await begun(database)
    session_id = claim.lease.session_id

    async def add(count: int, size: int) -> None:
        await database.raw.execute(
            "WITH s AS (UPDATE sessions SET last_seq = last_seq + $2 WHERE id = $1"
            "           RETURNING tenant_id, last_seq)"
            " INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)"
            " SELECT tenant_id, $1, last_seq - $2 + n, 'message', 'user', repeat('x', $3)"
            " FROM s, generate_series(1, $2::int) n",
            session_id,
            count,
            size,
        )

    async def pages(after: int) -> list[tuple[int, bool]]:
        found: list[tuple[int, bool]] = []
        while not found or found[-1][1]:
            page = await read_page(database, TENANT, session_id, after=after)
            assert [row.seq for row in page.rows] == [after + 1 + n for n in range(len(page.rows))]
            found.append((len(page.rows), page.has_more))
            after += len(page.rows)
        return found

    assert await pages(0) == [(2, False)]
    assert await pages(2) == [(0, False)]
    await add(3, 3 * PAGE_BYTES)  # each too large for a page with another one
    assert await pages(2) == [(1, True), (1, True), (1, False)]
    await add(5, PAGE_BYTES * 2 // 5)
    assert await pages(5) == [(3, True), (2, False)]
    await add(PAGE, 1)
    assert await pages(10) == [(PAGE, True), (0, False)]
    await add(1, 1)
    assert await pages(10) == [(PAGE, True), (1, False)]


async def test_a_reader_gets_pieces_from_the_end_of_its_replay_on(database: Database) -> None:
    """Pieces that come while rows are replayed are in the snapshot, and nowhere else."""
    hub, claim, screen = hub_of(database), await begun(database), Screen()
    parts = parts_of("msg_1", [["one ", "two ", "three"]])
    with live_previews(hub, SystemClock(), claim.lease) as previews:
        for part in parts[:3]:
            previews.publish(part)
        async with working(hub), aclosing(follow(hub, claim, previews=True)) as lists:
            assert seqs_of(await anext(lists)) == [1, 2]  # the reader is at its client now
            previews.publish(parts[3])
            task = await waiting(hub, lists)
            for part in parts[4:]:
                previews.publish(part)
            previews.complete()
            async with asyncio.timeout(30):
                items = await task
                while screen.kinds[-1:] != ["message_stop"]:
                    for item in items:
                        screen.show(item)
                    items = [] if screen.kinds[-1:] == ["message_stop"] else await anext(lists)
    assert screen.texts == {("msg_1", 0): "one two three"}
    assert screen.kinds[0] == "snapshot"
