"""How a journalled message changes the numbers of a session's subagents."""

from collections.abc import Mapping
from typing import Any

from app.agent.thread_facts import BELOW, KILLED_BY, LAUNCHED, REFUSED, WISH, own_facts
from app.domain.messages import Message, TaskStartedMessage, TaskUpdatedMessage, UserMessage
from app.domain.subagent_stats import SubagentCounts, SubagentStats


def counted(
    counts: SubagentCounts, message: Message, facts: Mapping[str, Any] | None
) -> SubagentCounts:
    """Give the numbers after a message, at whatever depth it stands."""
    if not facts and message.type != "system":  # most of a journal
        return counts
    match message:
        case TaskStartedMessage(task_type="local_agent"):
            told = own_facts(facts)
            launched = told.get(LAUNCHED) or told
            usual = "background" if message.is_backgrounded else "unset"
            return counts.started(
                message.task_id,
                message.subagent_type or "",
                message.spawn_depth or 1,
                launched.get(WISH, usual),
                in_background=message.is_backgrounded,
            )
        case TaskUpdatedMessage(patch={"status": str(status)}):
            told = own_facts(facts)
            below = SubagentStats.model_validate(told.get(BELOW, {}))
            return counts.ended(message.task_id, status, told.get(KILLED_BY, "system"), below)
        case UserMessage() if facts and (why := own_facts(facts).get(REFUSED)):
            return counts.refused(why)
        case _:
            return counts
