"""Read: the content of a file: numbered lines, an image, a document or the cells of a notebook."""

import posixpath
from typing import Literal

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.output_words import read_words
from app.tools.builtin.read_image import IMAGE_EXTENSIONS, looks_like_image, read_image
from app.tools.builtin.read_notebook import read_notebook
from app.tools.builtin.read_pdf import read_pdf
from app.tools.builtin.read_text import Span, empty_text, read_text
from app.tools.failures import no_such_file
from app.tools.open_file import OpenFile, use
from app.tools.paths import shown
from app.tools.tool import ToolContext, ToolInput, tool

_BINARY = """
.7z .a .aac .avi .avif .bin .bmp .bz2 .class .dat .db .dll .dmg .doc .docx .dylib .ear .eot
.exe .flac .flv .gz .heic .ico .iso .jar .lib .m4a .m4v .mkv .mov .mp3 .mp4 .mpeg .o .obj .odp
.ods .odt .ogg .otf .ppt .pptx .psd .pyc .pyd .pyo .rar .so .sqlite .sqlite3 .tar .tgz .tif
.tiff .ttf .war .wasm .wav .webm .wma .wmv .woff .woff2 .xls .xlsx .xz .zip .zst
"""
_BINARY_EXTENSIONS = frozenset(_BINARY.split())


class ReadInput(ToolInput):
    file_path: str
    """The file. A relative path starts at the working directory."""
    offset: int | None = None
    """Number of the first line to show, counted from 1."""
    limit: int | None = None
    """How many lines to show."""
    pages: str | None = None
    """Pages of a PDF, such as "3" or "1-5"; other files ignore it."""
    allow_large: bool = False
    """Show the file even if it is very large."""


@tool(
    name="Read",
    description=(
        "Show a file. Text comes as numbered lines: the number, a tab, the line; the number is "
        "not part of the file. For a large file give offset and limit. Images (PNG, JPEG, GIF, "
        "WebP), PDF documents and notebooks are shown as what they are. Folders cannot be read."
    ),
    input_model=ReadInput,
    words_of=read_words,
    read_only=True,
    most_chars=None,
)
async def read_tool(given: ReadInput, context: ToolContext) -> ToolResult:
    """Open the file, and show it as what it is."""
    path = context.workspace.absolute(given.file_path, context.cwd)
    if path == "/dev/null":
        return empty_text(given.file_path)
    try:
        file = context.workspace.open(path)
    except FileNotFoundError:
        path, file = _open_trimmed(path, context)
    try:
        kind = _kind(path, file)
    except BaseException:
        file.close()
        raise
    match kind:
        case "pdf":
            with file:
                return await read_pdf(file, path, given.file_path, given.pages, context.decoder)
        case "image":
            with file:
                return await read_image(file, path, context.decoder)
        case "notebook":
            large = given.allow_large
            return await use(file, lambda f: read_notebook(f, path, given.file_path, large))
        case "text":
            span, large = Span.of(given.offset, given.limit), given.allow_large
            return await use(
                file, lambda f: read_text(f, path, given.file_path, span, allow_large=large)
            )


def _open_trimmed(path: str, context: ToolContext) -> tuple[str, OpenFile]:
    """Try again without blanks at the end: models add them now and then."""
    trimmed = path.rstrip()
    try:
        if trimmed != path:
            return trimmed, context.workspace.open(trimmed)
    except FileNotFoundError:
        pass
    names = context.workspace.names(posixpath.dirname(path))
    raise no_such_file(path, context.cwd, names) from None


def _kind(path: str, file: OpenFile) -> Literal["text", "image", "pdf", "notebook"]:
    """Tell how a file is shown, by its extension and first bytes. `ToolFailed` for binaries."""
    extension = posixpath.splitext(path)[1].lower()
    if extension in _BINARY_EXTENSIONS:
        raise ToolFailed(
            f"{shown(path)} is a binary file by its extension ({extension}) and cannot be shown. "
            "Use a program that knows the format.",
            wrapped=True,
        )
    if extension == ".pdf":
        return "pdf"
    if extension == ".ipynb":
        return "notebook"
    if extension in IMAGE_EXTENSIONS or (not extension and looks_like_image(file)):
        return "image"
    return "text"
