"""The database goes away under a host that serves, and comes back."""

import asyncio
from pathlib import Path

from tests.api.relay import relay
from tests.api.stage import Stage, frames, open_stage, problem
from tests.databases import fresh_database


async def test_without_its_database_a_host_says_so_and_serves_again_afterwards(
    scratch: Path, postgres: str
) -> None:
    async with (
        fresh_database(postgres) as dsn,
        relay(dsn, scratch) as between,
        open_stage(scratch, between.dsn) as stage,
    ):
        run = await stage.run()
        session = f"/v1/sessions/{run['session_id']}"
        assert (await stage.client.get("/readyz")).json() == {"status": "ready"}
        await between.cut()

        ready = await stage.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "unavailable"})
        assert (await stage.client.get("/healthz")).status_code == 200
        for method, path, body in (
            ("GET", "/v1/runs", None),
            ("GET", f"{session}/events", None),
            ("GET", f"/v1/runs/{run['id']}/result", None),
            ("GET", f"{session}/stream", None),
            ("POST", "/v1/runs", {"prompt": "x"}),
            ("POST", f"{session}/fork", None),
            ("POST", f"/v1/runs/{run['id']}/cancel", None),
        ):
            answer = await stage.client.request(method, path, json=body)
            found = problem(answer, 503, "unavailable")
            assert found["retryable"] is True
            assert int(answer.headers["retry-after"]) > 0
        stranger = await stage.client.get("/v1/runs", headers={"x-api-key": "unknown"})
        problem(stranger, 503, "unavailable")

        await between.mend()
        assert (await stage.run())["result_subtype"] == "success"
        assert (await stage.client.get("/readyz")).json() == {"status": "ready"}


async def test_a_stream_outlasts_an_outage(scratch: Path, postgres: str) -> None:
    async with (
        fresh_database(postgres) as dsn,
        relay(dsn, scratch) as between,
        open_stage(scratch, between.dsn) as stage,
    ):
        session = await stage.session()
        path = f"/v1/sessions/{session['id']}"
        async with stage.client.stream("GET", f"{path}/stream") as answer:
            reading = frames(answer)
            first = [await anext(reading) for _ in range(2)]
            assert first[1].id == "1"
            await between.cut()
            await _unready(stage)
            await between.mend()
            await _started(stage, f"{path}/runs")
            async for frame in reading:
                if frame.event == "service" and frame.json()["type"] == "run.finished":
                    break


async def _unready(stage: Stage) -> None:
    async with asyncio.timeout(30):
        while (await stage.client.get("/readyz")).status_code == 200:
            pass


async def _started(stage: Stage, path: str) -> None:
    """Start a run, trying again as often as the answer says that one may."""
    async with asyncio.timeout(10):
        while (answer := await stage.client.post(path, json={"prompt": "x"})).status_code == 503:
            assert answer.headers["x-should-retry"] == "true"
    assert answer.status_code == 202
