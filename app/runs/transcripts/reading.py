"""A transcript of Claude Code, read back into messages.

Nothing of the file is trusted: whatever cannot be a conversation is refused, and the refusal names
the line.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from app.domain.transcript import CostState, Link
from app.domain.usage import ModelSpend, Spend, Usage
from app.runs.transcripts.assembly import Assembly, Said
from app.runs.transcripts.branch import Node, conversation, parsed, refuse

_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a file holds."""

    session_id: str | None
    """That of the file, when it is a UUID."""
    title: str | None
    messages: Sequence[Said]
    """Of no session yet."""
    spent: Spend
    """What the session had cost."""
    skipped: int
    """Lines that are no part of the conversation."""

    def messages_of(self, session_id: str) -> Iterator[Said]:
        """Give the messages as those of a session."""
        for message in self.messages:
            yield message.model_copy(update={"session_id": session_id})


def read_transcript(lines: Sequence[tuple[int, Any]]) -> Transcript:
    """Read a file's lines, numbered and decoded. Raises `ValidationFailed` that names the line."""
    nodes: dict[str, Node] = {}
    title, spent = None, Spend()
    for number, raw in lines:
        if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
            refuse(number, "", "is no entry: an object with a `type` is needed")
        if raw["type"] in _TITLES and isinstance(given := raw.get(_TITLES[raw["type"]]), str):
            title = given.strip()[:500] or title
        elif raw["type"] == "cost-state":
            spent = _spent(parsed(number, CostState, raw))
        elif "uuid" in raw:
            node = Node(number, parsed(number, Link, raw), raw)
            if (known := nodes.setdefault(node.link.uuid, node)) is not node:
                refuse(number, "/uuid", f"stands on line {known.number} already")
    chosen = conversation(nodes)
    assembly = Assembly()
    for node in chosen:
        assembly.take(node)
    if not assembly.messages:
        refuse(chosen[-1].number, "", "leaves a conversation in which nothing is said")
    session_id = _session_id(chosen[-1].raw.get("sessionId"))
    return Transcript(session_id, title, assembly.messages, spent, len(lines) - assembly.taken)


def _session_id(given: object) -> str | None:
    try:
        return str(uuid.UUID(given)) if isinstance(given, str) else None
    except ValueError:
        return None


def _spent(state: CostState) -> Spend:
    return Spend(
        {
            model: ModelSpend(
                Usage(
                    used.inputTokens,
                    used.outputTokens,
                    used.cacheReadInputTokens,
                    used.cacheCreationInputTokens,
                    web_search_requests=used.webSearchRequests,
                ),
                round(Decimal(str(used.costUSD)), 9),
            )
            for model, used in state.modelUsage.items()
        }
    )
