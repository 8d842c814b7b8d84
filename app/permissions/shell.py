"""What a shell command holds: its simple commands, as tree-sitter's grammar of bash finds them.

Theory of operation. A grammar is not the shell, so nothing here is taken on trust that could let a
command through: only kinds of nodes that are known to be plain leave `construct` empty; each byte
must lie in a token or be a blank; what the parser could not make sense of is `is_broken`. For rules
that forbid, every simple command counts, however deep it stands (substitutions, subshells, loops,
functions); words whose value only the shell knows have no `text`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from app.permissions.shell_hidden import evaluates_quoted, hides, is_computed, is_unseen
from app.permissions.shell_kinds import LEAVES, NAMES, PLAIN, PLAIN_TOKENS, RESERVED
from app.permissions.shell_script import Command, Redirect, Script
from app.permissions.shell_words import Word, word_of, written

MAX_CHARS = 100_000
_MAX_NODES = 10_000
_MAX_STEPS = 150
"""Of the parser, each of about a hundred tokens."""
_CHUNK_BYTES = 1024
_MAX_READS = 5_000
"""Of a chunk: what the parser looks through again and again is time that its steps do not show."""
_READS_OF_ANY = 300
_BYTES_A_READ = 8
"""A short text has fewer: a command may hold many scripts."""
_MAX_DEPTH = 60
_LANGUAGE = Language(tree_sitter_bash.language())
_JOINED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
"""A line that goes on: a newline behind an odd number of backslashes."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
"""What the parser does not get to see: its scanner (0.25.1) calls `isalpha` with any code point, and
reads beyond a table. To the shell they are letters of words, like the one that stands for them."""
_BLANK = re.compile(rb"[ \t\n]*")


@dataclass(slots=True)
class _Draft:
    text: str
    commands: list[Command] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    construct: str | None = None
    is_broken: bool = False

    def unclear(self, what: str) -> None:
        self.construct = self.construct or what


def parse_shell(text: str) -> Script:
    """Take a shell command apart. Never raises; hostile text is `is_broken`."""
    if len(text) > MAX_CHARS or _CONTROL.search(text):
        return Script(is_broken=True)
    is_joined = "\\\n" in text
    # A comment does not go on that way, nor does a heredoc in quotes.
    is_safe = not (is_joined and ("#" in text or "<<" in text))
    is_safe = is_safe and not evaluates_quoted(text)
    if is_joined and is_safe:
        text = _JOINED.sub(r"\1", text)
    data = _FOREIGN.sub("_", text).encode()
    root = _parsed(data)
    if root is None or root.descendant_count > _MAX_NODES:
        return Script(is_broken=True)
    draft = _Draft(text, is_broken=root.has_error or not is_safe)
    try:
        _statement(root, draft, depth=0, reads_stdin=False)
    except RecursionError:
        draft.is_broken = True
    if not draft.is_broken and not _is_covered(root, data):
        draft.is_broken = True
    return Script(tuple(draft.commands), tuple(draft.redirects), draft.construct, draft.is_broken)


