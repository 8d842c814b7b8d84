"""What a golden trace asks for: its options, its prompts, and what was done when."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from app.providers.answer import answer_frames
from app.providers.script import Step, parse_script
from tests.traces.hook_script import HookScript, hook_script_of
from tests.traces.story import Act, Line, Sending, Story, ToldTurn

FOLDER = Path(__file__).parent.parent / "spec" / "traces"
FILES: Mapping[str, str] = {"a.txt": "alpha\nbeta\n", "b.txt": "bravo\n"}
"""What the workspace of every trace held."""
CWD = "/workspace"
STAND_INS = ("mcp__m__ro", "mcp__m__rw")
"""Names of the Python tools that stand in for a trace's MCP server."""

_SERVER = "mcp__m"
_SAME_HERE = frozenset(
    {
        "agents",
        "allowed_tools",
        "disallowed_tools",
        "fallback_model",
        "forward_subagent_text",
        "include_hook_events",
        "include_partial_messages",
        "max_budget_usd",
        "max_turns",
        "model",
        "output_format",
        "permission_mode",
    }
)
_MEANS_NOTHING_HERE = frozenset({"extra_args", "session_store", "session_store_flush", "settings"})
"""The reference is asked to replay prompts, and to store elsewhere what it forgets; we always do. The
commands of its settings are the operator's here."""
WITHOUT_RETRIES = frozenset({"resume_http_error"})
"""Recordings of a process that was not allowed any."""
HELD_AFTER_EVENTS: Mapping[str, int] = {"interrupt_stream": 6, "interrupt_stream_toolinput": 10}
"""Where a recording was interrupted in the middle of a response: our model stops after so many
events of the first answer, so that the interrupt meets the same moment however slow we are."""


LATE_ANSWERS: Mapping[str, int] = {"agent_bg": 2, "agent_stop_task": 1}
"""Where a subagent in the background had asked once before its parent's turn was over: the last
answer of that turn waits, so that what has been spent by then does not depend on who was quicker."""
LATE_S = 1.0


SUMMARY = Step(usage={"input_tokens": 1000, "output_tokens": 100})
"""What every compaction request of the recordings was answered by, but for its text."""
NOTES = "The notes."
_AFTER_SUMMARY: Mapping[str, tuple[int, Step]] = {
    "compact_auto_sonnet5": (4, Step(blocks=({"text": "post compact end"},)))
}
"""Where a summary carries a new script: how many answers come before it, and what comes then."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the reference's process."""

    options: Mapping[str, Any]
    """Under the names that our service takes; limits that are not set stand as None."""
    resume: str | None
    """The session that is gone on with, by its symbolic name."""
    is_fork: bool
    is_continued: bool = False
    """Whether the newest session of the same folder is gone on with."""
    is_cut: bool = False
    """Whether that is resumed at the last answer of its first turn, as the requests tell."""


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    """With its script."""
    steps: tuple[Step, ...]
    start: int
    """Index of the start that it was sent to."""
    sending: Sending = "alone"
    has_uuid: bool = False
    """Whether the client gave it an id."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A run: the prompts that it takes in, and what the model answers."""

    start: int
    taken: tuple[tuple[int, int], ...]
    """Each prompt's index, and how many responses of the turn came before it. Empty: the end of a
    background task began it, and the newest script goes on."""
    steps: tuple[Step, ...]
    """What answers each request of the turn, those that were never made included."""
    is_merged: bool = False
    """Whether the recording has it in one turn with the next one."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    starts: tuple[Start, ...]
    prompts: tuple[Prompt, ...]
    turns: tuple[Turn, ...]
    """In the order in which they run."""
    acts: tuple[Act, ...]
    hooks: HookScript = field(default_factory=HookScript)
    held_chars: int = 0
    """What comes of the first answer, in characters, before the model is held; 0 if it is not."""


def max_retries_of(lines: Sequence[Line]) -> int:
    """Give how many retries the recorded process was allowed."""
    usual = 0 if lines[0]["scenario"] in WITHOUT_RETRIES else 2
    told = [line.get("subagent_retry", line) for line in lines]
    return max((line["max_retries"] for line in told if "max_retries" in line), default=usual)


def trace_names() -> list[str]:
    """Give the names of all traces that are kept here."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def read_trace(name: str) -> list[Line]:
    """Give the lines of a trace file; the first describes the run."""
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scenario_of(lines: Sequence[Line]) -> Scenario:
    """Read the first line; the rest says when what was done, and to which start.

    Raises `ValueError` when it makes no sense.
    """
    head = lines[0]
    starts = tuple(_start(options) for options in head["options"])
    story = Story.of(lines)
    if any(act.kind == "answer" or act.after.asked for act in story.acts):  # it has a callback
        asks = {"actions": {"permissions": "ask"}}
        starts = tuple(replace(start, options={**start.options, **asks}) for start in starts)
    texts = [text.replace("<cwd>", CWD) for text in head["prompts"]]
    if (name := head["scenario"]) in HELD_AFTER_EVENTS:
        texts[0] = _held(texts[0], HELD_AFTER_EVENTS[name])
    if name in LATE_ANSWERS:
        texts[0] = _slow(texts[0], LATE_ANSWERS[name])
    prompts = tuple(
        Prompt(text, parse_script(text) or (), sent.start, sent.sending, sent.has_uuid)
        for text, sent in zip(texts, story.sent, strict=True)
    )
    turns = tuple(_turns(story, prompts))
    events = HELD_AFTER_EVENTS.get(name, 0)
    if name in _AFTER_SUMMARY:
        before, step = _AFTER_SUMMARY[name]
        turns = (replace(turns[0], steps=(*turns[0].steps[:before], step)), *turns[1:])
    held_chars = _held_chars(prompts[0].steps[0], events) if events else 0
    hooks = hook_script_of(lines)
    return Scenario(name, starts, prompts, turns, tuple(story.acts), hooks, held_chars)


