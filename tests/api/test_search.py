"""Finding sessions and messages by words."""

import uuid
from typing import Any

import httpx
import pytest

from app.runs.searching import excerpt
from tests.api.stage import Stage, problem, scripted
from tests.store.seeds import until


def word() -> str:
    """A word that nobody else says."""
    return f"w{uuid.uuid4().hex}"


async def hits(client: httpx.AsyncClient, q: str, *, most: int = 50) -> list[dict[str, Any]]:
    answer = await client.get("/v1/search", params={"q": q, "limit": most})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def some(client: httpx.AsyncClient, q: str, number: int) -> list[dict[str, Any]]:
    """Wait until so many messages are found."""

    async def are_there() -> bool:
        return len(await hits(client, q)) >= number

    await until(are_there)
    return await hits(client, q)


async def listed(stage: Stage, q: str) -> list[str]:
    answer = await stage.client.get("/v1/sessions", params={"q": q})
    assert answer.status_code == 200, answer.text
    return [session["id"] for session in answer.json()["data"]]


@pytest.mark.requirement("sessions:search")
async def test_prompts_answers_calls_and_results_are_found(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    said, called, printed = word(), word(), word()
    command = f"echo {called}; printf %s {printed[:9]}; printf %s {printed[9:]}"
    run = await stage.run(
        scripted({"tool": "Bash", "input": {"command": command}}, {"text": f"It is {said}, so."}),
        options={"allowed_tools": ["Bash"]},
        session={"title": "T"},
    )
    (result,) = await some(stage.client, printed, 1)
    assert (result["type"], result["run_id"]) == ("user", run["id"])
    assert (result["session_id"], result["session_title"]) == (run["session_id"], "T")
    page = await stage.client.get(f"/v1/sessions/{run['session_id']}/events")
    (row,) = [each for each in page.json()["data"] if each["seq"] == result["seq"]]
    assert row["data"]["uuid"] == result["uuid"]
    answers = [hit for hit in await hits(stage.client, f"{said} -Bash") if hit["type"] != "user"]
    assert [hit["excerpt"] for hit in answers] == [f"It is {said}, so."]
    # The script is a part of the prompt, the command of the call.
    assert {hit["type"] for hit in await hits(stage.client, called)} == {"user", "assistant"}
    assert await hits(stage.client, f"{said} {printed}") == []
    assert await hits(stranger, said) == []


@pytest.mark.requirement("sessions:search")
async def test_pages_of_hits_go_on_where_the_last_one_ended(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    said = word()
    for number in range(3):
        await stage.run(f"{said} number {number}")
    everything = [hit["excerpt"] for hit in await some(stage.client, said, 3)]
    assert everything == [f"{said} number {number}" for number in (2, 1, 0)]
    found, cursor = [], None
    while True:
        query: dict[str, str | int] = {"q": said, "limit": 1}
        query |= {"cursor": cursor} if cursor else {}
        page = (await stage.client.get("/v1/search", params=query)).json()
        found += [hit["excerpt"] for hit in page["data"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert found == everything
    page = (await stage.client.get("/v1/search", params={"q": said, "limit": 1})).json()
    other = {"q": "other", "cursor": page["next_cursor"]}
    problem(await stage.client.get("/v1/search", params=other), 400, "cursor_invalid")
    theirs = {"q": said, "cursor": page["next_cursor"]}
    problem(await stranger.get("/v1/search", params=theirs), 400, "cursor_invalid")


@pytest.mark.requirement("sessions:search")
async def test_lists_find_titles_at_once_and_first_prompts_a_moment_later(stage: Stage) -> None:
    titled, prompted, later = word(), word(), word()
    session = (await stage.session(title=f"About {titled}"))["id"]
    assert await listed(stage, titled) == [session]
    slow = scripted({"blocks": [{"text": "x"}], "delay": 20}, text=f"Do {prompted}.")
    running = (await stage.client.post("/v1/runs", json={"prompt": slow})).json()["run"]

    async def is_found() -> bool:
        return await listed(stage, prompted) == [running["session_id"]]

    await until(is_found)
    await stage.client.patch(f"/v1/sessions/{running['session_id']}", json={"title": later})
    assert await listed(stage, f"{prompted} {later}") == [running["session_id"]]
    await stage.client.patch(f"/v1/sessions/{session}", json={"title": "x"})
    assert await listed(stage, titled) == []
    await stage.client.post(f"/v1/runs/{running['id']}/cancel", params={"wait": 20})


@pytest.mark.requirement("sessions:search")
async def test_what_came_with_a_fork_or_an_import_is_found_too(stage: Stage) -> None:
    said = word()
    run = await stage.run(scripted({"text": f"It is {said}."}, text="Say it."))
    path = f"/v1/sessions/{run['session_id']}"
    fork = (await stage.client.post(f"{path}/fork", json={})).json()["id"]
    file = (await stage.client.get(f"{path}/export?format=claude-jsonl")).content
    copy = (await stage.client.post("/v1/sessions/import", content=file)).json()["id"]
    found = await some(stage.client, said, 3)
    assert {(hit["session_id"], hit["run_id"]) for hit in found} == {
        (run["session_id"], run["id"]),
        (fork, None),
        (copy, None),
    }
    left = "SELECT count(*) FROM sessions WHERE copied_to_seq IS NOT NULL"
    assert await stage.host.service.database.raw.fetchval(left) == 0


@pytest.mark.requirement("sessions:search")
async def test_odd_queries_find_nothing_or_are_refused(stage: Stage) -> None:
    for q in ("' & | ! ( : *", "\\", "\u202e", '"', "-", "a" * 500):
        assert await hits(stage.client, q) == []
    for q in ("", "a" * 501):
        answer = await stage.client.get("/v1/search", params={"q": q})
        problem(answer, 422, "validation_failed")


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("short", "nothing", "short"),
        ("x" * 100 + " needle\n\nhere", '"needle"', "… " + "x" * 59 + " needle here"),
        ("a" * 300, "q", "a" * 200 + " …"),
        ("", "q", ""),
    ],
)
def test_an_excerpt_is_a_line_around_the_first_of_the_words(
    text: str, query: str, shown: str
) -> None:
    assert excerpt(text, query) == shown
