"""Bodies: what is no JSON, too large, or cannot be stored is refused, and where is said."""

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, pointers, problem, raw, until
from tests.hosts import KEY

JSON = {"content-type": "application/json"}
MB = 1_000_000


async def post(
    stage: Stage, content: bytes, path: str = "/v1/runs", **headers: str
) -> httpx.Response:
    return await stage.client.post(path, content=content, headers={**JSON, **headers})


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"prompt": "x"',
        b'{"prompt": "x"} {}',
        b"prompt=x",
        b"{'prompt': 'x'}",
        b'{"prompt": "\xff"}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\\udc00 tail"}',
        b'{"metadata": {"\\ud800": "x"}, "prompt": "x"}',
        b'{"prompt": "a\x00b"}',
        b'{"prompt": "tab\tin it"}',
        b'{"prompt": "x", "options": {"max_turns": NaN}}',
        b'{"prompt": "x", "options": {"max_budget_usd": Infinity}}',
        b'{"prompt": "x", "options": {"max_budget_usd": -Infinity}}',
        b'{"prompt": "x", "wait": ' + b"1" * 10_000 + b"}",
        b"[" * 20_000,
        b"[" * 20_000 + b"]" * 20_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        '{"prompt": "x"}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"prompt": "x"}',
    ],
)
async def test_what_is_no_json_is_400_with_its_place(stage: Stage, content: bytes) -> None:
    body = problem(await post(stage, content), 400, "invalid_request")
    assert "line " in body["detail"]
    assert "column " in body["detail"]


async def test_what_is_not_utf8_is_named_with_its_place(stage: Stage) -> None:
    body = problem(await post(stage, b'{"prompt":\n  "x\xff"}'), 400, "invalid_request")
    assert body["detail"] == "The body is not valid JSON (line 2, column 5): it is not UTF-8."


@pytest.mark.parametrize("half", ["\\ud800", "\\udc00", "\\ud800\\u0041"])
async def test_a_lone_surrogate_is_named(stage: Stage, half: str) -> None:
    content = f'{{"prompt":\n "x {half} y"}}'.encode()
    body = problem(await post(stage, content), 400, "invalid_request")
    assert "(line 2, column 5): half of a surrogate pair" in body["detail"]


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/sessions/import", "/v1/skills?name=x"])
async def test_a_body_that_is_packed_is_415(stage: Stage, path: str) -> None:
    packed = gzip.compress(b'{"prompt": "x"}')
    answer = await post(stage, packed, path, **{"content-encoding": "gzip"})
    assert "Content-Encoding" in problem(answer, 415, "unsupported_media_type")["detail"]
    plain = await post(stage, b'{"prompt": "x"}', **{"content-encoding": "identity"})
    assert plain.status_code == 202


@pytest.mark.parametrize("depth", [101, 400, 1000])
@pytest.mark.parametrize("filling", ['"x"', '"\\u0000"'])
async def test_json_that_nests_too_deep_to_be_stored_is_400(
    stage: Stage, depth: int, filling: str
) -> None:
    part = '{"type": "image", "source": {"a": ' + "[" * depth + filling + "]" * depth + "}}"
    content = '{"messages": [{"message": {"content": [' + part + "]}}]}"
    body = problem(await post(stage, content.encode()), 400, "invalid_request")
    assert "nests deeper" in body["detail"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"prompt": "a", "prompt": "b"}', "prompt"),
        (b'{"prompt": "a", "prompt": "a"}', "prompt"),
        (b'{"prompt": "a", "options": {"model": "demo", "mod\\u0065l": "x"}}', "model"),
        (b'{"prompt": "a", "metadata": {"k": "1", "k": "2"}}', "k"),
    ],
)
async def test_a_name_that_stands_twice_is_400(stage: Stage, content: bytes, name: str) -> None:
    body = problem(await post(stage, content), 400, "invalid_request")
    assert f"'{name}'" in body["detail"]


