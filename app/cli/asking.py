"""What a run asks, put to the person at the terminal."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from app.cli.client import Client, Frame, JsonObject, address, decode
from app.cli.failure import CliFailure
from app.cli.plain import few_lines, one_line
from app.cli.screen import err, say

_WIDTH = 100
_INPUT_LINES = 12


def is_terminal() -> bool:
    """Whether somebody can answer here."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def put(client: Client, frame: Frame) -> None:
    """Show what is asked; at a terminal, take the answer."""
    if frame.event != "service" or (body := decode(frame)).get("type") != "action.opened":
        return
    action_id = str(body.get("action_id"))
    try:
        action = client.get(address("actions", action_id))
        if action["status"] != "pending":
            return
        for line in lines_of(action):
            say(line, "yellow")
        if not is_terminal():
            say(f"Answer it from anywhere: {how_to_answer(action)}", "yellow")
        elif (answer := _taken(action)) is not None:
            client.post(address("actions", action_id, "resolve"), answer)
    except CliFailure as failure:  # somebody else was faster, or its time is over
        say(failure.text, "yellow")


def lines_of(action: JsonObject) -> Iterator[str]:
    """Give what a person needs to know to answer."""
    match action["type"]:
        case "permission":
            asked = action["permission"]
            yield f"? {one_line(str(asked['title']), _WIDTH)}"
            for name, value in asked["input"].items():
                first, *more = few_lines(str(value), _INPUT_LINES, _WIDTH)
                yield f"    {one_line(name, 40)}: {first}"
                yield from (f"      {line}" for line in more)
        case "question":
            for question in action["question"]["questions"]:
                yield f"? {one_line(str(question['question']), 400)}"
                for number, option in enumerate(question["options"], 1):
                    text = f"{option['label']}: {option['description']}"
                    yield f"    {number}. {one_line(text, _WIDTH)}"
        case other:
            yield f"? {other}: {one_line(str(action.get(other)), 400)}"


def how_to_answer(action: JsonObject) -> str:
    """Give the command that answers an action."""
    match action["type"]:
        case "permission":
            return f"treadle actions allow {action['id']} (or deny)"
        case "question":
            return f"treadle actions answer {action['id']} ANSWER"
        case _:
            return f"POST /v1/actions/{action['id']}/resolve"


def answers_of(action: JsonObject, given: list[str]) -> dict[str, str]:
    """Give answers by question: numbers stand for options. Raises `CliFailure`."""
    questions = action["question"]["questions"]
    if len(given) != len(questions):
        raise CliFailure(f"{len(questions)} answers are needed, in the order of the questions.")
    return {
        question["question"]: _picked(question, text)
        for question, text in zip(questions, given, strict=True)
    }


def _picked(question: Mapping[str, Any], text: str) -> str:
    labels = [option["label"] for option in question["options"]]
    parts = [part.strip() for part in text.split(",")] if question["multiSelect"] else [text]
    if all(part.isdigit() and 1 <= int(part) <= len(labels) for part in parts):
        return ", ".join(labels[int(part) - 1] for part in parts)
    return text


def _taken(action: JsonObject) -> JsonObject | None:
    """Ask here. None: left for somebody else."""
    match action["type"]:
        case "permission":
            return _permission(action)
        case "question":
            given = [_line("  answer, or a number: ") for _ in action["question"]["questions"]]
            return {"answers": answers_of(action, given)}
        case _:
            return None


def _permission(action: JsonObject) -> JsonObject | None:
    suggestions = action["permission"]["suggestions"]
    always = ", (a)lways in this session" if suggestions else ""
    while True:
        match _line(f"  (y)es, (n)o{always}, (l)eave it: ").lower()[:1]:
            case "y":
                return {"behavior": "allow"}
            case "a" if suggestions:
                return {"behavior": "allow", "updated_permissions": suggestions}
            case "n":
                why = _line("  why, for the model (may be empty): ")
                return {"behavior": "deny", "message": why or "The user denied this call."}
            case "l":
                say(f"Answer it later: {how_to_answer(action)}")
                return None


def _line(prompt: str) -> str:
    err().print(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        raise CliFailure("Nobody is there to answer.")
    return line.strip()
