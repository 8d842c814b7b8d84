"""The built-in tools behave as the cases say: a model calls them, in a session, over HTTP."""

import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.providers.script import Step
from tests.api.stage import Stage, open_stage, problem
from tests.databases import fresh_database
from tests.fakes.messages_api import MessagesApi
from tests.tools import cases
from tests.tools.folder import Folder
from tests.tools.our_outcomes import NOT_YET, OURS, Json
from tests.tools.shapes import check_shape

CASES = cases.load()


class CaseModel(MessagesApi):
    """A model that makes the calls of one case."""

    case: Mapping[str, Any]
    folder: Folder

    def step_for(self, body: dict[str, Any]) -> Step:
        answers = sum(message["role"] == "assistant" for message in body["messages"])
        return cases.answer_of_model(dict(self.case), answers, self.folder)


@pytest.fixture(scope="session")
async def stage(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, api=CaseModel(), policy={"allow_bypass": True}) as opened,
    ):
        yield opened


@pytest.mark.platform
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_a_case_of_tool_behaviour_holds(case: Json, stage: Stage) -> None:
    waits_for = NOT_YET.get(case["id"])
    try:
        await hold(case, stage)
    except AssertionError:
        if waits_for is None:
            raise
        return
    assert waits_for is None, f"it holds without {waits_for}: take its line out of NOT_YET"


def test_the_tables_name_cases_that_exist() -> None:
    ids = {case["id"] for case in CASES}
    assert len(ids) == len(CASES)
    assert OURS.keys() <= ids
    assert NOT_YET.keys() <= ids
    for case in CASES:
        if (departure := OURS.get(case["id"])) and not departure.unsupported:
            assert cases.ours(case, departure) != case["expect"], case["id"]


async def hold(case: Json, stage: Stage) -> None:
    departure = OURS.get(case["id"])
    folder = Folder(stage.root / secrets.token_hex(8))
    folder.ws.mkdir()
    folder.own(".")
    cases.arrange(case["setup"], folder)
    assert isinstance(stage.model, CaseModel)
    stage.model.case, stage.model.folder = case, folder
    body: Json = {
        "prompt": "Go on.",
        "wait": 60,
        "workspace": {"source": "directory", "path": str(folder.ws)},
        "options": {"permission_mode": "bypassPermissions", **case.get("options", {})},
    }
    if "model" in case:
        body["options"]["model"] = case["model"]
    answer = await stage.client.post("/v1/runs", json=body, timeout=70)
    if departure is not None and departure.unsupported:
        refused = problem(answer, 422, "unsupported_option")
        assert departure.unsupported in refused["errors"][0]["pointer"]
        return
    assert answer.status_code == 200, answer.text
    told = await told_answers(stage, answer.json()["session"]["id"])
    answers = [told[call_id] for call_id in cases.call_ids(case)]
    calls = [call for step in cases.responses(case) for call in step]
    for call, each in zip(calls, answers, strict=True):
        check_shape(call["tool"], each)
    cases.check(case, cases.ours(case, departure), answers, folder)


async def told_answers(stage: Stage, session_id: str) -> dict[str, cases.Answer]:
    """Give the results that clients were told, by the id of the call."""
    page = await stage.client.get(f"/v1/sessions/{session_id}/events", params={"limit": 1000})
    told: dict[str, cases.Answer] = {}
    for entry in page.json()["data"]:
        message = entry["data"]
        if entry["kind"] != "message" or message["type"] != "user" or message.get("isReplay"):
            continue
        for block in message["message"]["content"]:
            if block["type"] == "tool_result":
                told[block["tool_use_id"]] = cases.Answer(
                    block["content"],
                    bool(block.get("is_error")),
                    message.get("tool_use_result"),
                )
    return told