@pytest.mark.parametrize(
    "content", [b"[]", b'["prompt"]', b'"prompt"', b"1", b"true", b"null", b""]
)
async def test_a_body_that_is_no_object_is_422(stage: Stage, content: bytes) -> None:
    body = problem(await post(stage, content), 422, "validation_failed")
    assert pointers(body) == [""]
    assert "JSON object" in body["detail"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "The body: exactly one of `prompt` and `messages` is needed"),
        (b'{"prompt": " "}', "/prompt: must say something"),
        (b'{"prompt": "x", "options": 3}', "/options: must be a JSON object"),
    ],
)
async def test_what_is_wrong_is_said_in_our_words(stage: Stage, content: bytes, said: str) -> None:
    body = problem(await post(stage, content), 422, "validation_failed")
    assert body["detail"] == said


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"prompt": "a\0b"}, "/prompt"),
        ({"prompt": "x", "metadata": {"k": "\0"}}, "/metadata/k"),
        ({"prompt": "x", "metadata": {"a\0": "x"}}, "/metadata"),
        ({"prompt": "x", "session": {"title": "\0"}}, "/session/title"),
        ({"prompt": "x", "session": {"id": "\0"}}, "/session/id"),
        ({"prompt": "x", "options": {"allowed_tools": ["Read", "\0"]}}, "/options/allowed_tools/1"),
        ({"messages": [{"message": {"content": "\0"}}]}, "/messages/0/message/content"),
    ],
)
async def test_a_nul_is_400_with_its_pointer(
    stage: Stage, body: dict[str, Any], pointer: str
) -> None:
    found = problem(await stage.client.post("/v1/runs", json=body), 400, "invalid_request")
    assert found["errors"] == [
        {"pointer": pointer, "code": "nul", "message": "must not hold a NUL"}
    ]


async def test_text_that_only_looks_like_an_escaped_nul_is_fine(stage: Stage) -> None:
    session = await stage.session(title="C:\\u0000")
    assert session["title"] == "C:\\u0000"


async def test_text_of_all_planes_comes_back_as_it_was(stage: Stage) -> None:
    title = "\u00e4\u2028\u2029\x85\x7f\x1f \U0001f600 \U0010ffff \ufffe \u202e"
    session = await stage.session(title=title, metadata={title: title})
    again = (await stage.client.get(f"/v1/sessions/{session['id']}")).json()
    assert (again["title"], again["metadata"]) == (title, {title: title})


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/xml",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "text/json",
    ],
)
async def test_another_content_type_is_415(stage: Stage, kind: str) -> None:
    answer = await post(stage, b'{"prompt": "x"}', **{"content-type": kind})
    assert "application/json" in problem(answer, 415, "unsupported_media_type")["detail"]


@pytest.mark.parametrize(
    "kind",
    [
        b"",
        b"content-type: application/x-www-form-urlencoded\r\n",
        b"content-type: application/json; charset=utf-8\r\n",
        b"Content-Type: APPLICATION/JSON\r\n",
    ],
    ids=["none", "as curl -d sends it", "with charset", "in capitals"],
)
async def test_json_is_taken_as_json_whatever_curl_calls_it(stage: Stage, kind: bytes) -> None:
    content = b'{"title": "by hand"}'
    status, _ = await raw(
        stage.base_url,
        b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\n%scontent-length: %d\r\n\r\n%s"
        % (KEY.encode(), kind, len(content), content),
    )
    assert status == 201


async def test_a_form_is_not_json_even_if_its_type_is_forgiven(stage: Stage) -> None:
    answer = await stage.client.post("/v1/runs", data={"prompt": "x"})
    problem(answer, 400, "invalid_request")


async def test_20_mb_with_a_content_length_are_413_at_once(stage: Stage) -> None:
    status, answer = await raw(
        stage.base_url,
        b"POST /v1/runs HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\ncontent-length: %d\r\n\r\n{"
        % (KEY.encode(), 20 * MB),
    )
    assert status == 413
    assert json.loads(answer.split(b"\r\n\r\n")[1])["code"] == "payload_too_large"


async def test_20_mb_in_chunks_are_413_when_the_limit_is_passed(stage: Stage) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(20):
            sent += MB
            yield b" " * MB

    answer = await stage.client.post("/v1/runs", content=chunks(), headers=JSON)
    problem(answer, 413, "payload_too_large")
    problem(await post(stage, b" " * (20 * MB)), 413, "payload_too_large")


async def test_a_large_body_below_the_limit_is_read(stage: Stage) -> None:
    answer = await post(stage, b" " * (9 * MB) + b'{"title": "late"}', "/v1/sessions")
    assert answer.status_code == 201


@pytest.mark.parametrize("length", [b"-1", b"abc", b"1e3", b"0x10"])
async def test_a_content_length_that_is_no_number_is_400(stage: Stage, length: bytes) -> None:
    status, _ = await raw(
        stage.base_url,
        b"POST /v1/runs HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\ncontent-length: %s\r\n\r\n{}"
        % (KEY.encode(), length),
    )
    assert status == 400


async def test_a_body_that_breaks_off_ends_its_request_quietly(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    where = httpx.URL(stage.base_url)
    head = b"POST /v1/runs HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\ncontent-length: 999\r\n\r\n{"
    for _ in range(3):
        _, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(head % KEY.encode())
        await writer.drain()
        await until(lambda: len(stage.host.server.server_state.tasks) == 1)
        writer.close()
        await until(lambda: not stage.host.server.server_state.tasks)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
