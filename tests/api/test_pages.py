"""Lists come in pages: no gap, nothing twice, and cursors that fit one list only."""

import base64
import secrets
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import httpx
import orjson
import pytest

from tests.api.stage import Stage, pointers, problem, scripted


@pytest.fixture
async def tenant(stage: Stage) -> AsyncIterator[httpx.AsyncClient]:
    """A tenant with eleven sessions of one run each."""
    _, key = await stage.tenant(f"pages-{secrets.token_hex(4)}")
    async with httpx.AsyncClient(
        base_url=stage.base_url, headers={"x-api-key": key}, timeout=30, trust_env=False
    ) as client:
        for n in range(11):
            answer = await client.post(
                "/v1/runs", json={"prompt": "x", "session": {"title": f"{n}"}}
            )
            assert answer.status_code == 202
        yield client


def all_of(found: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(found))


async def pages(client: httpx.AsyncClient, path: str, **params: Any) -> list[list[str]]:
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        given = params | ({"cursor": cursor} if cursor else {})
        page = (await client.get(path, params=given)).json()
        found.append([item["id"] for item in page["data"]])
        cursor = page["next_cursor"]
        assert page["has_more"] is (cursor is not None)
        if cursor is None:
            return found


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/runs?statuses=queued", "statuses"),
        ("/v1/runs?metadata[a]=1", "metadata[a]"),
        ("/v1/sessions?limit=1&usr=me", "usr"),
        ("/v1/sessions/none/events?afer=3", "afer"),
        ("/v1/runs/none?Wait=1", "Wait"),
    ],
)
async def test_a_parameter_that_there_is_not_is_refused_by_name(
    stage: Stage, path: str, name: str
) -> None:
    assert pointers(problem(await stage.client.get(path), 422, "validation_failed")) == [name]


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/runs"])
async def test_pages_hold_every_item_once_in_either_order(
    tenant: httpx.AsyncClient, path: str
) -> None:
    up = await pages(tenant, path, limit=2, order="asc")
    down = await pages(tenant, path, limit=2, order="desc")
    assert [len(page) for page in up] == [2, 2, 2, 2, 2, 1]
    assert all_of(up) == all_of(down)[::-1]
    assert len(set(all_of(up))) == 11
    assert await pages(tenant, path, limit=11, order="asc") == [all_of(up)]
    assert await pages(tenant, path) == [all_of(down)]


async def test_items_that_come_while_one_pages_do_not_disturb(tenant: httpx.AsyncClient) -> None:
    whole = all_of(await pages(tenant, "/v1/sessions"))
    first = (await tenant.get("/v1/sessions", params={"limit": 5})).json()
    await tenant.post("/v1/sessions", json={})
    rest = await tenant.get("/v1/sessions", params={"cursor": first["next_cursor"], "limit": 200})
    assert [s["id"] for s in first["data"] + rest.json()["data"]] == whole


async def test_runs_of_a_session_come_in_pages_too(stage: Stage) -> None:
    session = await stage.session()
    path = f"/v1/sessions/{session['id']}/runs"
    started = [(await stage.client.post(path, json={"prompt": "x"})).json() for _ in range(5)]
    ids = [answer["run"]["id"] for answer in started]
    assert all_of(await pages(stage.client, path, limit=2, order="asc")) == ids
    filtered = await pages(stage.client, "/v1/runs", limit=2, session_id=session["id"])
    assert all_of(filtered) == ids[::-1]


async def test_filters_hold_over_pages(tenant: httpx.AsyncClient) -> None:
    both = await pages(tenant, "/v1/runs", limit=4, status=["queued", "running", "finished"])
    assert len(set(all_of(both))) == 11
    assert await pages(tenant, "/v1/runs", result_subtype="error_max_turns") == [[]]


@pytest.mark.parametrize("limit", ["0", "-1", "201", "x", "1.5", ""])
async def test_a_limit_out_of_bounds_is_422(stage: Stage, limit: str) -> None:
    for path in ("/v1/runs", "/v1/sessions"):
        found = problem(
            await stage.client.get(path, params={"limit": limit}), 422, "validation_failed"
        )
        assert pointers(found) == ["limit"]


def packed(*values: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "=",
        "\u00e9",
        "a" * 5_000,
        packed(),
        packed("2026-01-01T00:00:00+00:00", "id"),
        packed("2026-01-01T00:00:00+00:00", "id", "tag"),
        packed("never", "id", "tag"),
        packed(5, "id", "tag"),
        packed(None, None, None),
        packed("0001-01-01T00:00:00+23:59", "id", "tag"),
        base64.urlsafe_b64encode(b"[" * 3_000).decode(),
        base64.urlsafe_b64encode(b'{"a": 1, "b": 2, "c": 3}').decode(),
    ],
)
async def test_a_made_up_cursor_is_400(stage: Stage, cursor: str) -> None:
    for path in ("/v1/runs", "/v1/sessions"):
        problem(await stage.client.get(path, params={"cursor": cursor}), 400, "cursor_invalid")


