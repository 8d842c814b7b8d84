"""Jupyter notebooks: JSON with a list of cells, read without trusting any of it.

What is not as the format says is kept when a notebook is written back, and left out when it is
shown.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import ToolFailed
from app.tools.paths import shown

Json = dict[str, Any]
"""A JSON object of an unknown notebook."""

_BY_INDEX = re.compile(r"cell-(\d{1,9})")
_HALF = re.compile("[\ud800-\udfff]")
_DEFAULT_LANGUAGE = "python"
_FIRST_WITH_IDS = (4, 5)


@dataclass(frozen=True, slots=True)
class Notebook:
    """A whole notebook; `cells` is the list inside `whole`, which may be changed in place."""

    whole: Json
    cells: list[Json]

    @property
    def language(self) -> str:
        """The language of its code cells."""
        metadata = mapping(self.whole.get("metadata"))
        names = (
            mapping(metadata.get("language_info")).get("name"),
            mapping(metadata.get("kernelspec")).get("language"),
        )
        return next((name for name in names if isinstance(name, str) and name), _DEFAULT_LANGUAGE)

    @property
    def has_ids(self) -> bool:
        """Whether cells of this version of the format carry ids."""
        version = (self.whole.get("nbformat"), self.whole.get("nbformat_minor"))
        return all(isinstance(part, int) for part in version) and version >= _FIRST_WITH_IDS

    def find(self, cell_id: str) -> int | None:
        """Give the index of a cell by its own id, or else by `cell-N`, counted from 0."""
        for index, cell in enumerate(self.cells):
            if cell.get("id") == cell_id:
                return index
        by_index = _BY_INDEX.fullmatch(cell_id)
        index = int(by_index[1]) if by_index else len(self.cells)
        return index if index < len(self.cells) else None

    def text(self) -> str:
        """Give it as the file's text: indented by one, without a final line end.

        Raises `ToolFailed` when it is nested too deeply.
        """
        try:
            text = json.dumps(self.whole, indent=1, ensure_ascii=False)
        except RecursionError:
            raise ToolFailed("The notebook is nested too deeply to be written.") from None
        # Outputs may hold halves of characters; in JSON they can only be escaped.
        return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def parse_notebook(text: str, path: str) -> Notebook:
    """Read a notebook's text. Raises `ToolFailed` where it is none."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise ToolFailed(f"{shown(path)} is not a notebook: it is not valid JSON.") from None
    cells = whole.get("cells") if isinstance(whole, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ToolFailed(f"{shown(path)} is not a notebook: it has no list of cells.")
    return Notebook(whole, cells)


def id_of(cell: Mapping[str, Any], index: int) -> str:
    """Give the name by which a cell can be called."""
    own = cell.get("id")
    return own if isinstance(own, str) and own else f"cell-{index}"


def source_of(cell: Mapping[str, Any]) -> str:
    """Give a cell's source as one text."""
    return joined(cell.get("source"))


def joined(value: object) -> str:
    """Give a text that the format allows to be a list of pieces."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "".join(piece for piece in value if isinstance(piece, str))
    return ""


def mapping(value: object) -> Mapping[str, Any]:
    """Give an object that may be missing, or something else."""
    return value if isinstance(value, Mapping) else {}
