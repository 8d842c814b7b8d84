"""Background tasks: commands that run on while the loop goes on."""

from dataclasses import dataclass
from typing import Literal

TaskStatus = Literal["completed", "failed", "killed"]


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A command in the background, as the journal knows it."""

    id: str
    description: str
    """What it is for, or the command itself: one line."""
    output_file: str
    """Where all it prints is found, in the agent's view."""
    tool_use_id: str = ""
    """The call that started it. Filled in by the loop."""
    run_id: str = ""
    """The run that started it. Filled in by the loop."""


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
