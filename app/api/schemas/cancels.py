"""Cancelling: what is to stop, and what did."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from app.api.schemas.common import In, Out, Uuid, example
from app.runs.listing import RunRow
from app.runs.receipts import Settled
from app.runs.wishes import RunChoice

RunIds = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=100)]],
    Field(min_length=1, max_length=100),
]


Reason = Annotated[str, Field(max_length=1000)] | None


class CancelBody(In):
    model_config = example(reason="not needed any more")

    scope: Literal["all", "turn", "task"] = "all"
    """What is stopped: `turn` lets what works in the background go on; `task` stops one piece of that
    alone, and the run goes on."""
    task_id: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """With `task`: which one."""
    reason: Reason = None

    @model_validator(mode="after")
    def _names_a_task(self) -> "CancelBody":
        if (self.scope == "task") != (self.task_id is not None):
            raise ValueError("`task_id` goes with the scope `task`, and that one needs it")
        return self

    @property
    def spares_tasks(self) -> bool:
        """Whether background tasks go on."""
        return self.scope == "turn"


class CancelManyBody(In):
    """Which runs to cancel: `ids`, or all unfinished ones of a session, or of a status."""

    model_config = example(session_id="0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f", reason="start over")

    scope: Literal["all", "turn"] = "all"
    """What is stopped: `turn` lets what works in the background go on."""
    reason: Reason = None
    ids: RunIds | None = None
    session_id: Uuid | None = None
    status: (
        Literal["queued", "running", "requires_action"]
        | Annotated[
            list[Literal["queued", "running", "requires_action"]],
            Field(min_length=1, max_length=3),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _one_choice(self) -> "CancelManyBody":
        is_filtered = self.session_id is not None or self.status is not None
        if (self.ids is not None) == is_filtered:
            raise ValueError("either `ids` or a filter (`session_id`, `status`) is needed")
        return self

    @property
    def spares_tasks(self) -> bool:
        """Whether background tasks go on."""
        return self.scope == "turn"

    def choice(self) -> RunChoice:
        """Give the command's form."""
        ids = None if self.ids is None else list(dict.fromkeys(self.ids))
        statuses = [self.status] if isinstance(self.status, str) else self.status or []
        return RunChoice(ids, self.session_id, statuses)


class Stopped(Out):
    """What was under way when a run was stopped."""

    tools: list[str] = []
    """Ids of the tool uses that were cut short."""
    tasks: list[str] = []
    processes: int = 0
    model_request: bool = False


class CancelReceipt(Out):
    """What a cancel did to a run."""

    run_id: str
    status: Literal["running", "cancelling", "finished"]
    """`running`: it goes on, since only a task was to be stopped."""
    stopped: Stopped
    """Known when the run has ended; of a task at once."""
    already_finished: bool
    """Whether the run had ended before it was cancelled."""

    @staticmethod
    def of(settled: Settled) -> "CancelReceipt":
        """Show what a cancel did."""
        return CancelReceipt(
            run_id=settled.run.id,
            status="finished" if settled.run.status == "finished" else "cancelling",
            stopped=Stopped.model_validate(dict(settled.stopped)),
            already_finished=settled.is_already_finished,
        )

    @staticmethod
    def of_task(run: RunRow, *stopped: str) -> "CancelReceipt":
        """Show what became of a task in the background of a run."""
        is_finished = run.status == "finished"
        return CancelReceipt(
            run_id=run.id,
            status="finished" if is_finished else "running",
            stopped=Stopped(tasks=list(stopped)),
            already_finished=is_finished,
        )


class CancelReceipts(Out):
    data: list[CancelReceipt]
    missing: list[str]
    """Ids that do not exist."""
    has_more: bool
    """Whether more runs fit the filter: cancel again."""
