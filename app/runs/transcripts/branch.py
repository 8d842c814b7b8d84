"""Which entries of a transcript are its conversation.

The file is a tree whose entries name their parents. The conversation is the branch that ends with
the newest entry; calls that ran in parallel leave blocks and results beside it, which are found by
the ids of the response and of its calls. A compaction begins another tree, with a summary, and
names by its ends what of the old one it has kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from app.domain.transcript import Boundary, Link, Segment
from app.errors import ValidationFailed

Json = Mapping[str, Any]  # Any: decoded JSON
M = TypeVar("M", bound=BaseModel)
MOST_COMPACTIONS = 100
"""Of a file: each costs a look at what followed it."""


@dataclass(frozen=True, slots=True)
class Node:
    """An entry with its place in the tree and in the file."""

    number: int
    """Of its line, from 1."""
    link: Link
    raw: Json

    @property
    def is_said(self) -> bool:
        """Whether a user, a tool or the model said it, in the main thread."""
        return self.link.type in {"user", "assistant"} and not self.link.isSidechain

    @property
    def message_id(self) -> object:
        """Of the response that it is a part of."""
        message = self.raw.get("message")
        return message.get("id") if isinstance(message, dict) else None

    def child_of(self, parent: str) -> "Node":
        """Give the entry at another place in the tree."""
        return replace(self, link=self.link.model_copy(update={"parentUuid": parent}))

    def ids(self, kind: str, name: str) -> Iterator[str]:
        """Give the ids that its blocks of a kind have under a name."""
        message = self.raw.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == kind:
                found = block.get(name)
                if isinstance(found, str):
                    yield found


def conversation(nodes: Mapping[str, Node]) -> list[Node]:
    """Give the conversation in the file's order. Raises `ValidationFailed` that names the line."""
    nodes = _behind_summaries(nodes)
    said = [node for node in nodes.values() if node.is_said]
    if not said:
        raise ValidationFailed(
            "The transcript holds no message of a user or of a model.",
            errors=[{"pointer": "", "code": "empty", "message": "no message"}],
        )
    chosen = _branch(nodes, said[-1])
    responses = {
        node.message_id
        for node in said
        if node.link.uuid in chosen and isinstance(node.message_id, str)
    }
    chosen |= {node.link.uuid for node in said if node.message_id in responses}
    return [node for node in said if node.link.uuid in chosen | _lost_results(said, chosen)]


def _behind_summaries(nodes: Mapping[str, Node]) -> Mapping[str, Node]:
    """Put what compactions kept behind their summaries: the file has it where it was said.

    The entries that followed a summary then follow the last that was kept. Raises
    `ValidationFailed`.
    """
    linked, summary_before = dict(nodes), dict[str, str]()
    children = defaultdict[str, set[str]](set)
    for uuid, node in nodes.items():
        children[node.link.parentUuid or ""].add(uuid)
    for kept in _kept(nodes):
        head, anchor, tail = kept.headUuid, kept.anchorUuid, kept.tailUuid
        followers = children.pop(anchor, set()) - {head}
        for uuid in followers:
            linked[uuid] = linked[uuid].child_of(tail)
        children[tail] |= followers
        children[linked[head].link.parentUuid or ""].discard(head)
        linked[head] = linked[head].child_of(anchor)
        children[anchor] = {head}
        summary_before[head] = anchor
    moved = set(summary_before.values())
    order = [
        each
        for uuid in nodes
        for each in (summary_before.get(uuid), uuid if uuid not in moved else None)
        if each is not None
    ]
    return {uuid: linked[uuid] for uuid in order}


def _kept(nodes: Mapping[str, Node]) -> Iterator[Segment]:
    """Yield what each compaction kept, where the file holds all that it names."""
    said = [node for node in nodes.values() if node.link.type == "system"]
    boundaries = [node for node in said if node.raw.get("subtype") == "compact_boundary"]
    if len(boundaries) > MOST_COMPACTIONS:
        refuse(boundaries[-1].number, "", f"is compaction number {len(boundaries)}: too many")
    for node in boundaries:
        kept = parsed(node.number, Boundary, node.raw).compactMetadata.preservedSegment
        if kept and {kept.headUuid, kept.anchorUuid, kept.tailUuid} <= nodes.keys():
            yield kept


def _branch(nodes: Mapping[str, Node], leaf: Node) -> set[str]:
    """Give the uuids from an entry up to the root."""
    found: set[str] = set()
    node = leaf
    while True:
        found.add(node.link.uuid)
        parent = node.link.parentUuid
        if parent is None:
            return found
        if parent in found:
            refuse(node.number, "/parentUuid", "is its own ancestor")
        if parent not in nodes:
            refuse(node.number, "/parentUuid", "names a parent that the transcript does not hold")
        node = nodes[parent]


def _lost_results(said: Iterable[Node], chosen: set[str]) -> set[str]:
    """Give the entries beside the branch that answer calls of it."""
    inside = [node for node in said if node.link.uuid in chosen]
    calls = {call for node in inside for call in node.ids("tool_use", "id")}
    calls -= {call for node in inside for call in node.ids("tool_result", "tool_use_id")}
    found: set[str] = set()
    for node in said:
        answered = set(node.ids("tool_result", "tool_use_id"))
        if answered and answered <= calls:
            found.add(node.link.uuid)
            calls -= answered
    return found


def refuse(number: int, pointer: str, why: str) -> NoReturn:
    """Refuse a transcript because of one of its lines. Raises `ValidationFailed`."""
    where = f" ({pointer})" if pointer else ""
    raise ValidationFailed(
        f"Line {number} of the transcript{where}: {why}.",
        errors=[{"pointer": f"/{number}{pointer}", "code": "line", "message": why}],
    )


def parsed(number: int, kind: type[M], raw: Json) -> M:
    """Read an entry as one of a kind. Raises `ValidationFailed`."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        pointer = "".join(f"/{part}" for part in first["loc"])
        refuse(number, pointer[:200], first["msg"])