async def test_a_cursor_fits_its_list_alone(tenant: httpx.AsyncClient) -> None:
    page = await tenant.get("/v1/runs", params={"limit": 1, "status": "finished", "order": "asc"})
    if not (cursor := page.json()["next_cursor"]):
        page = await tenant.get("/v1/runs", params={"limit": 1, "order": "asc"})
        cursor = page.json()["next_cursor"]
    for path, params in (
        ("/v1/runs", {"order": "desc", "status": "finished"}),
        ("/v1/runs", {"order": "asc", "status": "queued"}),
        ("/v1/runs", {"order": "asc", "session_id": "x"}),
        ("/v1/runs", {"order": "asc", "result_subtype": "success"}),
        ("/v1/sessions", {"order": "asc"}),
    ):
        answer = await tenant.get(path, params={**params, "cursor": cursor})
        problem(answer, 400, "cursor_invalid")


async def test_a_tampered_cursor_reaches_no_query(tenant: httpx.AsyncClient) -> None:
    cursor = (await tenant.get("/v1/runs", params={"limit": 1})).json()["next_cursor"]
    at, item, tag = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    for forged in (
        packed(at, "\0", tag),
        packed(at, "\u00e9", tag),
        packed("9999-12-31T23:59:59-23:59", item, tag),
        packed(at[:5], item, tag),
    ):
        problem(await tenant.get("/v1/runs", params={"cursor": forged}), 400, "cursor_invalid")
    naive = await tenant.get("/v1/runs", params={"cursor": packed(at[:19], item, tag)})
    assert naive.status_code == 200


@pytest.mark.parametrize(
    ("name", "value"), [("status", "done"), ("result_subtype", "fine"), ("order", "up")]
)
async def test_a_filter_that_cannot_match_is_422_and_not_an_empty_page(
    stage: Stage, name: str, value: str
) -> None:
    problem(await stage.client.get("/v1/runs", params={name: value}), 422, "validation_failed")


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/runs"])
async def test_lists_are_bounded_by_the_time_at_which_things_were_made(
    tenant: httpx.AsyncClient, path: str
) -> None:
    everything = (await tenant.get(path, params={"order": "asc"})).json()["data"]
    ids = [item["id"] for item in everything]
    times = [item["created_at"] for item in everything]
    first = times.index(times[5])  # times are shown in milliseconds: some may look alike
    after = all_of(await pages(tenant, path, created_after=times[5], order="asc", limit=3))
    before = all_of(await pages(tenant, path, created_before=times[5], order="asc", limit=3))
    assert (before, after) == (ids[:first], ids[first:])
    both = {"created_after": times[5], "created_before": times[5]}
    assert all_of(await pages(tenant, path, **both)) == []
    elsewhere = times[5].replace("Z", "+00:00")
    same = await pages(tenant, path, created_after=elsewhere, order="asc", limit=3)
    assert all_of(same) == after
    for wrong in ("yesterday", "2026-11-30T12:00:00", "0001-01-01T00:00:00+23:59"):
        answer = await tenant.get(path, params={"created_after": wrong})
        assert pointers(problem(answer, 422, "validation_failed")) == ["created_after"]
    page = (await tenant.get(path, params={"created_after": times[0], "limit": 1})).json()
    other = {"cursor": page["next_cursor"], "created_after": times[1]}
    problem(await tenant.get(path, params=other), 400, "cursor_invalid")


async def test_runs_are_found_by_how_they_ended_and_for_whom(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    user = f"user-{secrets.token_hex(4)}"

    async def run(client: httpx.AsyncClient, prompt: str, **body: Any) -> str:
        sent = {"prompt": prompt, "wait": 20, "session": {"user": user}, **body}
        return str((await client.post("/v1/runs", json=sent)).json()["run"]["id"])

    look = {"tool": "Glob", "input": {"pattern": "*"}}
    good = await run(stage.client, scripted({"text": "ok"}))
    limited = await run(stage.client, scripted(look, look), options={"max_turns": 1})
    refused = await run(
        stage.client, scripted({"blocks": [{"text": "no"}], "stop_reason": "refusal"})
    )
    await run(stranger, scripted({"text": "ok"}))

    async def found(**query: Any) -> list[str]:
        return all_of(await pages(stage.client, "/v1/runs", user=user, order="asc", **query))

    assert await found() == [good, limited, refused]
    assert await found(end_reason="refusal") == [refused]
    assert await found(end_reason=["completed", "max_turns"], limit=1) == [good, limited]
    assert await found(end_reason="max_turns", result_subtype="success") == []
    answer = await stage.client.get("/v1/runs", params={"end_reason": "bored"})
    assert pointers(problem(answer, 422, "validation_failed")) == ["end_reason.0"]
