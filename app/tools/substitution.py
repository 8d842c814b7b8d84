"""Arguments in the text of a skill or a command. Pure. Spec: tools 15."""

import re

_PLACES = re.compile(r"\$ARGUMENTS\b|\$\{CLAUDE_SKILL_DIR\}|\$(\d{1,3})(?!\d)")


def substituted(body: str, arguments: str, folder: str) -> str:
    """Put arguments in for `$ARGUMENTS` and, counted from 0, `$0`, `$1`; a folder for its name.

    A word that is missing leaves its place as it is. Arguments that the text has no place for
    stand in a line after it. What was put in is not looked at again.
    """
    words = arguments.split()
    has_place = False

    def put(found: re.Match[str]) -> str:
        nonlocal has_place
        if found[1] is not None:
            has_place = True
            number = int(found[1])
            return words[number] if number < len(words) else found[0]
        if found[0] == "$ARGUMENTS":
            has_place = True
            return arguments
        return folder

    text = _PLACES.sub(put, body)
    return text if has_place or not arguments else f"{text.rstrip()}\n\nARGUMENTS: {arguments}"
