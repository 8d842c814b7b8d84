"""Sessions that were compacted, as files."""

import json
import uuid
from typing import Any

import pytest

from tests.api.stage import Stage, problem, scripted
from tests.api.test_transcripts import (
    CALL,
    OPTIONS,
    asked,
    entry,
    exported,
    goes_on,
    imported,
    lines,
)


async def compacted(stage: Stage) -> dict[str, Any]:
    """A session that was compacted twice by hand, with something said before, between and after."""
    usage = {"usage": {"input_tokens": 5000}}
    run = await stage.run(
        scripted({**CALL, **usage}, {"text": "one", **usage}),
        options=OPTIONS,
        session={"title": "T"},
    )
    path = f"/v1/sessions/{run['session_id']}"
    for word in ("first", "second"):
        prompt = scripted({"text": f"{word} words"}, text=word)  # the answer, and the notes
        for body in ({"prompt": prompt}, {"prompt": "/compact"}):
            answer = await stage.client.post(f"{path}/runs", json={**body, "wait": 20})
            assert answer.json()["run"]["result_subtype"] == "success", answer.text
    return run


@pytest.mark.requirement("sessions:export")
@pytest.mark.requirement("sessions:import")
async def test_a_compacted_session_is_told_to_the_model_alike_after_export_and_import(
    stage: Stage,
) -> None:
    session = (await compacted(stage))["session_id"]
    file = await exported(stage, session, "claude-jsonl")
    marks = [e for e in lines(file) if e.get("subtype") == "compact_boundary"]
    assert [e["parentUuid"] for e in marks] == [None, None]
    summaries = [e for e in lines(file) if e.get("isCompactSummary")]
    assert [e["parentUuid"] for e in summaries] == [e["uuid"] for e in marks]
    assert "second words" in str(summaries[1]["message"])

    copy = await imported(stage, file)
    bodies = []
    for each in (session, copy["id"]):
        answer = await stage.client.post(
            f"/v1/sessions/{each}/runs", json={"prompt": scripted({"text": "ok"}), "wait": 20}
        )
        assert answer.json()["run"]["result_subtype"] == "success"
        bodies.append(asked(stage))
    told, again = ([(m["role"], [b.get("text") for b in m["content"]]) for m in b] for b in bodies)
    assert "second words" in str(again[0])
    assert "first words" not in str(again)
    assert told[:2] == again[:2]
    assert ("second words" in str(again[1]), told[-1][1][-1]) == (True, again[-1][1][-1])
    whole = (await stage.client.get(f"/v1/sessions/{session}/messages?limit=1000")).json()["data"]
    assert lines(await exported(stage, session, "stream-json")) == whole
    assert (await exported(stage, session, "markdown")).count("saw a summary of what stands") == 2


@pytest.mark.requirement("sessions:import")
async def test_what_a_compaction_kept_stands_behind_its_summary(stage: Stage) -> None:
    old, asks, says, mark, summary, after = (str(uuid.uuid4()) for _ in range(6))
    kept = {"headUuid": says, "anchorUuid": summary, "tailUuid": says}
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": mark,
        "parentUuid": None,
        "compactMetadata": {"trigger": "auto", "preservedSegment": kept},
    }
    file = [
        entry("user", "old", uuid=old),
        entry("user", "asks", uuid=asks, parent=old),
        entry("assistant", [{"type": "text", "text": "says"}], uuid=says, parent=asks),
        json.dumps(boundary) + "\n",
        entry("user", "summary", uuid=summary, parent=mark, isCompactSummary=True),
        entry("user", "after", uuid=after, parent=summary),
    ]
    assert await goes_on(stage, "".join(file)) == [
        ("user", ["summary"]),
        ("assistant", ["says"]),
        ("user", ["after", "on"]),
    ]
    bare = {name: value for name, value in boundary.items() if name != "compactMetadata"}
    unnamed = [*file[:3], json.dumps(bare) + "\n", *file[4:]]
    assert await goes_on(stage, "".join(unnamed)) == [("user", ["summary", "after", "on"])]
    circle = {**boundary, "compactMetadata": {"preservedSegment": {**kept, "tailUuid": after}}}
    hostile = "".join([*file[:3], json.dumps(circle) + "\n", *file[4:]])
    answer = await stage.client.post("/v1/sessions/import", content=hostile.encode())
    problem(answer, 422, "validation_failed")
    many = [json.dumps({**boundary, "uuid": str(uuid.uuid4())}) + "\n" for _ in range(101)]
    answer = await stage.client.post(
        "/v1/sessions/import", content="".join([*file[:3], *many]).encode()
    )
    assert "too many" in problem(answer, 422, "validation_failed")["detail"]
