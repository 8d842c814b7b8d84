"""Which conversation goes on: resumed at a message, rewound, branched, continued."""

import asyncio
import uuid
from decimal import Decimal
from typing import Any

import pytest

from tests.api.stage import Stage, pointers, problem, scripted, spoken

PRICED = {"model": "claude-sonnet-5"}


async def say(stage: Stage, session_id: str, prompt: str, **body: Any) -> dict[str, Any]:
    """Send a prompt into a session; give its run when it has finished."""
    answer = await stage.client.post(
        f"/v1/sessions/{session_id}/runs", json={"prompt": prompt, "wait": 20, **body}
    )
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()["run"]
    assert run["result_subtype"] == "success"
    return run


async def transcript(stage: Stage, session_id: str) -> list[dict[str, Any]]:
    page = await stage.client.get(f"/v1/sessions/{session_id}/messages", params={"limit": 1000})
    found: list[dict[str, Any]] = page.json()["data"]
    return found


def answer_of(messages: list[dict[str, Any]], text: str) -> str:
    """The uuid of the answer that says this."""
    said = (m for m in messages if m["type"] == "assistant")
    return next(str(m["uuid"]) for m in said if text in str(m["message"]["content"]))


def heard(stage: Stage) -> list[tuple[str, str]]:
    """What the newest model request held: role and text of each message."""
    return [
        (message["role"], " ".join(block.get("text", "") for block in spoken(message["content"])))
        for message in stage.model.bodies()[-1]["messages"]
    ]


@pytest.mark.requirement("sessions:rewind")
async def test_a_rewound_session_goes_on_as_if_the_rest_had_not_been_said(stage: Stage) -> None:
    first = await stage.run(scripted({"text": "one"}, text="First."), options=PRICED)
    session = first["session_id"]
    path = f"/v1/sessions/{session}"
    await say(stage, session, scripted({"text": "two"}, text="Second."))
    before = await transcript(stage, session)
    end = answer_of(before, "one")

    rewound = await stage.client.post(f"{path}/rewind", json={"at_message": end})
    assert (rewound.status_code, rewound.json()["last_message_uuid"]) == (200, end)
    assert rewound.json()["num_runs"] == 2
    # Nothing is erased, and a second rewind to the same place changes nothing.
    assert await transcript(stage, session) == before
    again = await stage.client.post(f"{path}/rewind", json={"at_message": end})
    assert again.json()["last_seq"] == rewound.json()["last_seq"]

    third = await say(stage, session, scripted({"text": "three"}, text="Third."))
    assert third["resumed_from"] == end
    assert [(role, text.partition(" <<")[0]) for role, text in heard(stage)] == [
        ("user", "First."),
        ("assistant", "one"),
        ("user", "Third."),
    ]
    shown = (await stage.client.get(path)).json()
    assert Decimal(shown["cost"]["session_usd"]) == 3 * Decimal(first["cost"]["run_usd"])
    assert shown["usage"] == {name: 3 * count for name, count in first["usage"].items()}
    listed = (await stage.client.get("/v1/sessions")).json()["data"]
    assert [each for each in listed if each["id"] == session] == [{**shown, "usage": None}]
    assert first["cost"]["main_thread_usd"] == first["cost"]["run_usd"]
    events = (await stage.client.get(f"{path}/events", params={"types": "session.rewound"})).json()
    (event,) = events["data"]
    assert (event["data"]["at_message"], event["kind"]) == (end, "service")


@pytest.mark.requirement("sessions:rewind")
async def test_a_rewind_behind_a_rewind_and_what_comes_after_it(stage: Stage) -> None:
    session = (await stage.run(scripted({"text": "one"}, text="A.")))["session_id"]
    path = f"/v1/sessions/{session}"
    await say(stage, session, scripted({"text": "two"}, text="B."))
    messages = await transcript(stage, session)
    ends = {text: answer_of(messages, text) for text in ("one", "two")}
    await stage.client.post(f"{path}/rewind", json={"at_message": ends["one"]})
    await say(stage, session, scripted({"text": "three"}, text="C."))
    gone = await stage.client.post(f"{path}/rewind", json={"at_message": ends["two"]})
    assert pointers(problem(gone, 422, "validation_failed")) == ["/at_message"]
    init = messages[0]["uuid"]
    empty = await stage.client.post(f"{path}/rewind", json={"at_message": init})
    assert empty.json()["last_message_uuid"] == init
    await say(stage, session, scripted({"text": "four"}, text="D."))
    assert [role for role, _ in heard(stage)] == ["user"]
    copy = (await stage.client.post(f"{path}/fork")).json()["id"]
    said = [m for m in await transcript(stage, copy) if m["type"] == "assistant"]
    assert [m["message"]["content"][0]["text"] for m in said] == ["four"]


