"""A conversation as Markdown, for people. Thoughts are left out, long results are cut."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

MOST_CHARS = 20_000
"""Of one call or one result."""


def heading(title: str | None, session_id: str) -> bytes:
    """Give what stands on top."""
    name = " ".join((title or "Session").split())
    return f"# {name}\n\nSession `{session_id}`\n".encode()


def section(body: str) -> bytes:
    """Give the part of one message; nothing for one that is not for people."""
    return "".join(_parts(orjson.loads(body))).encode()


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    if message["type"] == "result":
        yield f"\n---\n\n*{_ending(message)}*\n"
        return
    if message.get("subtype") == "compact_boundary":
        yield "\n*From here on the model saw a summary of what stands above.*\n"
        return
    if message["type"] not in {"user", "assistant"} or message.get("isSynthetic"):
        return
    content = message["message"]["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match block["type"]:
            case "text":
                who = "User" if message["type"] == "user" else "Assistant"
                yield f"\n## {who}\n\n{block['text'].strip()}\n"
            case "tool_use":
                arguments = orjson.dumps(block["input"], option=orjson.OPT_INDENT_2).decode()
                yield f"\n**{_plain(block['name'])}**\n\n{_fenced(arguments, 'json')}"
            case "tool_result":
                failed = " (error)" if block.get("is_error") else ""
                yield f"\nResult{failed}:\n\n{_fenced(_text(block['content']))}"
            case "thinking" | "redacted_thinking":
                pass
            case other:
                yield f"\n*({_plain(other)})*\n"


def _ending(message: Mapping[str, Any]) -> str:
    errors = "; ".join(message.get("errors") or ())
    told = f"{message['subtype']}, {message['num_turns']} turns"
    return _plain(f"Ended: {told}{f' - {errors}' if errors else ''}")


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", f"({part.get('type')})")) for part in content)


def _plain(text: str) -> str:
    """Give text of one line without Markdown's own signs."""
    return re.sub(r"[\\`*_<>\[\]]", "", " ".join(text.split()))


def _fenced(text: str, language: str = "") -> str:
    """Give a block that its text cannot end: the fence is longer than any in it."""
    if len(text) > MOST_CHARS:
        text = f"{text[:MOST_CHARS]}\n… ({len(text) - MOST_CHARS} more characters)"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}\n"
