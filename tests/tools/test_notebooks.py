"""Notebooks: what Read shows of them, and NotebookEdit on ones that are not as they should be."""

import base64
import json
from typing import Any

import pytest

from tests.tools.desk import Desk, blocks_of, text_of

pytestmark = pytest.mark.platform

PNG = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAIAAAA7ljmRAAAAEElEQVR4nGP4z8AARww4OQD1MQv1NXv7ggAAAABJRU5ErkJggg=="
    )
).decode()


def notebook(*cells: dict[str, Any], language: str = "python", **more: Any) -> str:
    metadata = {"language_info": {"name": language}}
    return json.dumps(
        {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5, **more}
    )


def code(source: object, *outputs: object, id_: str = "c", count: int | None = 1) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": id_,
        "metadata": {},
        "execution_count": count,
        "source": source,
        "outputs": list(outputs),
    }


MARKDOWN = {"cell_type": "markdown", "metadata": {}, "source": ["# A\n", "b"]}
STREAM = {"output_type": "stream", "name": "stdout", "text": ["1\n", "2"]}
ERROR = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["tb1", "tb2"]}
PLOT = {
    "output_type": "display_data",
    "data": {"text/plain": "<Figure>", "image/png": [PNG[:40] + "\n", PNG[40:]]},
}


async def test_cells_are_shown_with_ids_sources_and_outputs(desk: Desk) -> None:
    desk.put("n.ipynb", notebook(MARKDOWN, code("1+1", STREAM, id_="x"), code("1/0", ERROR)))
    result = await desk.call("Read", file_path="n.ipynb", offset=3, limit=1)
    assert result.content == [
        {
            "type": "text",
            "text": '<cell id="cell-0"><cell_type>markdown</cell_type># A\nb</cell id="cell-0">\n'
            '<cell id="x">1+1</cell id="x">\n1\n2\n'
            '<cell id="c">1/0</cell id="c">\nE: v\ntb1\ntb2',
        }
    ]
    assert result.structured["file"] == {
        "filePath": "n.ipynb",
        "cells": [
            {"cellType": "markdown", "source": "# A\nb", "cell_id": "cell-0"},
            {
                "cellType": "code",
                "source": "1+1",
                "cell_id": "x",
                "language": "python",
                "execution_count": 1,
                "outputs": [{"output_type": "stream", "text": "1\n2"}],
            },
            {
                "cellType": "code",
                "source": "1/0",
                "cell_id": "c",
                "language": "python",
                "execution_count": 1,
                "outputs": [{"output_type": "error", "text": "E: v\ntb1\ntb2"}],
            },
        ],
    }


async def test_images_of_outputs_are_blocks_of_their_own(desk: Desk) -> None:
    desk.put("n.ipynb", notebook(code("plot()", PLOT)))
    text, image = blocks_of(await desk.call("Read", file_path="n.ipynb"))
    assert text["text"].endswith("\n<Figure>")
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}


@pytest.mark.parametrize("cells", [[{}] * 20_001, [code("", *[{}] * 10_000)] * 2])
async def test_more_cells_and_outputs_than_are_shown_are_counted(
    cells: list[dict[str, Any]], desk: Desk
) -> None:
    desk.put("n.ipynb", notebook(*cells))
    refused = await desk.call("Read", file_path="n.ipynb", allow_large=True)
    assert refused.is_error
    assert "cells and outputs, at most 20000 are shown. Use Bash" in text_of(refused)
    desk.put("n.ipynb", notebook(*cells[1:]))
    assert not (await desk.call("Read", file_path="n.ipynb", allow_large=True)).is_error


async def test_another_language_is_named(desk: Desk) -> None:
    desk.put("n.ipynb", notebook(code("x = 1"), language="julia"))
    (text,) = blocks_of(await desk.call("Read", file_path="n.ipynb"))
    assert text["text"] == '<cell id="c"><language>julia</language>x = 1</cell id="c">'


