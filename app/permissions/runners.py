"""Commands that run others: those a rule for the inner one reaches through, and all the rest."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.permissions.commands import DURATION
from app.permissions.shell_words import Word

_ASSIGNS = re.compile(r"\w+=")
_MAX_INNER = 100
SHELLS = frozenset(
    [
        "sh",
        "bash",
        "dash",
        "zsh",
        "ksh",
        "mksh",
        "lksh",
        "rksh",
        "ash",
        "fish",
        "rbash",
        "csh",
        "tcsh",
        "yash",
        "posh",
        "busybox",
        "toybox",
    ]
)
_VERSION = re.compile(r"-?\d[\d.]*$")
_RUN_WORDS = frozenset(["eval", "source", ".", "trap", "alias", "find", "ssh"])
_TAKE_OPERAND = frozenset(
    [
        "timeout",
        "flock",
        "chroot",
        "taskset",
        "su",
        "sg",
        "chrt",
        "setarch",
        "perf",
        "faketime",
        "gosu",
        "su-exec",
    ]
)
"""Runners that take a word before the command."""
_LOADERS = ("ld-linux", "ld-musl", "ld.so")
"""How the names of dynamic loaders begin, which run the program that they are given."""
_REPLACES = re.compile(r"(?:-[a-zA-Z0-9]*?([Ii])|-(J)|--replace(?:=|$))(.*)", re.DOTALL)
"""An option by which `xargs` puts what it reads into the words of its command: where a mark stands."""
_XARGS_VALUE = re.compile(
    r"-[0rtxpo]*[adEILnPsJRS]|--(arg-file|delimiter|max-(args|procs|chars)|process-slot-var)"
)
"""An option of `xargs` whose value is the next word."""


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A command that runs another: its options before that one."""

    flags: re.Pattern[str]
    with_value: re.Pattern[str] | None = None
    """Options whose value is the next word."""
    operands: re.Pattern[str] | None = None
    """A word that stands before the command."""


_ALLOWED_WRAPPERS: Mapping[str, _Wrapper] = {
    "timeout": _Wrapper(
        re.compile(r"--foreground|--preserve-status|-v|--(signal|kill-after)=\S+"),
        re.compile(r"-[sk]"),
        DURATION,
    ),
    "nice": _Wrapper(re.compile(r"-\d+|-n-?\d+|--adjustment=-?\d+"), re.compile(r"-n")),
    "nohup": _Wrapper(re.compile(r"(?!)")),
    "time": _Wrapper(re.compile(r"-p")),
    "stdbuf": _Wrapper(re.compile(r"-[ioe]([0L]|\d+)"), re.compile(r"-[ioe]")),
    "xargs": _Wrapper(
        re.compile(r"-[0rt]+|-[nPL]\d+|-I\S+|-d\S+|--null|--no-run-if-empty"),
        re.compile(r"-[nPLId]"),
    ),
}
_RUNNERS = frozenset(
    [
        "timeout",
        "nice",
        "nohup",
        "time",
        "stdbuf",
        "xargs",
        "sudo",
        "doas",
        "env",
        "command",
        "builtin",
        "exec",
        "coproc",
        "setsid",
        "ionice",
        "chroot",
        "unshare",
        "nsenter",
        "busybox",
        "chronic",
        "watch",
        "parallel",
        "catchsegv",
        "strace",
        "ltrace",
        "taskset",
        "flock",
        "su",
        "runuser",
        "script",
        "eatmydata",
        "fakeroot",
        "chrt",
        "prlimit",
        "numactl",
        "systemd-run",
        "systemd-inhibit",
        "dbus-run-session",
        "dbus-launch",
        "unbuffer",
        "toybox",
        "proot",
        "firejail",
        "bwrap",
        "valgrind",
        "gdb",
        "setarch",
        "linux32",
        "linux64",
        "pkexec",
        "sg",
        "setpriv",
        "capsh",
        "cgexec",
        "perf",
        "chpst",
        "softlimit",
        "tini",
        "dumb-init",
        "gosu",
        "su-exec",
        "rlwrap",
        "nocache",
        "torsocks",
        "torify",
        "proxychains",
        "proxychains4",
        "choom",
        "fakechroot",
        "faketime",
        "xvfb-run",
        "cpulimit",
        "trickle",
        "ssh-agent",
        "start-stop-daemon",
        "hyperfine",
        "entr",
        "daemonize",
        "heaptrack",
        "rr",
        "qemu-x86_64",
        "qemu-aarch64",
    ]
)


