"""Text of a response while it streams, and what is left to print when the whole of it comes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.cli.plain import plain


@dataclass(slots=True)
class LiveText:
    """Prints previews. They are best effort: the durable message always has the last word."""

    write: Callable[[str], None]
    """Prints harmless text, without a newline at its end."""
    _message_id: str | None = None
    """The response whose beginning was seen; pieces of any other one are left alone."""
    _blocks: list[str] = field(default_factory=list)
    """What was printed of each text block whose durable message has not come."""
    _open_block: int | None = None

    def preview(self, body: Mapping[str, Any]) -> None:
        """Take a `preview` frame."""
        if body.get("type") == "service_preview_aborted":
            self.drop()
            return
        event = body.get("event") or {}
        match event.get("type"):
            case "message_start":
                self.drop()
                self._message_id = str(body.get("api_message_id"))
            case "content_block_delta" if self._message_id == body.get("api_message_id"):
                delta = event.get("delta") or {}
                if delta.get("type") == "text_delta":
                    self._add(int(event.get("index", 0)), str(delta.get("text", "")))
            case "content_block_stop" if self._message_id == body.get("api_message_id"):
                self.close_line()
            case _:
                return

    def whole(self, message_id: str, text: str) -> str | None:
        """Give what is still to be printed of a text block: None when it is all there."""
        if message_id != self._message_id or not self._blocks:
            return text
        printed = self._blocks.pop(0)
        if printed.startswith(text):
            self.close_line()
            return None
        is_open = self._open_block is not None
        if is_open and text.startswith(printed):
            self.write(plain(text[len(printed) :]))
            self.close_line()
            return None
        self.close_line()
        return text  # pieces were lost on the way: once more, whole

    def drop(self) -> None:
        """Forget a response that will not be completed, or one that is told of whole."""
        if self._open_block is not None:
            self.write(" …")
        self.close_line()
        self._message_id = None
        self._blocks.clear()

    def _add(self, index: int, text: str) -> None:
        if not text:
            return
        if self._open_block != index:
            self.close_line()
            self._blocks.append("")
            self._open_block = index
        self._blocks[-1] += text
        self.write(plain(text))

    def close_line(self) -> None:
        """End the line that a preview left open, so that something else can be printed."""
        if self._open_block is not None:
            self.write("\n")
            self._open_block = None
