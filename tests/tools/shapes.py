"""What `tool_use_result` holds, tool by tool: the fields that clients may rely on."""

from collections.abc import Mapping
from typing import Any

from tests.tools.cases import Answer

Fields = Mapping[str, Any]
"""Name to type (or types, or a mapping for an object); a name that ends with `?` may be missing."""

_HUNK = {"oldStart": int, "oldLines": int, "newStart": int, "newLines": int, "lines": list}
_DIMENSIONS = {
    "originalWidth": int,
    "originalHeight": int,
    "displayWidth": int,
    "displayHeight": int,
}
_NO_TEXT = (str, type(None))
_STORED = {"persistedOutputPath?": str, "persistedOutputSize?": int}
_PAGED = {"appliedLimit?": int, "appliedOffset?": int}

SHAPES: Mapping[str, Mapping[str, Fields]] = {
    "Read": {
        "text": {
            "type": str,
            "file": {
                "filePath": str,
                "content": str,
                "numLines": int,
                "startLine": int,
                "totalLines": int,
                "truncatedByTokenCap?": bool,
            },
        },
        "image": {
            "type": str,
            "file": {"base64": str, "type": str, "originalSize": int, "dimensions": _DIMENSIONS},
        },
        "pdf": {"type": str, "file": {"filePath": str, "base64": str, "originalSize": int}},
        "notebook": {"type": str, "file": {"filePath": str, "cells": list}},
    },
    "Write": {
        kind: {
            "type": str,
            "filePath": str,
            "content": str,
            "structuredPatch": [_HUNK],
            "originalFile": _NO_TEXT,
            "userModified": bool,
        }
        for kind in ("create", "update")
    },
    "Edit": {
        "": {
            "filePath": str,
            "oldString": str,
            "newString": str,
            "originalFile": _NO_TEXT,
            "structuredPatch": [_HUNK],
            "userModified": bool,
            "replaceAll": bool,
            "contentNotInModelContext?": bool,
            "staleRecovered?": bool,
        }
    },
    "NotebookEdit": {
        "": {
            "new_source": str,
            "old_source?": str,
            "cell_type": str,
            "language": str,
            "edit_mode": str,
            "cell_id?": str,
            "error": str,
            "notebook_path": str,
            "original_file": _NO_TEXT,
            "updated_file": _NO_TEXT,
        }
    },
    "Glob": {
        "": {
            "filenames": [str],
            "durationMs": int,
            "numFiles": int,
            "truncated": bool,
            "totalMatches": int,
            "countIsComplete": bool,
        }
    },
    "Grep": {
        "files_with_matches": {
            "mode": str,
            "filenames": [str],
            "numFiles": int,
            "totalFiles": int,
            **_PAGED,
            **_STORED,
        },
        "content": {
            "mode": str,
            "numFiles": int,
            "filenames": [str],
            "content": str,
            "numLines": int,
            "totalLines": int,
            **_PAGED,
            **_STORED,
        },
        "count": {
            "mode": str,
            "numFiles": int,
            "filenames": [str],
            "content": str,
            "numMatches": int,
            **_PAGED,
            **_STORED,
        },
    },
}


def check_shape(tool: str, answer: Answer) -> None:
    """Compare the structured result of a call; that of a failure is a text."""
    given = answer.structured
    if answer.is_error:
        assert isinstance(given, str), given
        assert given.startswith(("Error: ", "InputValidationError: ")), given[:200]
        return
    if (shapes := SHAPES.get(tool)) is None:
        return
    assert isinstance(given, dict), given
    _fits(given, shapes[given.get("type") or given.get("mode") or ""], tool)


def _fits(value: Any, shape: Any, where: str) -> None:
    if isinstance(shape, list):
        assert isinstance(value, list), where
        for item in value:
            _fits(item, shape[0], f"{where}[]")
    elif isinstance(shape, Mapping):
        assert isinstance(value, dict), where
        names = {name.removesuffix("?") for name in shape}
        needed = {name for name in shape if not name.endswith("?")}
        assert needed <= value.keys() <= names, f"{where}: {sorted(value)}"
        for name, item in value.items():
            _fits(item, shape.get(name, shape.get(f"{name}?")), f"{where}.{name}")
    else:
        assert isinstance(value, shape), f"{where}: {value!r}"
        assert not isinstance(value, bool) or shape is bool, f"{where}: {value!r}"
