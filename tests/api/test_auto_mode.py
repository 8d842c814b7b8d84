"""The permission mode auto: a small model may let a call through; else a person is asked."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.providers.script import Step
from tests.api.stage import Stage, open_stage, scripted
from tests.databases import fresh_database
from tests.fakes.messages_api import MessagesApi

Json = dict[str, Any]
CLASSIFIER = "claude-haiku-4-5"


def says(*texts: str, **controls: Any) -> Step:
    return Step(blocks=tuple({"text": text} for text in texts), **controls)


VERDICTS = [
    ('{"tool":"Bash","input":{"command":"make good"}}', says("ALLOW")),
    ('{"tool":"Bash","input":{"command":"make doubtful"}}', says("ASK")),
    ('{"tool":"Bash","input":{"command":"make talk"}}', says("ALLOW, I think.")),
    ('{"tool":"Bash","input":{"command":"make away"}}', says("", http=500)),
    ('{"tool":"Bash","input":{"command":"touch .git/x"}}', says("ALLOW")),
]


@pytest.fixture(scope="module")
async def guarded(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    model = {"classifier": CLASSIFIER, "max_retries": 0}
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, api=MessagesApi(summaries=VERDICTS), model=model) as opened,
    ):
        yield opened


@pytest.mark.requirement("permissions:auto")
async def test_only_a_plain_yes_of_the_classifier_lets_a_call_through_and_it_is_paid(
    guarded: Stage,
) -> None:
    commands = [
        "ls",
        "touch in-the-workspace",
        "make good",
        "make doubtful",
        "make talk",
        "make away",
        "touch .git/x",
        "make " + "x" * 20_000,
        "rm -rf denied",
    ]
    run = await guarded.run(
        scripted(
            *({"tool": "Bash", "input": {"command": command}} for command in commands),
            {"text": "end"},
        ),
        options={"permission_mode": "auto", "disallowed_tools": ["Bash(rm *)"]},
    )
    found = (await guarded.client.get("/v1/audit", params={"run_id": run["id"]})).json()["data"]
    assert [(e["decision"], e["decided_by"]["kind"]) for e in reversed(found)] == [
        ("allow", "default"),
        ("allow", "mode"),
        ("allow", "classifier"),
        ("deny", "default"),
        ("deny", "default"),
        ("deny", "default"),
        ("deny", "default"),
        ("deny", "default"),
        ("deny", "rule"),
    ]
    assert found[-3]["decided_by"]["name"] == CLASSIFIER
    rows = await guarded.host.service.database.raw.fetch(
        "SELECT model, cost_usd FROM ledger WHERE run_id = $1 AND purpose = 'permission'",
        run["id"],
    )
    assert [(row["model"], row["cost_usd"] > 0) for row in rows] == [(CLASSIFIER, True)] * 3
    asked = [body for body in guarded.model.bodies() if body["model"] == CLASSIFIER]
    assert len(asked) == 4
    assert all("make" in body["messages"][0]["content"][0]["text"] for body in asked)
