"""Notebooks for Read: every cell with its id, its source and its outputs."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.read_text import MAX_TOKENS, tokens_of
from app.tools.encoding import decode
from app.tools.images import image_kind
from app.tools.notebooks import Json, Notebook, id_of, joined, mapping, parse_notebook, source_of
from app.tools.open_file import OpenFile
from app.tools.paths import shown
from app.tools.seen import saw, sha256

_MAX_BYTES = 16 * 1024 * 1024
_MAX_PARTS = 20_000
"""Cells and outputs: an empty one takes two bytes of the file, and a hundred of the result."""
_MAX_OUTPUT = 10_000
"""Characters; longer outputs of a cell are replaced by a hint."""
_MAX_IMAGES = 20
_MAX_IMAGE_CHARS = 4_000_000
"""Of all images together, in base64: a request to the Messages API is limited."""
_IMAGE_TYPES = ("image/png", "image/jpeg")


@dataclass(frozen=True, slots=True)
class _Output:
    """One output of a code cell."""

    kind: str
    text: str = ""
    image: Json | None = None
    """The source of an image block."""


def read_notebook(file: OpenFile, path: str, given_path: str, allow_large: bool) -> ToolResult:
    """Show a notebook. `given_path` is the path as the model wrote it. Raises `ToolFailed`."""
    if file.size_bytes > _MAX_BYTES:
        raise ToolFailed(
            f"{shown(path)} is too large to be shown ({file.size_bytes} bytes, at most "
            f"{_MAX_BYTES}). {_hint(path)}"
        )
    data = file.content(_MAX_BYTES)
    notebook = parse_notebook(decode(data).text, path)
    parts = len(notebook.cells) + sum(len(_raw_outputs(cell)) for cell in notebook.cells)
    if parts > _MAX_PARTS:
        raise ToolFailed(
            f"{shown(path)} has {parts} cells and outputs, at most {_MAX_PARTS} are shown. "
            f"{_hint(path)}"
        )
    cells = [_Cell.of(notebook, index, path) for index in range(len(notebook.cells))]
    text = "\n".join(cell.shown() for cell in cells)
    if not allow_large and (tokens := tokens_of(text)) > MAX_TOKENS:
        raise ToolFailed(
            f"{shown(path)} is about {tokens} tokens, at most {MAX_TOKENS} are shown. "
            f"{_hint(path)} Or set allow_large."
        )
    images, left_out = _within_limits([image for cell in cells for image in cell.images()])
    if left_out:
        text += f"\n\n[{left_out} more images of outputs are not shown.]"
    return ToolResult(
        [{"type": "text", "text": text or "(The notebook has no cells.)"}, *images],
        structured={
            "type": "notebook",
            "file": {"filePath": given_path, "cells": [cell.structured() for cell in cells]},
        },
        facts=saw(path, sha256(data), file.version),
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell as it is shown."""

    id: str
    kind: str
    source: str
    language: str
    execution_count: int | None
    outputs: Sequence[_Output]

    @staticmethod
    def of(notebook: Notebook, index: int, path: str) -> "_Cell":
        cell = notebook.cells[index]
        kind, count = cell.get("cell_type"), cell.get("execution_count")
        kind = kind if isinstance(kind, str) else "unknown"
        outputs = list(_outputs(_raw_outputs(cell))) if kind == "code" else []
        if sum(len(output.text) for output in outputs) > _MAX_OUTPUT:
            hint = f"(The outputs are too long. Use Bash: jq '.cells[{index}].outputs' {path!r})"
            outputs = [_Output("stream", hint)]
        return _Cell(
            id_of(cell, index),
            kind,
            source_of(cell),
            notebook.language,
            count if isinstance(count, int) else None,
            outputs,
        )

    def shown(self) -> str:
        head = "" if self.kind == "code" else f"<cell_type>{self.kind}</cell_type>"
        if self.kind == "code" and self.language != "python":
            head = f"<language>{self.language}</language>"
        cell = f'<cell id="{self.id}">{head}{self.source}</cell id="{self.id}">'
        return "\n".join([cell, *(output.text for output in self.outputs if output.text)])

    def images(self) -> Iterator[Json]:
        return (output.image for output in self.outputs if output.image is not None)

    def structured(self) -> Json:
        told: Json = {"cellType": self.kind, "source": self.source, "cell_id": self.id}
        if self.kind != "code":
            return told
        told["language"] = self.language
        if self.execution_count is not None:
            told["execution_count"] = self.execution_count
        if self.outputs:
            told["outputs"] = [
                {"output_type": output.kind, "text": output.text} for output in self.outputs
            ]
        return told


def _raw_outputs(cell: Json) -> Sequence[object]:
    raw = cell.get("outputs")
    return raw if isinstance(raw, list) else []


def _outputs(raw: Sequence[object]) -> Iterator[_Output]:
    for output in raw:
        kind = output.get("output_type") if isinstance(output, Mapping) else None
        if not isinstance(output, Mapping) or not isinstance(kind, str):
            continue
        if kind == "stream":
            yield _Output(kind, joined(output.get("text")))
        elif kind in {"execute_result", "display_data"}:
            data = mapping(output.get("data"))
            yield _Output(kind, joined(data.get("text/plain")), _image(data))
        elif kind == "error":
            lines = output.get("traceback")
            traceback = (
                [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
            )
            title = f"{joined(output.get('ename'))}: {joined(output.get('evalue'))}"
            yield _Output(kind, "\n".join([title, *traceback]))


def _image(data: Mapping[str, Any]) -> Json | None:
    """Give an output's image, if it is one by its content."""
    for media_type in _IMAGE_TYPES:
        encoded = "".join(joined(data.get(media_type)).split())
        if not encoded or len(encoded) > _MAX_IMAGE_CHARS:
            continue
        try:
            kind = image_kind(base64.b64decode(encoded, validate=True))
        except binascii.Error:
            continue
        if kind is not None:
            return {"type": "base64", "media_type": kind.media_type, "data": encoded}
    return None


def _within_limits(sources: Sequence[Json]) -> tuple[list[Json], int]:
    """Give image blocks, as many as a request can hold, and how many are left out."""
    room, blocks = _MAX_IMAGE_CHARS, list[Json]()
    for source in sources:
        room -= len(source["data"])
        if room < 0 or len(blocks) == _MAX_IMAGES:
            break
        blocks.append({"type": "image", "source": source})
    return blocks, len(sources) - len(blocks)


def _hint(path: str) -> str:
    return f"Use Bash for a part of it, for instance jq '.cells[0]' {path!r}."
