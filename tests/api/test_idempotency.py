"""Writes that are sent twice: one effect, one answer, on any number of hosts."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from app.store.idempotency import forget_old
from app.store.keys import DEFAULT_TENANT
from tests.api.stage import Stage, frames, problem, raw, scripted
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import KEY, Host, host
from tests.store.seeds import rows

SLOW = scripted({"blocks": [{"text": "late"}], "delay": 20})
REPLAYED = "idempotency-replayed"


def key() -> dict[str, str]:
    """A header with a fresh key."""
    return {"Idempotency-Key": f"key-{uuid.uuid4()}"}


def same(first: httpx.Response, second: httpx.Response) -> None:
    """The second answer is the first one's, and says so."""
    assert REPLAYED not in first.headers
    assert second.headers[REPLAYED] == "true"
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers.get("location") == first.headers.get("location")


async def count(stage: Stage, table: str, **equal: object) -> int:
    where = " AND ".join(f"{name} = ${n}" for n, name in enumerate(equal, 1)) or "true"
    found: int = await stage.host.service.database.raw.fetchval(
        f"SELECT count(*) FROM {table} WHERE {where}",  # noqa: S608 - our own names
        *equal.values(),
    )
    return found


async def busy(stage: Stage) -> tuple[str, str]:
    """A session whose run goes on for long; gives session and run."""
    answer = await stage.client.post("/v1/runs", json={"prompt": SLOW})
    return answer.json()["session"]["id"], answer.json()["run"]["id"]


async def queued(stage: Stage) -> str:
    """A run that waits."""
    session, _ = await busy(stage)
    answer = await stage.client.post(f"/v1/sessions/{session}/runs", json={"prompt": "waits"})
    run: str = answer.json()["run"]["id"]
    return run


async def asked(client: httpx.AsyncClient, path: str, **given: Any) -> httpx.Response:
    """POST; ask again, as a client does, while the first request with the key is being served."""
    async with asyncio.timeout(20):
        while True:
            answer = await client.post(path, **given)
            if answer.status_code != 409 or answer.json()["code"] != "idempotency_in_progress":
                return answer
            await asyncio.sleep(0.02)  # what `Retry-After` says would do too


# -- one host ---------------------------------------------------------------------------------


async def test_each_kind_of_write_is_answered_alike_when_it_is_repeated(stage: Stage) -> None:
    session, running = await busy(stage)
    waiting = await queued(stage)
    idle = (await stage.run())["session_id"]
    spoken = (await stage.client.get(f"/v1/sessions/{idle}/messages")).json()["data"][1]["uuid"]
    for method, path, body in (
        ("POST", "/v1/runs", {"prompt": "x"}),
        ("POST", "/v1/sessions", {"title": "t"}),
        ("POST", "/v1/sessions", {"run": {"prompt": "x"}}),
        ("POST", f"/v1/sessions/{session}/runs", {"prompt": "x"}),
        ("POST", f"/v1/sessions/{idle}/fork", {"title": "f"}),
        ("POST", f"/v1/sessions/{idle}/fork", None),
        ("PATCH", f"/v1/sessions/{idle}", {"title": "other"}),
        ("POST", f"/v1/sessions/{idle}/rewind", {"at_message": spoken}),
        ("POST", f"/v1/sessions/{idle}/archive", None),
        ("POST", f"/v1/sessions/{idle}/unarchive", None),
        ("PATCH", f"/v1/runs/{waiting}", {"priority": 3}),
        ("DELETE", f"/v1/runs/{waiting}", None),
        ("POST", f"/v1/runs/{running}/cancel", {"reason": "r"}),
        ("POST", "/v1/runs/cancel", {"session_id": session}),
    ):
        headers = key()
        first = await stage.client.request(method, path, json=body, headers=headers)
        assert first.status_code < 300, first.text
        same(first, await stage.client.request(method, path, json=body, headers=headers))
        same(first, await stage.client.request(method, path, json=body, headers=headers))


async def test_a_repeated_start_makes_one_session_one_run_and_one_execution(stage: Stage) -> None:
    headers = key()
    words = f"once {uuid.uuid4()}"
    answers = [
        await stage.client.post("/v1/runs", json={"prompt": words}, headers=headers)
        for _ in range(4)
    ]
    run = answers[0].json()["run"]
    for answer in answers[1:]:
        same(answers[0], answer)
    assert await count(stage, "runs", session_id=run["session_id"]) == 1
    assert await count(stage, "inbox", preview=words) == 1
    done = await stage.client.get(f"/v1/runs/{run['id']}", params={"wait": 20})
    assert done.json()["status"] == "finished"
    asked = [body for body in stage.model.bodies() if words in str(body)]
    assert len(asked) == 1


