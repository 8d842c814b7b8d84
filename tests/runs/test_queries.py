"""Reads: waiting for an end, and following a run whose row was read a moment ago."""

import asyncio
from contextlib import aclosing

import orjson

from app.domain.messages import parse_message
from app.runs.items import End, Framed
from app.store.engine import Database
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import TENANT, rows


async def test_a_run_that_ended_after_it_was_read_gives_its_end_at_once(service: Host) -> None:
    queries = service.service.queries
    run = await start(service.client, scripted({"text": "done", "delay": 0.3}))
    stale = await queries.run(TENANT, run["id"])
    assert stale.status == "running"
    await finished(service.client, run["id"])
    session = await queries.session(TENANT, run["session_id"])
    async with (
        asyncio.timeout(15),
        aclosing(queries.follow_run(TENANT, stale, after=session.last_seq)) as lists,
    ):
        assert [items async for items in lists] == [[End("run_finished")]]
    async with (
        asyncio.timeout(15),
        aclosing(queries.follow_run(TENANT, stale, after=session.last_seq - 1)) as lists,
    ):
        items = [item async for found in lists for item in found]
    assert [item.row.type for item in items if isinstance(item, Framed)] == ["run.finished"]
    assert items[-1] == End("run_finished")


async def test_who_waits_for_a_run_gets_it_when_it_ends_or_as_it_is_when_time_is_up(
    service: Host, messages_api: MessagesApi
) -> None:
    run = await start(service.client, scripted({"text": "done", "stall": 3}))
    await messages_api.until(lambda: len(messages_api.requests) == 1)
    answer = await service.client.get(f"/v1/runs/{run['id']}", params={"wait": 1})
    assert answer.json()["status"] == "running"
    waiting = asyncio.ensure_future(
        service.client.get(f"/v1/runs/{run['id']}", params={"wait": 20})
    )
    await service.client.post(f"/v1/runs/{run['id']}/cancel")
    async with asyncio.timeout(15):
        assert (await waiting).json()["end_reason"] == "cancelled"


async def test_a_long_session_is_replayed_page_by_page_without_a_hole(
    service: Host, database: Database
) -> None:
    session_id = (await service.client.post("/v1/sessions", json={})).json()["id"]
    await database.raw.execute(
        "WITH s AS (UPDATE sessions SET last_seq = 1301 WHERE id = $1 RETURNING tenant_id)"
        " INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)"
        """ SELECT tenant_id, $1, n, 'message', 'user', '{"n":' || n || '}' """
        " FROM s, generate_series(2, 1301) n",
        session_id,
    )
    seqs: list[int] = []
    async with (
        asyncio.timeout(10),
        aclosing(service.service.queries.follow_session(TENANT, session_id, after=0)) as lists,
    ):
        async for items in lists:
            seqs += [item.row.seq for item in items if isinstance(item, Framed)]
            if seqs[-1] == 1301:
                break
    assert seqs == list(range(1, 1302))


async def test_nothing_that_clients_cannot_read_gets_into_the_journal(
    service: Host, database: Database
) -> None:
    damaged = "nul \0 and lone \ud800 and \udfff"
    write = {"tool": "Write", "input": {"file_path": "/workspace/a", "content": damaged}}
    run = await start(
        service.client,
        scripted({"blocks": [{"text": damaged}, write]}, {"text": damaged}),
        allowed_tools=["Write"],
    )
    ended = await finished(service.client, run["id"])
    assert ended["result_subtype"] == "success"
    made_here = """SELECT kind, body FROM journal WHERE body NOT LIKE '%"isReplay":true%'"""
    for row in await rows(database, made_here):
        assert "\\u0000" not in row["body"]
        assert "\\ud8" not in row["body"].lower()
        if row["kind"] == "message":
            parse_message(row["body"])
    texts = [
        block["text"]
        for message in await messages(service.client, run["session_id"])
        if message["type"] == "assistant"
        for block in message["message"]["content"]
        if block["type"] == "text"
    ]
    assert texts == ["nul \u2400 and lone \ufffd and \ufffd"] * 2


async def test_an_answer_is_the_exact_json_that_readers_got(
    service: Host, database: Database
) -> None:
    run = await start(service.client, scripted({"text": "done"}))
    await finished(service.client, run["id"])
    (stored,) = await rows(database, "SELECT body FROM journal WHERE type = 'result'")
    answer = await service.client.get(f"/v1/runs/{run['id']}/result")
    assert answer.text == stored["body"]
    page = await service.client.get(f"/v1/sessions/{run['session_id']}/messages")
    assert stored["body"] in page.text
    assert orjson.loads(page.content)["data"][-1] == orjson.loads(stored["body"])