async def test_long_outputs_are_replaced_by_a_hint(desk: Desk) -> None:
    long = {"output_type": "stream", "text": "x" * 10_001}
    desk.put("n.ipynb", notebook(MARKDOWN, code("f()", long)))
    (text,) = blocks_of(await desk.call("Read", file_path="n.ipynb"))
    assert "jq '.cells[1].outputs'" in text["text"]
    assert len(text["text"]) < 500


async def test_a_notebook_over_the_tokens_is_refused_unless_large_ones_are_allowed(
    desk: Desk,
) -> None:
    desk.put("n.ipynb", notebook(code("x" * 200_000)))
    refused = await desk.call("Read", file_path="n.ipynb")
    assert refused.is_error
    assert "allow_large" in text_of(refused)
    allowed = await desk.call("Read", file_path="n.ipynb", allow_large=True)
    assert not allowed.is_error


ODD: dict[str, Any] = {
    "sources": notebook(code(None), code({"a": 1}), code(["a", 1, None]), {"cell_type": 5}),
    "outputs": notebook(code("x", None, 5, {"output_type": []}, {"output_type": "error"})),
    "data": notebook(
        code("x", {"output_type": "execute_result", "data": [1]}),
        code("x", {"output_type": "display_data", "data": {"image/png": "no base64!"}}),
        code("x", {"output_type": "display_data", "data": {"image/png": "bm8gaW1hZ2U="}}),
    ),
    "metadata": notebook(code("x"), metadata=[], nbformat="4", nbformat_minor=None),
    "ids": notebook(code("x", id_='a\n"><b'), {"id": 7, "source": "y"}),
    "surrogate": '{"cells": [{"cell_type": "code", "source": "\\ud800"}]}',
    "nothing": '{"cells": []}',
}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_notebook_is_shown_and_edited_or_refused_in_words(
    name: str, desk: Desk
) -> None:
    desk.put("n.ipynb", ODD[name])
    assert not (await desk.call("Read", file_path="n.ipynb")).is_error
    for mode in ("replace", "insert", "delete"):
        result = await desk.call(
            "NotebookEdit",
            notebook_path="n.ipynb",
            cell_id="cell-0",
            cell_type="code",
            new_source="new",
            edit_mode=mode,
        )
        assert "internal error" not in str(result.content)


async def test_halves_of_characters_in_other_cells_stay_as_they_are(desk: Desk) -> None:
    half = '{"cell_type": "code", "source": "", "outputs": [{"text": "\\ud83d, \\\\ud83d"}]}'
    desk.put("n.ipynb", f'{{"cells": [{{"cell_type": "code", "source": "x"}}, {half}]}}')
    await desk.call("Read", file_path="n.ipynb")
    given = {"notebook_path": "n.ipynb", "cell_id": "cell-0"}
    refused = await desk.call("NotebookEdit", **given, new_source="\ud83d")
    assert "lone surrogate" in text_of(refused)
    assert not (await desk.call("NotebookEdit", **given, new_source="caf\u00e9")).is_error
    changed = desk.content("n.ipynb").decode()
    assert '"source": "caf\u00e9"' in changed
    assert '"text": "\\ud83d, \\\\ud83d"' in changed


@pytest.mark.parametrize("content", ["", "{bad", "[]", '{"cells": [1]}', "[" * 100_000])
async def test_what_is_no_notebook_is_told(content: str, desk: Desk) -> None:
    desk.put("n.ipynb", content)
    result = await desk.call("Read", file_path="n.ipynb")
    assert result.is_error
    assert "is not a notebook" in text_of(result)


async def test_a_notebook_without_ids_gets_none(desk: Desk) -> None:
    desk.put("n.ipynb", notebook({**MARKDOWN}, nbformat_minor=4))
    await desk.call("Read", file_path="n.ipynb")
    result = await desk.call(
        "NotebookEdit",
        notebook_path="n.ipynb",
        new_source="x",
        cell_type="code",
        cell_id="cell-0",
        edit_mode="insert",
    )
    assert result.structured["cell_id"] == "cell-1"
    new = json.loads(desk.content("n.ipynb"))["cells"][1]
    assert new == {
        "cell_type": "code",
        "metadata": {},
        "source": "x",
        "execution_count": None,
        "outputs": [],
    }
