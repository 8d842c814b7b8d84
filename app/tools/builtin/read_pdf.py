"""PDF documents for Read: whole as a document block, or pages of them as images."""

import re

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.read_image import image_block
from app.tools.decoder import Decoder
from app.tools.notebooks import Json
from app.tools.open_file import OpenFile
from app.tools.paths import shown
from app.tools.seen import saw

_MAX_PAGES = 20
_PAGES = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?")
_MARK = b"%PDF-"


async def read_pdf(
    file: OpenFile, path: str, given_path: str, pages: str | None, decoder: Decoder
) -> ToolResult:
    """Show the document. `given_path` is the path as the model wrote it. Raises `ToolFailed`."""
    wanted = None if pages is None else _parsed(pages)
    if file.size_bytes == 0:
        raise ToolFailed(f"{shown(path)} is empty.")
    if file.head(len(_MARK)) != _MARK:
        raise ToolFailed(f"{shown(path)} is not a PDF document: it does not start with %PDF-.")
    try:
        if wanted is None:
            return await _whole(file, path, given_path, decoder)
        return await _pages(file, path, given_path, wanted, decoder)
    except ToolFailed as error:
        raise ToolFailed(f"{shown(path)} cannot be shown: {error.message}.") from error


def _parsed(pages: str) -> tuple[int, int]:
    """Read "3" or "1-5"."""
    found = _PAGES.fullmatch(pages)
    first = int(found[1]) if found else 0
    last = int(found[2] or first) if found else 0
    if not 1 <= first <= last:
        raise ToolFailed(
            'The parameter `pages` is not valid: give one page or one range, such as "3" or "1-5".',
            wrapped=True,
        )
    if last - first >= _MAX_PAGES:
        raise ToolFailed(
            f"The parameter `pages` asks for {last - first + 1} pages; at most {_MAX_PAGES} are "
            "shown at once.",
            wrapped=True,
        )
    return first, last


async def _whole(file: OpenFile, path: str, given_path: str, decoder: Decoder) -> ToolResult:
    answer = await decoder.document(file)
    data, size_bytes = answer["base64"], answer["size_bytes"]
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    return ToolResult(
        [
            _text(
                f"{shown(path)}: a PDF document of {answer['pages']} page(s), {size_bytes} bytes."
            ),
            {"type": "document", "source": source},
        ],
        structured={
            "type": "pdf",
            "file": {"filePath": given_path, "base64": data, "originalSize": size_bytes},
        },
        facts=saw(path, answer["sha256"], file.version),
    )


async def _pages(
    file: OpenFile, path: str, given_path: str, wanted: tuple[int, int], decoder: Decoder
) -> ToolResult:
    first, last = wanted
    answer = await decoder.pages(file, first, last)
    pictures = answer["pictures"]
    blocks = [_text(f"{shown(path)}: pages {first} to {last} of {answer['pages']}.")]
    return ToolResult(
        [*blocks, *map(image_block, pictures)],
        structured={
            "type": "parts",
            "file": {
                "filePath": given_path,
                "originalSize": answer["size_bytes"],
                "count": len(pictures),
            },
        },
        facts=saw(path, answer["sha256"], file.version, partial=True),
    )


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