def summary_of(scenario: "Scenario") -> Step:
    """Give what a compaction request is answered by."""
    text = NOTES
    if scenario.name in _AFTER_SUMMARY:
        _, step = _AFTER_SUMMARY[scenario.name]
        # The messages that stay behind the summary count as answers too.
        text = f"{NOTES} {_OPEN}{json.dumps([*step.blocks] * 9)}{_CLOSE}"
    return replace(SUMMARY, blocks=({"text": text},))


_COMMAND = (Step(blocks=({"text": "never asked for"},)),)
"""A turn that asks the model for nothing."""


def _slow(text: str, number: int) -> str:
    """Rewrite a script so that one of its answers begins late."""
    words, _, script = text.partition(_OPEN)
    steps = json.loads(script.removesuffix(_CLOSE))
    steps[number]["delay"] = LATE_S
    return f"{words}{_OPEN}{json.dumps(steps)}{_CLOSE}"


def _held(text: str, events: int) -> str:
    """Rewrite a script so that its first answer stops after so many events."""
    words, _, script = text.partition(_OPEN)
    (step, *others) = json.loads(script.removesuffix(_CLOSE))
    return f"{words}{_OPEN}{json.dumps([{**step, 'stall': events}, *others])}{_CLOSE}"


def _held_chars(step: Step, events: int) -> int:
    frames = islice(answer_frames(step, message_id="msg_x", model="m"), events)
    deltas = (json.loads(frame.split(b"data: ")[1]).get("delta", {}) for frame in frames)
    return sum(len(text) for delta in deltas for kind, text in delta.items() if kind != "type")


_OPEN, _CLOSE = "<<script ", " >>"


def _turns(story: Story, prompts: Sequence[Prompt]) -> Iterator[Turn]:
    start = 0
    rest: tuple[Step, ...] = ()  # what the turn before left of its script
    for told in story.turns:
        steps = rest
        if told.taken:
            start, steps = prompts[told.taken[0][0]].start, _steps(told, prompts)
        yield Turn(start, tuple(told.taken), steps, is_merged=told.is_merged)
        rest = steps[len(told.responses) :]


def _steps(told: ToldTurn, prompts: Sequence[Prompt]) -> tuple[Step, ...]:
    """Give the answers of a turn: the newest prompt with a script says what comes next."""
    steps: list[Step] = []
    scripts = [(after, prompts[index].steps) for index, after in told.taken]
    for after, script in scripts:
        if script:
            steps = [*steps[:after], *script]
    return tuple(steps) or _COMMAND


def _literal(text: str) -> Any:  # any value
    """Read a Python literal in which a definition of an agent may stand."""

    class Plain(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            names: list[ast.expr | None] = [ast.Constant(each.arg) for each in node.keywords]
            return ast.Dict(names, [each.value for each in node.keywords])

    return ast.literal_eval(Plain().visit(ast.parse(text, mode="eval")))


def _ask_rules(settings: str | None) -> dict[str, list[str]]:
    """Give as our option what a recording's settings file wants asked."""
    told = json.loads(ast.literal_eval(settings)) if settings else {}
    rules = told.get("permissions", {})
    return {"ask_tools": list(rules["ask"])} if "ask" in rules else {}


def _start(literals: Mapping[str, str]) -> Start:
    given = dict(literals)
    asked = _ask_rules(given.get("settings"))
    has_server = given.pop("mcp_servers", None) is not None  # an object: it has no literal
    for name in _MEANS_NOTHING_HERE:
        given.pop(name, None)
    options = {name: _literal(text) for name, text in given.items()}
    resume = options.pop("resume", None)
    is_fork = options.pop("fork_session", False)
    is_continued = options.pop("continue_conversation", False)
    is_cut = options.pop("resume_session_at", None) is not None
    if unknown := set(options) - _SAME_HERE:
        raise ValueError(f"no way to drive the option {min(unknown)!r} yet")
    rules = [rule for rule in options.pop("allowed_tools", []) if rule != _SERVER]
    tools = [*rules, *(STAND_INS if has_server else ())]
    limits = {"max_turns": None, "max_budget_usd": None}
    return Start(
        {**limits, **options, **asked, "allowed_tools": tools},
        re.sub("[<>]", "", resume) if resume else None,
        is_fork,
        is_continued,
        is_cut,
    )
