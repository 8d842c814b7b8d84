"""The text of a skill or a command: what it asks for, and where its arguments stand. Pure.

Whoever wrote the text decides what it runs and reads. Arguments are often pasted from elsewhere, so
they are words: nothing in them is looked for, and a place for them inside of a command or a path
makes that one words too. Spec: tools 15 and 16.
"""

import re
from collections.abc import Mapping

MOST_PUT_IN = 1_000_000
"""Characters that are put into a text, beside its arguments once: a short text can hold thousands of
places, and each may take a long one."""
_SHELL = r"(?<!\S)!`([^`\n]+)`"
_ARGUMENTS = r"\$ARGUMENTS\b|\$(\d{1,3})(?!\d)"
_FOLDER = "${CLAUDE_SKILL_DIR}"
_FOR_ARGUMENTS = re.compile(_ARGUMENTS)
_COMMAND = re.compile(_SHELL)
_MENTION = re.compile(r"(?<!\S)@([^\s@`'\"]+)")
_PLACES = re.compile(rf"{_SHELL}|{_ARGUMENTS}|{re.escape(_FOLDER)}")


def commands_of(body: str, folder: str = "") -> dict[str, str]:
    """Give the commands whose output a text wants: as they are run, by what stands in the text.

    They stand as `` !`command` `` at the start of a word.
    """
    found = (each[1] for each in _COMMAND.finditer(body))
    return {text: text.replace(_FOLDER, folder) for text in found if _is_whole(text)}


def mentions_of(body: str, folder: str = "") -> list[str]:
    """Give the paths that a text names as `@path` at the start of a word, each once."""
    found = (each.rstrip(".,;:!?)]}>") for each in _MENTION.findall(body.replace(_FOLDER, folder)))
    return [path for path in dict.fromkeys(found) if _is_whole(path)]


def substituted(
    body: str, arguments: str, folder: str, outputs: Mapping[str, str] | None = None
) -> str:
    """Put arguments in for `$ARGUMENTS` and, counted from 0, `$0`, `$1`; a folder for its name.

    `outputs` are put in for commands, by their text. A word that is missing leaves its place as it
    is, and so does what would be too much. Arguments that the text has no place for stand in a line
    after it. What was put in is not looked at again.
    """
    words = arguments.split()
    has_place = False
    room = MOST_PUT_IN + len(arguments)

    def put(found: re.Match[str]) -> str:
        nonlocal has_place, room
        whole, command, number = found[0], found[1], found[2]
        has_place |= command is None and whole != _FOLDER
        if command is not None:
            text = (outputs or {}).get(command)
            if text is None:
                return "!`" + _PLACES.sub(put, command) + "`"
        elif number is not None:
            text = words[int(number)] if int(number) < len(words) else whole
        else:
            text = folder if whole == _FOLDER else arguments
        if len(text) > room:
            return whole
        room -= len(text)
        return text

    text = _PLACES.sub(put, body)
    return text if has_place or not arguments else f"{text.rstrip()}\n\nARGUMENTS: {arguments}"


def _is_whole(text: str) -> bool:
    return _FOR_ARGUMENTS.search(text) is None
