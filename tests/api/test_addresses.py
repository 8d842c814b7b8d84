"""Headers and addresses: floods, bytes that are no text, and what an answer says of them."""

import json

import httpx
import pytest

from tests.api.stage import RANDOM_SESSION, Stage, get, problem, raw


def code(answer: bytes) -> str:
    found: str = json.loads(answer.split(b"\r\n\r\n", 1)[1])["code"]
    return found


@pytest.mark.parametrize(
    "flood",
    [
        [b"x-%d: y" % n for n in range(20_000)],
        [b"x-big: " + b"y" * 2_000_000],
        [b"x-big: " + b"y" * 33_000],
        [b"x-" + b"n" * 40_000 + b": y"],
        [b"x-same: y"] * 101,
    ],
    ids=["20,000 headers", "one of 2 MB", "one past the bound", "a long name", "the same ones"],
)
async def test_a_flood_of_headers_is_431(stage: Stage, flood: list[bytes]) -> None:
    status, answer = await raw(stage.base_url, get(b"/v1/meta", *flood))
    assert (status, code(answer)) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "path", [b"/v1/runs/" + b"r" * 40_000, b"/v1/runs?cursor=" + b"c" * 40_000]
)
async def test_an_endless_address_is_431(stage: Stage, path: bytes) -> None:
    status, answer = await raw(stage.base_url, get(path))
    assert (status, code(answer)) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/sessions/%00",
        b"/v1/sessions/a%00b/messages",
        b"/v1/sessions/%ed%a0%80",
        b"/v1/runs/%ff",
        b"/v1/runs/%c3",
        b"/v1/runs?session_id=%00",
        b"/v1/runs?session_id=a%00b",
        b"/v1/runs?session_id=%ed%a0%80",
        b"/v1/runs?session_id=%ff",
        b"/v1/runs?%00=1",
        b"/v1/runs?cursor=%00",
        b"/v1/runs/%00/stream",
        b"/problems/%00",
        b"/v1/sessions/" + RANDOM_SESSION.encode() + b"/events?types=%00",
        b"/v1/sessions/" + RANDOM_SESSION.encode() + b"/events?run_id=%ED%BF%BF",
    ],
)
async def test_an_address_that_cannot_be_stored_is_400(stage: Stage, path: bytes) -> None:
    status, answer = await raw(stage.base_url, get(path))
    assert (status, code(answer)) == (400, "invalid_request")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions/'; DROP TABLE sessions; --",
        "/v1/sessions/..%2f..%2fetc%2fpasswd",
        "/v1/sessions/%25%32%35",
        "/v1/sessions/\u00fc\U0001f600",
        "/v1/runs/" + "r" * 5_000,
        "/v1/runs/ /stream",
    ],
)
async def test_an_id_of_any_other_form_is_just_not_found(stage: Stage, path: str) -> None:
    problem(await stage.client.get(path), 404, "not_found")


@pytest.mark.parametrize(
    "line",
    [b"GET /v1/m\x00eta HTTP/1.1", b"GET /v1/m\xffeta HTTP/1.1", b"GET /v1/meta?\xff HTTP/1.1"],
)
async def test_bytes_that_no_address_may_hold_end_in_400_or_404_never_500(
    stage: Stage, line: bytes
) -> None:
    request = get(b"/v1/meta").split(b"\r\n", 1)[1]
    status, _ = await raw(stage.base_url, line + b"\r\n" + request)
    assert status in {400, 404}
    assert (await stage.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("given", ["abc-123._X", "a", "x" * 128])
async def test_a_sane_request_id_is_echoed(stage: Stage, given: str) -> None:
    for path in ("/v1/meta", "/v1/runs/none", "/none"):
        answer = await stage.client.get(path, headers={"x-request-id": given})
        assert answer.headers.get_list("x-request-id") == [given]


@pytest.mark.parametrize("given", [b"", b"a b", b"x" * 129, b"\xff", b"<script>", b"a;b", b"a\tb"])
async def test_another_request_id_is_replaced(stage: Stage, given: bytes) -> None:
    status, answer = await raw(stage.base_url, get(b"/v1/meta", b"x-request-id: " + given))
    made = [line for line in answer.split(b"\r\n") if line.startswith(b"x-request-id: ")]
    assert status == 200
    assert len(made) == 1
    assert made[0].startswith(b"x-request-id: req_01")


async def test_text_of_clients_never_becomes_a_header(stage: Stage) -> None:
    hostile = "a\r\nset-cookie: evil=1\r\n\r\nHTTP/1.1 200 OK"
    answer = await stage.client.post(
        "/v1/runs",
        json={
            "prompt": hostile,
            "session": {"title": hostile, "metadata": {hostile: hostile}},
            "metadata": {"k": hostile},
            "wait": 20,
        },
    )
    run = answer.json()["run"]
    answers = [
        answer,
        await stage.client.get(f"/v1/sessions/{run['session_id']}"),
        await stage.client.get(f"/v1/runs/{run['id']}/stream?after=0"),
        await stage.client.post(f"/v1/sessions/{run['session_id']}/fork", json={"title": hostile}),
    ]
    allowed = {
        *("date", "content-type", "content-length", "x-request-id", "location", "x-run-id"),
        *("transfer-encoding", "cache-control", "vary", "x-accel-buffering", "connection"),
        *("server", "etag"),
    }
    for found in answers:
        assert found.status_code < 300
        assert set(found.headers) <= allowed
    assert answers[1].json()["title"] == hostile


async def test_an_address_with_a_slash_too_many_is_not_sent_elsewhere(stage: Stage) -> None:
    async with httpx.AsyncClient(base_url=stage.base_url, trust_env=False) as client:
        answer = await client.get("/v1/runs/", headers={"host": "evil.example"})
    problem(answer, 404, "not_found")
