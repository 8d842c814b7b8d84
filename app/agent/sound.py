"""What is kept of a response, in a form that the API takes back. Pure.

A model may send what its own API refuses to hear again: blank texts, ids that were used before,
names that no tool can have. A session whose history holds such a thing fails with every request.
"""

import re
from collections.abc import Collection, Iterator

from app.domain.blocks import UNPARSED, Block, TextBlock, ToolUseBlock
from app.domain.model import ModelResponse
from app.domain.text import MAX_JSON_DEPTH, is_too_deep

_LIMITS = frozenset({"max_tokens", "model_context_window_exceeded"})
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 128


def sound_blocks(response: ModelResponse, call_ids: Collection[str]) -> Iterator[Block]:
    """Give the blocks that are worth keeping. `call_ids`: ids of all calls before."""
    taken: set[str] | None = None
    for block in _marked(response):
        if isinstance(block, ToolUseBlock):
            taken = set(call_ids) if taken is None else taken
            yield _sound_call(block, taken)
        elif not _is_blank(block):
            yield block


def sendable(block: Block) -> Block:
    """Give the form in which a block goes back to the model: with a name that a tool can have.

    Readers see the name that the model gave; the error result of such a call says it too.
    """
    if not isinstance(block, ToolUseBlock):
        return block
    name = _ODD.sub("_", block.name)[:_LONGEST_NAME] or "unnamed"
    return block if name == block.name else block.model_copy(update={"name": name})


def _marked(response: ModelResponse) -> tuple[Block, ...]:
    """Give the blocks; a call that the output limit cut off before its input began is marked.

    One that was cut in the middle is no JSON, and is marked already (decisions B7).
    """
    last = response.blocks[-1] if response.blocks else None
    if response.stop_reason not in _LIMITS or not isinstance(last, ToolUseBlock) or last.input:
        return response.blocks
    cut = last.model_copy(update={"input": {UNPARSED: {"raw": "", "len": 0}}})
    return (*response.blocks[:-1], cut)


def _sound_call(call: ToolUseBlock, taken: set[str]) -> ToolUseBlock:
    """Give the call an id of its own, since each result is found by it. Adds it to `taken`."""
    plain = _ODD.sub("_", call.id)[:_LONGEST_NAME] or "call"
    call_id, copies = plain, 1
    while call_id in taken:
        copies += 1
        call_id = f"{plain}_{copies}"
    taken.add(call_id)
    changes: dict[str, object] = {} if call_id == call.id else {"id": call_id}
    if is_too_deep(call.input):
        changes["input"] = {UNPARSED: {"raw": f"(JSON nested deeper than {MAX_JSON_DEPTH} levels)"}}
    return call.model_copy(update=changes) if changes else call


def _is_blank(block: Block) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()
