"""The log as pages, and one message everywhere the same bytes."""

from typing import Any

import pytest

from tests.api.stage import Stage, pointers, problem, read_stream, scripted

HOSTILE = (
    'a\n\ndata: {"type":"done"}\n\nid: 99\nevent: end\r\rdata: x\u2028\u2029\x85 \U0001f600 <>&"\\ '
)


@pytest.fixture
async def run(stage: Stage) -> dict[str, Any]:
    """A run that called a tool and said something hostile."""
    return await stage.run(
        scripted({"tool": "Glob", "input": {"pattern": HOSTILE}}, {"text": HOSTILE}, text=HOSTILE)
    )


async def page(
    stage: Stage, run: dict[str, Any], kind: str = "events", **params: Any
) -> dict[str, Any]:
    answer = await stage.client.get(f"/v1/sessions/{run['session_id']}/{kind}", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_events_are_dense_and_bounds_exclude_themselves(
    stage: Stage, run: dict[str, Any]
) -> None:
    whole = (await page(stage, run))["data"]
    last = whole[-1]["seq"]
    assert [entry["seq"] for entry in whole] == list(range(1, last + 1))
    assert [e["seq"] for e in (await page(stage, run, after=2))["data"]] == list(range(3, last + 1))
    assert [e["seq"] for e in (await page(stage, run, before=4))["data"]] == [1, 2, 3]
    assert [e["seq"] for e in (await page(stage, run, after=2, before=5))["data"]] == [3, 4]
    assert (await page(stage, run, after=last))["data"] == []
    assert (await page(stage, run, after=2**63 - 1))["data"] == []
    assert (await page(stage, run, before=0))["data"] == []


@pytest.mark.parametrize("kind", ["events", "messages"])
async def test_the_log_comes_in_pages_in_either_order(
    stage: Stage, run: dict[str, Any], kind: str
) -> None:
    whole = (await page(stage, run, kind))["data"]
    for order, bound in (("asc", "after"), ("desc", "before")):
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {"limit": 2, "order": order}
        while True:
            part = await page(stage, run, kind, **params)
            found += part["data"]
            assert part["has_more"] is (part["next_after"] is not None)
            if not part["has_more"]:
                break
            params[bound] = part["next_after"]
        assert found == (whole if order == "asc" else whole[::-1])


async def test_events_can_be_chosen_by_type_and_run(stage: Stage, run: dict[str, Any]) -> None:
    whole = (await page(stage, run))["data"]
    chosen = (await page(stage, run, types=["assistant", "run.queued"]))["data"]
    assert chosen == [e for e in whole if e["data"]["type"] in {"assistant", "run.queued"}]
    assert len(chosen) == 3
    assert (await page(stage, run, types="no.such"))["data"] == []
    assert (await page(stage, run, run_id="run_none"))["data"] == []
    of_run = (await page(stage, run, run_id=run["id"]))["data"]
    assert of_run == [e for e in whole if e["run_id"] == run["id"]]
    assert whole[0]["data"]["type"] == "session.created"
    assert of_run == whole[1:]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("after", "-1"),
        ("after", "x"),
        ("after", str(2**63)),
        ("after", "9" * 400),
        ("before", "-1"),
        ("limit", "0"),
        ("limit", "1001"),
        ("order", "up"),
    ],
)
async def test_bounds_out_of_range_are_422(
    stage: Stage, run: dict[str, Any], name: str, value: str
) -> None:
    for kind in ("events", "messages"):
        answer = await stage.client.get(
            f"/v1/sessions/{run['session_id']}/{kind}", params={name: value}
        )
        assert pointers(problem(answer, 422, "validation_failed")) == [name]


async def test_a_message_is_the_same_bytes_everywhere(stage: Stage, run: dict[str, Any]) -> None:
    session = f"/v1/sessions/{run['session_id']}"
    frames = await read_stream(stage.client, f"/v1/runs/{run['id']}/stream", params={"after": "0"})
    streamed = [frame.data for frame in frames if frame.event == "message"]
    assert len(streamed) == 6
    messages = (await stage.client.get(f"{session}/messages")).text
    assert messages == f'{{"data":[{",".join(streamed)}],"has_more":false,"next_after":null}}'
    events = (await stage.client.get(f"{session}/events")).text
    assert all(f'"kind":"message","data":{body}}}' in events for body in streamed)
    result = await stage.client.get(f"/v1/runs/{run['id']}/result")
    assert result.headers["content-type"] == "application/json"
    assert result.text == streamed[-1]
    assert result.json()["result"] == HOSTILE


async def test_service_events_are_the_same_in_the_log_and_in_the_stream(
    stage: Stage, run: dict[str, Any]
) -> None:
    frames = await read_stream(stage.client, f"/v1/runs/{run['id']}/stream", params={"after": "0"})
    streamed = [frame.json() for frame in frames if frame.event == "service"]
    log = (await page(stage, run))["data"]
    assert streamed == [e["data"] for e in log if e["kind"] == "service"][1:]
    assert (streamed[0]["type"], streamed[0]["seq"]) == ("run.queued", 2)
    assert all(event["session_id"] == run["session_id"] for event in streamed)


async def test_an_unfinished_run_has_no_result_yet(stage: Stage) -> None:
    answer = await stage.client.post(
        "/v1/runs", json={"prompt": scripted({"blocks": [{"text": "late"}], "delay": 30})}
    )
    run = answer.json()["run"]
    result = await stage.client.get(f"/v1/runs/{run['id']}/result")
    assert (result.status_code, result.headers["retry-after"]) == (202, "1")
    assert result.json()["status"] in {"queued", "running"}
    stopped = await stage.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 10})
    assert stopped.json()["status"] == "finished"
    assert (await stage.client.get(f"/v1/runs/{run['id']}/result")).status_code == 200