@pytest.mark.requirement("sessions:rewind")
async def test_a_call_whose_result_was_rewound_is_answered_before_the_next_prompt(
    stage: Stage,
) -> None:
    call = {"tool": "Bash", "input": {"command": "echo 1"}}
    options = {"allowed_tools": ["Bash"]}
    run = await stage.run(scripted(call, {"text": "one"}), options=options)
    messages = await transcript(stage, run["session_id"])
    asked = next(m["uuid"] for m in messages if m["type"] == "assistant")
    await say(stage, run["session_id"], scripted({"text": "two"}), resume_at=asked)
    roles = [m["role"] for m in stage.model.bodies()[-1]["messages"]]
    blocks = spoken(stage.model.bodies()[-1]["messages"][-1]["content"])
    assert roles == ["user", "assistant", "user"]
    assert [block["type"] for block in blocks] == ["tool_result", "text"]
    assert blocks[0]["is_error"] is True
    assert "unknown" in str(blocks[0]["content"])


@pytest.mark.requirement("sessions:resume-at")
async def test_a_prompt_can_resume_at_a_message(stage: Stage) -> None:
    session = (await stage.run(scripted({"text": "one"}, text="A.")))["session_id"]
    await say(stage, session, scripted({"text": "two"}, text="B."))
    messages = await transcript(stage, session)
    end = answer_of(messages, "one")
    run = await say(stage, session, scripted({"text": "three"}, text="C."), resume_at=end)
    assert run["resumed_from"] == end
    assert [text.partition(" <<")[0] for _, text in heard(stage)] == ["A.", "one", "C."]
    for wrong in (str(uuid.uuid4()), answer_of(messages, "two")):
        answer = await stage.client.post(
            f"/v1/sessions/{session}/runs", json={"prompt": "x", "resume_at": wrong}
        )
        assert pointers(problem(answer, 422, "validation_failed")) == ["/resume_at"]
    new = await stage.client.post("/v1/runs", json={"prompt": "x", "resume_at": end})
    assert pointers(problem(new, 422, "validation_failed")) == ["/resume_at"]


@pytest.mark.requirement("sessions:resume-at")
async def test_a_conversation_that_ends_with_a_thought_is_told_without_it(stage: Stage) -> None:
    thinking = {"blocks": [{"thinking": "hm"}, {"text": "done"}]}
    session = (await stage.run(scripted(thinking, text="A.")))["session_id"]
    thought = next(m for m in await transcript(stage, session) if m["type"] == "assistant")
    assert thought["message"]["content"][0]["type"] == "thinking"
    await say(stage, session, scripted({"text": "two"}, text="B."), resume_at=thought["uuid"])
    (message,) = stage.model.bodies()[-1]["messages"]
    said = [block["text"].partition(" <<")[0] for block in spoken(message["content"])]
    assert said == ["A.", "B."]


