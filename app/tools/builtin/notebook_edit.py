"""NotebookEdit: replace, insert or delete one cell of a notebook."""

import secrets
from typing import Any, Literal

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.changed_file import Change, Present, load, missing, original_of, store
from app.tools.notebooks import Json, Notebook, id_of, parse_notebook, source_of
from app.tools.open_file import compute
from app.tools.paths import shown
from app.tools.tool import ToolContext, ToolInput, tool


class NotebookEditInput(ToolInput):
    notebook_path: str
    """The notebook, an .ipynb file. A relative path starts at the working directory."""
    new_source: str
    """The whole source of the cell; ignored when one is deleted."""
    cell_id: str | None = None
    """The cell to replace or delete, or after which to insert (none: at the start). Its id, or \
cell-N by its place, counted from 0."""
    cell_type: Literal["code", "markdown"] | None = None
    """What the cell is; needed to insert one."""
    edit_mode: Literal["replace", "insert", "delete"] = "replace"
    """What to do with the cell."""


@tool(
    name="NotebookEdit",
    description=(
        "Change one cell of a Jupyter notebook: replace its source, insert a new one, or delete "
        "it. The notebook must have been read first; Read names the cells."
    ),
    input_model=NotebookEditInput,
    edits_files=True,
)
async def notebook_edit_tool(given: NotebookEditInput, context: ToolContext) -> ToolResult:
    """Check that the agent knows the notebook, change the cell, write the whole file."""
    path = context.workspace.absolute(given.notebook_path, context.cwd)
    if not path.lower().endswith(".ipynb"):
        raise ToolFailed(
            f"{shown(path)} is no notebook by its name (.ipynb); use Edit.", wrapped=True
        )
    present = await _known(context, path)
    language, told, updated, change = await compute(
        lambda: _changed(given, path, present), size_bytes=len(present.decoded.text)
    )
    facts = await store(context, path, change, present)
    return ToolResult(
        _message(given, told["cell_id"]),
        structured={
            **told,
            "new_source": given.new_source,
            "language": language,
            "edit_mode": given.edit_mode,
            "error": "",
            "notebook_path": given.notebook_path,
            "original_file": original_of(present.decoded.text),
            "updated_file": original_of(updated),
        },
        facts=facts,
    )


def _changed(
    given: NotebookEditInput, path: str, present: Present
) -> tuple[str, dict[str, Any], str, Change]:
    """Give the language, what to tell of the cell, the new text, and the change to write."""
    if given.edit_mode != "delete":
        present.decoded.encode(given.new_source)  # refuses what no file can hold
    notebook = parse_notebook(present.decoded.text, path)
    index = _place(given, notebook)
    match given.edit_mode:
        case "replace":
            told = _replace(given, notebook, index)
        case "insert":
            told = _insert(given, notebook, index)
        case "delete":
            told = _delete(notebook, index)
    updated = notebook.text()
    return notebook.language, told, updated, Change.of(present.decoded, None, updated)


async def _known(context: ToolContext, path: str) -> Present:
    """Give the file, as the agent has read it."""
    seen = context.memory.files.get(path)
    if seen is None:
        raise ToolFailed(
            f"{shown(path)} was not read in this session. Read it first, then edit it.",
            wrapped=True,
        )
    present = await load(context, path)
    if present is None:
        raise missing(context, path)
    present.check_encoding(path)
    if present.differs_from(seen):
        raise ToolFailed(
            f"{shown(path)} has changed since you last read or wrote it. Read it again, then "
            "edit it.",
            wrapped=True,
        )
    return present


def _place(given: NotebookEditInput, notebook: Notebook) -> int:
    """Give the index of the cell that is meant, or at which a new one comes to stand."""
    is_new = given.edit_mode == "insert"
    if is_new and given.cell_type is None:
        raise ToolFailed("cell_type is needed to insert a cell.", wrapped=True)
    if not given.cell_id:
        if is_new:
            return 0
        raise ToolFailed(f"cell_id is needed to {given.edit_mode} a cell.", wrapped=True)
    index = notebook.find(given.cell_id)
    if index is None:
        raise ToolFailed(
            f"There is no cell {shown(given.cell_id)}; the notebook has {len(notebook.cells)} "
            "cell(s).",
            wrapped=True,
        )
    return index + 1 if is_new else index


def _replace(given: NotebookEditInput, notebook: Notebook, index: int) -> dict[str, Any]:
    cell = notebook.cells[index]
    old_source = source_of(cell)
    cell["source"] = given.new_source
    cell["cell_type"] = given.cell_type or cell.get("cell_type")
    if cell["cell_type"] == "code":
        cell["execution_count"], cell["outputs"] = None, []  # they belong to the old source
    else:
        cell.pop("execution_count", None)
        cell.pop("outputs", None)
    return _told(cell, index, old_source)


def _insert(given: NotebookEditInput, notebook: Notebook, index: int) -> dict[str, Any]:
    cell: Json = {"cell_type": given.cell_type}
    if notebook.has_ids:
        cell["id"] = secrets.token_hex(4)
    cell |= {"metadata": {}, "source": given.new_source}
    if given.cell_type == "code":
        cell |= {"execution_count": None, "outputs": []}
    notebook.cells.insert(index, cell)
    return _told(cell, index, None)


def _delete(notebook: Notebook, index: int) -> dict[str, Any]:
    cell = notebook.cells.pop(index)
    return _told(cell, index, source_of(cell))


def _told(cell: Json, index: int, old_source: str | None) -> dict[str, Any]:
    told = {"cell_id": id_of(cell, index), "cell_type": str(cell.get("cell_type"))}
    return told if old_source is None else {**told, "old_source": old_source}


def _message(given: NotebookEditInput, cell_id: str) -> str:
    if given.edit_mode == "delete":
        return f"Deleted the cell {cell_id}."
    done = "Replaced" if given.edit_mode == "replace" else "Inserted"
    return f"{done} the cell {cell_id}. Its source is now:\n{given.new_source}"
