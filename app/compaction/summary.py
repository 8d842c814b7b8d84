"""The words of a compaction: what the model is asked for, what it sees afterwards."""

import re

TASK = """\
Do not go on with the task now. This conversation has become too long, and all of it that you see \
here will be taken away. Write down the notes from which you will go on without it.

Write them for yourself, under these headings, in the order of time within each:

1. What the user wants: every request, condition and preference; word for word where the wording \
matters.
2. Decisions: what was settled and why, and what was tried and given up.
3. Work done: files that were read, made or changed, with their paths; commands that mattered and \
what came of them; names, ids, values and pieces of code that will be needed again.
4. Trouble: what failed and how it was solved, and what the user corrected.
5. Where things stand: what is finished, what was under way at the very end, and the next step.

Be exact about facts and short about everything else. Leave out what a tool can show again. If \
instructions of the project say what such notes must hold, follow them. Call no tool. Put the \
notes between <summary> and </summary>."""

ASKED_FOR = "\n\nThe user asks for this in particular:\n"

STRICTER = (
    "\n\nYour answer is of use only as plain text: begin it with <summary>, write at most two "
    "thousand words of notes, end it with </summary>, and do nothing else."
)

LEFT_OUT = "(The oldest part of the conversation does not fit here and is left out.)"

_BEFORE = (
    "The earlier part of this conversation became too long and was taken out. These are the notes "
    "that you wrote about it:\n\n"
)
_AFTER = "\n\nThe messages that follow are the newest ones, unchanged. "
_GO_ON = "Go on with the work from there, without a word about these notes."
_WAIT = "Use the notes when the user says what comes next."

_NOTES = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)


def task(instructions: str, *, is_strict: bool = False) -> str:
    """Give what the model is asked to write; `instructions` are those of `/compact`."""
    asked = f"{ASKED_FOR}{instructions}" if instructions else ""
    return f"{TASK}{asked}{STRICTER if is_strict else ''}"


def notes_of(text: str, stop_reason: str | None) -> str | None:
    """Give the notes that an answer holds; None if it cannot be used.

    An answer that came to its own end is taken whole where the marks are missing.
    """
    if found := _NOTES.search(text):
        return found[1].strip() or None
    return (text.strip() or None) if stop_reason == "end_turn" else None


def summary_text(notes: str, *, is_asked: bool) -> str:
    """Give the message that stands for what was taken out; `is_asked`: the user asked for it."""
    return f"{_BEFORE}{notes}{_AFTER}{_WAIT if is_asked else _GO_ON}"
