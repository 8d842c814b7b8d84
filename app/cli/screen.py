"""Where commands print: results on standard output, everything about them on standard error."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from app.cli.plain import plain, shown

_WIDE = 200
"""Columns when nobody's window sets them: tables in files and pipes are not cut."""


def out() -> Console:
    """Give standard output."""
    return _console(is_error=False)


def err() -> Console:
    """Give standard error."""
    return _console(is_error=True)


def _console(*, is_error: bool) -> Console:
    is_window = (sys.stderr if is_error else sys.stdout).isatty()
    return Console(
        stderr=is_error,
        width=None if is_window else _WIDE,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )


def say(text: str, style: str = "dim") -> None:
    """Tell the user something that is no result."""
    err().print(shown(text, style))


def complain(text: str) -> None:
    """Say why a command ends."""
    err().print(shown(f"treadle: {text}", "red"))


def print_line(text: str) -> None:
    """Print a line of a result as it is, for scripts: never wrapped, never styled."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, figures: int = 0) -> None:
    """Print rows under heads; the last `figures` columns are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        is_figure = number >= len(heads) - figures
        table.add_column(head, justify="right" if is_figure else "left", overflow="fold")
    for row in rows:
        table.add_row(*(shown(cell) for cell in row))
    out().print(table, soft_wrap=False)


def print_details(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one a line; what has no value is left out."""
    kept = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        text = plain(str(value)).replace("\n", "\n" + " " * (width + 2))
        out().print(shown(f"{name:<{width}}  {text}"))
