"""Words between hosts: packed, heard elsewhere, and healed after a lost connection."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.store.bus import CHANNEL, Bus, open_bus
from app.store.engine import Database
from app.store.words import CancelAsked, Here, RowsWritten, Word, WorkWaiting, pack, unpack
from tests.store.seeds import until

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=120)
WORDS = st.one_of(
    st.builds(RowsWritten, NAMES, NAMES, st.integers(1, 2**63 - 1)),
    st.builds(WorkWaiting),
    st.builds(CancelAsked, NAMES),
    st.builds(Here, st.booleans()),
)


@given(st.lists(WORDS, max_size=300))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_payloads_are_small_enough_and_nothing_is_lost_in_them(words: list[Word]) -> None:
    payloads = pack("host_01JABCDEFGHJKMNPQRSTVWXYZ0", words)
    assert all(0 < len(payload.encode()) < 8000 for payload in payloads)
    assert [word for payload in payloads for word in unpack("host_2", payload)] == words
    assert [word for payload in payloads for word in unpack("host_01JABCDEFGHJKMNPQRSTVWXYZ0", payload)] == []  # fmt: skip


def test_many_words_share_a_payload() -> None:
    words: list[Word] = [RowsWritten("t", f"session-{n}", n) for n in range(100)]
    assert len(pack("a", words)) == 1


def test_what_is_no_word_of_this_program_is_passed_over() -> None:
    newer = '["b",[["moon",1],["work"],["rows","t","s"],7,["cancel","run_1"]]]'
    assert unpack("a", newer) == [WorkWaiting(), CancelAsked("run_1")]
    for payload in ("", "null", "5", "{}", "[]", '["b"]', '["b",7]', "not json", '"b"'):
        assert unpack("a", payload) == []


@dataclass(slots=True)
class Hearing:
    """What a bus heard, and how often it connected."""

    words: list[Word] = field(default_factory=list)
    connected: int = 0

    def on(self, bus: Bus) -> None:
        bus.on_word(self.words.append)
        bus.on_reconnect(self._count)

    def _count(self) -> None:
        self.connected += 1

    async def has(self, word: Word) -> None:
        async def heard() -> bool:
            return word in self.words

        await until(heard)

    async def is_connected(self, times: int) -> None:
        async def connected() -> bool:
            return self.connected >= times

        await until(connected)


async def listening(stack: AsyncExitStack, database: Database, host: str) -> tuple[Bus, Hearing]:
    bus = await stack.enter_async_context(open_bus(database, host))
    hearing = Hearing()
    hearing.on(bus)
    await hearing.is_connected(1)
    return bus, hearing


async def met(*buses: Bus) -> None:
    """Wait until each has heard of another host."""

    async def all_have_company() -> bool:
        return all(bus.has_company for bus in buses)

    await until(all_have_company)


async def end_listeners(database: Database) -> int:
    return int(
        await database.raw.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query ILIKE 'LISTEN%'"
        )
    )


async def test_a_word_reaches_the_other_hosts_and_not_its_sender(database: Database) -> None:
    async with AsyncExitStack() as stack:
        a, heard_by_a = await listening(stack, database, "host_a")
        b, heard_by_b = await listening(stack, database, "host_b")
        await met(a, b)
        words: list[Word] = [RowsWritten("t", "s", 7), WorkWaiting(), CancelAsked("run_1")]
        for word in words:
            a.say(word)
        for word in words:
            await heard_by_b.has(word)
        b.say(CancelAsked("run_2"))
        await heard_by_a.has(CancelAsked("run_2"))
        assert heard_by_a.words == [CancelAsked("run_2")]
        assert len(heard_by_b.words) == 3


async def test_a_host_that_is_alone_sends_no_words_on_rows(database: Database) -> None:
    sent: list[str] = []
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.add_listener(CHANNEL, lambda *told: sent.append(str(told[3])))
        async with AsyncExitStack() as stack:
            a, _ = await listening(stack, database, "host_a")
            a.say(RowsWritten("t", "s", 7))
            a.say(CancelAsked("run_1"))

            async def cancel_was_sent() -> bool:
                return any("run_1" in payload for payload in sent)

            await until(cancel_was_sent)
            assert not any('"rows"' in payload for payload in sent)
            _, heard = await listening(stack, database, "host_b")
            await met(a)
            a.say(RowsWritten("t", "s", 8))
            await heard.has(RowsWritten("t", "s", 8))
    finally:
        await connection.close()


async def test_of_many_words_on_a_session_the_newest_is_sent(database: Database) -> None:
    async with AsyncExitStack() as stack:
        a, _ = await listening(stack, database, "host_a")
        _, heard = await listening(stack, database, "host_b")
        await met(a)
        for seq in (5, 9, 7):  # words of two writers may overtake each other
            a.say(RowsWritten("t", "s", seq))
        await heard.has(RowsWritten("t", "s", 9))
        assert heard.words == [RowsWritten("t", "s", 9)]


async def test_a_burst_is_packed_into_few_notifications(database: Database) -> None:
    notifications: list[object] = []
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.add_listener(CHANNEL, lambda *told: notifications.append(told[3]))
        async with AsyncExitStack() as stack:
            a, _ = await listening(stack, database, "host_a")
            _, heard = await listening(stack, database, "host_b")
            await met(a)
            notifications.clear()
            for round_number in range(20):
                for session in range(50):
                    a.say(RowsWritten("t", f"s{session}", round_number + 1))
            await heard.has(RowsWritten("t", "s49", 20))
        assert len(notifications) <= 3
    finally:
        await connection.close()


async def test_a_listener_that_lost_its_connection_comes_back_and_says_so(
    database: Database,
) -> None:
    async with AsyncExitStack() as stack:
        a, _ = await listening(stack, database, "host_a")
        _, heard = await listening(stack, database, "host_b")
        assert await end_listeners(database) == 2
        await heard.is_connected(2)
        a.say(CancelAsked("run_1"))
        await heard.has(CancelAsked("run_1"))


async def test_a_sender_outlives_the_loss_of_its_connections(database: Database) -> None:
    async with AsyncExitStack() as stack:
        a, _ = await listening(stack, database, "host_a")
        _, heard = await listening(stack, database, "host_b")
        one = await asyncpg.connect(database.dsn)
        try:
            await one.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        finally:
            await one.close()
        await heard.is_connected(2)

        async def arrives() -> bool:
            a.say(WorkWaiting())
            await asyncio.sleep(0.05)
            return WorkWaiting() in heard.words

        await until(arrives)
