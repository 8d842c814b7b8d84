"""Which tools fit some words best: BM25, by the full-text search of SQLite, which Python ships.

Source of the function and its weights: the manual of SQLite's FTS5.
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from app.domain.tools import ToolSpec

_MOST_WORDS = 64
_LONGEST_WORD = 100
_SHORTEST_BEGINNING = 3
"""Letters of a word that also stands for all words that begin with it."""
_NAME_WEIGHT = 8.0
"""What a word in a tool's name counts beside one in its description."""
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def ranked(query: str, specs: Sequence[ToolSpec], most: int) -> list[ToolSpec]:
    """Give the tools that fit, the best first, equals in their order.

    One word of the query is enough, but words after a `+` must all be there.
    """
    expression = _expression(query)
    if not expression:
        return []
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            "CREATE VIRTUAL TABLE tools USING fts5(name, description, tokenize='porter unicode61')"
        )
        database.executemany(
            "INSERT INTO tools(rowid, name, description) VALUES (?, ?, ?)",
            (
                (number, " ".join(_words(spec.name)), " ".join(_words(spec.description)))
                for number, spec in enumerate(specs)
            ),
        )
        found = database.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, ?, 1.0), rowid LIMIT ?",
            (expression, _NAME_WEIGHT, most),
        )
        return [specs[number] for (number,) in found]


def _expression(query: str) -> str:
    """Write the query in the words of FTS5: each is quoted, so none is an operator."""
    any_of: list[str] = []
    all_of: list[str] = []
    for part in query.split():
        (all_of if part.startswith("+") else any_of).extend(map(_term, _words(part)))
    del any_of[_MOST_WORDS:], all_of[_MOST_WORDS:]
    needed = " AND ".join(all_of)
    if not any_of or not needed:
        return needed or " OR ".join(any_of)
    # What must be there is enough; the rest only ranks.
    return f"({needed}) AND ({' OR '.join((*any_of, *all_of))})"


def _term(word: str) -> str:
    return f'"{word}"*' if len(word) >= _SHORTEST_BEGINNING else f'"{word}"'


def _words(text: str) -> list[str]:
    """Part text into words, and names like `readFile` and `mcp__a__b` into theirs."""
    return [word[:_LONGEST_WORD] for word in _WORD.findall(_HUMP.sub(" ", text))]
