"""What a golden trace asks for: its options, its prompts, and which start each belongs to."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.providers.script import Step, parse_script

Line = Mapping[str, Any]
"""One line of a trace file, decoded."""

FOLDER = Path(__file__).parent.parent / "spec" / "traces"
FILES: Mapping[str, str] = {"a.txt": "alpha\nbeta\n", "b.txt": "bravo\n"}
"""What the workspace of every trace held."""
CWD = "/workspace"
STAND_INS = ("mcp__m__ro", "mcp__m__rw")
"""Names of the Python tools that stand in for a trace's MCP server."""

_SERVER = "mcp__m"
_SAME_HERE = frozenset({"model", "allowed_tools", "max_turns", "max_budget_usd"})


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the reference's process."""

    options: Mapping[str, Any]
    """Under the names that our service takes; limits that are not set stand as None."""
    resume: str | None
    """The session that is gone on with, by its symbolic name."""
    is_fork: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    """With its script."""
    steps: tuple[Step, ...]
    start: int
    """Index of the start that it was sent to."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    starts: tuple[Start, ...]
    prompts: tuple[Prompt, ...]


def trace_names() -> list[str]:
    """Give the names of all traces that are kept here."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def read_trace(name: str) -> list[Line]:
    """Give the lines of a trace file; the first describes the run."""
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scenario_of(lines: Sequence[Line]) -> Scenario:
    """Read the first line; the rest only says to which start each prompt was sent."""
    head = lines[0]
    starts = tuple(_start(options) for options in head["options"])
    texts = [text.replace("<cwd>", CWD) for text in head["prompts"]]
    prompts = tuple(
        Prompt(text, parse_script(text) or (), start)
        for text, start in zip(texts, _starts_of_prompts(lines), strict=True)
    )
    return Scenario(head["scenario"], starts, prompts)


def _starts_of_prompts(lines: Sequence[Line]) -> list[int]:
    # A session that stays open leaves no `query_start`: all its prompts went to the one start.
    started, owners = 0, []
    for line in lines:
        if line.get("event") == "query_start":
            started += 1
        elif (line.get("dir"), line.get("type")) == ("send", "user"):
            owners.append(max(started - 1, 0))
    return owners


def _start(literals: Mapping[str, str]) -> Start:
    given = dict(literals)
    has_server = given.pop("mcp_servers", None) is not None  # an object: it has no literal
    options = {name: ast.literal_eval(text) for name, text in given.items()}
    resume = options.pop("resume", None)
    is_fork = options.pop("fork_session", False)
    if unknown := set(options) - _SAME_HERE:
        raise ValueError(f"no way to drive the option {min(unknown)!r} yet")
    rules = [rule for rule in options.pop("allowed_tools", []) if rule != _SERVER]
    tools = [*rules, *(STAND_INS if has_server else ())]
    limits = {"max_turns": None, "max_budget_usd": None}
    return Start(
        {**limits, **options, "allowed_tools": tools},
        re.sub("[<>]", "", resume) if resume else None,
        is_fork,
    )
