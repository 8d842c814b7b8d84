"""Approvals: asked, listed, answered, and what comes of each answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, pointers, problem, scripted
from tests.api.test_queue import cancel, ended, post
from tests.store.seeds import rows

ASK = {"permissions": "ask"}
PARKS = {**ASK, "hold_seconds": 0}
TOUCH = {"tool": "Bash", "input": {"command": "echo ran >> made; wc -l < made"}}
ONE_CALL = scripted(TOUCH, {"text": "fine"})


async def asking(
    client: httpx.AsyncClient, prompt: str = ONE_CALL, **actions: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Start a run that asks; give it, and the first thing that it asks."""
    run = (await post(client, "/v1/runs", prompt=prompt, actions={**ASK, **actions}))["run"]
    return run, await asked(client, run)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await is_so():  # noqa: ASYNC110 - the other side has no event
            await asyncio.sleep(0.02)


async def asked(client: httpx.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    """Wait until a run waits for an answer; give the oldest thing that it asks."""

    async def waits() -> bool:
        return bool((await read(client, f"/v1/runs/{run['id']}"))["status"] == "requires_action")

    await until(waits)
    query = {"status": "pending", "run_id": run["id"]}
    first: dict[str, Any] = (await read(client, "/v1/actions", **query))["data"][0]
    return first


async def read(client: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def answer(client: httpx.AsyncClient, action: dict[str, Any], **body: Any) -> httpx.Response:
    return await client.post(f"/v1/actions/{action['id']}/resolve", json=body)


async def parked(stage: Stage, run: dict[str, Any]) -> None:
    """Wait until no host drives the run."""

    async def is_let_go() -> bool:
        found = await rows(
            stage.host.service.database,
            """SELECT r.is_parked AND s.owner IS NULL AS is_let_go FROM runs r JOIN sessions s
               ON s.tenant_id = r.tenant_id AND s.id = r.session_id WHERE r.id = $1""",
            run["id"],
        )
        return bool(found[0]["is_let_go"])

    await until(is_let_go)


async def log(client: httpx.AsyncClient, run: dict[str, Any]) -> list[dict[str, Any]]:
    path = f"/v1/sessions/{run['session_id']}/events"
    page = await read(client, path, run_id=run["id"], limit=1000)
    return [entry["data"] for entry in page["data"]]


def kinds(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["type"] for entry in entries]


def results(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tool results, with what the message says about them."""
    return [
        {**block, **{k: entry.get(k) for k in ("tool_use_result", "tool_result_meta")}}
        for entry in entries
        if entry["type"] == "user" and isinstance(entry["message"]["content"], list)
        for block in entry["message"]["content"]
        if block["type"] == "tool_result"
    ]


# -- asked and answered -----------------------------------------------------------------------


@pytest.mark.requirement("field:P09")
async def test_a_call_that_needs_an_approval_is_asked_for_and_runs_when_it_is_given(
    stage: Stage,
) -> None:
    run, action = await asking(stage.client)
    assert action["type"] == "permission"
    assert action["permission"]["input"] == TOUCH["input"]
    assert action["permission"]["tool_name"] == "Bash"
    session = await read(stage.client, f"/v1/sessions/{run['session_id']}")
    assert (session["status"], session["pending_actions"]) == ("requires_action", 1)
    page = await read(stage.client, f"/v1/sessions/{run['session_id']}/actions")
    assert [shown["id"] for shown in page["data"]] == [action["id"]]
    assert page["as_of_seq"] == {run["session_id"]: session["last_seq"]}

    resolved = await answer(stage.client, action, behavior="allow")
    assert (resolved.status_code, resolved.json()["status"]) == (200, "resolved")
    assert (await ended(stage.client, run["id"]))["result_subtype"] == "success"
    entries = await log(stage.client, run)
    (result,) = results(entries)
    assert result["content"] == "1"
    assert result["tool_result_meta"] == [
        {
            "id": action["tool_use_id"],
            "permission_decision": {"decision": "accept", "source": "user_temporary"},
        }
    ]
    told = [k for k in kinds(entries) if k.startswith(("action.", "run.re"))]
    assert told == ["action.opened", "run.requires_action", "action.resolved", "run.resumed"]
    by_id = await read(stage.client, f"/v1/actions/{action['id']}")
    assert (by_id["resolution"], by_id["status"]) == ({"behavior": "allow"}, "resolved")
    assert entries[by_id["opened_seq"] - run["first_seq"]]["type"] == "action.opened"


async def test_an_answer_counts_once_and_another_one_is_refused_with_the_first(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    run, action = await asking(stage.client)
    problem(await answer(stranger, action, behavior="allow"), 404, "not_found")
    problem(await stranger.get(f"/v1/actions/{action['id']}"), 404, "not_found")
    assert (await read(stranger, "/v1/actions"))["data"] == []
    nobody = {"id": "act_00000000000000000000000000"}
    problem(await answer(stage.client, nobody, behavior="allow"), 404, "not_found")

    for _ in range(2):
        again = await answer(stage.client, action, behavior="deny", message="no")
        assert again.status_code == 200
    refused = problem(
        await answer(stage.client, action, behavior="allow"), 409, "action_already_resolved"
    )
    assert refused["context"]["resolution"] == {
        "behavior": "deny",
        "message": "no",
        "interrupt": False,
    }
    run = await ended(stage.client, run["id"])
    (result,) = results(await log(stage.client, run))
    assert (result["content"], result["is_error"]) == ("no", True)
    assert [denial["tool_name"] for denial in run["permission_denials"]] == ["Bash"]
    problem(await answer(stage.client, action, behavior="allow"), 409, "action_already_resolved")


@pytest.mark.requirement("field:P07")
async def test_a_run_that_waits_for_long_is_let_go_and_goes_on_with_its_answer(
    stage: Stage,
) -> None:
    run, action = await asking(stage.client, hold_seconds=0)
    await parked(stage, run)
    waiting = await read(stage.client, f"/v1/runs/{run['id']}")
    assert (waiting["status"], waiting["attempt"], waiting["worker"]) == (
        "requires_action",
        1,
        None,
    )
    assert (await answer(stage.client, action, behavior="allow")).status_code == 200
    run = await ended(stage.client, run["id"])
    assert (run["result_subtype"], run["attempt"]) == ("success", 2)
    entries = await log(stage.client, run)
    assert [result["content"] for result in results(entries)] == ["1"]
    assert [k for k in kinds(entries) if k.startswith("run.")] == [
        *("run.queued", "run.started", "run.requires_action", "run.resumed", "run.finished")
    ]


async def test_calls_behind_one_that_waits_are_made_once_each_and_none_is_lost(
    stage: Stage,
) -> None:
    prompt = scripted([TOUCH, TOUCH, TOUCH], {"text": "fine"})
    run = (await post(stage.client, "/v1/runs", prompt=prompt, actions=PARKS))["run"]
    for _ in range(3):
        await parked(stage, run)
        assert (
            await answer(stage.client, await asked(stage.client, run), behavior="allow")
        ).status_code == 200
    run = await ended(stage.client, run["id"])
    assert [r["content"] for r in results(await log(stage.client, run))] == ["1", "2", "3"]


async def test_a_person_may_write_another_input_if_it_fits_the_tool(stage: Stage) -> None:
    run, action = await asking(stage.client)
    wrong = await answer(
        stage.client, action, behavior="allow", updated_input={"command": 1, "more": 2}
    )
    assert pointers(problem(wrong, 422, "validation_failed")) == ["/updated_input"]
    edited = {"command": "echo edited"}
    assert (
        await answer(stage.client, action, behavior="allow", updated_input=edited)
    ).status_code == 200
    run = await ended(stage.client, run["id"])
    entries = await log(stage.client, run)
    assert [result["content"] for result in results(entries)] == ["edited"]
    asked_for = next(e["message"]["content"] for e in entries if e["type"] == "assistant")
    assert asked_for[0]["input"] == TOUCH["input"]  # the log keeps what the model asked for


async def test_a_denial_may_end_the_run(stage: Stage) -> None:
    run, action = await asking(stage.client, scripted([TOUCH, TOUCH], {"text": "never"}))
    await answer(stage.client, action, behavior="deny", message="stop it", interrupt=True)
    run = await ended(stage.client, run["id"])
    assert (run["result_subtype"], run["terminal_reason"]) == (
        "error_during_execution",
        "aborted_tools",
    )
    assert len(run["permission_denials"]) == 1
    told = results(await log(stage.client, run))
    assert len(told) == 2
    assert all("stop it" not in result["content"] for result in told)


# -- nobody answers ---------------------------------------------------------------------------


@pytest.mark.requirement("field:P58")
async def test_what_nobody_answers_in_time_is_denied_and_the_model_is_told(stage: Stage) -> None:
    run, action = await asking(stage.client, permission_timeout_seconds=1, hold_seconds=0)
    run = await ended(stage.client, run["id"])
    assert run["result_subtype"] == "success"
    entries = await log(stage.client, run)
    assert "Nobody answered within 1 seconds" in results(entries)[0]["content"]
    assert "action.expired" in kinds(entries)
    assert (await read(stage.client, f"/v1/actions/{action['id']}"))["status"] == "expired"
    problem(await answer(stage.client, action, behavior="allow"), 410, "action_expired")


async def test_a_run_may_end_when_nobody_answers(stage: Stage) -> None:
    run, _ = await asking(stage.client, permission_timeout_seconds=1, on_timeout="fail")
    run = await ended(stage.client, run["id"])
    assert (run["result_subtype"], run["end_reason"]) == (
        "error_during_execution",
        "action_expired",
    )


@pytest.mark.parametrize("hold_seconds", [0, 60])
async def test_a_cancel_withdraws_what_is_asked(stage: Stage, hold_seconds: int) -> None:
    run, action = await asking(stage.client, hold_seconds=hold_seconds)
    if hold_seconds == 0:
        await parked(stage, run)
    assert (await cancel(stage.client, run["id"])).json()["status"] == "finished"
    assert (await read(stage.client, f"/v1/actions/{action['id']}"))["status"] == "withdrawn"
    problem(await answer(stage.client, action, behavior="allow"), 410, "action_withdrawn")
    entries = await log(stage.client, run)
    assert "action.withdrawn" in kinds(entries)
    assert kinds(entries)[-1] == "run.finished"


async def test_a_run_that_waits_ends_at_its_deadline(stage: Stage) -> None:
    body = {"prompt": ONE_CALL, "actions": PARKS, "deadline_seconds": 1}
    run = (await post(stage.client, "/v1/runs", **body))["run"]
    assert (await ended(stage.client, run["id"]))["end_reason"] == "deadline"


async def test_a_run_asks_nobody_unless_it_is_told_to(stage: Stage) -> None:
    run = await stage.run(ONE_CALL)
    entries = await log(stage.client, run)
    assert not [k for k in kinds(entries) if k.startswith("action.")]
    assert results(entries)[0]["is_error"] is True


# -- lists and hostile answers ----------------------------------------------------------------


async def test_several_are_answered_at_once_and_a_refused_one_holds_up_no_other(
    stage: Stage,
) -> None:
    (one, a), (two, b) = [await asking(stage.client) for _ in range(2)]
    await answer(stage.client, b, behavior="deny", message="")
    body = {
        "resolutions": [
            {"id": action["id"], "answer": {"behavior": "allow"}}
            for action in (a, b, {"id": "act_none"})
        ]
    }
    headers = {"Idempotency-Key": f"many-{a['id']}"}
    said = await stage.client.post("/v1/actions/resolve", json=body, headers=headers)
    assert said.status_code == 200, said.text
    outcome = [(item["problem"] or {"code": None})["code"] for item in said.json()["data"]]
    assert outcome == [None, "action_already_resolved", "not_found"]
    again = await stage.client.post("/v1/actions/resolve", json=body, headers=headers)
    assert (again.headers["idempotency-replayed"], again.json()) == ("true", said.json())
    for run in (one, two):
        await ended(stage.client, run["id"])


async def test_the_list_is_paged_and_filtered(stage: Stage) -> None:
    session = await stage.session(user="ann-of-actions", options={"actions": ASK})
    path = f"/v1/sessions/{session['id']}/runs"
    prompt = scripted(TOUCH, TOUCH, TOUCH, {"text": "fine"})
    run = (await post(stage.client, path, prompt=prompt))["run"]
    for _ in range(3):
        action = await asked(stage.client, run)
        await answer(stage.client, action, behavior="allow")
    await ended(stage.client, run["id"])
    mine = {"user": "ann-of-actions", "limit": 2}
    first = await read(stage.client, "/v1/actions", **mine)
    second = await read(stage.client, "/v1/actions", **mine, cursor=first["next_cursor"])
    seqs = [action["opened_seq"] for action in (*first["data"], *second["data"])]
    assert (len(seqs), seqs, second["has_more"]) == (3, sorted(seqs), False)
    assert (await read(stage.client, "/v1/actions", **mine, status="pending"))["data"] == []
    assert (await read(stage.client, "/v1/actions", **mine, type="question"))["data"] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/behavior"),
        ({"behavior": "maybe"}, "/behavior"),
        ({"behavior": "allow", "updated_input": "x"}, "/updated_input"),
        ({"behavior": "deny", "message": None}, "/message"),
        ({"behavior": "allow", "answers": {}}, "/answers"),
        ({"answers": {}}, ""),
        ({"behavior": "deny", "message": "x" * 10_001}, "/message"),
        ({"behavior": "deny", "interrupt": "yes"}, "/interrupt"),
        (
            {
                "behavior": "allow",
                "updated_permissions": [
                    {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Bash(x"}]}
                ],
            },
            "/updated_permissions/0/rules/0/toolName",
        ),
    ],
)
async def test_an_answer_that_is_none_changes_nothing(
    stage: Stage, body: dict[str, Any], pointer: str
) -> None:
    run, action = await asking(stage.client)
    refused = problem(await answer(stage.client, action, **body), 422, "validation_failed")
    assert pointers(refused) == [pointer]
    assert (await read(stage.client, f"/v1/actions/{action['id']}"))["status"] == "pending"
    await cancel(stage.client, run["id"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"null", "The body: must be a JSON object"),
        (b'["allow"]', "The body: must be a JSON object"),
        (b"{}", "/behavior: Field required"),
        (b'{"behavior": null}', '/behavior: must be "allow" or "deny"'),
        (b'{"behavior": ["allow"]}', '/behavior: must be "allow" or "deny"'),
    ],
)
async def test_what_is_no_answer_is_told_in_words_of_answers(
    stage: Stage, body: bytes, told: str
) -> None:
    said = await stage.client.post(
        "/v1/actions/act_x/resolve", content=body, headers={"content-type": "application/json"}
    )
    assert problem(said, 422, "validation_failed")["detail"] == told


@pytest.mark.parametrize(
    "wrong",
    [
        {"permissions": "maybe"},
        {"hold_seconds": -1},
        {"permission_timeout_seconds": 0},
        {"on_timeout": "allow"},
        {"unknown": 1},
    ],
)
async def test_rules_that_make_no_sense_are_refused(stage: Stage, wrong: dict[str, Any]) -> None:
    said = await stage.client.post("/v1/runs", json={"prompt": "hi", "actions": wrong})
    (name,) = wrong
    assert pointers(problem(said, 422, "validation_failed")) == [f"/actions/{name}"]


@pytest.mark.parametrize("actions", [{}, {"hold_seconds": 0}], ids=["held", "let go"])
async def test_a_session_that_asks_is_listed_by_the_status_that_it_shows(
    stage: Stage, actions: dict[str, Any]
) -> None:
    run, _ = await asking(stage.client, **actions)
    if actions:
        await parked(stage, run)
    shown = (await read(stage.client, f"/v1/sessions/{run['session_id']}"))["status"]
    assert shown == "requires_action"
    for status in ("idle", "running", "requires_action", "archived"):
        page = await read(stage.client, "/v1/sessions", status=status, limit=200)
        is_listed = run["session_id"] in {session["id"] for session in page["data"]}
        assert is_listed is (status == shown), status
    await cancel(stage.client, run["id"])
