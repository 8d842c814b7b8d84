"""Previews across hosts: nobody asks, nothing is sent; whoever asks never sees a hole."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import pytest

from app.runs.clock import SystemClock
from app.runs.live import Hub
from app.runs.mirrors import Mirrors
from app.runs.previews import LivePreviews, live_previews
from app.runs.relay import Relay, open_relay
from app.store.bus import MOST_PARTS, Bus, open_bus
from app.store.claims import Claim
from app.store.engine import Database
from app.store.leases import Lease
from app.store.rows import Row
from app.store.words import PreviewPart, PreviewsWanted, RowsWritten, Word, pack, unpack
from tests.runs.pieces import Screen, parts_of
from tests.runs.test_live import write
from tests.store.seeds import TENANT, begun, dice, until

FACE = "\N{GRINNING FACE}"


@dataclass(slots=True)
class Side:
    """A host as far as previews go; its words are carried by hand."""

    name: str
    hub: Hub
    bus: Bus
    relay: Relay
    mirrors: Mirrors
    payloads: list[str] = field(default_factory=list)

    def words(self) -> list[Word]:
        """Take what it has said."""
        words: list[Word] = [*self.bus._parts, *self.bus._others]
        words += [RowsWritten(t, s, q) for (t, s), q in self.bus._rows.items()]
        self.bus._parts.clear()
        self.bus._others.clear()
        self.bus._rows.clear()
        self.payloads += pack(self.name, words)
        return [word for payload in pack(self.name, words) for word in unpack("other", payload)]

    def hear(self, words: list[Word]) -> None:
        for word in words:
            for hear in self.bus._hear:
                hear(word)


@asynccontextmanager
async def side(database: Database, name: str, *, payloads_per_s: int = 100) -> AsyncIterator[Side]:
    bus = Bus(database, name, _company_until_s=math.inf)
    hub = Hub(database, bus, 60, 1000)
    bus.on_word(hub.heard)
    pumping = asyncio.ensure_future(hub.pump_forever())
    async with open_relay(hub, bus, payloads_per_s=payloads_per_s) as relay:
        mirrors = Mirrors(hub, bus, SystemClock())
        hub.elsewhere = mirrors
        bus.on_word(mirrors.heard)
        yield Side(name, hub, bus, relay, mirrors)
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)


async def carry(*sides: Side, times: int = 6) -> None:
    """Let what is said reach the others until nothing more is said."""
    for _ in range(times):
        for speaker in sides:
            words = speaker.words()
            for hearer in sides:
                if hearer is not speaker:
                    hearer.hear(words)
        await asyncio.sleep(0.012)


@asynccontextmanager
async def reading(at: Side, claim: Claim, *, previews: bool = True) -> AsyncIterator[Screen]:
    """Read the session until the block ends."""
    screen = Screen()

    async def read() -> None:
        lists = at.hub.follow(
            TENANT, claim.lease.session_id, after=claim.last_seq, previews=previews
        )
        async with aclosing(lists):
            async for items in lists:
                for item in items:
                    screen.show(item)

    def reads() -> int:
        topic = at.hub._topics.get((TENANT, claim.lease.session_id))
        return 0 if topic is None else len(topic.watchers if previews else topic.readers)

    before = reads()
    task = asyncio.ensure_future(read())

    async def begins() -> bool:
        return task.done() or reads() > before

    await until(begins)
    try:
        yield screen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def driven(at: Side, claim: Claim, epoch: int = 0) -> AsyncIterator[LivePreviews]:
    lease = claim.lease
    lease = Lease(lease.tenant_id, lease.session_id, lease.run_id, lease.epoch + epoch)
    with live_previews(at.hub, SystemClock(), lease) as previews:
        yield previews


@asynccontextmanager
async def relayed(
    database: Database, claim: Claim
) -> AsyncIterator[tuple[Side, Side, LivePreviews, Screen]]:
    """A run that one host drives, and a reader on another, which has asked for its previews."""
    async with (
        side(database, "a") as a,
        side(database, "b") as b,
        driven(a, claim) as previews,
        reading(b, claim) as there,
    ):
        await carry(a, b)
        yield a, b, previews, there


def said(payloads: list[str]) -> list[PreviewPart]:
    words = [word for payload in payloads for word in unpack("nobody", payload)]
    return [word for word in words if isinstance(word, PreviewPart)]


def publish(previews: LivePreviews, message_id: str, blocks: list[list[str]]) -> None:
    for part in parts_of(message_id, blocks):
        previews.publish(part)


# -- the property -----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.0, 0.15])
@pytest.mark.parametrize("seed", range(3))
async def test_readers_on_either_host_hold_prefixes_whatever_is_lost_and_the_whole_if_nothing_is(
    database: Database, seed: int, loss: float
) -> None:
    chance = dice(seed)
    claim = await begun(database)
    async with side(database, "a") as a, side(database, "b") as b, side(database, "c") as c:
        final: dict[tuple[str, int], str] = {}
        screens: list[tuple[Screen, list[str]]] = []
        async with contextlib.AsyncExitStack() as readers, driven(a, claim) as previews:
            for n in range(4):
                blocks = [
                    [_words(chance) for _ in range(chance.randint(0, 12))]
                    for _ in range(chance.randint(1, 3))
                ]
                message_id = f"msg_{n}"
                final |= {(message_id, i): "".join(block) for i, block in enumerate(blocks)}
                for part in parts_of(message_id, blocks):
                    previews.publish(part)
                    if chance.random() < 0.15:
                        at = chance.choice((a, b, c))
                        screen = await readers.enter_async_context(reading(at, claim))
                        # A reader elsewhere that comes late in a message may miss its end.
                        screens.append((screen, [f"msg_{m}" for m in range(n + 1, 4)]))
                    if chance.random() < 0.5:
                        await _carry_lossy([a, b, c], chance, loss)
                await carry(a, b, c)
                previews.complete()
                await _carry_lossy([a, b, c], chance, loss)
            await carry(a, b, c)
            await asyncio.sleep(0.05)
        assert screens
        for screen, whole in screens:
            for block, text in screen.texts.items():
                assert final[block].startswith(text)
            if loss == 0.0:
                for block, text in final.items():
                    assert block[0] not in whole or screen.texts[block] == text
        assert all(len(payload.encode()) < 8000 for s in (a, b, c) for payload in s.payloads)
        assert (a.hub.relayed, a.relay._outgoing, b.mirrors._mirrors) == ({}, {}, {})


def _words(chance: Random) -> str:
    return chance.choice(["a", "b\n", '"', "\\", FACE, "é"]) * chance.choice([1, 3, 3000])


async def _carry_lossy(sides: list[Side], chance: Random, loss: float) -> None:
    for speaker in sides:
        words = speaker.words()
        for hearer in sides:
            if hearer is not speaker:
                hearer.hear([word for word in words if chance.random() >= loss])
    await asyncio.sleep(chance.choice((0, 0, 0.01, 0.05)))


# -- case by case -----------------------------------------------------------------------------


async def test_nobody_elsewhere_looks_and_nothing_is_sent(database: Database) -> None:
    claim = await begun(database)
    async with (
        side(database, "a") as a,
        side(database, "b") as b,
        reading(a, claim) as here,
        reading(b, claim, previews=False),
        driven(a, claim) as previews,
    ):
        publish(previews, "msg_1", [["one ", "two"]])
        previews.complete()
        await carry(a, b)
        assert here.texts == {("msg_1", 0): "one two"}
        assert said(a.payloads) == []
        assert not any(isinstance(word, PreviewsWanted) for word in b.words())
        assert a.hub.relayed == {}


async def test_a_reader_elsewhere_gets_pieces_before_the_message_is_complete(
    database: Database,
) -> None:
    claim = await begun(database)
    async with relayed(database, claim) as (a, b, previews, there):
        start, begun_block, *rest = parts_of("msg_1", [["Hello", ", ", "world", FACE]])
        for part in (start, begun_block, *rest[:3]):
            previews.publish(part)
        await carry(a, b)
        assert there.texts == {("msg_1", 0): "Hello, world"}
        for part in rest[3:]:
            previews.publish(part)
        previews.complete()
        b.hear(a.words())
        await asyncio.sleep(0.02)
        assert there.texts == {("msg_1", 0): "Hello, world" + FACE}
        assert there.kinds[-1] == "message_stop"


async def test_deltas_are_joined_on_the_way(database: Database) -> None:
    claim = await begun(database)
    async with relayed(database, claim) as (a, b, previews, there):
        publish(previews, "msg_1", [[f"{n} " for n in range(500)]])
        previews.complete()
        await carry(a, b)
        assert there.texts == {("msg_1", 0): "".join(f"{n} " for n in range(500))}
        assert there.kinds.count("content_block_delta") <= 2
        assert len(said(a.payloads)) < 8


async def test_a_reader_that_comes_in_the_middle_gets_a_snapshot_first_on_either_host(
    database: Database,
) -> None:
    claim = await begun(database)
    parts = parts_of("msg_1", [["one "], ["two ", "three ", "four"]])
    async with side(database, "a") as a, side(database, "b") as b, driven(a, claim) as previews:
        for part in parts[:6]:
            previews.publish(part)
        async with (
            reading(a, claim) as here,
            reading(b, claim) as there,
        ):
            await carry(a, b)
            async with reading(b, claim) as later:  # served by the mirror, without a question
                wanted = [w for w in b.words() if isinstance(w, PreviewsWanted) and w.is_fresh]
                assert wanted == []
                for part in parts[6:]:
                    previews.publish(part)
                previews.complete()
                await carry(a, b)
                for screen in (here, there, later):
                    assert screen.kinds[:3] == ["snapshot", "message_start", "content_block_start"]
                    assert screen.kinds.count("message_start") == 1
                    assert screen.texts == {
                        ("msg_1", 0): "one ",
                        ("msg_1", 1): "two three four",
                    }


async def test_a_snapshot_for_one_host_changes_nothing_for_another(database: Database) -> None:
    claim = await begun(database)
    parts = parts_of("msg_1", [["one ", "two ", "three"]])
    async with (
        side(database, "a") as a,
        side(database, "b") as b,
        side(database, "c") as c,
        driven(a, claim) as previews,
        reading(b, claim) as first,
    ):
        await carry(a, b, c)
        for part in parts[:3]:
            previews.publish(part)
        await carry(a, b, c)
        async with reading(c, claim) as second:
            await carry(a, b, c)
            for part in parts[3:]:
                previews.publish(part)
            previews.complete()
            await carry(a, b, c)
        assert first.texts == second.texts == {("msg_1", 0): "one two three"}
        assert (first.kinds.count("snapshot"), second.kinds.count("snapshot")) == (0, 1)


async def test_a_lost_part_ends_the_message_for_its_readers_and_the_next_one_is_whole(
    database: Database,
) -> None:
    claim = await begun(database)
    parts = parts_of("msg_1", [["one ", "two ", "three"]])
    async with relayed(database, claim) as (a, b, previews, there):
        for part in parts[:3]:
            previews.publish(part)
        await carry(a, b)
        previews.publish(parts[3])

        async def waits() -> bool:
            return bool(a.bus._parts)

        await until(waits)
        assert said([*pack("a", a.words())]) != []  # and nobody hears it
        b.mirrors._mirrors[TENANT, claim.lease.session_id].asked_s = 0
        for part in parts[4:]:
            previews.publish(part)
        await carry(a, b)
        previews.complete()
        await carry(a, b)
        publish(previews, "msg_2", [["whole"]])
        previews.complete()
        await carry(a, b)
        assert there.texts == {("msg_1", 0): "one ", ("msg_2", 0): "whole"}


async def test_a_message_that_is_too_much_for_the_budget_is_cut_off_and_no_row_waits_for_it(
    database: Database,
) -> None:
    claim = await begun(database)
    async with (
        side(database, "a", payloads_per_s=1) as a,
        side(database, "b") as b,
        driven(a, claim) as previews,
        reading(b, claim) as there,
    ):
        await carry(a, b)
        publish(previews, "msg_1", [["x" * 100_000]])
        previews.complete()
        a.hub.wrote(TENANT, claim.lease.session_id, await write(database, claim, 1))
        words = a.words()
        assert sum(len(w.text) for w in words if isinstance(w, PreviewPart)) < 8_000
        assert isinstance(words[-1], RowsWritten)
        b.hear(words)
        await carry(a, b)
        assert "x" * 100 not in there.texts.get(("msg_1", 0), "")
        a.relay.budget.bytes_per_s = 1_000_000
        publish(previews, "msg_2", [["short"]])
        await carry(a, b)
        assert there.texts["msg_2", 0] == "short"


async def test_interest_that_is_not_repeated_runs_out(database: Database) -> None:
    claim = await begun(database)
    async with relayed(database, claim) as (a, _, previews, _):
        key = (TENANT, claim.lease.session_id)
        assert key in a.hub.relayed
        a.relay._outgoing[key][0].until_s = 0
        publish(previews, "msg_1", [["x"]])

        async def is_over() -> bool:
            return key not in a.hub.relayed

        await until(is_over)
        assert a.relay._outgoing == {}


async def test_interest_that_came_before_the_run_is_remembered(database: Database) -> None:
    claim = await begun(database)
    async with side(database, "a") as a, side(database, "b") as b, reading(b, claim) as there:
        await carry(a, b)
        async with driven(a, claim) as previews:
            publish(previews, "msg_1", [["at once"]])
            previews.complete()
            await carry(a, b)
        assert there.texts == {("msg_1", 0): "at once"}


async def test_pieces_of_an_owner_that_was_replaced_are_passed_over(database: Database) -> None:
    claim = await begun(database)
    async with (
        side(database, "a") as old,
        side(database, "b") as new,
        side(database, "c") as c,
        reading(c, claim) as there,
        driven(old, claim) as stale,
    ):
        await carry(old, new, c)
        for part in parts_of("msg_1", [["old ", "text"]])[:3]:
            stale.publish(part)
        await carry(old, new, c)
        async with driven(new, claim, epoch=1) as previews:
            publish(previews, "msg_2", [["new"]])
            await carry(old, new, c)
            for part in parts_of("msg_1", [["old ", "text"]])[3:]:
                stale.publish(part)
            await carry(old, new, c)
            assert there.texts == {("msg_1", 0): "old ", ("msg_2", 0): "new"}
            assert there.aborted == ["msg_1"]


async def test_a_void_message_is_told_as_such_and_is_in_no_snapshot(database: Database) -> None:
    claim = await begun(database)
    async with (
        side(database, "a") as a,
        side(database, "b") as b,
        driven(a, claim) as previews,
        reading(a, claim) as here,
        reading(b, claim) as there,
    ):
        await carry(a, b)
        for part in parts_of("msg_1", [["half"]])[:3]:
            previews.publish(part)
        await carry(a, b)
        previews.abort("msg_1", "cancelled")
        await carry(a, b)
        assert here.aborted == there.aborted == ["msg_1"]
        async with reading(a, claim) as late_here, reading(b, claim) as late_there:
            await carry(a, b)
            assert late_here.kinds == late_there.kinds == []
        partial = previews.partial()
        assert partial is not None
        assert partial.texts == ("half",)


async def test_a_message_whose_rows_are_there_is_in_no_snapshot(database: Database) -> None:
    claim = await begun(database)
    async with relayed(database, claim) as (a, b, previews, _):
        for part in parts_of("msg_1", [["whole"]])[:3]:
            previews.publish(part)
        await carry(a, b)
        previews.complete()
        (row,) = await write(database, claim, 1)
        row = Row(row.seq, row.run_id, "message", "assistant", '{"message":{"id":"msg_1"}}', row.at)
        b.hub.wrote(TENANT, claim.lease.session_id, [row])
        async with reading(b, claim) as late:
            await carry(a, b)
            assert late.kinds == []


async def test_pieces_that_come_after_their_rows_are_passed_over(database: Database) -> None:
    claim = await begun(database)
    parts = parts_of("msg_1", [["one ", "two"]])
    async with relayed(database, claim) as (a, b, previews, there):
        for part in parts[:3]:
            previews.publish(part)
        await carry(a, b)
        for part in parts[3:]:
            previews.publish(part)
        previews.complete()
        (row,) = await write(database, claim, 1)
        body = '{"message":{"id":"msg_1"}}'
        found = Row(row.seq, row.run_id, "message", "assistant", body, row.at)
        b.hub.wrote(TENANT, claim.lease.session_id, [found])  # as the poll finds it
        async with reading(b, claim) as late:
            await carry(a, b)
            publish(previews, "msg_2", [["next"]])
            previews.complete()
            await carry(a, b)
            assert there.texts == {("msg_1", 0): "one ", ("msg_2", 0): "next"}
            assert late.texts == {("msg_2", 0): "next"}


async def test_rows_that_come_late_take_nothing_from_the_next_message(database: Database) -> None:
    claim = await begun(database)
    parts = parts_of("msg_2", [["one ", "two"]])
    async with relayed(database, claim) as (a, b, previews, there):
        for part in parts[:3]:
            previews.publish(part)
        await carry(a, b)
        seqs = [row.seq for row in await write(database, claim, 3)]
        late = [
            Row(seqs[0], claim.lease.run_id, "message", "assistant", '{"message":{"id":"msg_1"}}'),
            Row(seqs[1], "run_before", "service", "run.finished", "{}"),
            Row(seqs[2], claim.lease.run_id, "service", "run.started", "{}"),
        ]
        b.hub.wrote(TENANT, claim.lease.session_id, late)
        async with reading(b, claim) as later:
            for part in parts[3:]:
                previews.publish(part)
            await carry(a, b)
            assert there.texts == later.texts == {("msg_2", 0): "one two"}
            assert there.aborted == []


async def test_a_host_that_lost_its_listener_asks_anew(database: Database) -> None:
    claim = await begun(database)
    parts = parts_of("msg_1", [["one ", "two"]])
    async with relayed(database, claim) as (a, b, previews, there):
        for part in parts[:3]:
            previews.publish(part)
        await carry(a, b)
        b.mirrors._mirrors[TENANT, claim.lease.session_id].asked_s = 0
        b.mirrors.look_everywhere()
        assert [w.is_fresh for w in b.words() if isinstance(w, PreviewsWanted)] == [True]
        async with reading(b, claim) as later:
            b.mirrors._mirrors[TENANT, claim.lease.session_id].asked_s = 0
            b.mirrors.look_everywhere()
            await carry(a, b)
            for part in parts[3:]:
                previews.publish(part)
            await carry(a, b)
            assert there.texts == {("msg_1", 0): "one "}
            assert later.texts == {("msg_1", 0): "one two"}


async def test_words_about_previews_survive_their_packing() -> None:
    part = PreviewPart("t", "s", 3, "st", 7, "more", True, "x" * 3 + FACE)  # noqa: FBT003 - is_last
    words: list[Word] = [PreviewsWanted("t", "s", is_fresh=True), part] * 50
    assert [word for p in pack("a", words) for word in unpack("b", p)] == words


async def test_pieces_go_ahead_of_the_rows_that_complete_them(database: Database) -> None:
    heard: list[Word] = []
    async with open_bus(database, "a") as speaker, open_bus(database, "b") as hearer:
        hearer.on_word(heard.append)
        part = PreviewPart("t", "s", 1, "stream", 0, "events", True, "{}")  # noqa: FBT003 - is_last

        async def arrives() -> bool:
            speaker.say(RowsWritten("t", "s", 7))
            speaker.say(part)
            await asyncio.sleep(0.05)
            return part in heard and RowsWritten("t", "s", 7) in heard

        async def has_company() -> bool:
            return speaker.has_company

        await until(has_company)
        await until(arrives)
    assert heard.index(part) < heard.index(RowsWritten("t", "s", 7))


async def test_pieces_that_cannot_be_sent_do_not_pile_up(database: Database) -> None:
    bus = Bus(database, "a")
    for n in range(MOST_PARTS + 50):
        bus.say(PreviewPart("t", "s", 1, "stream", n, "events", True, "{}"))  # noqa: FBT003 - is_last
    assert [part.n for part in bus._parts] == list(range(MOST_PARTS))


async def test_interest_is_declared_while_a_run_may_go_on_and_not_when_none_does(
    database: Database,
) -> None:
    claim = await begun(database)
    key = (TENANT, claim.lease.session_id)
    seq = claim.last_seq

    def service_row(kind: str, run_id: str) -> Row:
        nonlocal seq
        seq += 1
        return Row(seq, run_id, "service", kind, "{}")

    async with side(database, "b") as b, reading(b, claim):
        assert b.hub.watched_elsewhere() == [key]  # nothing is known yet
        b.words()
        for kind, run_id, is_declared in (
            ("run.started", "run_1", True),
            ("run.finished", "run_queued", True),
            ("run.finished", "run_1", False),
            ("run.queued", "run_2", False),
            ("run.attempt", "run_2", True),
        ):
            b.hub.wrote(*key, [service_row(kind, run_id)])
            assert b.hub.watched_elsewhere() == ([key] if is_declared else [])
        assert [w for w in b.words() if isinstance(w, PreviewsWanted)] != []


async def test_interest_is_repeated_until_nobody_looks(database: Database) -> None:
    claim = await begun(database)
    async with side(database, "b") as b:
        b.mirrors.repeat_s = 0.01
        declaring = asyncio.ensure_future(b.mirrors.declare_forever())

        async def declares() -> bool:
            return any(isinstance(word, PreviewsWanted) for word in b.words())

        async with reading(b, claim):
            for _ in range(3):
                await until(declares)
        b.words()
        await asyncio.sleep(0.05)
        assert not await declares()
        declaring.cancel()
        await asyncio.gather(declaring, return_exceptions=True)