def _parsed(data: bytes) -> Node | None:
    """Parse; None when it would take long: repairing a hostile text takes the square of its length.

    Counted, not timed: a command gets the same answer on every host.
    """
    steps = reads = 0
    max_reads = min(_MAX_READS, _READS_OF_ANY + len(data) // _BYTES_A_READ)

    def read(offset: int, _point: object) -> bytes:
        nonlocal reads
        reads += 1
        return data[offset : offset + _CHUNK_BYTES] if reads <= max_reads else b""

    def is_enough(_offset: int, _has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _MAX_STEPS or reads > max_reads

    try:
        tree = Parser(_LANGUAGE).parse(read, progress_callback=is_enough)
    except ValueError:
        return None
    return tree.root_node if reads <= max_reads else None


def _statement(node: Node, draft: _Draft, *, depth: int, reads_stdin: bool) -> None:
    """Note what a node holds, and all beneath it."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    _mark(node, draft)
    match node.type:
        case "command":
            _command(node, draft, (), depth=depth, reads_stdin=reads_stdin)
        case "redirected_statement":
            _redirected(node, draft, depth=depth, reads_stdin=reads_stdin)
        case "test_command":
            _test(node, draft)
            _inside(node, draft, depth)
        case "variable_assignment":
            draft.unclear("an assignment")
            draft.commands.append(Command((), "", (_assignment(node, draft.text),)))
            _inside(node, draft, depth)
        case "file_redirect":  # of no command: $(<f)
            draft.redirects += _redirect(node, draft, depth)
        case "pipeline":
            for index, child in enumerate(node.children):
                piped = reads_stdin or index > 0
                _statement(child, draft, depth=depth + 1, reads_stdin=piped)
        case _ if node.is_named:
            _inside(node, draft, depth, reads_stdin=reads_stdin)


def _mark(node: Node, draft: _Draft) -> None:
    """Note what kind of node it is, if that matters."""
    kind = node.type
    if node.is_missing or kind == "ERROR" or hides(node, draft.text):
        draft.is_broken = True
    elif kind not in (PLAIN if node.is_named else PLAIN_TOKENS):
        draft.unclear(NAMES.get(kind, f"the construct {kind.strip() or kind!r}"))


def _inside(node: Node, draft: _Draft, depth: int, *, reads_stdin: bool = False) -> None:
    for child in node.children:
        _check(child, draft, depth + 1, reads_stdin=reads_stdin)


def _check(node: Node, draft: _Draft, depth: int, *, reads_stdin: bool = False) -> None:
    if node.child_count or node.type not in LEAVES:
        _statement(node, draft, depth=depth, reads_stdin=reads_stdin)
    elif node.type == "ansi_c_string":
        draft.unclear(NAMES["ansi_c_string"])


def _command(
    node: Node,
    draft: _Draft,
    redirects: tuple[Redirect, ...],
    *,
    depth: int,
    reads_stdin: bool,
) -> None:
    words: list[Word] = []
    places: list[Node] = []
    assignments: list[tuple[str, Word]] = []
    own: list[Redirect] = []
    for child in node.children:
        match child.type:
            case "variable_assignment":
                assignments.append(_assignment(child, draft.text))
                _inside(child, draft, depth)
                continue
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                own += _redirect(child, draft, depth)
                reads_stdin = reads_stdin or child.type != "file_redirect"
                continue
            case "command_name":
                words.append(
                    word_of(child.children[0] if child.child_count == 1 else child, draft.text)
                )
            case _:
                words.append(word_of(child, draft.text))
        places.append(child)
        _check(child, draft, depth + 1)
    source = ""
    if places:
        first, last = places[0].start_byte, places[-1].end_byte
        source = draft.text[first:last]
        if own and any(
            first <= child.start_byte < last for child in node.children if "redirect" in child.type
        ):
            source = " ".join(word.source for word in words)
    # Behind `!` and `time` the grammar takes what begins a construct for a command's name.
    first = 3 if words and words[0].source in ("time", "coproc") else 1
    if any(word.source in RESERVED for word in words[:first]):
        draft.is_broken = True
    draft.commands.append(
        Command(tuple(words), source, tuple(assignments), (*redirects, *own), reads_stdin)
    )


def _redirected(node: Node, draft: _Draft, *, depth: int, reads_stdin: bool) -> None:
    found: list[Redirect] = []
    body: Node | None = None
    for child in node.children:
        if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            found += _redirect(child, draft, depth)
            reads_stdin = reads_stdin or child.type != "file_redirect"
        elif body is None:
            body = child
        else:
            draft.is_broken = True
    if body is not None and body.type == "command":
        _command(body, draft, tuple(found), depth=depth + 1, reads_stdin=reads_stdin)
    else:
        draft.redirects += found
        if body is not None:
            _check(body, draft, depth + 1, reads_stdin=reads_stdin)


def _redirect(node: Node, draft: _Draft, depth: int) -> Iterator[Redirect]:
    """Give the files of a redirection; note what else it holds."""
    if node.type == "herestring_redirect":
        draft.unclear(NAMES["herestring_redirect"])
        _inside(node, draft, depth)
        return
    if node.type == "heredoc_redirect":
        yield from _heredoc(node, draft, depth)
        return
    operator, targets = "", []
    for child in node.children:
        if child.is_named and child.type != "file_descriptor":
            targets.append(child)
            _check(child, draft, depth + 1)
        elif not child.is_named:
            operator = child.type
    if len(targets) != 1:
        draft.is_broken = True
    for target in targets:
        word = word_of(target, draft.text)
        duplicates = operator in (">&", "<&") and word.text is not None
        if not (duplicates and re.fullmatch(r"\d+-?|-", word.text or "")):
            yield Redirect("<" if operator == "<" else ">", word)


def _heredoc(node: Node, draft: _Draft, depth: int) -> Iterator[Redirect]:
    is_quoted = False
    for child in node.children:
        match child.type:
            case "heredoc_start":
                start = written(child, draft.text)
                is_quoted = bool(re.search(r"['\"\\]", start))
                draft.is_broken = draft.is_broken or not start.isascii()
            case "file_redirect":
                yield from _redirect(child, draft, depth)
            case "heredoc_body" | "heredoc_end" | "<<" | "<<-":
                pass
            case _:
                draft.unclear("a command behind a heredoc")
        if child.type == "heredoc_body":
            for part in child.children:
                _check(part, draft, depth + 1)
        elif child.type not in ("file_redirect", "heredoc_start", "heredoc_end"):
            _check(child, draft, depth + 1)
        if child.type == "heredoc_body" and not is_quoted and is_unseen(child, draft.text):
            draft.is_broken = True
    if not is_quoted:
        draft.unclear("a heredoc without quotes")


def _test(node: Node, draft: _Draft) -> None:
    # The shell computes what stands in brackets there, even within quotes: [ -v 'a[$(…)]' ]
    if re.search(r"[$`\[]", written(node, draft.text).strip("[] ")):
        draft.unclear("a computed test")
    draft.is_broken = draft.is_broken or is_computed(node, draft.text)


def _assignment(node: Node, text: str) -> tuple[str, Word]:
    name, _, value = written(node, text).partition("=")
    last = node.children[-1]
    return name.removesuffix("+"), word_of(last, text) if value else Word("", "")


def _is_covered(root: Node, data: bytes) -> bool:
    """Say whether nothing but blanks stands between tokens."""
    end = 0
    for leaf in _leaves(root):
        if not _is_blank(data, end, leaf.start_byte):
            return False
        end = max(end, leaf.end_byte)
    return _is_blank(data, end, len(data))


def _is_blank(data: bytes, start: int, end: int) -> bool:
    return start >= end or _BLANK.fullmatch(data, start, end) is not None


def _leaves(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        node = stack.pop()
        if node.child_count and node.type not in LEAVES:
            stack.extend(reversed(node.children))
        else:
            yield node
