"""What the shell runs though its grammar shows a mere text: substitutions that a quote does not hold.

Single quotes are none within `$((…))`, within `${…}` in double quotes, and in an index; names with an
index, arrays that a declaration is given as a text, and `${x@P}` are taken apart a second time.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from tree_sitter import Node

from app.permissions.shell_words import has_computed_index, word_of, written

_RUNS = re.compile(r"(?<!\\)(?:\\\\)*(?:`|[$<>]\()")
"""What begins a substitution, behind an even number of backslashes."""
_RUNS_UNQUOTED = re.compile(r"`|\$\(|^\$'.*\\", re.DOTALL)
"""The same in a text in quotes; an escape may stand for it: `$'\\x24(…)'`."""
_VALUE = re.compile(r"\(.*(\$\(|`)", re.DOTALL)
_ARRAY = re.compile(rf"\w+\+?={_VALUE.pattern}", re.DOTALL)
"""An array that a declaration takes out of a text: `declare -a 'x=($(rm z))'`."""
_PROMPT = re.compile(r"@P\}$")
"""A value that is expanded as a prompt is: substitutions in it run."""
_INDEX_PARTS = re.compile(r"'|\w\[|\]|\$\(|`|\\[$`]")
_COMPUTES = re.compile(
    r"\(\(|\$\[|-(eq|ne|lt|le|gt|ge)\b|\blet\b|\$\{\w*:[^-=?+]"
    r"|\b(declare|typeset|local|export|readonly)\s+-\w*i"
)
"""What makes numbers of texts, of those in variables too."""
_TABLES = re.compile(r"BASH_(CMDS|ALIASES)")
"""Arrays in which the shell looks up what a name runs."""
_QUOTING = re.compile(r"['\"\\]")
_OWN_SHELL = frozenset({"command_substitution", "process_substitution"})
"""Nodes in which quotes are quotes again."""
_OWN_KINDS = _OWN_SHELL | {"array"}


def hides(node: Node, text: str) -> bool:
    """Say whether a node may hold what the shell runs and the grammar does not show."""
    judge = _JUDGES.get(node.type)
    return judge is not None and judge(node, text)


def evaluates_quoted(text: str) -> bool:
    """Say whether a command may run what it holds as a text, or run another program under a name."""
    if "_" in text and _TABLES.search(_QUOTING.sub("", text)):
        return True
    return _has_quoted_index(text) and _COMPUTES.search(text) is not None


def _has_quoted_index(text: str) -> bool:
    """Say whether an index in quotes would run something if a number were made of it.

    Takes time in proportion to the text.
    """
    is_open = is_quoted = False
    for found in _INDEX_PARTS.finditer(text):
        part = found[0]
        if part == "'":
            is_open, is_quoted = False, True
        elif part in ("$(", "`", "\\$", "\\`"):
            if is_open and (is_quoted or part[0] == "\\"):
                return True
        else:
            is_open = part != "]"
    return False


def is_computed(node: Node, text: str) -> bool:
    """Say whether a name in quotes holds what the shell runs: unset 'a[$(…)]'."""
    return has_computed_index(written(node, text))


def is_unseen(body: Node, text: str) -> bool:
    """Say whether the grammar found less of what the shell runs in a heredoc than there is."""
    end, between = body.start_byte, ""
    for part in body.children:
        if part.type != "heredoc_content":
            between += text[end : part.start_byte] + "\0"
            end = part.end_byte
    return _RUNS.search(between + text[end : body.end_byte]) is not None


def _is_no_mere_word(node: Node, text: str) -> bool:
    """Say whether the grammar takes for a mere word what the shell runs: ${x:-`rm z`}."""
    return not node.child_count and _RUNS.search(written(node, text)) is not None


def _escapes(node: Node, text: str) -> bool:
    r"""Say whether backticks hold what is taken apart a second time: `echo \\`rm z\\``."""
    return re.match(r"`.*\\[$`\\]", written(node, text), re.DOTALL) is not None


def _runs_quoted(node: Node, text: str) -> bool:
    """Say whether a text in quotes, in a place where quotes hold nothing back, has a substitution."""
    return any(_RUNS_UNQUOTED.search(written(each, text)) for each in _quoted(node))


def _expands(node: Node, text: str) -> bool:
    return _PROMPT.search(written(node, text)) is not None or _runs_quoted(node, text)


def _is_arithmetic(node: Node, text: str) -> bool:
    return written(node, text).startswith("((") and _runs_quoted(node, text)


def _declares(node: Node, text: str) -> bool:
    """Say whether a declaration is given, as a text, what it takes apart."""
    if is_computed(node, text):
        return True
    for child in node.children:
        is_assignment = child.type == "variable_assignment"
        word = child.children[-1] if is_assignment and child.child_count else child
        if word.type in _OWN_KINDS:
            continue
        given = word_of(word, text).text
        if given is None and _runs_quoted(word, text):
            return True
        if (_VALUE if is_assignment else _ARRAY).match(given or ""):
            return True
    return False


def _quoted(node: Node) -> Iterator[Node]:
    """Give the texts in single quotes beneath a node, but for those of commands."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.type in ("raw_string", "ansi_c_string"):
            yield each
        elif each.type not in _OWN_SHELL:
            waiting += each.children


_JUDGES: Mapping[str, Callable[[Node, str], bool]] = {
    **dict.fromkeys(["word", "regex", "string_content", "extglob_pattern"], _is_no_mere_word),
    "declaration_command": _declares,
    "unset_command": is_computed,
    "command_substitution": _escapes,
    "expansion": _expands,
    **dict.fromkeys(["arithmetic_expansion", "subscript", "c_style_for_statement"], _runs_quoted),
    "compound_statement": _is_arithmetic,
}
"""Kinds of nodes that may hold what the grammar does not see."""
