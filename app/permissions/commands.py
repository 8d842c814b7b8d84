"""What is known of commands: which only read, which change files, which run others.

Only what is listed is taken as harmless; an option that is not known to be harmless makes a
command unknown.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from app.permissions.shell_words import Word

SAFE_VARIABLES = frozenset(
    [
        "NODE_ENV",
        "CI",
        "FORCE_COLOR",
        "NO_COLOR",
        "TERM",
        "TZ",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LC_TIME",
        "LC_NUMERIC",
        "COLUMNS",
        "LINES",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "DEBUG",
    ]
)
"""Variables that change no program's meaning: nothing that names a program, a library or a path."""

_FREE_OPTIONS = [
    "ls",
    "cat",
    "echo",
    "pwd",
    "whoami",
    "which",
    "ps",
    "head",
    "tail",
    "wc",
    "true",
    "false",
    "sleep",
    "basename",
    "dirname",
    "stat",
    "realpath",
    "readlink",
    "du",
    "df",
    "cut",
    "tr",
    "nl",
    "tac",
    "rev",
    "comm",
    "cmp",
    "diff",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "seq",
    "uname",
    "id",
    "grep",
    "egrep",
    "fgrep",
    "jq",
    "test",
    "[",
    ":",
    "cd",
]
_SORT = re.compile(r"-[bdfghiMnRrVuczs]+|-[kt].*|--(reverse|unique|numeric-sort|key=.*)")
_SED_PRINT = re.compile(r"(\d+|\$)(,(\d+|\$))?p(;(\d+|\$)(,(\d+|\$))?p)*")
_SED_EDIT = re.compile(
    r"((\d+|\$)(,(\d+|\$))?)?(d|s([/|#,])(?:\\[^\n]|(?!\6)[^\\\n])*\6(?:\\[^\n]|(?!\6)[^\\\n])*\6[gpiI\d]*)"
)
_SED_FLAGS = re.compile(
    r"-(n|E|r|s|i|i\.\w+|e|nE|En|ni|Ei|ri)|--(quiet|silent|in-place|regexp-extended)"
)
_FIND_ACTS = re.compile(r"-(exec|execdir|ok|okdir|delete|fprint0?|fprintf|fls|files0-from)")
_GIT_READS = frozenset(
    ["status", "log", "diff", "show", "rev-parse", "ls-files", "blame", "describe", "shortlog"]
)
_GIT_ACTS = re.compile(r"--(ou|ext|textc).*|-O.*")
_FILE_COMMANDS = frozenset(["mkdir", "touch", "mv", "cp", "rm", "rmdir"])
_NAME_FILES = _FILE_COMMANDS | set(_FREE_OPTIONS) | {"sort", "find", "sed", "uniq"}
_GLUED: Mapping[str, str] = {
    **dict.fromkeys(["cp", "mv"], "t"),
    **dict.fromkeys(["grep", "egrep", "fgrep", "sed"], "f"),
    **dict.fromkeys(["du", "diff"], "X"),
    "date": "fr",
    "touch": "r",
}
"""Options whose value is a path, which may stand behind the letter: `cp -tfolder`."""
_NAMES_PART = re.compile(r"[=@:]([^=@:]*/.*)", re.DOTALL)
"""A path behind something else: `if=a/b`, `@a/b`, `HEAD:a/b`."""
DURATION = re.compile(r"\d+(\.\d+)?[smhd]?")

Texts = Sequence[str]


def is_read_only(words: Sequence[Word]) -> bool:
    """Say whether a command, without wrappers but `timeout`, changes nothing and runs nothing."""
    words = behind_timeout(words)
    texts = _texts(words)
    if not texts:
        return False
    name, given = texts[0], texts[1:]
    if name in _FREE_OPTIONS:
        return name not in ("test", "[") or not any(re.search(r"[$`\[]", text) for text in given)
    judge = _JUDGES.get(name)
    return judge is not None and judge(given)


def names_files(words: Sequence[Word]) -> bool:
    """Say whether a command is one of those whose words are known to name files."""
    words = behind_timeout(words)
    return bool(words) and words[0].text in _NAME_FILES


def changes_files(words: Sequence[Word]) -> bool:
    """Say whether a command does nothing but change the files that it names."""
    texts = _texts(behind_timeout(words))
    if not texts:
        return False
    return texts[0] in _FILE_COMMANDS or (texts[0] == "sed" and _is_sed_edit(texts[1:]))


def paths_of(words: Sequence[Word]) -> list[Word]:
    """Give the words of a known command that may name files; too many rather than too few."""
    words = behind_timeout(words)
    name = words[0].text if words else None
    if name in ("echo", "true", "false", "sleep", ":", "tr", "seq", "uname", "which"):
        return []
    given = list(words[1:])
    skipped, elsewhere = _PATTERN_FIRST.get(name or "", (0, _NEVER))
    if skipped and any(elsewhere.fullmatch(word.text or "") for word in given):
        skipped = 0
    if name == "find":
        given = _find_roots(given)
    found: list[Word] = []
    for word in given:
        if word.text is None:
            found.append(word)
        elif word.text.startswith("-") and word.text != "-":
            found += _paths_of_option(name or "", word, word.text)
        elif skipped:
            skipped -= 1
        elif word.text != "-":
            found.append(word)
            if "/" in word.text and (part := _NAMES_PART.search(word.text)):
                found.append(Word(word.source, part[1], has_glob=word.has_glob))
    return found