@pytest.mark.parametrize(
    "other",
    [
        ("POST", "/v1/runs", {"prompt": "y"}),
        ("POST", "/v1/runs", {"prompt": "x", "metadata": {"k": "v"}}),
        ("POST", "/v1/runs/none/cancel?wait=1", {"reason": "x"}),
        ("POST", "/v1/sessions", {"title": "x"}),
    ],
)
async def test_the_key_of_another_request_is_422_and_does_nothing(
    stage: Stage, other: tuple[str, str, dict[str, Any]]
) -> None:
    headers = key()
    assert (
        await stage.client.post("/v1/runs", json={"prompt": "x"}, headers=headers)
    ).status_code == 202
    before = await count(stage, "sessions")
    method, path, body = other
    answer = await stage.client.request(method, path, json=body, headers=headers)
    problem(answer, 422, "idempotency_mismatch")
    assert answer.headers["x-should-retry"] == "false"
    assert await count(stage, "sessions") == before


async def test_the_same_body_in_another_order_is_the_same_request(stage: Stage) -> None:
    headers = key() | {"content-type": "application/json"}
    first = await stage.client.post(
        "/v1/runs", content=b'{"prompt":"x","metadata":{"a":"1","b":"2"}}', headers=headers
    )
    second = await stage.client.post(
        "/v1/runs", content=b'{"metadata": {"b":"2", "a":"1"}, "prompt": "x"}', headers=headers
    )
    same(first, second)


async def test_a_refused_write_keeps_nothing_so_that_its_key_works_later(stage: Stage) -> None:
    session, run = await busy(stage)
    path, body, headers = (
        f"/v1/sessions/{session}/runs",
        {"prompt": "x", "on_busy": "reject"},
        key(),
    )
    problem(await stage.client.post(path, json=body, headers=headers), 409, "session_busy")
    problem(await stage.client.post(path, json=body, headers=headers), 409, "session_busy")
    await stage.client.post(f"/v1/runs/{run}/cancel", params={"wait": 20})
    accepted = await stage.client.post(path, json=body, headers=headers)
    assert accepted.status_code == 202
    assert REPLAYED not in accepted.headers
    for bad, status in (({"prompt": ""}, 422), ({"prompt": "x", "nope": 1}, 422)):
        headers = key()
        answer = await stage.client.post("/v1/runs", json=bad, headers=headers)
        assert answer.status_code == status
        good = await stage.client.post("/v1/runs", json={"prompt": "x"}, headers=headers)
        assert (good.status_code, REPLAYED in good.headers) == (202, False)
    headers = key()
    gone = f"/v1/sessions/{uuid.uuid4()}/runs"
    problem(await stage.client.post(gone, json={"prompt": "x"}, headers=headers), 404, "not_found")
    taken = {"id": session}
    problem(await stage.client.post("/v1/sessions", json=taken, headers=headers), 409, "id_taken")
    problem(
        await stage.client.post(
            "/v1/runs", json={"prompt": "x", "session": taken}, headers=headers
        ),
        409,
        "id_taken",
    )
    assert (await stage.client.post("/v1/sessions", json={}, headers=headers)).status_code == 201


@pytest.mark.parametrize(
    "given", [b"", b"k" * 256, b"a b", "k\u00e9y".encode(), b"a\tb", b"\xff"], ids=repr
)
async def test_a_key_that_is_none_is_400(stage: Stage, given: bytes) -> None:
    before = await count(stage, "runs")
    for method, path in (("POST", "/v1/runs"), ("DELETE", f"/v1/runs/{uuid.uuid4()}")):
        body = {"prompt": "x"} if method == "POST" else None
        answer = await stage.client.request(
            method, path, json=body, headers=[(b"Idempotency-Key", given)]
        )
        problem(answer, 400, "invalid_request")
    assert await count(stage, "runs") == before


async def test_two_keys_are_400_and_the_longest_one_works(stage: Stage) -> None:
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = await stage.client.post("/v1/runs", json={"prompt": "x"}, headers=twice)
    problem(answer, 400, "invalid_request")
    longest = {"Idempotency-Key": uuid.uuid4().hex + "~" * (255 - 32)}
    first = await stage.client.post("/v1/runs", json={"prompt": "x"}, headers=longest)
    same(first, await stage.client.post("/v1/runs", json={"prompt": "x"}, headers=longest))


