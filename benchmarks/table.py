"""The one table: medians of both peers, their ratio, and the targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""Peer, figure, one value for each round."""


@dataclass(frozen=True, slots=True)
class Target:
    limit: float
    of: Literal["ratio", "ours"]
    """Whether the ratio to the floor is bounded or our own figure."""


TARGETS: Mapping[str, Target] = {
    "W1 first message ms": Target(2, "ratio"),
    "P47 POST to model ms": Target(150, "ours"),
    "W2 CPU ms a turn": Target(1.5, "ratio"),
    "W2 gap ms": Target(1.5, "ratio"),
    "W3 CPU ms a turn": Target(1.5, "ratio"),
    "W5 growth": Target(2, "ours"),
    "W7 CPU ms to first request": Target(2, "ratio"),
    "W8b CPU us a delta": Target(3, "ratio"),
    "memory MiB a running session": Target(1, "ours"),
    # None is asked; the allocator's own coming and going is a few KiB a session.
    "memory MiB an idle session": Target(0.01, "ours"),
    "growth of a turn": Target(1.3, "ours"),
    "growth MiB": Target(10, "ours"),
    "resume, POST to model ms": Target(300, "ours"),
}


def table(samples: Samples) -> tuple[str, list[str]]:
    """The table in Markdown, and the figures that miss their target."""
    floor, ours = samples["floor"], samples.get("ours", {})
    rows = [("figure", "floor", "ours", "ratio", "target", "")]
    missed = []
    for figure in floor:
        target = TARGETS.get(figure)
        base = median(floor[figure])
        own = median(ours[figure]) if figure in ours else None
        ratio = own / base if own is not None and base > 0 else None
        reached = ratio if target is not None and target.of == "ratio" else own
        verdict = ""
        if target is not None and reached is not None:
            verdict = "met" if reached <= target.limit else "MISSED"
            if reached > target.limit:
                missed.append(figure)
        rows.append((figure, _plain(base), _plain(own), _times(ratio), _limit(target), verdict))
    return _markdown(rows), missed


def _plain(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _limit(target: Target | None) -> str:
    if target is None:
        return ""
    return f"<= {target.limit:g}" + ("x" if target.of == "ratio" else "")


def _markdown(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
