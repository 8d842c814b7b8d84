"""Cases of tool behaviour as data: how they are set up, run and compared.

A line of `tests/spec/tool_cases_core.jsonl` is a case: `setup` (files, mtimes, modes, symlinks,
dirs), `calls` in order (an inner list is one response with several calls; `between` happens just
before a call, outside the agent), and `expect`: about the last call, in `each` about every call,
in `file_after` about the files at the end. `ours` names the decision by which a case departs from
what was observed.
"""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

from app.domain.tools import ToolResult
from tests.tools.desk import Desk

CASES_FILE = Path(__file__).parent.parent / "spec" / "tool_cases_core.jsonl"
Json = dict[str, Any]  # cases are JSON objects of many shapes

KINDS = {
    "already_exists": "already exists",
    "binary_file": "is a binary file",
    "empty": "is empty",
    "empty_file": "<system-reminder>.*is empty",
    "encoding": r"the file (is not valid|contains NUL)|\[The file (is not valid|contains NUL)",
    "identical_strings": "are the same",
    "invalid_input": "InputValidationError",
    "is_directory": "is a folder",
    "is_notebook": "is a notebook",
    "missing_file": "does not exist",
    "no_files": "^No files found",
    "no_matches": "^No matches found",
    "no_output": r"^\(\w+ completed with no output\)$",
    "not_read_yet": "was not read in this session",
    "not_unique": "occurs [0-9]+ times",
    "offset_past_end": "nothing at offset",
    "stale": "has changed since",
    "stale_but_applied": "had changed on disk",
    "string_not_found": "was not found",
    "symlink_refused": "is a symbolic link",
}


def load() -> list[Json]:
    return [json.loads(line) for line in CASES_FILE.read_text("utf-8").splitlines()]


async def run(case: Json, desk: Desk) -> list[ToolResult]:
    arrange(case["setup"], desk)
    results = []
    for step in case["calls"]:
        for call in step if isinstance(step, list) else [step]:
            change(call.get("between", {}), desk)
            given = json.loads(json.dumps(call["input"]).replace("${WS}", "/workspace"))
            results.append(await desk.call_with(call["tool"], given))
    return results


def arrange(setup: Json, desk: Desk) -> None:
    for folder in setup.get("dirs", []):
        desk.mkdir(folder)
    for path, content in setup.get("files", {}).items():
        desk.put(path, content_of(content))
    for path, target in setup.get("symlinks", {}).items():
        desk.symlink(path, target.replace("${WS}", "/workspace"))
    for path, mode in setup.get("modes", {}).items():
        (desk.dirs.ws / path).chmod(int(str(mode), 8))
    for path, mtime_s in setup.get("mtimes", {}).items():
        os.utime(desk.dirs.ws / path, (mtime_s, mtime_s))


def change(between: Json, desk: Desk) -> None:
    for path in between.get("delete", []):
        (desk.dirs.ws / path).unlink()
    for path, content in between.get("files", {}).items():
        desk.put(path, content_of(content))
        desk.later(path)
    for path, mtime_s in between.get("mtimes", {}).items():
        os.utime(desk.dirs.ws / path, (mtime_s, mtime_s))


def content_of(value: str | Json) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if "base64" in value:
        return base64.b64decode(value["base64"])
    if "lines" in value:
        return "".join(f"line {n}\n" for n in range(1, value["lines"] + 1)).encode()
    text, times = value["repeat"]
    return str(text * times).encode()


def check(case: Json, results: list[ToolResult], desk: Desk) -> None:
    expect = case["expect"]
    for index, expected in enumerate(expect.get("each", [])):
        compare(expected, results[index], f"call {index}")
    compare(expect, results[-1], "the last call")
    for path, content in expect.get("file_after", {}).items():
        assert desk.content(path) == content_of(content), path
    if "file_after" in expect:
        left = {
            str(p.relative_to(desk.dirs.ws)) for p in desk.dirs.ws.rglob("*") if p.is_file()
        } - set(expect["file_after"])
        # Only small files are listed; those that the case made are told from the rest.
        assert left <= set(case["setup"].get("files", {})) | set(case["setup"].get("symlinks", {}))


def compare(expected: Json, result: ToolResult, where: str) -> None:
    text = result.content if isinstance(result.content, str) else json.dumps(result.content)
    assert bool(result.is_error) == expected["is_error"], f"{where}: {text[:500]}"
    if "result_equals" in expected:
        assert text == expected["result_equals"].replace("${WS}", "/workspace"), where
    for part in expected.get("contains", []):
        assert part.replace("${WS}", "/workspace") in text, f"{where}: {text[:500]}"
    for part in expected.get("not_contains", []):
        assert part.replace("${WS}", "/workspace") not in text, f"{where}: {text[:500]}"
    if "kind" in expected:
        found = re.search(KINDS[expected["kind"]], text, re.DOTALL | re.MULTILINE)
        assert found, f"{where} is no {expected['kind']}: {text[:500]}"
