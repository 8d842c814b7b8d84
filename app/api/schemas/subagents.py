"""Subagents of a session."""

from typing import Literal

from app.api.schemas.common import Out
from app.domain.messages import wire_time
from app.runs.listing import SubagentRow


class Subagent(Out):
    """A conversation that a call of the tool Agent began."""

    tool_use_id: str
    """The call: `parent_tool_use_id` of its messages."""
    agent_id: str
    """`task_id` of what is told of it."""
    subagent_type: str
    description: str
    depth: int
    """1 for what the main conversation began."""
    parent_agent_id: str | None
    """The subagent that began it."""
    run_id: str | None
    """The run that began it."""
    own_run_id: str | None
    """The run that it is itself; null for one that is waited for."""
    status: Literal["running", "completed", "failed", "stopped"]
    """`running` until its end is told. One that a fork cut off is `stopped`: it goes on in the original."""
    started_at: str
    ended_at: str | None
    total_tokens: int | None
    """What its last response and its request held; null unless it completed."""
    tool_uses: int | None

    @staticmethod
    def of(row: SubagentRow) -> "Subagent":
        """Make it of what the log tells."""
        started, ended = row.started, row.ended
        usage = (ended or {}).get("usage") or {}
        return Subagent(
            tool_use_id=started["tool_use_id"],
            agent_id=started["task_id"],
            subagent_type=started["subagent_type"],
            description=started["description"],
            depth=started["spawn_depth"],
            parent_agent_id=started.get("parent_task_id"),
            run_id=row.run_id,
            own_run_id=row.own_run_id,
            status=ended["status"] if ended else "running" if row.is_going_on else "stopped",
            started_at=wire_time(row.started_at),
            ended_at=wire_time(row.ended_at) if row.ended_at else None,
            total_tokens=usage.get("total_tokens"),
            tool_uses=usage.get("tool_uses"),
        )


class SubagentPage(Out):
    data: list[Subagent]
    has_more: bool
    next_after: int | None
    """Pass it as `after` to go on."""
