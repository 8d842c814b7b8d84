"""Structured output: the run ends with an object that fits a schema, or as an error (decisions B11).

The model gives the object as the input of a tool that is offered for this alone. What it gave, and
how often it failed, is folded from the journal: a result of such a call, or the note that asks for
the call, carries a fact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from app.domain.blocks import UNPARSED

OUTPUT_TOOL = "StructuredOutput"
OUTPUT_FACT = "output"
"""Fact on the result of a call (`valid`, `failed`), on the note that asks for one (`missing`), and on a
fallback that takes one back (`retracted`)."""
MISSING_TEXT = (
    f"Nothing was given to {OUTPUT_TOOL} yet, and without it this task has no result. Give your "
    "answer now, as the input of that tool."
)
NO_CALL = f"{OUTPUT_TOOL} was not called"
RETRACTED_TEXT = (
    "The structured output was taken back with the response that held it, which broke off; the "
    "fallback model gave no other."
)
KEPT = 3
"""Failed attempts whose raw output is kept for the error."""
MAX_KEPT_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Output:
    """Attempts of a run at its output."""

    failed: int = 0
    last: tuple[str, ...] = ()
    """What the newest failed attempts gave, oldest first."""
    problem: str = ""
    """What was wrong with the newest."""
    valid: frozenset[str] = frozenset()
    """Ids of the newest response's calls that gave a valid object."""

    is_retracted: bool = False
    """Whether a fallback took back an output that had come whole, and no valid one came since."""

    def accepted(self, call_id: str) -> "Output":
        """Give what is known after a valid call."""
        return replace(self, valid=self.valid | {call_id}, is_retracted=False)

    def rejected(self, raw: str, problem: str) -> "Output":
        """Give what is known after a failed attempt."""
        last = (*self.last, raw)[-KEPT:]
        return replace(self, failed=self.failed + 1, last=last, problem=problem)

    def told(self) -> str:
        """Say in an error how the attempts went, with what they gave."""
        last = "; ".join(_cut(raw) for raw in self.last)
        times = "attempt" if self.failed == 1 else "attempts"
        return (
            f"No valid structured output came in {self.failed} {times}. "
            f"The last problem: {_cut(self.problem)}. The last output, oldest first: {last}"
        )


def raw_input(given: Mapping[str, Any]) -> str:
    """Give a call's input as its JSON text: what the model wrote, where that was no JSON."""
    unparsed = given.get(UNPARSED)
    if isinstance(unparsed, dict) and isinstance(unparsed.get("raw"), str):
        return str(unparsed["raw"])
    return orjson.dumps(given).decode()


def _cut(text: str) -> str:
    left = len(text) - MAX_KEPT_CHARS
    return text if left <= 0 else f"{text[:MAX_KEPT_CHARS]} … ({left} more characters)"