async def test_a_repeated_request_for_a_stream_streams_the_same_run_from_its_start(
    stage: Stage,
) -> None:
    headers, body = key(), {"prompt": "x", "stream": True}
    read: list[list[str | None]] = []
    runs: set[str] = set()
    for expected in (None, "true"):
        async with stage.client.stream("POST", "/v1/runs", json=body, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers.get(REPLAYED) == expected
            runs.add(answer.headers["x-run-id"])
            read.append([f.data async for f in frames(answer) if f.event in {"message", "service"}])
    assert len(runs) == 1
    assert read[0] == read[1]
    assert "run.queued" in str(read[1][0])
    accepts = headers | {"accept": "text/event-stream"}
    async with stage.client.stream("POST", "/v1/runs", json=body, headers=accepts) as answer:
        assert answer.headers["x-run-id"] in runs


async def test_a_repeated_request_that_waits_waits_for_the_same_run(stage: Stage) -> None:
    slow = scripted({"blocks": [{"text": "late"}], "delay": 1.5})
    headers, body = key(), {"prompt": slow, "wait": 1}
    first = await stage.client.post("/v1/runs", json=body, headers=headers)
    assert (first.status_code, first.json()["run"]["status"]) == (202, "running")
    second = await stage.client.post("/v1/runs", json=body, headers=headers)
    assert (second.status_code, second.json()["run"]["status"]) == (200, "finished")
    assert second.headers[REPLAYED] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert second.json()["run"]["id"] == first.json()["run"]["id"]


async def test_a_repeated_cancel_tells_how_the_first_one_ended(stage: Stage) -> None:
    _, run = await busy(stage)
    headers, path = key(), f"/v1/runs/{run}/cancel"
    first = await stage.client.post(path, params={"wait": 0}, headers=headers)
    assert (first.status_code, first.json()["status"]) == (202, "cancelling")
    second = await stage.client.post(path, params={"wait": 0}, headers=headers)
    assert second.headers[REPLAYED] == "true"
    await stage.client.get(f"/v1/runs/{run}", params={"wait": 20})
    third = await stage.client.post(path, params={"wait": 0}, headers=headers)
    assert (third.status_code, third.json()["status"]) == (200, "finished")
    assert third.json()["already_finished"] is False


async def test_the_keys_of_two_tenants_have_nothing_to_do_with_each_other(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    headers = key()
    ours = await stage.client.post("/v1/runs", json={"prompt": "x"}, headers=headers)
    theirs = await stranger.post("/v1/runs", json={"prompt": "x"}, headers=headers)
    other = await stranger.post("/v1/sessions", json={}, headers=headers)
    assert (ours.status_code, theirs.status_code) == (202, 202)
    assert REPLAYED not in theirs.headers
    assert ours.json()["run"]["id"] != theirs.json()["run"]["id"]
    problem(other, 422, "idempotency_mismatch")


async def test_a_key_is_free_again_after_a_day_and_forgotten(stage: Stage) -> None:
    database = stage.host.service.database
    headers = key()
    first = await stage.client.post("/v1/sessions", json={}, headers=headers)
    given = headers["Idempotency-Key"]
    aged = "UPDATE idempotency SET created_at = created_at - interval '24 hours 1 s' WHERE key = $1"
    await database.raw.execute(aged, given)
    second = await stage.client.post("/v1/sessions", json={"title": "new"}, headers=headers)
    assert second.json()["id"] != first.json()["id"]
    await forget_old(database)
    assert await count(stage, "idempotency", key=given) == 1
    await database.raw.execute(aged, given)
    await forget_old(database)
    assert await count(stage, "idempotency", key=given) == 0


async def test_a_request_whose_answer_was_lost_has_its_effect_once(stage: Stage) -> None:
    for _ in range(10):
        given = uuid.uuid4().hex
        words = f"lost {given}"
        body = b'{"prompt":"' + words.encode() + b'"}'
        head = b"POST /v1/runs HTTP/1.1\r\nhost: x\r\nx-api-key: " + KEY.encode()
        head += b"\r\nidempotency-key: " + given.encode()
        head += b"\r\ncontent-length: " + str(len(body)).encode()
        _, writer = await asyncio.open_connection(
            stage.base_url.split(":")[1].strip("/"), int(stage.base_url.split(":")[2])
        )
        writer.write(head + b"\r\n\r\n" + body)
        await writer.drain()
        writer.close()
        status = 409
        async with asyncio.timeout(20):
            while status == 409:  # the first one may be on its way still
                status, _ = await raw(stage.base_url, head + b"\r\n\r\n" + body)
        assert status == 202
        assert await count(stage, "inbox", preview=words) == 1


@pytest.mark.requirement("api:idempotency-in-progress")
async def test_a_repetition_is_told_to_come_back_while_the_first_request_is_served(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    headers = key()
    held = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
    async with (
        stage.host.service.database.raw.acquire() as connection,
        connection.transaction(),
    ):
        # as the transaction of the first request does
        await connection.execute(held, f"{DEFAULT_TENANT} {headers['Idempotency-Key']}")
        answer = await stage.client.post("/v1/sessions", json={}, headers=headers)
        problem(answer, 409, "idempotency_in_progress")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["x-should-retry"] == "true"
        theirs = await stranger.post("/v1/sessions", json={}, headers=headers)
        assert theirs.status_code == 201
    first = await stage.client.post("/v1/sessions", json={}, headers=headers)
    assert (first.status_code, REPLAYED in first.headers) == (201, False)
    same(first, await stage.client.post("/v1/sessions", json={}, headers=headers))


@pytest.mark.requirement("api:idempotency-in-progress")
async def test_a_replay_does_not_wait_for_another_replay(stage: Stage) -> None:
    headers = key()
    first = await stage.client.post("/v1/sessions", json={}, headers=headers)
    again = await asyncio.gather(
        *(stage.client.post("/v1/sessions", json={}, headers=headers) for _ in range(8))
    )
    for answer in again:
        same(first, answer)


# -- two hosts --------------------------------------------------------------------------------


@pytest.fixture
async def hosts(make_settings: MakeSettings) -> AsyncIterator[tuple[Host, Host]]:
    """Two hosts on one database."""
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(host(make_settings())),
            await stack.enter_async_context(host(make_settings())),
        )


async def test_the_same_key_at_the_same_instant_on_two_hosts_makes_one_run(
    hosts: tuple[Host, Host], messages_api: MessagesApi
) -> None:
    a, b = hosts
    session = (await a.client.post("/v1/sessions", json={})).json()["id"]
    runs: list[str] = []
    for n in range(20):
        path = "/v1/runs" if n % 2 else f"/v1/sessions/{session}/runs"
        headers, body = key(), {"prompt": f"race {n}"}
        answers = await asyncio.gather(
            *(asked(one.client, path, json=body, headers=headers) for one in (a, b, a, b))
        )
        assert [answer.status_code for answer in answers] == [202] * 4
        assert len({answer.content for answer in answers}) == 1
        assert sum(REPLAYED not in answer.headers for answer in answers) == 1
        runs.append(answers[0].json()["run"]["id"])
    for run in runs:
        done = await b.client.get(f"/v1/runs/{run}", params={"wait": 20})
        assert (done.json()["status"], done.json()["attempt"]) == ("finished", 1)
    found = await rows(a.service.database, "SELECT id FROM runs")
    assert sorted(row["id"] for row in found) == sorted(runs)
    assert len(messages_api.requests) == 20


async def test_two_bodies_with_one_key_at_the_same_instant_make_one_run(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    for n in range(10):
        headers = key()
        answers = await asyncio.gather(
            asked(a.client, "/v1/runs", json={"prompt": f"left {n}"}, headers=headers),
            asked(b.client, "/v1/runs", json={"prompt": f"right {n}"}, headers=headers),
        )
        assert sorted(answer.status_code for answer in answers) == [202, 422]
        (refused,) = (answer for answer in answers if answer.status_code == 422)
        problem(refused, 422, "idempotency_mismatch")
    assert len(await rows(a.service.database, "SELECT id FROM runs")) == 10


async def test_a_key_whose_first_request_fails_serves_the_second_at_the_same_instant(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    session = (await a.client.post("/v1/sessions", json={})).json()["id"]
    for _ in range(5):
        headers = key()
        answers = await asyncio.gather(
            *(
                asked(one.client, "/v1/sessions", json={"id": session}, headers=headers)
                for one in (a, b)
            )
        )
        for answer in answers:
            problem(answer, 409, "id_taken")
        good = await b.client.post("/v1/sessions", json={}, headers=headers)
        assert (good.status_code, REPLAYED in good.headers) == (201, False)


async def test_a_steer_that_is_repeated_on_another_host_is_sent_in_once(
    hosts: tuple[Host, Host],
) -> None:
    a, b = hosts
    started = (await a.client.post("/v1/runs", json={"prompt": SLOW})).json()
    path = f"/v1/sessions/{started['session']['id']}/runs"
    headers, body = key(), {"prompt": "also", "on_busy": "steer"}
    answers = await asyncio.gather(
        *(asked(one.client, path, json=body, headers=headers) for one in (a, b, b, a))
    )
    assert {answer.json()["steered_into"] for answer in answers} == {started["run"]["id"]}
    assert sum(REPLAYED not in answer.headers for answer in answers) == 1
    found = await rows(a.service.database, "SELECT id FROM inbox WHERE is_steer")
    assert len(found) == 1
    await b.client.post(f"/v1/runs/{started['run']['id']}/cancel")
