"""What the operator and the tenant forbid, no option can allow."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.ceiling import Ceiling
from app.store.keys import create_key, ensure_tenant, set_ceiling
from tests.api.stage import Stage, open_stage, pointers, problem, scripted
from tests.databases import fresh_database
from tests.runs.prompts import bash

Json = dict[str, Any]
POLICY = {
    "forbidden_modes": ["acceptEdits"],
    "deny_tools": ["WebSearch", "Bash(curl *)", "WebFetch(domain:*.internal.test)"],
    "ask_tools": ["Bash(git push *)"],
    "allow_tools": ["Bash(make *)"],
}


@pytest.fixture(scope="module")
async def strict(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, policy=POLICY) as opened,
    ):
        yield opened


async def refused(client: httpx.AsyncClient, options: Json) -> list[str]:
    answer = await client.post("/v1/runs", json={"prompt": "x", "options": options})
    body = problem(answer, 422, "validation_failed")
    assert [error["code"] for error in body["errors"]] == ["not_allowed"]
    return pointers(body)


@pytest.mark.requirement("permissions:ceiling")
@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"permission_mode": "acceptEdits"}, "/options/permission_mode"),
        ({"allowed_tools": ["Read", "WebSearch"]}, "/options/allowed_tools/1"),
        ({"allowed_tools": ["Bash(curl *)"]}, "/options/allowed_tools/0"),
        ({"allowed_tools": ["WebFetch(domain:a.internal.test)"]}, "/options/allowed_tools/0"),
        ({"tools": ["Bash", "WebSearch"]}, "/options/tools/1"),
    ],
)
async def test_what_options_show_of_it_is_refused_at_once(
    strict: Stage, options: Json, where: str
) -> None:
    assert await refused(strict.client, options) == [where]


@pytest.mark.requirement("permissions:ceiling")
async def test_what_they_do_not_show_is_denied_when_it_is_called(strict: Stage) -> None:
    run = await strict.run(
        scripted(
            bash("true && curl -V"),
            bash("git push x"),
            bash("make -v"),
            {"tool": "WebSearch", "input": {"query": "x"}},
            {"text": "end"},
        ),
        options={"allowed_tools": ["Bash(git *)"]},
    )
    found = (await strict.client.get("/v1/audit", params={"run_id": run["id"]})).json()["data"]
    assert [(e["decision"], e["decided_by"]["name"]) for e in reversed(found)] == [
        ("deny", "operator: deny Bash(curl *)"),
        ("deny", "operator: ask Bash(git push *)"),
        ("allow", "operator: allow Bash(make *)"),
    ]
    page = await strict.client.get(f"/v1/sessions/{run['session_id']}/events")
    (init,) = [row["data"] for row in page.json()["data"] if row["data"].get("subtype") == "init"]
    assert "WebSearch" not in init["tools"]
    assert "Bash" in init["tools"]


@pytest.mark.requirement("permissions:ceiling")
async def test_a_tenants_policy_is_its_own(stage: Stage) -> None:
    async with stage.host.service.database.begin() as connection:
        await ensure_tenant(connection, "narrow", allow_bypass=False)
        ceiling = Ceiling(frozenset({"dontAsk"}), ("Write", "Bash(rm *)"), ("Bash(ls *)",))
        await set_ceiling(connection, "narrow", ceiling)
        _, key = await create_key(connection, "narrow", "test")
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=stage.base_url, headers=headers) as client:
        assert await refused(client, {"permission_mode": "dontAsk"}) == ["/options/permission_mode"]
        assert await refused(client, {"allowed_tools": ["Write"]}) == ["/options/allowed_tools/0"]
        body = {
            "prompt": scripted(bash("rm -f x"), bash("ls -a"), bash("true"), {"text": "end"}),
            "wait": 20,
            "options": {"allowed_tools": ["Bash"]},
        }
        run = (await client.post("/v1/runs", json=body)).json()["run"]
        found = (await client.get("/v1/audit", params={"run_id": run["id"]})).json()["data"]
    assert [e["decided_by"]["name"] for e in reversed(found)] == [
        "tenant: deny Bash(rm *)",
        "tenant: ask Bash(ls *)",
        "options: allow Bash",
    ]
    other = await stage.client.post(
        "/v1/runs", json={"prompt": "x", "options": {"permission_mode": "dontAsk"}}
    )
    assert other.status_code == 202
