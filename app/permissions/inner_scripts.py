"""Scripts that a simple command hands to a shell: too much rather than too little.

`bash -c …`, `eval …`, `trap … EXIT`, and what builtins read, bind or compute. A text is the script
where it is known; where only the shell knows it, or some part of it, there is none.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.permissions.runners import base_name, inner_commands, is_shell, puts_input_in
from app.permissions.shell_script import Command
from app.permissions.shell_words import Word, has_computed_index

_WITH_VALUE = frozenset(["--rcfile", "--init-file"])
"""Options of a shell whose value is the next word; so is that of each `o` and `O` among letters."""
_TAKES_SCRIPT = re.compile(r"-[a-zA-Z]*c|--(session-)?com[a-z]*")
"""An option of `su`, `script`, `flock` … whose value is a script: the next word."""
_HOLDS_SCRIPT = re.compile(r"(?:-[a-zA-Z]*?c|--(?:session-|init-)?com[a-z]*=)(.+)", re.DOTALL)
"""The same with its value: `-c'rm z'`."""
_WORDS_ARE_SCRIPTS = frozenset(["sg", "watch", "parallel", "screen", "tmux"])
_TAKE_SCRIPTS = _WORDS_ARE_SCRIPTS | {"su", "runuser", "script", "flock", "capsh"}
_READ_SCRIPTS = frozenset(["at", "batch", "parallel"])
"""Programs that run what they read, if they are given nothing to run."""
_MORE_THAN_A_NAME = re.compile(r"[\s;&|<>()$`]")
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
"""Names of files to a shell that starts, which expands them first."""
_RUNS = re.compile(r"`|\$\(")
_ESCAPED = re.compile(r"\\[xuU0-7]")
_ASSIGNED = re.compile(r"(BASH_FUNC_[^=]*|\w+)\+?=(.*)", re.DOTALL)
"""A variable that `env`, `sudo` … are given as a word. Those that begin so are functions to bash."""
_NO_FILE = re.compile(r"-|((\.\.)?/)+(dev|proc)/.*|(.*/)?(stdin|fd/\d+)")
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
        yield from _of_variable(variable.partition("[")[0], value)
    for word in command.words:
        if "=" in (word.text or "") and (assigned := _ASSIGNED.fullmatch(word.text or "")):
            yield from _of_variable(assigned[1], Word(word.source, assigned[2]))
    inner = inner_commands(command.words)
    for words in inner:
        name = base_name(words[0]) if words else None
        if name is None:
            continue
        found = list(_scripts(name, words[1:], command))
        if len(inner) > 1 and any(_takes_input(script) for script in found):
            yield UNKNOWN
        if found and puts_input_in(command.words):
            yield UNKNOWN
        yield from found


def _of_variable(name: str, value: Word) -> Iterator[InnerScript]:
    if name in _RUN_BY_SHELL or name.startswith("BASH_FUNC_"):
        yield InnerScript(value.text)
    elif has_computed_index(value.text or "") or (
        name in _READ_BY_SHELL and (_is_no_file(value) or _RUNS.search(value.text or ""))
    ):
        yield UNKNOWN


def _scripts(name: str, given: Sequence[Word], command: Command) -> Iterator[InnerScript]:
    if is_shell(name):
        yield from _of_shell(given)
    if name in _READ_SCRIPTS and (command.reads_stdin or command.redirects):
        is_told = name == "parallel" and not all(word.is_flag for word in given)
        yield from () if is_told else (UNKNOWN,)
    if name in _TAKE_SCRIPTS:
        yield from _of_option(name, given)
    if (builtin := _BUILTINS.get(name)) is not None:
        yield from builtin(given)
    if name in _RUN_LATER and any(word.is_flag or not word.text for word in given):
        yield UNKNOWN
    if name in _COMPUTE and any(_is_computed(word) for word in given):
        yield UNKNOWN


def _of_shell(given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give what a shell runs, if that is no file. All its options come first, those behind -c too."""
    at, letters = 0, ""
    while at < len(given) and _is_option(given[at]):
        text = given[at].text
        if text is None:
            yield UNKNOWN
            return
        at += 1
        if text in ("-", "--"):
            break
        if text in ("--version", "--help"):
            return
        yield from _of_fish(text, given[at:])
        if text.startswith("--"):
            at += text in _WITH_VALUE
        else:
            letters += text[1:] if text.startswith("-") else ""
            at += text.count("o") + text.count("O")
    rest = given[at:]
    if "c" in letters:
        yield InnerScript(rest[0].text) if rest else UNKNOWN
    elif not rest or "s" in letters or _is_no_file(rest[0]):
        yield UNKNOWN


