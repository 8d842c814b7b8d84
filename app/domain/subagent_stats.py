"""What became of the subagents of a session, in numbers: `subagent_stats` of a result.

One in the background counts when it begins, and what it has begun itself when its own end is told: that
is when the session's conversation hears of it, on whatever host.
Source: loop 1.5. A refusal for want of a place does not happen here, calls wait for one; what
`concurrency_limit` counts are calls beyond the number that a run may begin.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Killer: TypeAlias = Literal["parent", "user", "system"]
"""Who stopped a subagent: who began it, a client, or the service (budget, deadline, lost hosts)."""
Refusal: TypeAlias = Literal["depth_limit", "concurrency_limit", "budget"]
"""Why a call began no subagent, where a limit was the reason."""
Wish: TypeAlias = Literal["background", "foreground", "unset"]
"""What a call said of whether it is to be waited for."""


class _Counts(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    def plus(self, other: Self) -> Self:
        """Give the numbers of both together."""
        return self.model_copy(
            update={name: self._sum(value, getattr(other, name)) for name, value in self}
        )

    @staticmethod
    def _sum(one: Any, another: Any) -> Any:  # noqa: ANN401 - a field's
        if isinstance(one, _Counts):
            return one.plus(another)
        if isinstance(one, dict):
            return {key: one.get(key, 0) + another.get(key, 0) for key in {**one, **another}}
        return one + another


class RequestedCounts(_Counts):
    """By what calls said of whether they are to be waited for."""

    background: int = 0
    foreground: int = 0
    unset: int = 0


class KilledCounts(_Counts):
    """By who stopped them."""

    parent: int = 0
    user: int = 0
    """Clients: a cancel, an interrupt, a stopped task."""
    system: int = 0
    """The budget, a deadline, lost hosts."""


class RefusedCounts(_Counts):
    """Calls that began none, by the limit that was the reason."""

    depth_limit: int = 0
    concurrency_limit: int = 0
    """Beyond the number that a run may begin."""
    budget: int = 0


class SubagentStats(_Counts):
    """Cumulative over the session, those of a fork's origin included."""

    spawned: int = 0
    requested: RequestedCounts = RequestedCounts()
    started_in_background: int = 0
    max_depth: int = 0
    """1: none began others."""
    spawned_by_subagents: int = 0
    completed: int = 0
    failed: int = 0
    killed: KilledCounts = KilledCounts()
    refused: RefusedCounts = RefusedCounts()
    by_type: dict[str, int] = Field(default_factory=dict)

    def plus(self, other: Self) -> Self:
        """Give the numbers of both together."""
        depth = max(self.max_depth, other.max_depth)
        return super().plus(other).model_copy(update={"max_depth": depth})


NONE_BELOW = SubagentStats()


@dataclass(frozen=True, slots=True)
class SubagentCounts:
    """Those numbers, and the tasks that are still to be counted by their end."""

    stats: SubagentStats = SubagentStats()
    running: frozenset[str] = frozenset()
    """Ids of the tasks of subagents that go on."""

    def started(
        self, task_id: str, kind: str, depth: int, wish: Wish, *, in_background: bool
    ) -> "SubagentCounts":
        """Count one that has begun."""
        told = self.stats
        stats = told.model_copy(
            update={
                "spawned": told.spawned + 1,
                "requested": _plus(told.requested, wish),
                "started_in_background": told.started_in_background + in_background,
                "max_depth": max(told.max_depth, depth),
                "spawned_by_subagents": told.spawned_by_subagents + (depth > 1),
                "by_type": {**told.by_type, kind: told.by_type.get(kind, 0) + 1},
            }
        )
        return SubagentCounts(stats, self.running | {task_id})

    def ended(
        self, task_id: str, status: str, killer: Killer, below: SubagentStats = NONE_BELOW
    ) -> "SubagentCounts":
        """Count how one has ended; a task that is no subagent's, or was counted, says nothing.

        `below`: what it had begun that is not counted yet.
        """
        if task_id not in self.running:
            return self
        told = self.stats if below == NONE_BELOW else self.stats.plus(below)
        change: Mapping[str, object] = {"killed": _plus(told.killed, killer)}
        if status == "completed":
            change = {"completed": told.completed + 1}
        elif status == "failed":
            change = {"failed": told.failed + 1}
        return SubagentCounts(told.model_copy(update=change), self.running - {task_id})

    def cut_off(self, going_on: Collection[str]) -> "SubagentCounts":
        """Count those as stopped that can have no end any more: all but these tasks."""
        counts = self
        for task_id in self.running.difference(going_on):
            counts = counts.ended(task_id, "killed", "system")
        return counts

    def refused(self, why: Refusal) -> "SubagentCounts":
        """Count a call that a limit refused."""
        change = {"refused": _plus(self.stats.refused, why)}
        return SubagentCounts(self.stats.model_copy(update=change), self.running)


def _plus(counts: _Counts, name: str) -> _Counts:
    return counts.model_copy(update={name: getattr(counts, name) + 1})