def is_shell(name: str | None) -> bool:
    """Say whether a program of this name is a shell: `bash`, `zsh-5.9`."""
    return name is not None and _VERSION.sub("", name) in SHELLS


def puts_input_in(words: Sequence[Word]) -> bool:
    """Say whether `xargs` puts what it reads in the middle of the command that it runs."""
    return _mark(words) is not None


def with_input(words: Sequence[Word]) -> Sequence[Word]:
    """Give the words of a command with those unknown that `xargs` makes of what it reads."""
    start = _xargs(words)
    if start is None or start + _command_of_xargs(words[start:]) >= len(words):
        return words
    found = _mark(words)
    if found is None:
        return (*words, Word("", None))
    mark, behind = found
    return (
        *words[:behind],
        *(
            Word(word.source, None, start=word.text.partition(mark)[0] if mark else "")
            if word.text is not None and mark in word.text
            else word
            for word in words[behind:]
        ),
    )


def _xargs(words: Sequence[Word]) -> int | None:
    for at, word in enumerate(words):
        if word.text is not None and word.text.endswith("xargs") and base_name(word) == "xargs":
            return at
    return None


def _mark(words: Sequence[Word]) -> tuple[str, int] | None:
    """Give what `xargs` replaces, and where the words begin that it does so in. Empty: nobody knows."""
    start = _xargs(words)
    if start is None:
        return None
    command = start + _command_of_xargs(words[start:])
    for at in range(start + 1, command):
        option = _REPLACES.fullmatch(words[at].text or "")
        if option is None:
            continue
        if option[3]:
            return option[3], command
        if option[1] == "I" or option[2]:
            return (words[at + 1].text or "" if at + 1 < len(words) else ""), command
        return "{}", command
    return None


def _command_of_xargs(words: Sequence[Word]) -> int:
    """Give where the command begins that `xargs` runs; the number of words if there is none."""
    at = 1
    while at < len(words):
        text = words[at].text or words[at].start
        if text == "--":
            return at + 1
        if not text.startswith("-"):
            return at
        at += 2 if _XARGS_VALUE.fullmatch(text) else 1
    return len(words)


def runs_anything(name: str) -> bool:
    """Say whether what a program does is what it is told to run: a rule for it is one for all."""
    name = name.rpartition("/")[2]
    return name in _RUNNERS | _RUN_WORDS or is_shell(name)


def unwrapped(words: Sequence[Word]) -> tuple[Sequence[Word], bool]:
    """Drop the wrappers that a rule reaches through; say whether `xargs` was among them."""
    adds_words = False
    while words and (wrapper := _ALLOWED_WRAPPERS.get(words[0].text or "")):
        at = 1
        while at < len(words) and (text := words[at].text) is not None and text.startswith("-"):
            if wrapper.flags.fullmatch(text):
                at += 1
            elif wrapper.with_value and wrapper.with_value.fullmatch(text):
                at += 2
            else:
                return words, adds_words
        if wrapper.operands:
            if at >= len(words) or not wrapper.operands.fullmatch(words[at].text or ""):
                return words, adds_words
            at += 1
        if at >= len(words):
            return words, adds_words
        adds_words = adds_words or words[0].text == "xargs"
        words = words[at:]
    return words, adds_words


def inner_commands(words: Sequence[Word]) -> list[Sequence[Word]]:
    """Give what a command may run, itself first: too much rather than too little.

    Each is an end of `words`. One of unknown name comes last when there are too many.
    """
    starts, found = [0], []
    seen = {0}
    while starts:
        inner = words[starts.pop() :]
        found.append(inner)
        if len(found) > _MAX_INNER:
            return [*found, [Word("", None)]]
        for start in _starts(inner):
            at = len(words) - len(inner) + start
            if at not in seen:
                seen.add(at)
                starts.append(at)
    return found


def _starts(words: Sequence[Word]) -> list[int]:
    """Give where the command may begin that a command runs."""
    name = base_name(words[0]) if words else None
    if name not in _RUNNERS and not (name or "").startswith(_LOADERS):
        return []
    if name == "xargs":
        return [start for start in [_command_of_xargs(words)] if start < len(words)]
    starts = [
        index
        for index, word in enumerate(words[: _MAX_INNER + 1])
        if index and not word.is_flag and not _ASSIGNS.match(word.text or "")
    ]
    takes_operand = name in _TAKE_OPERAND
    return starts[:1] if starts[:1] == [1] and not takes_operand else starts


def base_name(word: Word) -> str | None:
    """Give a program's name without its folder; None when only the shell knows it."""
    return None if word.text is None else word.text.rpartition("/")[2]
