"""Background tasks: commands and subagents that run on while the loop goes on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from app.domain.subagent_stats import NONE_BELOW, Killer, SubagentStats

TaskStatus = Literal["completed", "failed", "killed"]
TaskType = Literal["local_bash", "local_agent"]


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A command or a subagent in the background, as the journal knows it."""

    id: str
    description: str
    """What it is for, or the command itself: one line."""
    output_file: str
    """Where all that a command prints is found, in the agent's view; empty for a subagent."""
    tool_use_id: str = ""
    """The call that started it. Filled in by the loop."""
    run_id: str = ""
    """The run that started it. Filled in by the loop."""
    type: TaskType = "local_bash"
    agent_type: str | None = None
    """Of a subagent: which kind."""
    own_run_id: str | None = None
    """Of a subagent: the run that it is."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a background task ended."""

    status: TaskStatus
    how: str
    """The rest of a sentence that begins with the task: "ended with exit code 3"."""
    ended_s: float | None = None
    """Seconds since 1970; None when nobody saw it."""
    hint: str = ""
    """What the model may do about it; a sentence, or empty."""
    report: str | None = None
    """Of a subagent: its last words, or what went wrong."""
    usage: Mapping[str, int] | None = None
    """Of a subagent that ended by itself, as in `task_progress`."""
    killer: Killer = "system"
    """Of a subagent that was killed: who did it."""
    below: SubagentStats = NONE_BELOW
    """Of a subagent: what it had begun itself."""
