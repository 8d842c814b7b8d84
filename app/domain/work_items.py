"""The list of what an agent means to do: kept for the session, by its tools."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

ItemStatus = Literal["pending", "in_progress", "completed", "deleted"]


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One thing to do."""

    id: str
    """`1`, `2`, … in the order of creation; never given again."""
    subject: str
    description: str
    active_form: str | None = None
    """What is being done while it is in progress."""
    status: ItemStatus = "pending"
    """`deleted` keeps the id from being given again; such an item is shown nowhere."""
    owner: str | None = None
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give the form stored in the journal's private facts."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "WorkItem":
        """Read what `to_json` wrote."""
        edges = {name: tuple(value[name]) for name in ("blocks", "blocked_by")}
        return WorkItem(**{**value, **edges})


Items = Mapping[str, WorkItem]
"""By id, oldest first."""


def shown(items: Items) -> list[WorkItem]:
    """Give the items that are not deleted."""
    return [item for item in items.values() if item.status != "deleted"]


def open_blockers(item: WorkItem, items: Items) -> tuple[str, ...]:
    """Give what an item still waits for."""
    return tuple(
        other for other in item.blocked_by if items[other].status not in {"completed", "deleted"}
    )


def blocked(item: WorkItem, items: Items) -> tuple[str, ...]:
    """Give the items that wait for this one, deleted ones left out."""
    return tuple(other for other in item.blocks if items[other].status != "deleted")
