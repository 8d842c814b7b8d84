"""The words of messages, taken in by the database: the same ones that a hit shows."""

import uuid

from app.domain.blocks import (
    Block,
    OtherBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    SYNTHETIC,
    ApiMessage,
    AssistantMessage,
    UserContent,
    UserMessage,
    WireUsage,
)
from app.domain.usage import Usage
from app.store.append import append
from app.store.claims import Claim
from app.store.engine import Database
from app.store.search import MOST_CHARS, index_copies, index_messages, text_of
from tests.store.seeds import A, begun, enqueue, last_batch, new_session, note, rows

AT = "2030-01-01T00:00:00.000Z"


def heard(claim: Claim, content: str | list[Block]) -> Entry:
    message = UserMessage(
        session_id=claim.lease.session_id,
        uuid=str(uuid.uuid4()),
        message=UserContent(content=content),
        timestamp=AT,
    )
    return Entry.of(message)


def said(claim: Claim, block: Block) -> Entry:
    message = AssistantMessage(
        session_id=claim.lease.session_id,
        uuid=str(uuid.uuid4()),
        message=ApiMessage(
            id="m",
            model=SYNTHETIC,
            content=[block],
            stop_reason=None,
            usage=WireUsage.of(Usage()),
        ),
        timestamp=AT,
    )
    return Entry.of(message)


async def index(database: Database) -> None:
    await database.raw.execute("UPDATE runs SET searched = 1 WHERE searched = 0")
    while await index_messages(database):
        pass


async def ended(database: Database, claim: Claim) -> None:
    await append(database, claim.lease, last_batch(claim))
    await index(database)


async def test_the_database_takes_in_the_words_that_a_hit_shows(database: Database) -> None:
    claim = await begun(database)
    result = [{"type": "text", "text": "grün"}, {"type": "image", "source": {"data": "AAAA"}}]
    given = {"command": 'echo "ein\\nwort"', "n": 1.5, "deep": {"a": [None, True, "x"]}}
    entries = (
        heard(claim, "ein Wort, noch eins"),
        heard(claim, ""),
        heard(claim, [TextBlock(text="erstes"), TextBlock(text="zweites\ndrittes")]),
        heard(claim, [ToolResultBlock(tool_use_id="t", content="a\tb 'c' \\ \"d\" \u2028 e")]),
        heard(claim, [ToolResultBlock(tool_use_id="t", content=result)]),
        heard(claim, [OtherBlock(type="document", title="unseen")]),
        heard(claim, "lang " * (MOST_CHARS // 5) + "beyond"),
        said(claim, ToolUseBlock(id="t", name="Bash", input=given)),
        said(claim, ThinkingBlock(thinking="unheard")),
        said(claim, TextBlock(text="Das ist alles.")),
    )
    await append(database, claim.lease, Batch(entries))
    await ended(database, claim)
    found = await rows(
        database,
        """SELECT j.body, s.words::text AS words FROM journal j LEFT JOIN search s
             USING (tenant_id, session_id, seq)
           WHERE session_id = $1 AND type IN ('user', 'assistant') ORDER BY seq""",
        claim.lease.session_id,
    )
    assert [row["body"] for row in found] == [entry.body.decode() for entry in entries]
    for row in found:
        text = text_of(row["body"])
        wanted = await database.raw.fetchval("SELECT to_tsvector('simple', $1::text)::text", text)
        assert row["words"] == wanted, text[:100]


async def test_a_long_run_is_taken_in_by_parts(database: Database) -> None:
    claim = await begun(database)
    for _ in range(6):
        await append(database, claim.lease, Batch(tuple(note(claim) for _ in range(200))))
    await ended(database, claim)
    count = "SELECT count(*) FROM search WHERE session_id = $1 AND seq > 0"
    assert await database.raw.fetchval(count, claim.lease.session_id) == 1200


async def test_asides_and_rows_of_other_runs_are_not_a_runs_own(database: Database) -> None:
    first = await begun(database)
    await append(database, first.lease, Batch((note(first, "eins"),)))
    await append(database, first.lease, last_batch(first))
    _, enqueued = await enqueue(database, first.lease.session_id, A)
    assert enqueued.claim is not None
    aside = note(enqueued.claim, "beiseite")
    aside = Entry(aside.message, aside.body, thread="t", is_aside=True)
    await append(database, enqueued.claim.lease, Batch((aside,)))
    await ended(database, enqueued.claim)
    found = await rows(
        database,
        "SELECT words::text FROM search WHERE session_id = $1 AND seq > 0",
        first.lease.session_id,
    )
    assert found == [{"words": "'eins':1"}]


async def test_a_run_that_no_host_began_is_taken_in_too(database: Database) -> None:
    run_id, _ = await enqueue(database, await new_session(database))
    await database.raw.execute("UPDATE runs SET status = 'finished' WHERE id = $1", run_id)
    await index(database)
    assert await database.raw.fetchval("SELECT searched FROM runs WHERE id = $1", run_id) == 2


async def test_a_message_that_cannot_be_read_is_left_out_alone(database: Database) -> None:
    claim, other = await begun(database), await begun(database)
    damaged = heard(claim, "eins\0zwei")
    await append(database, claim.lease, Batch((note(claim, "vor"), damaged, note(claim, "nach"))))
    await append(database, other.lease, Batch((note(other, "sonst"),)))
    await append(database, claim.lease, last_batch(claim))
    await ended(database, other)
    assert await _words(database) == ["'nach':1", "'sonst':1", "'vor':1"]


async def test_a_copy_with_a_message_that_cannot_be_read_is_taken_in(database: Database) -> None:
    claim = await begun(database)
    entries = (note(claim, "vor"), heard(claim, "eins\0zwei"), note(claim, "nach"))
    await append(database, claim.lease, Batch(entries))
    await database.raw.execute("UPDATE journal SET run_id = NULL")
    await database.raw.execute("UPDATE sessions SET copied_to_seq = last_seq")
    assert await index_copies(database)
    assert not await index_copies(database)
    assert await _words(database) == ["'nach':1", "'vor':1"]


async def test_what_takes_too_long_at_once_is_taken_in_by_smaller_parts(
    database: Database,
) -> None:
    for _ in range(2):
        claim = await begun(database)
        await append(database, claim.lease, Batch(tuple(note(claim) for _ in range(60))))
        await append(database, claim.lease, last_batch(claim))
    # As the server ends a statement that has used up its time.
    await database.raw.execute(
        """CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT count(*) FROM added) > 20 THEN
               RAISE EXCEPTION 'too long' USING ERRCODE = 'query_canceled';
             END IF; RETURN NULL; END $$"""
    )
    await database.raw.execute(
        """CREATE TRIGGER slow AFTER INSERT ON search REFERENCING NEW TABLE AS added
             FOR EACH STATEMENT EXECUTE FUNCTION slow()"""
    )
    await index(database)
    assert await database.raw.fetchval("SELECT count(*) FROM search WHERE seq > 0") == 120


async def _words(database: Database) -> list[str]:
    found = await rows(database, "SELECT words::text AS words FROM search WHERE seq > 0")
    return sorted(row["words"] for row in found)
