"""What one tenant has, another one cannot even tell from what nobody has."""

from typing import Any

import httpx
import pytest

from app.main import openapi_document
from tests.api.stage import RANDOM_RUN, RANDOM_SESSION, Stage, problem

WITH_ID = [
    (method.upper(), path)
    for path, operations in openapi_document()["paths"].items()
    for method in operations
    if "{session_id}" in path or "{run_id}" in path
]
BODIES = {
    "runs": {"prompt": "x"},
    "rewind": {"at_message": RANDOM_SESSION},
    "control": {"subtype": "interrupt"},
}
"""What is needed to be understood at all."""


@pytest.mark.parametrize(("method", "path"), WITH_ID, ids=[f"{m} {p}" for m, p in WITH_ID])
async def test_the_id_of_another_tenant_answers_as_one_that_nobody_has(
    stage: Stage, stranger: httpx.AsyncClient, method: str, path: str
) -> None:
    run = await stage.run()
    before = (await stage.client.get(f"/v1/sessions/{run['session_id']}")).json()
    message = (await stage.client.get(f"/v1/sessions/{run['session_id']}/messages")).json()["data"][
        0
    ]
    more = {"uuid": message["uuid"], "tool_use_id": "toolu_1"}
    theirs = path.format(session_id=run["session_id"], run_id=run["id"], **more)
    nobodys = path.format(session_id=RANDOM_SESSION, run_id=RANDOM_RUN, **more)

    async def shown(where: str) -> dict[str, Any]:
        for headers in ({}, {"last-event-id": "1"}):
            body = BODIES.get(path.rpartition("/")[2]) if method == "POST" else None
            answer = await stranger.request(method, where, json=body, headers=headers)
            found = problem(answer, 404, "not_found")
        return found | {"request_id": "", "instance": ""}

    assert await shown(theirs) == await shown(nobodys)
    assert (await stage.client.get(f"/v1/sessions/{run['session_id']}")).json() == before


async def test_a_stranger_lists_nothing_of_ours_whatever_the_filter(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    run = await stage.run()
    for path in ("/v1/runs", "/v1/sessions"):
        assert (await stranger.get(path)).json()["data"] == []
    filtered = await stranger.get("/v1/runs", params={"session_id": run["session_id"]})
    assert filtered.json()["data"] == []


async def test_a_cursor_of_another_tenant_is_refused(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    await stage.session()
    await stage.session()
    page = (await stage.client.get("/v1/sessions", params={"limit": 1})).json()
    answer = await stranger.get("/v1/sessions", params={"cursor": page["next_cursor"]})
    problem(answer, 400, "cursor_invalid")


async def test_a_session_id_is_taken_within_a_tenant_and_free_beyond_it(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    made = await stage.session(title="ours")
    ours = (await stage.client.get(f"/v1/sessions/{made['id']}")).json()
    again = await stage.client.post("/v1/sessions", json={"id": ours["id"].upper()})
    problem(again, 409, "id_taken")
    by_run = await stage.client.post(
        "/v1/runs", json={"prompt": "x", "session": {"id": ours["id"]}}
    )
    problem(by_run, 409, "id_taken")
    theirs = await stranger.post("/v1/sessions", json={"id": ours["id"], "title": "theirs"})
    assert theirs.status_code == 201
    assert theirs.json()["title"] == "theirs"
    assert (await stage.client.get(f"/v1/sessions/{ours['id']}")).json() == ours
    forked = await stranger.post(f"/v1/sessions/{ours['id']}/fork", json={"id": ours["id"]})
    problem(forked, 409, "id_taken")
