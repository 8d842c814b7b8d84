"""What the service says of itself."""

from pathlib import Path

from tests.api.stage import Stage, open_stage, problem
from tests.databases import fresh_database


async def test_meta_names_versions_features_and_limits(stage: Stage) -> None:
    meta = (await stage.client.get("/v1/meta")).json()
    assert meta["api"] == "v1"
    assert set(meta) == {
        *("version", "api", "wire", "features", "sandbox", "models", "limits", "retention")
    }
    assert set(meta["wire"]) == {"claude_code_version", "claude_agent_sdk"}
    assert meta["sandbox"] == "bubblewrap"
    assert meta["models"]["provider"] == "configured"
    assert "sk-test" not in str(meta)
    run = await stage.run()
    assert run["options"]["max_turns"] == meta["limits"]["default_max_turns"]
    assert run["options"]["max_budget_usd"] == meta["limits"]["default_max_budget_usd"]
    assert run["options"]["model"] == meta["models"]["default"]


async def test_a_host_that_drains_is_alive_but_not_ready_and_ends_its_streams(
    scratch: Path, postgres: str
) -> None:
    async with fresh_database(postgres) as dsn, open_stage(scratch, dsn) as stage:
        session = await stage.session()
        assert (await stage.client.get("/readyz")).json() == {"status": "ready"}
        path = f"/v1/sessions/{session['id']}/stream"
        async with stage.client.stream("GET", path) as answer:
            lines = answer.aiter_lines()
            while "session.created" not in await anext(lines):
                pass
            await stage.host.service.drain()
            rest = [line async for line in lines]
        assert rest[1:] == [
            "event: end",
            'data: {"reason":"server_shutdown","last_seq":1}',
            "",
        ]
        ready = await stage.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
        assert (await stage.client.get("/healthz")).json() == {"status": "ok"}
        problem(await stage.client.get("/v1/runs/none"), 404, "not_found")
