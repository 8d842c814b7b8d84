"""Scripts that a simple command hands to a shell: too much rather than too little.

`bash -c …`, `eval …`, `trap … EXIT`, and what builtins read, bind or compute. A text is the script
where it is known; where only the shell knows it, or some part of it, there is none.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.permissions.runners import SHELLS, base_name, inner_commands
from app.permissions.shell import Command
from app.permissions.shell_words import COMPUTED, Word

_WITH_VALUE = re.compile(r"[-+]([oO]|-rcfile|-init-file)")
"""Options of a shell whose value is the next word."""
_TAKES_SCRIPT = re.compile(r"-[a-zA-Z]*c|--command")
"""An option of `su`, `script`, `flock` … whose value is a script."""
_TAKE_SCRIPTS = frozenset(["su", "runuser", "script", "flock", "sg", "capsh", "watch", "parallel"])
_RUN_LATER = frozenset(["mapfile", "readarray", "complete", "compgen", "bind", "fc", "history"])
"""Builtins with options that name a command for later, or bring an earlier one back."""
_COMPUTE = frozenset(
    [
        "let",
        "test",
        "[",
        "printf",
        "read",
        "unset",
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "wait",
        "getopts",
        "mapfile",
    ]
)
"""Builtins that compute what stands in brackets, even within quotes: `let 'a[$(rm z)]'`."""
_RUN_BY_SHELL = frozenset(["PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4"])
_READ_BY_SHELL = frozenset(["BASH_ENV", "ENV"])
_NO_FILE = re.compile(r"-|/dev/.*|/proc/.*")
"""Names under which a shell reads what is no file."""


@dataclass(frozen=True, slots=True)
class InnerScript:
    """A script that a command hands to a shell."""

    text: str | None
    """None when only the shell knows it."""


UNKNOWN = InnerScript(None)


def scripts_of(command: Command) -> Iterator[InnerScript]:
    """Give all scripts that a simple command, or one that it runs, hands to a shell."""
    for variable, value in command.assignments:
        if variable in _RUN_BY_SHELL:
            yield InnerScript(value.text)
        elif (variable in _READ_BY_SHELL and _is_no_file(value)) or COMPUTED.search(
            value.text or ""
        ):
            yield UNKNOWN
    inner = inner_commands(command.words)
    for words in inner:
        name = base_name(words[0]) if words else None
        if name is None:
            continue
        found = list(_scripts(name, words[1:], command))
        if len(inner) > 1 and any(_takes_input(script) for script in found):
            yield UNKNOWN
        yield from found


def _scripts(name: str, given: Sequence[Word], command: Command) -> Iterator[InnerScript]:
    if name in SHELLS:
        yield from _of_shell(given, reads=command.reads_stdin or bool(command.redirects))
    if name in _TAKE_SCRIPTS:
        yield from _of_option(name, given)
    if (builtin := _BUILTINS.get(name)) is not None:
        yield from builtin(given)
    if name in _RUN_LATER and any(word.is_flag or not word.text for word in given):
        yield UNKNOWN
    if name in _COMPUTE and any(COMPUTED.search(word.text or "") for word in given):
        yield UNKNOWN


def _of_shell(given: Sequence[Word], *, reads: bool = False) -> Iterator[InnerScript]:
    at = 0
    while at < len(given):
        text = given[at].text
        if text is None:
            yield UNKNOWN
            return
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", text):
            rest = [after for after in given[at + 1 :] if not _is_option(after)]
            yield InnerScript(rest[0].text) if rest else UNKNOWN
            return
        if re.fullmatch(r"-[a-zA-Z]*s[a-zA-Z]*", text):
            break
        if not _is_option(given[at]):
            if _is_no_file(given[at]):
                yield UNKNOWN
            return
        at += 2 if _WITH_VALUE.fullmatch(text) else 1
    if reads:
        yield UNKNOWN


def _of_option(name: str, given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give what `su -c 'rm z'` and the like run; what `watch` and `parallel` are given is a script."""
    for at, word in enumerate(given):
        text = word.text or ""
        if _TAKES_SCRIPT.fullmatch(text) and at + 1 < len(given):
            yield InnerScript(given[at + 1].text)
        elif text.startswith("--command="):
            yield InnerScript(text.partition("=")[2])
    if name in ("watch", "parallel", "sg"):
        yield from (InnerScript(word.text) for word in given if " " in (word.text or " "))


def _of_trap(given: Sequence[Word]) -> Iterator[InnerScript]:
    yield from (InnerScript(word.text) for word in given[:1] if not word.is_flag)


def _of_alias(given: Sequence[Word]) -> Iterator[InnerScript]:
    for word in given:
        if word.text is None:
            yield UNKNOWN
        elif "=" in word.text:
            yield InnerScript(word.text.partition("=")[2])


def _of_source(given: Sequence[Word]) -> Iterator[InnerScript]:
    if given and _is_no_file(given[0]):
        yield UNKNOWN


def _of_hash(given: Sequence[Word]) -> Iterator[InnerScript]:
    if any((word.text or "-p").startswith("-p") for word in given):
        yield UNKNOWN


def _of_find(given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give the scripts of shells that `find` starts. What else it starts, no rule reaches."""
    for at, word in enumerate(given[:-1]):
        if re.fullmatch(r"-(exec|ok)(dir)?", word.text or "") and (
            base_name(given[at + 1]) in SHELLS
        ):
            for script in _of_shell(given[at + 2 :]):
                yield UNKNOWN if _takes_input(script) else script


def _of_env(given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give what `env -S 'rm z'` makes words of."""
    for at, word in enumerate(given):
        text = word.text or ""
        if re.fullmatch(r"-[a-zA-Z]*S|--split-string", text):
            yield _joined(given[at + 1 :])
        elif found := re.match(r"-[a-zA-Z]*S|--split-string=", text):
            yield _joined([Word("", text[found.end() :]), *given[at + 1 :]])


def _joined(words: Sequence[Word]) -> InnerScript:
    texts = [word.text for word in words]
    return UNKNOWN if None in texts else InnerScript(" ".join(text or "" for text in texts))


def _takes_input(script: InnerScript) -> bool:
    """Say whether `xargs` and the like may put something into a script."""
    return script.text is not None and "{" in script.text


def _is_option(word: Word) -> bool:
    return (word.text or word.start).startswith(("-", "+"))


def _is_no_file(word: Word) -> bool:
    return word.text is None or _NO_FILE.fullmatch(word.text) is not None


def _of_eval(given: Sequence[Word]) -> Iterator[InnerScript]:
    yield _joined(given)


_BUILTINS: Mapping[str, Callable[[Sequence[Word]], Iterator[InnerScript]]] = {
    "eval": _of_eval,
    "trap": _of_trap,
    "alias": _of_alias,
    "env": _of_env,
    "source": _of_source,
    ".": _of_source,
    "hash": _of_hash,
    "find": _of_find,
}
"""Commands whose words hold scripts, each in its own way."""
