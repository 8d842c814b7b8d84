"""Every error is a problem: one form, one request id, one page that explains it."""

import logging
import re
from pathlib import Path

import pytest
from sqlalchemy import text

from app import errors
from app.api.problem_pages import MEANINGS
from app.errors import RequestError
from tests.api.stage import RANDOM_RUN, Stage, open_stage, problem
from tests.databases import fresh_database

CODES = sorted(
    {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RequestError)
    }
)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/runs", "/v1/runs/a/b/c", "/problems", "/favicon.ico"]
)
async def test_an_unknown_path_is_404(stage: Stage, path: str) -> None:
    body = problem(await stage.client.get(path), 404, "not_found")
    assert body["detail"].startswith("There is no such path. ")
    for place in re.findall(r"/\S+(?<![.,])", body["detail"]):
        assert (await stage.client.get(place)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/runs", "GET, POST"),
        ("PUT", "/v1/sessions", "GET, POST"),
        ("POST", f"/v1/runs/{RANDOM_RUN}", "DELETE, GET, PATCH"),
        ("GET", f"/v1/runs/{RANDOM_RUN}/cancel", "POST"),
        ("POST", "/healthz", "GET"),
        ("TRACE", "/v1/runs", "GET, POST"),
        ("OPTIONS", "/v1/runs", "GET, POST"),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_is_right(
    stage: Stage, method: str, path: str, allowed: str
) -> None:
    answer = await stage.client.request(method, path)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("code", CODES)
async def test_the_type_of_a_problem_is_a_page(stage: Stage, code: str) -> None:
    answer = await stage.client.get(f"/problems/{code.replace('_', '-')}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert f"code: {code}\n" in answer.text
    assert MEANINGS[code] in answer.text


@pytest.mark.parametrize("name", ["none", "RequestError", "__init__", "%20"])
async def test_there_is_no_page_for_what_is_no_problem(stage: Stage, name: str) -> None:
    problem(await stage.client.get(f"/problems/{name}"), 404, "not_found")


async def test_a_fault_of_ours_is_500_without_detail_and_logged_once_with_its_id(
    scratch: Path, postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, role="api") as stage,
    ):
        session = await stage.session()
        async with stage.host.service.database.begin() as connection:
            await connection.execute(text("ALTER TABLE runs RENAME COLUMN options TO gone"))
            await connection.execute(text("ALTER TABLE inbox RENAME COLUMN content TO gone"))
        caplog.clear()
        reading = await stage.client.get("/v1/runs")
        writing = await stage.client.post(
            f"/v1/sessions/{session['id']}/runs", json={"prompt": "the quick brown secret"}
        )
        for answer in (reading, writing):
            body = problem(answer, 500, "internal")
            assert body["detail"] == "The service failed. Quote the request_id to the operator."
            assert body["retryable"] is False
            said = answer.text.lower()
            assert not any(word in said for word in ("sql", "column", "options", "app/", "secret"))
        failures = [r for r in caplog.records if r.levelno >= logging.ERROR]
        assert [vars(r)["request_id"] for r in failures] == [
            reading.headers["x-request-id"],
            writing.headers["x-request-id"],
        ]
        formatter = logging.Formatter("%(message)s")
        written = [formatter.format(record) for record in failures]
        assert "UndefinedColumnError" in written[0]
        assert "quick brown secret" not in "".join(written)
        assert (await stage.client.get("/readyz")).status_code == 200
