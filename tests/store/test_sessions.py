"""Sessions and keys as the tables have them."""

import uuid
from decimal import Decimal

import orjson
import pytest

from app.domain.journal import Batch
from app.domain.usage import LedgerRow, Usage
from app.errors import IdTaken
from app.store import claims, journal
from app.store.append import append
from app.store.engine import Database
from app.store.forking import fork_session
from app.store.keys import (
    create_key,
    ensure_bootstrap_key,
    ensure_tenant,
    find_caller,
    list_keys,
    revoke_key,
)
from app.store.keyset import Keyset
from app.store.ledger import spend_json, spend_of, spends
from app.store.runs import RunRow, find_run
from app.store.session_lists import list_sessions
from app.store.sessions import NewSession, SessionRow, create_session, find_session
from tests.store.seeds import DYING, TENANT, begun, dump, enqueue, last_batch, new_session, note


async def session_of(database: Database, session_id: str, tenant: str = TENANT) -> SessionRow:
    async with database.connect() as connection:
        row = await find_session(connection, tenant, session_id)
    assert row is not None
    return row


async def run_of(database: Database, run_id: str) -> RunRow:
    async with database.connect() as connection:
        row = await find_run(connection, TENANT, run_id)
    assert row is not None
    return row


async def test_a_session_is_busy_only_while_a_live_lease_is_held(database: Database) -> None:
    session_id = await new_session(database)
    assert not (await session_of(database, session_id)).is_running
    run_id, _ = await enqueue(database, session_id, DYING)
    assert not (await session_of(database, session_id)).is_running
    claim = await claims.claim(database, DYING)
    assert claim is not None
    _, enqueued = await enqueue(database, session_id)
    assert enqueued.claim is None
    await database.raw.execute("UPDATE sessions SET lease_expires_at = now() + interval '9 s'")
    row = await session_of(database, session_id)
    assert (row.is_running, row.active_run_id, row.queued_runs) == (True, run_id, 1)
    await append(database, claim.lease, last_batch(claim))
    row = await session_of(database, session_id)
    assert (row.is_running, row.active_run_id, row.queued_runs) == (False, None, 1)


async def test_queued_runs_know_their_place(database: Database) -> None:
    claim = await begun(database)
    waiting = [(await enqueue(database, claim.lease.session_id))[0] for _ in range(2)]
    places = [(await run_of(database, run_id)).queue_position for run_id in waiting]
    assert places == [1, 2]
    assert (await run_of(database, claim.lease.run_id)).queue_position is None


async def test_the_same_id_is_two_sessions_in_two_tenants(database: Database) -> None:
    async with database.begin() as connection:
        await ensure_tenant(connection, "other", allow_bypass=False)
    session_id = str(uuid.uuid4())
    for tenant in (TENANT, "other"):
        async with database.begin() as connection:
            new = NewSession(session_id, tenant, {}, {}, {}, '{"type":"session.created"}')
            await create_session(connection, tenant, new)
    assert (await session_of(database, session_id, "other")).title == "other"
    assert (await session_of(database, session_id)).title == TENANT
    with pytest.raises(IdTaken):
        async with database.begin() as connection:
            await create_session(connection, TENANT, new)


async def test_a_fork_speaks_of_itself_and_leaves_its_parent_alone(database: Database) -> None:
    claim = await begun(database)
    parent = claim.lease.session_id
    quoting = f'it says "session_id":"{parent}"'
    entries = (note(claim, "one", {"tool": {"cwd": "/workspace/a"}}), note(claim, quoting))
    spent = (LedgerRow("m", Usage(5), Decimal("0.25")),)
    given = await append(database, claim.lease, Batch(entries, spent))
    await append(database, claim.lease, last_batch(claim))
    before = await dump(database)
    new = NewSession(str(uuid.uuid4()), "copy", {}, {}, {}, '{"type":"session.created"}')
    spend, _ = await spends(database, TENANT, parent, "")
    async with database.begin() as connection:
        await fork_session(
            connection,
            TENANT,
            parent,
            new,
            up_to_seq=given[-1].seq,
            inherited=spend_json(spend),
            forked_body='{"type":"session.forked"}',
        )
    copies = await journal.read(database, TENANT, new.id)
    assert [(row.seq, row.type, row.run_id) for row in copies] == [
        (1, "session.created", None),
        (2, "user", None),
        (3, "user", None),
        (4, "session.forked", None),
    ]
    copied = [orjson.loads(row.body) for row in copies[1:3]]
    assert [message["session_id"] for message in copied] == [new.id, new.id]
    assert copied[1]["message"]["content"][0]["text"] == quoting
    facts = [facts async for _, _, facts in journal.history(database, TENANT, new.id)]
    assert facts == ['{"tool":{"cwd":"/workspace/a"}}', None]
    row = await session_of(database, new.id)
    assert (row.last_seq, row.parent_id, row.cost_usd) == (4, parent, Decimal(0))
    assert spend_of(row.inherited).cost_usd == Decimal("0.25")
    after = await dump(database)
    for table, kept in before.items():
        assert [each for each in after[table] if each in kept] == kept


async def test_pages_of_sessions_neither_repeat_nor_skip(database: Database) -> None:
    ids = [await new_session(database) for _ in range(7)]
    for is_descending, order in ((False, ids), (True, ids[::-1])):
        found: list[str] = []
        after = None
        while page := await list_sessions(
            database, TENANT, Keyset(3, after, is_descending=is_descending)
        ):
            found += [row.id for row in page]
            after = (page[-1].created_at, page[-1].id)
        assert found == order
    assert not await list_sessions(database, "other", Keyset(9, is_descending=True))


async def test_a_key_works_until_it_is_revoked_and_is_nowhere_in_the_tables(
    database: Database,
) -> None:
    async with database.begin() as connection:
        key_id, key = await create_key(connection, TENANT, "laptop")
    found = await find_caller(database, key)
    assert found is not None
    assert (found.tenant_id, found.key_id, found.allow_bypass) == (TENANT, key_id, False)
    _, _, secret = key.split("_", 2)  # it may have such lines itself
    for wrong in (key[:-1], f"{key}x", key.replace(secret, "x" * len(secret)), key_id, ""):
        assert await find_caller(database, wrong) is None
    stored = str(await database.raw.fetch("SELECT * FROM api_keys"))
    assert key_id in stored
    assert secret not in stored
    for _ in range(2):
        async with database.begin() as connection:
            assert await revoke_key(connection, TENANT, key_id)
        assert await find_caller(database, key) is None
    async with database.begin() as connection:
        assert not await revoke_key(connection, "other", key_id)
    assert [(k.id, k.revoked_at is None) for k in await list_keys(database, TENANT)] == [
        (key_id, False)
    ]


async def test_the_operators_own_key_is_made_once(database: Database) -> None:
    key = "b" * 40
    for _ in range(2):
        async with database.begin() as connection:
            await ensure_bootstrap_key(connection, TENANT, key)
    assert await find_caller(database, key) is not None
    assert len(await list_keys(database, TENANT)) == 1
