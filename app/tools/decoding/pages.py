"""Web pages: HTML as Markdown, other texts as they are."""

import codecs
import html
import re

import html_to_markdown

from app.tools.decoding.answer import Answer

MAX_CHARS = 1_000_000
"""Of a page's text; the rest is left out."""
_TITLE_BYTES = 64 * 1024
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{1,500})", re.IGNORECASE)
_NO_TEXT = frozenset({"script", "style", "template", "svg"})
_OPTIONS = html_to_markdown.ConversionOptions(
    heading_style="underlined",
    bullets="*",
    code_block_style="indented",
    extract_metadata=False,
    exclude_selectors=["svg", "template"],
    # What it would leave out as noise (navigation, forms) may be what was asked for.
    preprocessing=html_to_markdown.PreprocessingOptions(enabled=False),
)


def load_page(charset: str) -> None:
    """Load all that a page needs: later no file can be opened."""
    codecs.lookup(charset)
    show_page("<title>t</title><p>a &amp; <b>é</b></p>".encode(), charset="utf-8", is_html=True)


def show_page(data: bytes, *, charset: str, is_html: bool) -> Answer:
    """Give the text of a page. Never raises for what a page may hold."""
    text = data.decode(charset, "replace").removeprefix("\ufeff")
    if is_html:
        text = _markdown(text)
    return Answer(text=text[:MAX_CHARS], is_cut=len(text) > MAX_CHARS)


def _markdown(page: str) -> str:
    try:
        found = html_to_markdown.convert(page, _OPTIONS).content or ""
    except Exception:  # noqa: BLE001 - whatever a hostile page makes of the library
        found = ""
    found = found.strip()
    if not found:  # nested too deep, for one
        found = _without_tags(page)
    title = _TITLE.search(page[:_TITLE_BYTES])
    named = html.unescape(title[1]).strip() if title else ""
    return f"{named}\n\n{found}".strip() if named not in found[:1000] else found


def _without_tags(page: str) -> str:
    """Give what stands between tags, a line each. Linear, whatever the page is."""
    lines: list[str] = []
    skipped = ""
    for piece in page.split("<"):
        tag, closed, text = piece.partition(">")
        name = tag[:20].split(maxsplit=1)[0].lower() if tag.strip() else ""
        if skipped:
            skipped = "" if name == f"/{skipped}" else skipped
        elif closed and name in _NO_TEXT:
            skipped = name
        if not skipped and (line := " ".join(html.unescape(text).split())):
            lines.append(line)
    return "\n".join(lines)