def _paths_of_option(name: str, word: Word, text: str) -> Sequence[Word]:
    """Give the path that stands in an option, if there may be one."""
    glued = re.fullmatch(f"-[a-zA-Z]*?[{_GLUED[name]}](.+)", text) if name in _GLUED else None
    if glued:
        return [Word(text, glued[1], has_glob=word.has_glob)]
    if "/" not in text and "=" not in text:
        return ()
    start = text.index("=") + 1 if "=" in text else text.index("/")
    return [Word(text, text[start:], has_glob=word.has_glob)]


def removed_by(words: Sequence[Word]) -> Sequence[Word]:
    """Give the words of a command that name what is not there afterwards."""
    words = behind_timeout(words)
    name = words[0].text if words else None
    if name not in ("rm", "rmdir", "mv"):
        return ()
    paths = paths_of(words)
    has_folder = any((word.text or "").startswith(("-t", "--t")) for word in words)
    return paths if name != "mv" or has_folder else paths[:-1]


def destination(command: Sequence[Word], home: str) -> str | None:
    """Give where `cd` goes; None when that cannot be told."""
    given = [
        word for word in command[1:] if not (word.text or "").startswith("-") or word.text == "-"
    ]
    if not given:
        return home
    text = given[0].text
    return None if len(given) > 1 or text in (None, "-", "") or given[0].has_glob else text


def behind_timeout(words: Sequence[Word]) -> Sequence[Word]:
    """Drop `timeout 5` at the front."""
    while len(words) > 2 and words[0].text == "timeout" and DURATION.fullmatch(words[1].text or ""):
        words = words[2:]
    return words


def _texts(words: Sequence[Word]) -> Texts:
    """Give the texts of words that are all known; nothing otherwise."""
    texts = [word.text for word in words]
    return [] if None in texts else [text for text in texts if text is not None]


def _is_sort(given: Texts) -> bool:
    return all(not text.startswith("-") or _SORT.fullmatch(text) for text in given)


def _is_find(given: Texts) -> bool:
    return not any(_FIND_ACTS.fullmatch(text) for text in given)


def _is_git(given: Texts) -> bool:
    if not given or any(_GIT_ACTS.fullmatch(text) for text in given):
        return False
    if given[0] == "branch":
        return all(
            text in ("-a", "-v", "-vv", "-r", "--list", "--show-current") for text in given[1:]
        )
    if given[0] == "remote":
        return given[1:] in ([], ["-v"])
    return given[0] in _GIT_READS


def _is_sed_print(given: Texts) -> bool:
    flags = [text for text in given if text.startswith("-")]
    scripts = [text for text in given if not text.startswith("-")][:1]
    return (
        bool(flags)
        and all(flag in ("-n", "-E", "-r", "-nE", "-En") for flag in flags)
        and any("n" in flag for flag in flags)
        and all(_SED_PRINT.fullmatch(script) for script in scripts)
    )


def _is_sed_edit(given: Texts) -> bool:
    flags = [text for text in given if text.startswith("-")]
    if not all(_SED_FLAGS.fullmatch(flag) for flag in flags):
        return False
    if not any(
        flag.startswith(("-i", "--in-place")) or flag in ("-ni", "-Ei", "-ri") for flag in flags
    ):
        return False
    if "-e" in given:
        scripts = [b for a, b in pairwise(given) if a == "-e"]
    else:
        scripts = [text for text in given if not text.startswith("-")][:1]
    return bool(scripts) and all(_SED_EDIT.fullmatch(script) for script in scripts)


def _is_date(given: Texts) -> bool:
    return all(
        text.startswith("+") or text in ("-u", "--utc", "-R", "-I", "-Iseconds") for text in given
    )


def _is_uniq(given: Texts) -> bool:
    return sum(not text.startswith("-") or text == "-" for text in given) <= 1


def _is_printf(given: Texts) -> bool:
    return bool(given) and not given[0].startswith("-")


def _find_roots(given: Sequence[Word]) -> list[Word]:
    roots: list[Word] = []
    before = ""
    for word in given:
        is_option = re.fullmatch(r"-([LPHD]|O\d)", word.text or "") or before == "-D"
        before = word.text or ""
        if not is_option and word.text is not None and word.text.startswith(("-", "(", "!")):
            break
        roots.append(word)
    tested = [b for a, b in pairwise(given) if re.match(r"-([ac]?newer|samefile)", a.text or "")]
    return [word for word in roots if not word.is_flag] + tested


_JUDGES: Mapping[str, Callable[[Texts], bool]] = {
    "sort": _is_sort,
    "find": _is_find,
    "git": _is_git,
    "sed": _is_sed_print,
    "date": _is_date,
    "uniq": _is_uniq,
    "printf": _is_printf,
}
_NEVER = re.compile(r"(?!)")
_GREP = (1, re.compile(r"-[a-zA-Z0-9]*[ef].*|--(reg.*|file(=.*)?)"))
_PATTERN_FIRST: Mapping[str, tuple[int, re.Pattern[str]]] = {
    **dict.fromkeys(["grep", "egrep", "fgrep"], _GREP),
    "jq": (1, re.compile(r"-[a-zA-Z]*[fL].*|--(from-file|library-path)(=.*)?")),
    "sed": (1, re.compile(r"-[a-zA-Z]*[ef].*|--(exp|fil).*")),
    "printf": (9999, _NEVER),
}
"""How many words stand before the files, and an option that says that none does."""
