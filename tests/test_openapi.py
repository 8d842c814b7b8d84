"""The OpenAPI document: whole, stable, and the one that is checked in."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.domain.messages import (
    ApiRetryMessage,
    Message,
    OtherSystemMessage,
    WorkerShuttingDownMessage,
    encode_message,
)
from app.domain.notices import (
    InformationalMessage,
    RateLimitEvent,
    RateLimitInfo,
    StatusMessage,
    ThinkingTokensMessage,
    ToolProgressMessage,
)
from app.main import openapi_document
from tests.wire_schemas import VALIDATOR, schemas_of

ROOT = Path(__file__).parents[1]
DOCUMENT = openapi_document()
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (method, path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
IDS = [f"{method} {path}" for method, path, _ in OPERATIONS]
each_operation = pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=IDS)


def schema(reference: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, through "or null"; what is written out stands for itself."""
    options = [o for o in reference.get("anyOf", [reference]) if o.get("type") != "null"]
    if "$ref" not in options[0]:
        return reference
    name = options[0]["$ref"].removeprefix("#/components/schemas/")
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name]
    return found


def test_the_document_checked_in_is_the_one_that_the_program_gives() -> None:
    script = [sys.executable, "scripts/openapi.py", "--check"]
    checked = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads((ROOT / "docs" / "openapi.json").read_text()) == DOCUMENT


