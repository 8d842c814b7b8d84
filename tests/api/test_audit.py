"""Who decided what: one entry a decision, with the call's result."""

from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, problem, scripted
from tests.runs.prompts import bash

Json = dict[str, Any]


async def entries(client: httpx.AsyncClient, **query: object) -> list[Json]:
    answer = await client.get("/v1/audit", params=query)  # type: ignore[arg-type]  # plain values
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["data"]
    return found


@pytest.mark.requirement("permissions:audit")
async def test_every_decision_stands_in_the_audit_with_who_and_why(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    run = await stage.run(
        scripted(
            bash("touch q"),
            bash("rm q"),
            bash("ls"),
            {"tool": "Write", "input": {"file_path": "a", "content": "x"}},
            {"tool": "Nope", "input": {}},
            {"text": "end"},
        ),
        options={
            "allowed_tools": ["Bash(touch *)"],
            "disallowed_tools": ["Bash(rm *)"],
            "permission_mode": "dontAsk",
        },
    )
    found = await entries(stage.client, run_id=run["id"])
    seen = [
        (e["tool_name"], e["decision"], e["decided_by"]["kind"], e["decided_by"]["name"])
        for e in reversed(found)
    ]
    assert seen == [
        ("Bash", "allow", "rule", "options: allow Bash(touch *)"),
        ("Bash", "deny", "rule", "options: deny Bash(rm *)"),
        ("Bash", "allow", "default", ""),
        ("Write", "deny", "mode", "dontAsk"),
    ]
    assert found[2]["reason"] == "Permission to use Bash with command rm q has been denied."
    assert {len(e["input_sha256"]) for e in found} == {64}
    page = await stage.client.get(f"/v1/sessions/{run['session_id']}/events")
    results = {
        row["seq"]: row["data"] for row in page.json()["data"] if row["data"].get("type") == "user"
    }
    for entry in found:
        (block,) = results[entry["seq"]]["message"]["content"]
        assert block["tool_use_id"] == entry["tool_use_id"]
    assert await entries(stranger, run_id=run["id"]) == []


@pytest.mark.requirement("permissions:audit")
async def test_a_call_that_was_cut_off_stands_there_too(stage: Stage) -> None:
    body: Json = {
        "prompt": scripted(bash("sleep 60"), {"text": "end"}),
        "options": {"allowed_tools": ["Bash(sleep *)"]},
        "deadline_seconds": 2,
        "wait": 20,
    }
    run = (await stage.client.post("/v1/runs", json=body)).json()["run"]
    assert run["end_reason"] == "deadline"
    (entry,) = await entries(stage.client, run_id=run["id"])
    assert (entry["tool_name"], entry["decision"]) == ("Bash", "allow")
    log = (await stage.client.get(f"/v1/sessions/{run['session_id']}/events")).json()["data"]
    (row,) = [row for row in log if row["seq"] == entry["seq"]]
    assert row["data"]["message"]["content"][0]["tool_use_id"] == entry["tool_use_id"]


async def test_the_audit_is_read_page_by_page(stage: Stage) -> None:
    run = await stage.run(scripted(*[bash(f"echo {n}") for n in range(5)], {"text": "end"}))
    seqs: list[int] = []
    cursor: Json = {}
    while True:
        query = {"session_id": run["session_id"], "limit": 2, **cursor}
        page = (await stage.client.get("/v1/audit", params=query)).json()
        seqs += [entry["seq"] for entry in page["data"]]
        if not page["has_more"]:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(seqs) == 5
    assert seqs == sorted(seqs, reverse=True)
    wrong = await stage.client.get("/v1/audit", params={"limit": 2, **cursor})
    assert problem(wrong, 400, "cursor_invalid")
