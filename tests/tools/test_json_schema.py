"""Schemas of clients: what is taken, what is refused and where, and that nothing runs away."""

import json
import time
from typing import Any

import pytest

from app.tools import json_schema
from app.tools.json_schema import Checker, SchemaRefused, check_schema, pointer

TEXT: dict[str, Any] = {"type": "string"}


def refusal(schema: dict[str, Any]) -> SchemaRefused:
    with pytest.raises(SchemaRefused) as caught:
        check_schema(json.dumps(schema).encode())
    return caught.value


def checker(schema: dict[str, Any]) -> Checker:
    check_schema(json.dumps(schema).encode())
    return Checker(schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


@pytest.mark.requirement("output:schema")
@pytest.mark.parametrize(
    ("schema", "at", "why"),
    [
        ({"type": "array"}, "/type", "must be `object`"),
        ({"properties": {"a": {"type": "strng"}}}, "/properties/a/type", "strng"),
        ({"properties": {"a/b": {"minLength": "1"}}}, "/properties/a~1b/minLength", "integer"),
        ({"required": "n"}, "/required", "array"),
        ({"$schema": "https://json-schema.org/draft-04/schema"}, "/$schema", "2020-12"),
        ({"not": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "/not/$schema", "top"),
        ({"not": {"$id": "https://example.com"}}, "/not/$id", "top"),
        ({"not": {"$ref": "http://127.0.0.1/x"}}, "/not/$ref", "not followed"),
        ({"not": {"$ref": "file:///etc/passwd"}}, "/not/$ref", "not followed"),
        ({"not": {"$ref": "#/$defs/a"}}, "/not/$ref", "nowhere"),
        ({"not": {"$ref": "#other"}}, "/not/$ref", "nowhere"),
        ({"const": {"minLength": "x"}, "not": {"$ref": "#/const"}}, "/not/$ref", "integer"),
        ({"$ref": "#"}, "", "without end"),
        ({"anyOf": [{"allOf": [{"$ref": "#"}]}]}, "", "without end"),
        ({"properties": {"a": {"pattern": "(a"}}}, "/properties/a/pattern", "unclosed"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "/properties/a/pattern", "look-around"),
        ({"patternProperties": {"[": True}}, "/patternProperties/[", "unclosed"),
        ({"not": {"pattern": "a" * 1001}}, "/not/pattern", "1000 characters"),
        ({"not": {"pattern": "(((a{999}){999}){999}){999}"}}, "/not/pattern", "size limit"),
        ({"title": "x" * 70_000}, "", "65536 bytes"),
        (nested(60), "/not" * 51, "50 levels"),
        ({"patternProperties": {"a": True}, "unevaluatedProperties": False}, "", "combined"),
    ],
)
def test_a_schema_that_cannot_work_is_refused_where_it_is_wrong(
    schema: dict[str, Any], at: str, why: str
) -> None:
    refused = refusal(schema)
    assert (pointer(refused.path), why in refused.message) == (at, True), refused.message


@pytest.mark.parametrize(
    ("schema", "good", "bad", "problem"),
    [
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1}, {"n": "1"}, "/n: '1' is not of"),
        ({"required": ["n"]}, {"n": 1}, {}, "root: 'n' is a required property"),
        ({"additionalProperties": False}, {}, {"x": 1}, "root: the property 'x' is not allowed"),
        ({"additionalProperties": TEXT}, {"x": ""}, {"x": 1}, "/x: 1 is not of type 'string'"),
        (
            {"patternProperties": {"^x": TEXT}, "additionalProperties": False},
            {"xy": ""},
            {"yx": ""},
            "root: the property 'yx' is not allowed",
        ),
        ({"patternProperties": {"^x": TEXT}}, {"y": 1}, {"x": 1}, "/x: 1 is not of type"),
        ({"properties": {"a": {"pattern": "^a+$"}}}, {"a": "aa"}, {"a": "ab"}, "/a: 'ab' does not"),
        (
            {"properties": {"a": {"uniqueItems": True}}},
            {"a": [1, True, "1", {"b": 1}, {"b": True}, [1]]},
            {"a": [{"b": 1, "c": [2]}, {"c": [2.0], "b": 1}]},
            "/a: has items that are equal",
        ),
        (
            {"$defs": {"t": TEXT}, "properties": {"a": {"$ref": "#/$defs/t"}}},
            {"a": ""},
            {"a": 1},
            "/a: 1 is not of type 'string'",
        ),
        (
            {"properties": {"c": {"$ref": "#"}}, "required": ["v"]},
            {"v": 1},
            {"v": 1, "c": {}},
            "/c: 'v'",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$id": "https://example.com/s",
                "definitions": {"t": TEXT},
                "properties": {"a": {"$ref": "#/definitions/t"}},
            },
            {"a": ""},
            {"a": 1},
            "/a: 1 is not of type 'string'",
        ),
        (
            {
                "$schema": "https://json-schema.org/draft/2019-09/schema",
                "properties": {"c": {"$recursiveRef": "#"}},
                "required": ["v"],
            },
            {"v": 1},
            {"v": 1, "c": {}},
            "/c: 'v' is a required property",
        ),
        (
            {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
            {"a": 1},
            {"b": 1},
            "root: Unevaluated properties",
        ),
    ],
)
def test_a_value_fits_or_is_told_where_it_does_not(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any], problem: str
) -> None:
    held = checker(schema)
    assert held.problems(good) == []
    [found] = held.problems(bad)
    assert found.startswith(problem)


def test_few_problems_are_told_and_each_is_short() -> None:
    held = checker({"additionalProperties": {"type": "integer"}})
    found = held.problems({str(number): "x" * 10_000 for number in range(100)})
    assert len(found) == json_schema.MAX_PROBLEMS
    assert all(len(line) < 400 for line in found)


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


_TWICE = {"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["q"]}


@pytest.mark.requirement("output:bounded")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$defs": {"a": {"anyOf": [_TWICE, _TWICE]}}, **_TWICE, "required": []}, deep(90)),
        ({"anyOf": [{"maxProperties": 0}] * 1_000}, {str(i): "x" * 1_000 for i in range(5_000)}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"b": i} for i in range(900_000)]}),
        ({"properties": {"a": {"pattern": "(a{900}){50}"}}}, {"a": "a" * 100_000}),
        ({"properties": {"a": {"multipleOf": 0.1}}}, {"a": 10**400}),
    ],
    ids=["doubling", "long messages", "many items", "large pattern", "large number"],
)
def test_a_hostile_schema_takes_little_time_and_nothing_fits_it(
    schema: dict[str, Any], value: dict[str, Any]
) -> None:
    held = checker(schema)
    began = time.thread_time()
    [problem] = held.problems(value, cpu_s=0.2)
    assert problem.startswith("root: ")
    assert time.thread_time() - began < 2


@pytest.mark.requirement("output:bounded")
def test_a_pattern_that_backtracks_elsewhere_is_matched_in_linear_time() -> None:
    held = checker({"properties": {"a": {"pattern": "^(a+)+$"}}})
    began = time.thread_time()
    assert held.problems({"a": "a" * 100_000 + "!"})
    assert time.thread_time() - began < 1


@pytest.mark.requirement("output:bounded")
def test_a_schema_that_doubles_itself_is_refused_in_time() -> None:
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    began = time.thread_time()
    refused = refusal({"$ref": "#/$defs/d0", "$defs": {**doubling, "d40": True}})
    assert "too long" in refused.message
    assert time.thread_time() - began < json_schema.CHECK_CPU_S + 2
