"""Differences of compaction: our own words, and hooks that are not registered here."""

import re
from collections.abc import Iterator

from app.agent.command import COMMAND_NOTICE
from app.compaction.summary import TASK
from tests.traces.normal import Form, Json, Like
from tests.traces.scenario import NOTES, Scenario

STDOUT = "<local-command-stdout>Compacted</local-command-stdout>"
_WITH_HOOKS = "Compacted PreCompact [callback] completed successfully"
_STDOUTS = (f"<local-command-stdout>{_WITH_HOOKS}</local-command-stdout>", "<long:0+ words>")
"""What `/compact` prints in recordings, hooks' words included: those come with hooks."""
_SUMMARY = "<long:130+ words>"
_TASK = re.compile(r"<long:(990|1000)\+ words>")
_COMMANDS = re.compile(r"<long:0\+ words>|<command-name>/compact</command-name>.*", re.DOTALL)
CAVEAT = "<long:30+ words>"


def commands_print_no_hooks(form: Form, _: Scenario) -> None:
    """Leave out what the recording's hooks add to what the command prints."""
    for message in form.messages:
        for block in _texts(message.get("message", {})):
            if message.get("isReplay") and block["text"] in _STDOUTS:
                block["text"] = STDOUT


def summaries_are_in_our_words(form: Form, scenario: Scenario) -> None:
    """Put our words around the notes, and into the request for them."""
    notes = Like(rf"(?s).+\n\n{re.escape(NOTES)}.+", f"Notes:\n\n{NOTES}\n\nGo on.")
    for message in form.messages:
        for block in _texts(message.get("message", {})):
            if message.get("isSynthetic") and block["text"] == _SUMMARY:
                block["text"] = notes
    for request in form.requests:
        first, *_, newest = request["messages"] * 2
        for block in _texts(first):
            if block["text"] == _SUMMARY:
                block["text"] = notes
        for block in _texts(newest):
            if _TASK.fullmatch(str(block["text"])):
                block["text"] = _task(scenario)


def _task(scenario: Scenario) -> Like:
    """Give what is asked for: the task, and behind it what the user wants of it."""
    (words,) = {p.text for p in scenario.prompts if p.text.startswith("/compact")} or {""}
    asked = words.removeprefix("/compact").strip()
    example = f"{TASK}\n\nAlso: {asked}" if asked else TASK
    return Like(rf"(?s){re.escape(TASK)}" + (rf".+{re.escape(asked)}" if asked else ""), example)


def commands_are_told_in_our_words(form: Form, scenario: Scenario) -> None:
    """Put our notice, the command as it was given, and what it printed before the next prompt."""
    for request in form.requests:
        content = request["messages"][-1]["content"]
        for at, block in enumerate(content):
            if block.get("text") == CAVEAT and len(content) == at + 4:
                (said,) = {p.text for p in scenario.prompts if p.text.startswith("/compact")}
                if content[at + 2]["text"].removesuffix("\n") not in _STDOUTS:
                    raise ValueError("the command printed something else")
                if not _COMMANDS.fullmatch(content[at + 1]["text"]):
                    raise ValueError("another command was told")
                content[at]["text"] = Like(re.escape(COMMAND_NOTICE), COMMAND_NOTICE)
                content[at + 1]["text"] = said
                content[at + 2]["text"] = STDOUT


def _texts(message: Json) -> Iterator[Json]:
    yield from (block for block in message.get("content", ()) if block["type"] == "text")
