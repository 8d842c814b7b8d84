"""Structured output over HTTP: what is refused, and what a client reads of it."""

import json
from typing import Any

import pytest

from tests.api.stage import Stage, pointers, problem, scripted

SCHEMA = {
    "type": "object",
    "properties": {"zeta": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["zeta", "n"],
    "additionalProperties": False,
}


def options(schema: object = SCHEMA) -> dict[str, Any]:
    return {"model": "m-scripted", "output_format": {"type": "json_schema", "schema": schema}}


def gives(**given: Any) -> dict[str, Any]:
    return {"tool": "StructuredOutput", "input": given}


@pytest.mark.requirement("output:success")
async def test_a_run_gives_the_object_on_the_wire_and_in_the_run(stage: Stage) -> None:
    prompt = scripted(gives(zeta="x"), gives(zeta="x", n=1))
    run = await stage.run(prompt, options=options())
    assert run["result"] == {
        "text": '{"zeta":"x","n":1}',
        "structured_output": {"zeta": "x", "n": 1},
    }
    assert run["options"]["output_format"] == options()["output_format"]
    result = (await stage.client.get(f"/v1/runs/{run['id']}/result")).json()
    assert result["structured_output"] == {"zeta": "x", "n": 1}
    requests = [r.body for r in stage.model.requests if prompt in str(r.body)]
    offered = [request["tools"][-1] for request in requests]
    assert {tool["name"] for tool in offered} == {"StructuredOutput"}
    assert [list(tool["input_schema"]["properties"]) for tool in offered] == [["zeta", "n"]] * 2
    assert all("tool_choice" not in request for request in requests)


@pytest.mark.requirement("output:resume")
async def test_a_later_run_offers_the_schema_byte_for_byte(stage: Stage) -> None:
    first = await stage.run(scripted(gives(zeta="x", n=1)), options=options())
    again = scripted(gives(zeta="y", n=2))
    answer = await stage.client.post(
        f"/v1/sessions/{first['session_id']}/runs", json={"prompt": again, "wait": 20}
    )
    run = answer.json()["run"]
    assert run["result"]["structured_output"] == {"zeta": "y", "n": 2}
    session = answer.json()["session"]
    assert session["options"]["output_format"] == options()["output_format"]
    mine = [r for r in stage.model.requests if first["session_id"] in str(r.body.get("metadata"))]
    heads = [json.dumps([r.body["system"], r.body["tools"]]) for r in mine]
    assert len(heads) == 2
    assert heads[0] == heads[1]


@pytest.mark.requirement("output:attempts")
async def test_a_run_without_a_valid_object_is_an_error_that_keeps_what_came(stage: Stage) -> None:
    run = await stage.run(scripted(*[gives(zeta=str(i)) for i in range(9)]), options=options())
    assert run["result_subtype"] == "error_max_structured_output_retries"
    assert (run["end_reason"], run["is_error"], run["num_turns"]) == ("structured_output", True, 5)
    assert run["result"] == {"text": None, "structured_output": None}
    [error] = run["errors"]
    assert '{"zeta":"4"}' in error


@pytest.mark.requirement("output:schema")
@pytest.mark.parametrize(
    ("output_format", "pointer", "code"),
    [
        ({"type": "text"}, "/options/output_format/type", "literal_error"),
        ({"type": "json_schema"}, "/options/output_format/schema", "missing"),
        ({"type": "json_schema", "schema": 5}, "/options/output_format/schema", "dict_type"),
        ({**options()["output_format"], "x": 1}, "/options/output_format/x", "extra_forbidden"),
    ],
)
async def test_another_form_of_output_is_refused(
    stage: Stage, output_format: dict[str, Any], pointer: str, code: str
) -> None:
    body = {"prompt": "hello", "options": {"output_format": output_format}}
    found = problem(await stage.client.post("/v1/runs", json=body), 422, "validation_failed")
    assert (found["errors"][0]["pointer"], found["errors"][0]["code"]) == (pointer, code)


@pytest.mark.requirement("output:schema")
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "array"}, "/type"),
        ({"properties": {"a": {"type": "strng"}}}, "/properties/a/type"),
        ({"not": {"$ref": "http://169.254.169.254/latest"}}, "/not/$ref"),
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a/pattern"),
        ({"$ref": "#"}, ""),
    ],
)
async def test_an_invalid_schema_is_refused_with_its_pointer(
    stage: Stage, schema: dict[str, Any], pointer: str
) -> None:
    bodies = {
        "/v1/runs": {"prompt": "hello", "options": options(schema)},
        "/v1/sessions": {"options": options(schema)},
    }
    for path, body in bodies.items():
        found = problem(await stage.client.post(path, json=body), 422, "validation_failed")
        assert pointers(found) == [f"/options/output_format/schema{pointer}"]
        assert found["errors"][0]["code"] == "invalid_schema"


async def test_a_queued_run_is_not_changed_to_an_invalid_schema(stage: Stage) -> None:
    hold = await stage.client.post("/v1/runs", json={"prompt": scripted({"delay": 3})})
    path = f"/v1/sessions/{hold.json()['session']['id']}/runs"
    waiting = (await stage.client.post(path, json={"prompt": "later"})).json()["run"]
    answer = await stage.client.patch(
        f"/v1/runs/{waiting['id']}", json={"options": options({"type": "array"})}
    )
    assert pointers(problem(answer, 422, "validation_failed")) == [
        "/options/output_format/schema/type"
    ]


@pytest.mark.requirement("output:retracted")
async def test_a_fallback_answers_for_an_output_that_broke_off(stage: Stage) -> None:
    given = {"blocks": [gives(zeta="x", n=1)], "error_after": 4, "only_model": "m-scripted"}
    run = await stage.run(
        scripted(given), options={**options(), "fallback_model": "claude-sonnet-5"}
    )
    assert run["result"]["structured_output"] == {"zeta": "x", "n": 1}
    requests = [r.body["model"] for r in stage.model.requests if run["session_id"] in str(r.body)]
    assert requests == ["m-scripted", "claude-sonnet-5"]