def _of_fish(option: str, behind: Sequence[Word]) -> Iterator[InnerScript]:
    """Give the script of an option that only fish has."""
    if held := _HOLDS_SCRIPT.fullmatch(option) if option.startswith("--") else None:
        yield InnerScript(held[1])
    if re.fullmatch(r"-[a-zA-Z]*C[a-zA-Z]*|--(init-)?command", option):
        yield from (InnerScript(word.text) for word in behind[:1])


def _of_option(name: str, given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give what `su -c 'rm z'` and the like run; what `watch` and `parallel` are given is a script."""
    for at, word in enumerate(given):
        text = word.text or ""
        if _TAKES_SCRIPT.fullmatch(text) and at + 1 < len(given):
            yield InnerScript(given[at + 1].text)
        elif held := _HOLDS_SCRIPT.fullmatch(text):
            yield InnerScript(held[1])
    if name in _WORDS_ARE_SCRIPTS:
        yield from (InnerScript(w.text) for w in given if _MORE_THAN_A_NAME.search(w.text or " "))


def _of_trap(given: Sequence[Word]) -> Iterator[InnerScript]:
    scripts = [word for word in given if not word.is_flag]
    yield from (InnerScript(word.text) for word in scripts[:1])


def _of_alias(given: Sequence[Word]) -> Iterator[InnerScript]:
    for word in given:
        if word.text is None:
            yield UNKNOWN
        elif "=" in word.text:
            yield InnerScript(word.text.partition("=")[2])


def _of_source(given: Sequence[Word]) -> Iterator[InnerScript]:
    if any(_is_no_file(word) for word in given[:2]):
        yield UNKNOWN


def _of_hash(given: Sequence[Word]) -> Iterator[InnerScript]:
    if any((word.text or "-p").startswith("-p") for word in given):
        yield UNKNOWN


def _of_find(given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give the scripts of shells that `find` starts. What else it starts, no rule reaches."""
    for at, word in enumerate(given[:-1]):
        if not re.fullmatch(r"-(exec|ok)(dir)?", word.text or ""):
            continue
        for inner in inner_commands(given[at + 1 :]):
            if is_shell(base_name(inner[0])):
                for script in _of_shell(inner[1:]):
                    yield UNKNOWN if _takes_input(script) else script


def _of_env(given: Sequence[Word]) -> Iterator[InnerScript]:
    """Give what `env -S 'rm z'` makes words of. Its escapes are its own."""
    for at, word in enumerate(given):
        text = word.text or ""
        found = re.match(r"-[a-zA-Z]*S|--sp?[a-z-]*=", text)
        if re.fullmatch(r"--sp?[a-z-]*", text):
            script = _joined(given[at + 1 :])
        elif found:
            glued = [Word("", text[found.end() :])] if text[found.end() :] else []
            script = _joined([*glued, *given[at + 1 :]])
        else:
            continue
        yield UNKNOWN if "\\" in (script.text or "") else script


def _joined(words: Sequence[Word]) -> InnerScript:
    texts = [word.text for word in words]
    return UNKNOWN if None in texts else InnerScript(" ".join(text or "" for text in texts))


def _takes_input(script: InnerScript) -> bool:
    """Say whether `xargs` and the like may put something into a script."""
    return script.text is not None and "{" in script.text


def _is_computed(word: Word) -> bool:
    """Say whether a builtin may run something when it makes a number, or a name, of a word."""
    if word.text is None:  # an escape may be what begins it
        source = word.source
        has_index = "[" in source
        is_escaped = "$'" in source and (has_index or _ESCAPED.search(source) is not None)
        return is_escaped or (has_index and "\\$" in source)
    return has_computed_index(word.text)


def _is_option(word: Word) -> bool:
    return (word.text or word.start).startswith(("-", "+"))


def _is_no_file(word: Word) -> bool:
    return word.text is None or _NO_FILE.fullmatch(posixpath.normpath(word.text)) is not None


def _of_eval(given: Sequence[Word]) -> Iterator[InnerScript]:
    yield _joined(given[1:] if given and given[0].text == "--" else given)


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
