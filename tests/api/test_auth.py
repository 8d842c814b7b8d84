"""Keys: there is no open door."""

import re
import secrets

import httpx
import pytest

from app.main import openapi_document
from app.store.keys import revoke_key
from tests.api.stage import RANDOM_SESSION, Stage, problem, raw
from tests.hosts import KEY

OPEN_PATHS = {"/healthz", "/readyz", "/problems/{name}"}
CLOSED = [
    (method.upper(), path)
    for path, operations in openapi_document()["paths"].items()
    for method in operations
    if path not in OPEN_PATHS
]


async def ask(
    stage: Stage, headers: list[tuple[bytes, bytes]], path: str = "/v1/meta"
) -> httpx.Response:
    async with httpx.AsyncClient(base_url=stage.base_url, trust_env=False) as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-api-key", KEY.encode())],
        [(b"authorization", b"Bearer " + KEY.encode())],
        [(b"authorization", b"bearer  " + KEY.encode())],
        [(b"authorization", b"Basic Zm9v"), (b"x-api-key", KEY.encode())],
    ],
    ids=["x-api-key", "bearer", "bearer in lower case", "a proxy's own basic auth beside it"],
)
async def test_a_valid_key_opens_in_either_form(
    stage: Stage, headers: list[tuple[bytes, bytes]]
) -> None:
    assert (await ask(stage, headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-api-key", b"")],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", KEY.encode())],
        [(b"authorization", b"Basic " + KEY.encode())],
        [(b"authorization", b"Token " + KEY.encode())],
        [(b"authorization", b"Bearer " + KEY.encode() + b" x")],
        [(b"x-api-key", KEY.encode()[:-1])],
        [(b"x-api-key", KEY.encode().upper())],
        [(b"x-api-key", b"k" * 10_000)],
        [(b"authorization", b"Bearer " + b"k" * 10_000)],
        [(b"x-api-key", "schl\u00fcssel".encode() * 8)],
        [(b"authorization", b"Bearer \xff\xfe" + b"k" * 40)],
        [(b"x-api-key", b"trd_01jd_" + b"%00" * 20)],
        [(b"x-api-key", b"trd_' OR 1=1 --_" + b"k" * 40)],
        [(b"cookie", b"x-api-key=" + KEY.encode())],
    ],
)
async def test_anything_but_a_valid_key_is_401_and_says_how_to_get_one(
    stage: Stage, headers: list[tuple[bytes, bytes]]
) -> None:
    answer = await ask(stage, headers)
    body = problem(answer, 401, "unauthenticated")
    assert "treadle keys create" in body["detail"]
    assert answer.headers["www-authenticate"] == "Bearer"
    assert KEY[:-1] not in answer.text


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
async def test_two_keys_are_malformed_even_if_both_are_valid(stage: Stage, name: bytes) -> None:
    value = b"Bearer " * (name == b"authorization") + KEY.encode()
    problem(await ask(stage, [(name, value), (name, value)]), 400, "invalid_request")


@pytest.mark.parametrize("name", ["key", "api_key", "x-api-key", "token", "access_token"])
async def test_a_key_in_the_address_opens_nothing(stage: Stage, name: str) -> None:
    for path in ("/v1/meta", f"/v1/sessions/{RANDOM_SESSION}/stream"):
        problem(await ask(stage, [], f"{path}?{name}={KEY}"), 401, "unauthenticated")


@pytest.mark.parametrize(("method", "path"), CLOSED, ids=[f"{m} {p}" for m, p in CLOSED])
async def test_every_route_of_the_document_needs_a_key(
    stage: Stage, method: str, path: str
) -> None:
    where = re.sub(r"\{\w+\}", "x", path)
    async with httpx.AsyncClient(base_url=stage.base_url, trust_env=False) as client:
        for body in (b'{"prompt": "x"}', b"{not json", b""):
            answer = await client.request(method, where, content=body)
            problem(answer, 401, "unauthenticated")


async def test_a_stranger_is_refused_before_the_body_is_read(stage: Stage) -> None:
    status, _ = await raw(
        stage.base_url,
        b"POST /v1/runs HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n{",
        within_s=5,
    )
    assert status == 401


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/problems/not-found", "/docs", "/openapi.json"]
)
async def test_what_everybody_may_see_needs_no_key(stage: Stage, path: str) -> None:
    assert (await ask(stage, [], path)).status_code == 200


async def test_a_revoked_key_works_no_longer_than_the_bound_says(stage: Stage) -> None:
    tenant = f"tenant-{secrets.token_hex(4)}"
    key_id, key = await stage.tenant(tenant)
    callers = stage.host.service.callers
    assert callers.remember_s <= 30
    usual, callers.remember_s = callers.remember_s, 0.0
    try:
        headers = [(b"x-api-key", key.encode())]
        assert (await ask(stage, headers)).status_code == 200
        async with stage.host.service.database.begin() as connection:
            assert await revoke_key(connection, tenant, key_id)
        problem(await ask(stage, headers), 401, "unauthenticated")
    finally:
        callers.remember_s = usual


async def test_a_key_is_looked_up_once_within_the_bound(stage: Stage) -> None:
    tenant = f"tenant-{secrets.token_hex(4)}"
    key_id, key = await stage.tenant(tenant)
    headers = [(b"x-api-key", key.encode())]
    assert (await ask(stage, headers)).status_code == 200
    async with stage.host.service.database.begin() as connection:
        await revoke_key(connection, tenant, key_id)
    assert (await ask(stage, headers)).status_code == 200  # remembered: the price of the bound
