"""What the text of a shell command says about its result. A look, not a parser."""

import re

_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_REDIRECTION = re.compile(r"\d*(?:>>|>\||<<<|&>|[<>]&?)\s*[^\s;&|()<>]*")
_OPERATOR = re.compile(r"(&&|\|\||\|&|[;\n&|()])")
_TOKEN = re.compile(
    r"(?<![^\s;&|()])#[^\n]*|(?P<end>[;&|()\n]++)|[<>]++"
    r"|(?P<word>(?:[^\s;&|()<>'\"\\]++|'[^']*+'|\"(?:\\.|[^\"\\])*+\"|\\.)++)",
    re.DOTALL,
)
"""Takes time in proportion to the text."""
_LOOKED_AT_CHARS = 100_000
"""A longer command is looked at by nobody: hosts have other runs to serve meanwhile."""
_QUOTING = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\\n|\\(.)", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN_CAT = re.compile(r"\s*cat\s+(?:--\s+)?(?:'([^'\n]+)'|\"([^\"$`\\\n]+)\"|([\w./@%+,:-]+))\s*")

_MEANING_OF_1 = {
    "grep": "No matches found",
    "egrep": "No matches found",
    "fgrep": "No matches found",
    "rg": "No matches found",
    "diff": "The files differ",
    "git diff": "The files differ",
    "test": "The condition is false",
    "[": "The condition is false",
    "find": "Some folders could not be read",
}
_SILENT = frozenset({"cd", "chmod", "cp", "export", "ln", "mkdir", "mv", "rm", "rmdir", "touch"})


def meaning_of_status_1(command: str) -> str | None:
    """Say what exit status 1 means where it is an answer, not a failure; else None."""
    words = _deciding_words(command)
    return _MEANING_OF_1.get(" ".join(words[:2])) or _MEANING_OF_1.get(" ".join(words[:1]))


def is_silent(command: str) -> bool:
    """Tell whether the command prints nothing when all goes well."""
    return bool(words := _deciding_words(command)) and words[0] in _SILENT


def printed_file(command: str) -> str | None:
    """Give the path if the command is a plain `cat` of one file."""
    found = _PLAIN_CAT.fullmatch(command)
    path = next((group for group in found.groups() if group), None) if found else None
    return None if path is None or path.startswith("-") else path


def removed_folders(command: str) -> list[str]:
    """Give what the command's `rm -r…` calls name, as it is written there."""
    found: list[str] = []
    if "rm" not in command or len(command) > _LOOKED_AT_CHARS:
        return found
    names: list[str] | None = None
    is_recursive = False
    for token in _TOKEN.finditer(f"{command}\n"):
        if token["end"]:
            found += names if names and is_recursive else ()
            names, is_recursive = None, False
        elif token["word"] and (word := _unquoted(token[0])):
            if names is None:
                names = [] if word == "rm" else None
            elif not word.startswith("-"):
                names.append(word)
            else:
                is_recursive |= word == "--recursive" or (word[1:2] != "-" and "r" in word.lower())
    return found


def _unquoted(word: str) -> str:
    return _QUOTING.sub(lambda part: "".join(text or "" for text in part.groups()), word)


def _deciding_words(command: str) -> list[str]:
    """Give the words of the command whose status is the whole's.

    Empty where that is not one command for sure: after `&&` and `||`, in a subshell.
    """
    bare = _REDIRECTION.sub(" ", _QUOTED.sub("Q", command)).rstrip("; \t\n")
    *before, last = _OPERATOR.split(bare)
    operators = before[1::2]
    while operators and operators[-1] in {"|", "|&"}:
        operators.pop()
    if operators and operators[-1] in {"&&", "||"}:
        return []
    words = last.split()
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    return words
