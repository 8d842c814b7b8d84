r"""Text of models, tools and servers made harmless for a terminal. Pure.

Such text may hold sequences that move the cursor, set the window's title, write the clipboard or
hide what stands before them, and square brackets that look like this program's own markup.
"""

import re

from rich.text import Text

_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b\n]{0,4000}(?:\x07|\x1b\\)"  # OSC: titles, links, the clipboard
    r"|\x1b[PX^_][^\x1b\n]{0,4000}\x1b\\"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]"  # two characters; also what begins a sequence that never ends
)
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these turn the direction of writing
    "\u2028\u2029]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_IN_JSON_LINES = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Give `text` without control characters and sequences; newlines and tabs stay."""
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n"))
    text = _CONTROLS.sub("", text.replace("\r", "\n"))
    return _SURROGATES.sub("\ufffd", text)


def shown(text: str, style: str = "") -> Text:
    """Give plain text as rich prints it: never read as markup, whatever brackets it holds."""
    return Text(plain(text), style=style)


def one_line(text: str, width: int) -> str:
    """Give plain text in one line of at most `width` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= width else f"{line[: max(width - 1, 0)]}…"


def few_lines(text: str, most: int, width: int) -> list[str]:
    """Give the first lines of plain text, each cut to `width`; the last says how many are left."""
    lines = plain(text).expandtabs(4).strip("\n").split("\n")
    first = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines[:most]]
    left = len(lines) - most
    if left > 0:
        first.append(f"… {left} more line{'' if left == 1 else 's'}")
    return first


def json_line(body: str) -> str:
    """Give JSON that means the same, with everything escaped that a terminal might obey."""
    return _NOT_IN_JSON_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", body)
