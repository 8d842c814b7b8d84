"""Rows as a relation inside a statement: a few as values, many as arrays.

asyncpg asks of each element of an array whether it is one itself, which costs several times as much
as an argument of its own. Most statements store a row or two; those of many rows must not each be a
statement of its own kind, since a connection keeps only so many prepared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_VALUES = 8
"""Rows that are written out."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A name, and its columns with their types."""

    name: str
    columns: tuple[tuple[str, str], ...]

    def sql(self, rows: int, first: int) -> str:
        """Give what stands behind FROM for so many rows; their arguments begin with `$first`.

        The relation has a further column `o`, the number of the row from 1.
        """
        names = ", ".join((*(name for name, _ in self.columns), "o"))
        width = len(self.columns)
        if not _are_few(rows):
            arrays = (f"${first + i}::{kind}[]" for i, (_, kind) in enumerate(self.columns))
            return f"unnest({', '.join(arrays)}) WITH ORDINALITY AS {self.name}({names})"
        values = (
            ", ".join(
                f"${first + row * width + i}::{kind}" for i, (_, kind) in enumerate(self.columns)
            )
            + f", {row + 1}"
            for row in range(rows)
        )
        return f"(VALUES {', '.join(f'({each})' for each in values)}) AS {self.name}({names})"

    def arguments(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Give rows as the arguments that `sql` names for so many."""
        if _are_few(len(rows)):
            return [value for row in rows for value in row]
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in self.columns]

    def arity(self, rows: int) -> int:
        """Give how many arguments so many rows take."""
        return len(self.columns) * (rows if _are_few(rows) else 1)


def shape(rows: Sequence[object]) -> int:
    """Give what a statement depends on: the number of a few rows, one number for all others."""
    return min(len(rows), MOST_VALUES + 1)


def _are_few(rows: int) -> bool:
    return 0 < rows <= MOST_VALUES
