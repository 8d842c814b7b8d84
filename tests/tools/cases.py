"""Cases of tool behaviour as data: how they are set up, played and compared.

A line of `tests/spec/tool_cases.jsonl` is a case: `setup` (files, mtimes, modes, symlinks, dirs),
`calls` in order (an inner list is one response with several calls; `between` happens just before a
response, outside the agent), and `expect`: about the last call, in `each` about every call, in
`file_after` about the files at the end. `our_outcomes.py` says where we depart.
"""

import base64
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.providers.script import Step
from tests.tools.folder import Folder
from tests.tools.our_outcomes import Json, Ours

CASES_FILE = Path(__file__).parent.parent / "spec" / "tool_cases.jsonl"

KINDS = {
    "already_exists": "already exists",
    "bad_json": "not a notebook",
    "binary_file": "is a binary file",
    "cell_id_missing": "cell_id is needed",
    "cell_type_missing": "cell_type is needed",
    "cwd_reset": "directory is .* again",
    "empty": "is empty",
    "empty_file": "<system-reminder>.*is empty",
    "encoding": r"the file (is not valid|contains NUL)|\[The file (is not valid|contains NUL)",
    "identical_strings": "are the same",
    "invalid_input": "InputValidationError",
    "is_directory": "is a folder",
    "is_notebook": "is a notebook",
    "missing_file": "does not exist",
    "moved_to_background": "background",
    "no_files": "^No files found",
    "no_matches": "^No matches found",
    "no_output": r"^\(\w+ completed with no output\)$",
    "no_task": "not found|There are no tasks",
    "not_read_yet": "was not read in this session",
    "not_unique": "occurs [0-9]+ times",
    "offset_past_end": "nothing at offset",
    "outside": "outside the session's folders",
    "stale": "has changed since",
    "stale_but_applied": "had changed on disk",
    "string_not_found": "was not found",
    "symlink_refused": "is a symbolic link",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call as clients and the model see it."""

    content: str | list[Json]
    is_error: bool
    structured: Any
    """`tool_use_result`."""


def load() -> list[Json]:
    return [json.loads(line) for line in CASES_FILE.read_text("utf-8").splitlines()]


def ours(case: Json, departure: Ours | None) -> Json:
    """Give what is expected of us."""
    if departure is None:
        return dict(case["expect"])
    expect = case["expect"] | departure.expect
    if departure.each:
        expect["each"] = [
            departure.each.get(n, observed) for n, observed in enumerate(expect["each"])
        ]
    return dict(expect)


# -- playing ------------------------------------------------------------------------------------


def responses(case: Json) -> list[list[Json]]:
    """Give the calls of each response."""
    return [step if isinstance(step, list) else [step] for step in case["calls"]]


def answer_of_model(case: Json, number: int, folder: Folder) -> Step:
    """Do what happens before the response of this number, and give it."""
    steps = responses(case)
    if number >= len(steps):
        return Step(blocks=({"text": "That is all."},))
    for call in steps[number]:
        change(call.get("between", {}), folder)
    return Step(
        blocks=tuple(
            {
                "tool": call["tool"],
                "input": json.loads(in_our_view(json.dumps(call["input"]))),
                "id": f"toolu_{number}_{index}",
            }
            for index, call in enumerate(steps[number])
        )
    )


def call_ids(case: Json) -> list[str]:
    return [
        f"toolu_{number}_{index}"
        for number, calls in enumerate(responses(case))
        for index, _ in enumerate(calls)
    ]


def arrange(setup: Json, folder: Folder) -> None:
    for path in setup.get("dirs", []):
        folder.mkdir(path)
    for path, content in setup.get("files", {}).items():
        folder.put(path, content_of(content))
    for path, target in setup.get("symlinks", {}).items():
        folder.symlink(path, in_our_view(target))
    for path, mode in setup.get("modes", {}).items():
        (folder.ws / path).chmod(mode)
    for path, mtime_s in setup.get("mtimes", {}).items():
        os.utime(folder.ws / path, (mtime_s, mtime_s))


def change(between: Json, folder: Folder) -> None:
    for path in between.get("delete", []):
        (folder.ws / path).unlink()
    for path, content in between.get("files", {}).items():
        folder.put(path, content_of(content))
        folder.later(path)
    for path, mtime_s in between.get("mtimes", {}).items():
        os.utime(folder.ws / path, (mtime_s, mtime_s))


def content_of(value: str | Json) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if "base64" in value:
        return base64.b64decode(value["base64"])
    if "lines" in value:
        return "".join(f"line {n}\n" for n in range(1, value["lines"] + 1)).encode()
    text, times = value["repeat"]
    return str(text * times).encode()


def in_our_view(text: str) -> str:
    return text.replace("${WS}", "/workspace").replace("${OUT}", "/outside")


# -- comparing ----------------------------------------------------------------------------------


def check(case: Json, expect: Json, answers: Sequence[Answer], folder: Folder) -> None:
    for index, expected in enumerate(expect.get("each", [])):
        compare(expected, answers[index], f"call {index}")
    compare(expect, answers[-1], "the last call")
    for path, cells in expect.get("notebook_cells_after", {}).items():
        assert cells_of(folder.content(path)) == cells, path
    for path, content in expect.get("file_after", {}).items():
        assert folder.content(path) == content_of(content), path
    if "file_after" in expect:
        left = {str(p.relative_to(folder.ws)) for p in folder.ws.rglob("*") if p.is_file()}
        # Only small files are listed; those that the case made are told from the rest.
        made = case["setup"].get("files", {}).keys() | case["setup"].get("symlinks", {}).keys()
        assert left - expect["file_after"].keys() <= made


def compare(expected: Json, answer: Answer, where: str) -> None:
    text = answer.content if isinstance(answer.content, str) else json.dumps(answer.content)
    assert answer.is_error == expected["is_error"], f"{where}: {text[:500]}"
    if "result_equals" in expected:
        assert text == in_our_view(expected["result_equals"]), where
    for part in expected.get("contains", []):
        assert in_our_view(part) in text, f"{where}: {text[:500]}"
    for part in expected.get("not_contains", []):
        assert in_our_view(part) not in text, f"{where}: {text[:500]}"
    if (kind := expected.get("kind")) is not None:
        found = re.search(KINDS[kind], text, re.DOTALL | re.MULTILINE)
        assert found, f"{where} is no {kind}: {text[:500]}"


def cells_of(notebook: bytes) -> list[list[str]]:
    return [[cell["cell_type"], "".join(cell["source"])] for cell in json.loads(notebook)["cells"]]