def test_the_check_finds_a_document_that_is_out_of_date(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    script = tmp_path / "scripts" / "openapi.py"
    script.write_text((ROOT / "scripts" / "openapi.py").read_text())
    (tmp_path / "docs" / "openapi.json").write_text("{}\n")
    checked = subprocess.run(
        [sys.executable, script, "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1
    assert "make openapi" in checked.stdout


def test_the_document_does_not_depend_on_when_or_where_it_is_made() -> None:
    program = "import json; from app.main import openapi_document as d; print(json.dumps(d()))"
    made = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "TREADLE_LIMITS__MAX_BODY_BYTES": "5"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert [json.loads(document) for document in made] == [DOCUMENT]


def test_it_is_openapi_3_1_and_names_the_ways_to_give_a_key() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["info"]["title"] == "Treadle"
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert {(s["type"], s.get("scheme") or s.get("name")) for s in schemes.values()} == {
        ("http", "bearer"),
        ("apiKey", "x-api-key"),
    }


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    used = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert used == set(DOCUMENT["components"]["schemas"])


def test_operation_ids_are_unique_and_name_resource_and_verb() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(ids)) == len(ids)
    assert all(
        re.fullmatch(r"(run|session|action|service|problem|skill)_[a-z]+", name) for name in ids
    )


@each_operation
def test_an_operation_explains_itself(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    for kind in ("4XX", "5XX"):
        answer = operation["responses"][kind]
        assert list(answer["content"]) == ["application/problem+json"]
        problem = schema(answer["content"]["application/problem+json"]["schema"])
        assert set(problem["required"]) == {
            *("type", "title", "status", "detail", "instance", "code", "request_id", "retryable")
        }
    assert "422" not in operation["responses"]
    is_open = path in {"/healthz", "/readyz", "/problems/{name}"}
    assert ("security" in operation) is not is_open
    assert method in {"get", "post", "patch", "delete"}


@each_operation
def test_a_query_parameter_explains_itself(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    del method, path
    asked = [p for p in operation.get("parameters", ()) if p["in"] != "path"]
    assert [parameter["name"] for parameter in asked if not parameter.get("description")] == []


@each_operation
def test_a_body_is_json_and_has_an_example(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    if method in {"get", "delete"} or path.endswith("archive"):
        assert "requestBody" not in operation
        return
    content = dict(operation["requestBody"]["content"])
    if path.endswith("/import"):
        assert content["application/x-ndjson"]["example"]
        return
    if path.endswith("/skills"):
        assert content.pop("application/zip")["schema"]["format"] == "binary"
    assert list(content) == ["application/json"], path
    whole = content["application/json"]["schema"]
    for form in whole.get("oneOf", [whole]):
        body = schema(form)
        assert body["additionalProperties"] is False
        (example,) = body["examples"]
        assert set(example) <= set(body["properties"])


@each_operation
def test_an_answer_has_an_example_that_fits_its_schema(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    del method
    schemas = {"components": DOCUMENT["components"]}
    contents = {
        (status, kind): content
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for kind, content in answer.get("content", {}).items()
    }
    assert contents or path == "/v1/skills/{name}"
    for (_, kind), content in contents.items():
        example = content["example"]
        if kind != "application/json":
            assert example.endswith("\n")
            continue
        VALIDATOR({**content["schema"], **schemas}).validate(example)
        shown = schema(content["schema"])
        if "properties" in shown:
            assert set(example) == set(shown["properties"])
            items = shown["properties"].get("data", {}).get("items")
            for item in example["data"] if items else ():
                assert set(item) <= set(schema(items).get("properties", item))


def test_a_stream_says_what_its_frames_hold_and_the_example_fits() -> None:
    content = DOCUMENT["paths"]["/v1/runs/{run_id}/stream"]["get"]["responses"]["200"]["content"]
    stream = content["text/event-stream"]
    events, seen = stream["x-sse-events"], set()
    assert set(events) == {"message", "service", "preview", "problem", "end", "entry"}
    for name, data in re.findall(r"^event: (\w+)\ndata: (.+)$", stream["example"], re.MULTILINE):
        schemas = {"components": DOCUMENT["components"]}
        VALIDATOR({**events[name], **schemas}).validate(json.loads(data))
        seen.add(name)
    assert seen == {"service", "message", "end"}
    for line in filter(None, content["application/x-ndjson"]["example"].splitlines()):
        assert json.loads(line)["event"] in events


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/v1/runs/{run_id}/stream"),
        ("get", "/v1/sessions/{session_id}/stream"),
        ("post", "/v1/runs"),
        ("post", "/v1/sessions/{session_id}/runs"),
    ],
)
def test_what_can_stream_says_so(method: str, path: str) -> None:
    assert "text/event-stream" in DOCUMENT["paths"][path][method]["responses"]["200"]["content"]


OF: dict[str, Any] = {"session_id": "s", "uuid": "u"}


@pytest.mark.parametrize(
    "message",
    [
        StatusMessage(**OF, status="requesting"),
        StatusMessage(**OF, status=None),
        ThinkingTokensMessage(**OF, estimated_tokens=3, estimated_tokens_delta=3),
        InformationalMessage(**OF, content="x", level="warning"),
        RateLimitEvent(**OF, rate_limit_info=RateLimitInfo(status="allowed", utilization=0.5)),
        ToolProgressMessage(**OF, tool_use_id="t", tool_name="Bash", elapsed_time_seconds=5),
        WorkerShuttingDownMessage(**OF),
        OtherSystemMessage(**OF, subtype="of_a_later_version"),
        ApiRetryMessage(
            **OF, attempt=1, max_retries=2, retry_delay_ms=3, error_status=None, error="unknown"
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_fits_one_schema_of_the_union_and_no_other(message: Message) -> None:
    assert schemas_of(json.loads(encode_message(message))) == [type(message).__name__]


@pytest.mark.parametrize("block", ["text", "thinking", "tool_use", "tool_result", "image"])
def test_a_block_fits_one_schema_of_the_union_and_no_other(block: str) -> None:
    fields = {"text": "x", "thinking": "x", "signature": "x", "id": "t", "name": "n", "input": {}}
    value = {"type": block, **fields, "tool_use_id": "t", "content": "x"}
    schemas = DOCUMENT["components"]["schemas"]
    items = schemas["ApiMessage"]["properties"]["content"]["items"]
    VALIDATOR({**items, "components": {"schemas": schemas}}).validate(value)
