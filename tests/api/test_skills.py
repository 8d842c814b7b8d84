"""Skills that a tenant uploads: what becomes of them over HTTP, and what runs make of them."""

from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, pointers, problem, scripted
from tests.runs.prompts import bash
from tests.tools.test_bundle import zipped

Json = dict[str, Any]
REVIEW = "---\ndescription: Review a change\nallowed-tools: Bash(/skills/*)\n---\nLook at $0."


def load(name: str) -> Json:
    return {"tool": "Skill", "input": {"skill": name}}


async def results(stage: Stage, session_id: str) -> list[Json]:
    """Give each result of a call: its block, and what the wire tells beside it."""
    page = await stage.client.get(f"/v1/sessions/{session_id}/messages", params={"limit": 500})
    return [
        {**block, "told": row.get("tool_use_result")}
        for row in page.json()["data"]
        if row["type"] == "user" and isinstance(row["message"]["content"], list)
        for block in row["message"]["content"]
        if block["type"] == "tool_result"
    ]


async def remove_all(client: httpx.AsyncClient) -> None:
    for skill in (await client.get("/v1/skills")).json()["data"]:
        assert (await client.delete(f"/v1/skills/{skill['name']}")).status_code == 204


@pytest.mark.requirement("skill:uploaded")
async def test_a_skill_is_put_listed_read_replaced_and_deleted(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    client, body = stage.client, {"name": "review", "files": {"SKILL.md": REVIEW, "a/b.txt": "b"}}
    made = await client.post("/v1/skills", json=body)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == "/v1/skills/review"
    skill = made.json()
    assert skill["description"] == "Review a change"
    assert skill["allowed_tools"] == ["Bash(/skills/*)"]
    assert [file["path"] for file in skill["files"]] == ["SKILL.md", "a/b.txt"]
    same = await client.post("/v1/skills", json=body)
    assert (same.status_code, same.json()) == (200, skill)

    once = {"Idempotency-Key": "skill-once"}
    data = zipped({"review/SKILL.md": "Look closer.", "review/run.sh": "echo hi"})
    other = [
        await client.post("/v1/skills", content=data, headers={**once, "content-type": kind})
        for kind in ("application/zip", "application/x-www-form-urlencoded")
    ]
    assert [answer.status_code for answer in other] == [200, 200]
    assert other[1].headers["idempotency-replayed"] == "true"
    newer = other[0].json()
    assert newer["version"] != skill["version"]
    assert newer["created_at"] == skill["created_at"]
    assert [file["is_executable"] for file in newer["files"]] == [False, True]
    [listed] = (await client.get("/v1/skills")).json()["data"]
    assert listed == {name: value for name, value in newer.items() if name != "files"}
    assert (await client.get("/v1/skills/review")).json() == newer

    assert (await stranger.get("/v1/skills")).json() == {"data": []}
    for method in ("GET", "DELETE"):
        problem(await stranger.request(method, "/v1/skills/review"), 404, "not_found")
    gone = {"Idempotency-Key": "skill-gone"}
    ended = [await client.delete("/v1/skills/review", headers=gone) for _ in range(2)]
    assert [(answer.status_code, answer.content) for answer in ended] == [(204, b"")] * 2
    assert ended[1].headers["idempotency-replayed"] == "true"
    problem(await client.get("/v1/skills/review"), 404, "not_found")
    problem(await client.delete("/v1/skills/review"), 404, "not_found")


@pytest.mark.requirement("skill:upload-hostile")
async def test_what_is_refused_is_named(stage: Stage, stranger: httpx.AsyncClient) -> None:
    post = stage.client.post
    up = problem(
        await post("/v1/skills", json={"name": "x", "files": {"SKILL.md": "x", "../y": "y"}}),
        *(422, "validation_failed"),
    )
    assert pointers(up) == ["/files/..~1y"]
    wrong = problem(
        await post("/v1/skills", json={"name": 1, "files": {"SKILL.md": 2}, "extra": 3}),
        *(422, "validation_failed"),
    )
    assert pointers(wrong) == ["/name", "/files/SKILL.md", "/extra"]
    problem(await post("/v1/skills", content=b"PK junk"), 422, "validation_failed")
    problem(await post("/v1/skills"), 400, "invalid_request")
    problem(await post("/v1/skills", content=b"{"), 400, "invalid_request")
    problem(
        await post("/v1/skills", content=b"x", headers={"content-type": "text/plain"}),
        *(415, "unsupported_media_type"),
    )
    for number in range(101):
        last = await stranger.post(
            "/v1/skills", json={"name": f"s{number}", "files": {"SKILL.md": "x"}}
        )
    problem(last, 409, "too_many_skills")


@pytest.mark.requirement("skill:grants")
@pytest.mark.requirement("skill:upload-folders")
async def test_runs_load_a_skill_read_its_files_and_do_what_it_allows(stage: Stage) -> None:
    client = stage.client
    data = zipped({"review/SKILL.md": REVIEW, "review/run.sh": "#!/bin/sh\necho ran $(id -u)"})
    assert (await client.post("/v1/skills", content=data)).status_code == 201
    write = {"file_path": "/skills/review/SKILL.md", "content": "mine"}
    edit = {"file_path": "/skills/review/run.sh", "old_string": "ran", "new_string": "x"}
    run = await stage.run(
        scripted(
            bash("/skills/review/run.sh"),
            load("review"),
            bash("/skills/review/run.sh; cat /skills/review/run.sh"),
            bash("/skills/review/run.sh && touch /workspace/x"),
            {"tool": "Read", "input": {"file_path": "/skills/review/run.sh"}},
            {"tool": "Glob", "input": {"pattern": "**/*", "path": "/skills/review"}},
            {"tool": "Write", "input": write},
            {"tool": "Edit", "input": edit},
            {"text": "end"},
        ),
        options={"allowed_tools": ["Write", "Edit(/**)", "Edit(//skills/**)"]},
    )
    before, loaded, ran, more, read, found, written, edited = await results(
        stage, run["session_id"]
    )
    assert before["is_error"]
    assert "approval" in before["content"]
    assert loaded["told"] == {
        "success": True,
        "commandName": "review",
        "allowedTools": ["Bash(/skills/*)"],
    }
    assert ran["content"].startswith("ran ")
    assert more["is_error"]
    assert "echo ran" in read["content"]
    assert "/skills/review/SKILL.md" in found["content"]
    for refused in (written, edited):
        assert refused["is_error"]
    entries = (await client.get("/v1/audit", params={"run_id": run["id"]})).json()["data"]
    assert "skill: allow Bash(/skills/*)" in {entry["decided_by"]["name"] for entry in entries}
    first = stage.model.bodies()[-9]
    assert "- review: Review a change" in str(first["messages"][0])
    assert "Files of the skill review are in /skills/review" in str(stage.model.bodies()[-1])

    # It lasts in the session; a deny rule beats it, and so it is in no other session.
    again = {"options": {"allowed_tools": []}, "wait": 20}
    path = f"/v1/sessions/{run['session_id']}/runs"
    for deny in ([], ["Bash(/skills/review/*)"]):
        again["options"] = {"disallowed_tools": deny}
        prompt = scripted(bash("/skills/review/run.sh"), {"text": "end"}, text=f"{deny}")
        assert (await client.post(path, json={"prompt": prompt, **again})).status_code == 200
    allowed, denied = (await results(stage, run["session_id"]))[-2:]
    assert allowed["content"].startswith("ran ")
    assert denied["is_error"]
    prompt = scripted(bash("cat /skills/review/run.sh"), {"text": "end"}, text="/review it")
    by_user = await stage.run(prompt)
    assert "Look at it" in str(stage.model.bodies()[-1]["messages"])
    without = await stage.run(
        scripted(load("review"), bash("cat /skills/review/run.sh"), {"text": "end"}),
        options={"skills": []},
    )
    [shown] = await results(stage, by_user["session_id"])
    assert "echo ran" in shown["content"]
    unknown, hidden = await results(stage, without["session_id"])
    assert "There is no skill review" in unknown["content"]
    assert "echo ran" not in hidden["content"]
    await remove_all(client)


async def test_a_run_begins_with_what_is_there_then(stage: Stage) -> None:
    """Hosts remember skills; what is uploaded or deleted counts for the next run all the same."""

    async def announced(**headers: str) -> list[str]:
        body = {"prompt": "x", "wait": 20}
        answer = await stage.client.post("/v1/runs", json=body, headers=headers)
        path = f"/v1/sessions/{answer.json()['session']['id']}/messages"
        rows = (await stage.client.get(path)).json()["data"]
        skills: list[str] = next(row for row in rows if row.get("subtype") == "init")["skills"]
        return [name for name in skills if name.startswith("now-")]

    assert await announced() == []
    for names, once in ((["now-a"], {}), (["now-a", "now-b"], {"idempotency-key": "now"})):
        body = {"name": names[-1], "files": {"SKILL.md": names[-1]}}
        assert (await stage.client.post("/v1/skills", json=body)).status_code == 201
        assert await announced(**once) == names
        assert await announced() == names
    await remove_all(stage.client)
    assert await announced() == []
