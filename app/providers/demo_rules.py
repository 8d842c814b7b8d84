"""What the demo model answers: rules over plain sentences, no model at all.

It keeps no state: everything is derived from the conversation in the request, so a second
process goes on where the first stopped. One tool call a response, and every figure it states
comes out of the tool results that it was sent.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.providers.demo_conversation import Exchange, exchanges, next_offset, read_lines
from app.providers.demo_plan import Plan, plan_of

_PAGE_LINES = 400
_MAX_READS = 200
ASKS_FOR_NEXT = "Guess what the user will send next"
"""Words of the loop's request for a suggestion."""
SUGGESTION = "How many was it again, and which file?"
HELP = (
    "I am the demo model: a handful of rules, no language model. I understand sentences such as "
    "“Find the file notes.txt, read it, count the lines that contain "
    '"blue", and write a one-paragraph summary to summary.md.”, “Read notes.txt and count '
    "the words.”, “Run `ls`.”, and afterwards “How many was it again, and which file?”. "
    "For anything else, configure a model provider."
)


def answer_blocks(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the blocks that answer a request: one text, or one tool call with a word before it."""
    history = exchanges(body["messages"])
    if not history:
        return [{"text": HELP}]
    now, earlier = history[-1], history[:-1]
    if ASKS_FOR_NEXT in now.prompt:
        return [{"text": SUGGESTION if earlier and earlier[-1].calls else "-"}]
    plan = plan_of(now.prompt)
    offered = {str(tool.get("name")) for tool in body.get("tools") or ()}
    if plan.command is not None:
        return _run(plan, now, offered)
    if plan.looks_back:
        return [{"text": _recall(earlier)}]
    if not plan.wants_file:
        return [{"text": HELP}]
    if plan.text is not None and plan.pattern is None and plan.path is None:
        return _write(plan, now, offered)
    return _work(plan, now, earlier, offered)


def _work(
    plan: Plan, now: Exchange, earlier: list[Exchange], offered: set[str]
) -> list[Mapping[str, Any]]:
    """Take the next step of find, read, count, write."""
    if plan.pattern is not None and not now.of("Glob"):
        return _call("Glob", {"pattern": plan.pattern}, "I look for the file.", offered)
    path = _path(plan, now, earlier)
    if path is None:
        return [{"text": _not_found(plan, now)}]
    if step := _reading(path, now, offered):
        return step
    failed = [call for call in now.of("Read") if call.is_error]
    if not read_lines(now) and failed:
        return [{"text": f"I could not read {path}: {_short(failed[-1].result)}"}]
    if plan.target is not None and not now.of("Write"):
        content = f"{_summary(path, plan, now)}\n"
        return _call("Write", {"file_path": plan.target, "content": content}, "", offered)
    return [{"text": _report(path, plan, now)}]


def _reading(path: str, now: Exchange, offered: set[str]) -> list[Mapping[str, Any]]:
    """Give the next Read, or nothing when the file was read as far as it can be."""
    reads = now.of("Read")
    if not reads:
        return _call("Read", {"file_path": path}, "", offered)
    last = reads[-1]
    if last.is_error:
        # Too large for one piece: go through it page by page.
        too_large = re.search(r"offset|limit|too large|exceed", last.result, re.IGNORECASE)
        if too_large is None or "limit" in last.input:
            return []
        page = {"file_path": path, "offset": 1, "limit": _PAGE_LINES}
        return _call("Read", page, "The file is large: I read it in pages.", offered)
    offset = next_offset(now)
    if offset is None or len(reads) >= _MAX_READS:
        return []
    return _call("Read", {"file_path": path, "offset": offset, "limit": _PAGE_LINES}, "", offered)


def _path(plan: Plan, now: Exchange, earlier: list[Exchange]) -> str | None:
    if plan.pattern is not None:
        return _found(plan.pattern, now)
    if plan.path is not None:
        return plan.path
    # “it”: the file that was read before.
    for exchange in reversed([*earlier, now]):
        for call in reversed(exchange.of("Read")):
            return str(call.input.get("file_path"))
    return None


def _found(pattern: str, now: Exchange) -> str | None:
    """Give the first path that the search named."""
    search = now.of("Glob")[0]
    if search.is_error:
        return None
    name = pattern.rsplit("/", 1)[-1]
    is_plain = not re.search(r"[*?\[\]{}]", name)
    for line in search.result.splitlines():
        base = line.strip().rsplit("/", 1)[-1]
        if base == name or (not is_plain and "." in base and " " not in line.strip()):
            return line.strip()
    return None


def _not_found(plan: Plan, now: Exchange) -> str:
    searches = now.of("Glob")
    if searches and searches[0].is_error:
        return f"I could not search for {plan.pattern}: {_short(searches[0].result)}"
    if searches:
        return f"I found no file named {plan.pattern}."
    return "I do not know which file is meant: name it, please."


def _count(plan: Plan, lines: list[str]) -> int:
    if plan.needle is not None and plan.unit == "lines":
        return sum(plan.needle in line for line in lines)
    if plan.needle is not None:
        return sum(line.count(plan.needle) for line in lines)
    if plan.unit == "words":
        return sum(len(line.split()) for line in lines)
    if plan.unit == "characters":
        return sum(len(line) + 1 for line in lines)
    return len(lines)


def _sentence(path: str, plan: Plan, now: Exchange) -> str:
    """State the count."""
    count = _count(plan, read_lines(now))
    unit = plan.unit or "lines"
    noun = unit.removesuffix("s") if count == 1 else unit
    if plan.needle is None:
        return f"{path} has {count} {noun}."
    if unit == "lines":
        verb = "contains" if count == 1 else "contain"
        return f'{count} {noun} of {path} {verb} "{plan.needle}".'
    return f'{count} {noun} of "{plan.needle}" in {path}.'


def _summary(path: str, plan: Plan, now: Exchange) -> str:
    lines = read_lines(now)
    words = sum(len(line.split()) for line in lines)
    first = next((line.strip() for line in lines if line.strip()), "")
    opening = f" It begins with “{_short(first, 80)}”." if first else ""
    size = f"The file {path} has {len(lines)} lines and {words} words."
    counted = f" {_sentence(path, plan, now)}" if plan.needle else ""
    return f"{size}{opening}{counted}"


def _report(path: str, plan: Plan, now: Exchange) -> str:
    text = _sentence(path, plan, now)
    writes = now.of("Write")
    if not writes:
        return text
    if writes[-1].is_error:
        return f"{text} I could not write {plan.target}: {_short(writes[-1].result)}"
    return f"{text} The summary is in {plan.target}."


def _recall(earlier: list[Exchange]) -> str:
    """Answer from the conversation what was found before."""
    for exchange in reversed(earlier):
        reads = exchange.of("Read")
        plan = plan_of(exchange.prompt)
        if reads and read_lines(exchange):
            path = str(reads[-1].input.get("file_path"))
            report = _report(path, plan, exchange)
            return f"The file was {path}. As I found before: {report}"
        if exchange.answer:
            return f"Before, I said: {_short(exchange.answer)}"
    return "There is nothing before this in our conversation."


def _run(plan: Plan, now: Exchange, offered: set[str]) -> list[Mapping[str, Any]]:
    runs = now.of("Bash")
    if not runs:
        return _call("Bash", {"command": plan.command}, "", offered)
    outcome = "failed" if runs[-1].is_error else "ran"
    return [{"text": f"The command {outcome}. It said:\n{_short(runs[-1].result, 2_000)}"}]


def _write(plan: Plan, now: Exchange, offered: set[str]) -> list[Mapping[str, Any]]:
    writes = now.of("Write")
    if not writes:
        return _call("Write", {"file_path": plan.target, "content": f"{plan.text}\n"}, "", offered)
    if writes[-1].is_error:
        return [{"text": f"I could not write {plan.target}: {_short(writes[-1].result)}"}]
    return [{"text": f"I wrote it to {plan.target}."}]


def _call(
    tool: str, arguments: Mapping[str, Any], text: str, offered: set[str]
) -> list[Mapping[str, Any]]:
    if tool not in offered:
        return [{"text": f"I would need the tool {tool}, which is not on offer here."}]
    call = {"tool": tool, "input": arguments}
    return [{"text": text}, call] if text else [call]


def _short(text: str, most: int = 300) -> str:
    text = text.strip()
    return text if len(text) <= most else f"{text[:most]}…"
