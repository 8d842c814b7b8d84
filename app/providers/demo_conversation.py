"""A conversation as the demo model reads it: prompts, and what was done after each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.providers.script import prompt_texts

_NUMBERED = re.compile(r"^ *(\d+)[\t→](.*)$")
_SHOWN = re.compile(r"lines? (\d+) ?(?:-|–|to) ?(\d+) of (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Call:
    """A tool call of ours, with the result that came for it."""

    name: str
    input: Mapping[str, Any]
    result: str = ""
    is_error: bool = False


@dataclass(slots=True)
class Exchange:
    """A prompt and what followed it, up to the next prompt."""

    prompt: str
    calls: list[Call] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Texts beside tool results (reminders), which may tell how much of a file was shown."""
    answer: str = ""

    def of(self, tool: str) -> list[Call]:
        """Give the calls of one tool, oldest first."""
        return [call for call in self.calls if call.name == tool]


def exchanges(messages: Sequence[Mapping[str, Any]]) -> list[Exchange]:
    """Split a request's messages into exchanges, oldest first."""
    found: list[Exchange] = []
    by_id: dict[str, Call] = {}
    for message in messages:
        blocks = _blocks(message)
        if message.get("role") == "assistant":
            if found:
                _take_answer(found[-1], blocks, by_id)
            continue
        _take_results(blocks, by_id)
        texts = list(prompt_texts(message))
        if texts:
            found.append(Exchange("\n".join(texts)))
        elif found:
            notes = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
            found[-1].notes.extend(notes)
    return found


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or () if isinstance(block, dict)]


def _take_answer(
    exchange: Exchange, blocks: list[Mapping[str, Any]], by_id: dict[str, Call]
) -> None:
    for block in blocks:
        if block.get("type") == "tool_use":
            call = Call(str(block.get("name")), block.get("input") or {})
            exchange.calls.append(call)
            by_id[str(block.get("id"))] = call
        elif block.get("type") == "text":
            exchange.answer = str(block.get("text"))


def _take_results(blocks: list[Mapping[str, Any]], by_id: dict[str, Call]) -> None:
    for block in blocks:
        call = by_id.get(str(block.get("tool_use_id")))
        if block.get("type") == "tool_result" and call is not None:
            content = block.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            call.result = "\n".join(str(part.get("text") or "") for part in parts)
            call.is_error = bool(block.get("is_error"))


def read_lines(exchange: Exchange) -> list[str]:
    """Give the lines of the file that was read, put together from all Reads of an exchange."""
    lines: dict[int, str] = {}
    for call in exchange.of("Read"):
        if not call.is_error:
            lines.update(numbered_lines(call.result))
    texts = [lines[number] for number in sorted(lines)]
    # A final newline shows as one more, empty, line.
    return texts[:-1] if texts and not texts[-1] else texts


def numbered_lines(result: str) -> dict[int, str]:
    """Give the lines that a Read result shows, by number."""
    matches = (_NUMBERED.match(line) for line in result.split("\n"))
    return {int(match[1]): match[2] for match in matches if match}


def next_offset(exchange: Exchange) -> int | None:
    """Give the line to read on from, when what was read is known to be incomplete."""
    reads = exchange.of("Read")
    last = reads[-1]
    limit = last.input.get("limit")
    shown = numbered_lines(last.result)
    if last.is_error:
        return None
    told = _SHOWN.findall("\n".join((last.result[-1_000:], *exchange.notes)))
    if told:
        _, end, total = (int(number) for number in told[-1])
        return end + 1 if end < total else None
    if isinstance(limit, int) and len(shown) >= limit:
        return max(shown) + 1
    return None