@pytest.mark.requirement("sessions:fork-cost")
async def test_a_fork_inherits_cost_on_the_wire_and_begins_at_zero_in_our_objects(
    stage: Stage,
) -> None:
    run = await stage.run(scripted({"text": "one"}), options=PRICED, metadata={"a": "b"})
    await stage.client.patch(
        f"/v1/sessions/{run['session_id']}", json={"tags": ["t"], "metadata": {"k": "v"}}
    )
    copy = (await stage.client.post(f"/v1/sessions/{run['session_id']}/fork")).json()
    each = Decimal(run["cost"]["run_usd"])
    assert each > 0
    assert (copy["tags"], copy["metadata"]) == (["t"], {"k": "v"})
    assert copy["cost"] == {"session_usd": "0.000000", "inherited_usd": run["cost"]["run_usd"]}
    done = await say(stage, copy["id"], scripted({"text": "two"}), options=PRICED)
    result = (await stage.client.get(f"/v1/runs/{done['id']}/result")).json()
    assert Decimal(str(result["total_cost_usd"])) == 2 * each
    shown = (await stage.client.get(f"/v1/sessions/{copy['id']}")).json()
    assert Decimal(shown["cost"]["session_usd"]) == each
    grandchild = (await stage.client.post(f"/v1/sessions/{copy['id']}/fork")).json()
    assert Decimal(grandchild["cost"]["inherited_usd"]) == 2 * each


@pytest.mark.requirement("sessions:resumed-from")
async def test_resumed_from_names_the_last_message_before_the_run_also_when_it_waited(
    stage: Stage,
) -> None:
    path = f"/v1/sessions/{(await stage.session())['id']}/runs"
    slow = scripted({"blocks": [{"text": "late"}], "delay": 0.3})
    sent = [await stage.client.post(path, json={"prompt": slow}) for _ in range(2)]
    runs = [answer.json()["run"]["id"] for answer in sent]
    ended = [(await stage.client.get(f"/v1/runs/{r}", params={"wait": 20})).json() for r in runs]
    result = (await stage.client.get(f"/v1/runs/{runs[0]}/result")).json()
    assert [run["resumed_from"] for run in ended] == [None, result["uuid"]]


@pytest.mark.requirement("sessions:continue")
async def test_continue_takes_the_session_that_was_used_last(stage: Stage) -> None:
    user, key = f"u-{uuid.uuid4()}", f"k-{uuid.uuid4()}"

    async def go_on(**body: Any) -> str:
        run = await stage.run("go on", continue_conversation=True, **body)
        found: str = run["session_id"]
        return found

    first = await go_on(session={"user": user, "title": "made"})
    assert (await stage.client.get(f"/v1/sessions/{first}")).json()["title"] == "made"
    second = (await stage.run("x", session={"user": user}, workspace={"key": key}))["session_id"]
    assert await go_on(session={"user": user}) == second
    await say(stage, first, "used again")
    assert await go_on(session={"user": user}) == first
    assert await go_on(workspace={"key": key}) == second
    assert await go_on(session={"user": user}, workspace={"key": key}) == second
    await stage.client.post(f"/v1/sessions/{second}/archive")
    assert await go_on(session={"user": user}) == first
    other = await go_on(session={"user": user}, workspace={"key": key})
    assert other not in {first, second}


@pytest.mark.requirement("sessions:continue")
async def test_sessions_in_one_folder_belong_together(stage: Stage) -> None:
    folder = stage.root / uuid.uuid4().hex
    folder.mkdir(mode=0o777)
    place = {"source": "directory", "path": str(folder)}
    first = (await stage.run("x", workspace=place))["session_id"]
    again = {"source": "directory", "path": f"{folder}/."}
    run = await stage.run("y", workspace=again, continue_conversation=True)
    assert run["session_id"] == first


@pytest.mark.requirement("sessions:continue")
async def test_what_continue_cannot_mean_is_said(stage: Stage) -> None:
    for body in (
        {},
        {"session": {"user": "u", "id": str(uuid.uuid4())}},
        {"session": {"title": "t"}},
    ):
        answer = await stage.client.post(
            "/v1/runs", json={"prompt": "x", "continue_conversation": True, **body}
        )
        assert "continue_conversation" in problem(answer, 422, "validation_failed")["detail"]


@pytest.mark.requirement("sessions:continue")
async def test_many_that_continue_at_once_where_there_is_nothing_make_one_session(
    stage: Stage,
) -> None:
    body = {"prompt": "x", "continue_conversation": True, "session": {"user": f"{uuid.uuid4()}"}}
    answers = await asyncio.gather(*(stage.client.post("/v1/runs", json=body) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["session"]["id"] for answer in answers}) == 1
