"""PDF documents: whole, once it is sure that they can be read, or pages of them as images."""

import pypdfium2

from app.tools.decoding.answer import Answer, Picture, Refused, answer_for, encoded
from app.tools.decoding.images import load_formats, scaled_picture

_PAGE_PIXELS = 1500
"""The longer side of a page, whatever size the document claims."""
_PNG_BYTES = 250_000
"""A page of text is smaller as a PNG; one that is not becomes a JPEG."""
_MAX_BYTES = 6_000_000
"""Of all pages together."""

load_formats()


def show_document(data: bytes, max_pages: int) -> Answer:
    """Give the document itself. Raises `Refused`."""
    document = _opened(data)
    if len(document) > max_pages:
        raise Refused(
            f"the document has {len(document)} pages, at most {max_pages} are shown as a whole; "
            "ask for some of its pages"
        )
    answer = answer_for(data)
    answer["pages"] = len(document)
    answer["base64"] = encoded(data)
    return answer


def show_pages(data: bytes, first: int, last: int) -> Answer:
    """Give the pages from `first` to `last`, counted from 1, as images. Raises `Refused`."""
    document = _opened(data)
    if last > len(document):
        raise Refused(f"the document has {len(document)} page(s), so there is no page {last}")
    answer = answer_for(data)
    answer["pages"] = len(document)
    room = _MAX_BYTES // (last - first + 1)
    answer["pictures"] = [_rendered(document, index, room) for index in range(first - 1, last)]
    return answer


def _opened(data: bytes) -> pypdfium2.PdfDocument:
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise Refused(f"the document cannot be opened ({error})") from error
    if len(document) < 1:
        raise Refused("the document has no pages")
    return document


def _rendered(document: pypdfium2.PdfDocument, index: int, max_bytes: int) -> Picture:
    try:
        page = document[index]
        width, height = page.get_size()
        scale = _PAGE_PIXELS / max(width, height, 1.0)
        image = page.render(scale=scale, may_draw_forms=False).to_pil()
    except (pypdfium2.PdfiumError, ValueError) as error:
        raise Refused(f"page {index + 1} cannot be shown ({error})") from error
    return scaled_picture(image, png_bytes=min(_PNG_BYTES, max_bytes), max_bytes=max_bytes)
