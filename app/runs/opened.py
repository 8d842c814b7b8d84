"""A run that is opened with its claim: its first rows commit with the POST that makes it.

One that has to ask servers or hooks first, or whose prompt is a command, is only claimed, and opened by
its execution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from app.agent.command import said_by
from app.agent.start_step import opening
from app.agent.state import LoopState
from app.domain.messages import Prompt
from app.runs.parts import Parts
from app.runs.writing import announcement
from app.store.claims import Claim
from app.store.leases import Lease
from app.store.queue import NewRun
from app.store.rows import NewRow, Row, new_rows, stored_rows
from app.store.runs import Work
from app.store.starting import QUEUED_SEQ


@dataclass(frozen=True, slots=True)
class Opened:
    """What a host stores if it gets the run, and where the run stands then."""

    rows: Sequence[NewRow]
    state: LoopState | None
    """None when it is not opened."""
    work: Work
    waiting: Sequence[Prompt]
    """Prompts that are not taken in yet: those that came with the first one, or all."""
    at: datetime

    def known(self, run: NewRun) -> list[Row]:
        """Give the run's rows as readers see them, from the one that says that it is queued."""
        queued = Row(QUEUED_SEQ, run.id, "service", "run.queued", run.queued_body, self.at)
        rest = stored_rows(self.rows, run.id, QUEUED_SEQ + len(self.rows), self.at)
        return [queued, *rest]

    def claim(self, lease: Lease) -> Claim:
        """Give the claim of a host that got the run."""
        return Claim(
            lease,
            1,
            0,
            QUEUED_SEQ + len(self.rows),
            is_new_session=self.state is None,
            state=self.state,
            work=self.work,
            prompts=self.waiting,
        )


def _names_a_command(prompt: Prompt) -> bool:
    """Whether a prompt may begin with a command's name: then it has to be looked up, or carried out."""
    return said_by(prompt).lstrip().startswith("/")


async def open_run(parts: Parts, lease: Lease, work: Work, prompts: Sequence[Prompt]) -> Opened:
    """Make the opening of a new session's first run. Reads its workspace, and writes nothing."""
    info = parts.describe(lease, work)
    first = [prompt for prompt in prompts if not prompt.is_steer]
    before = LoopState(info)
    now = datetime.now(UTC)
    look = None if any(map(_names_a_command, first)) else await parts.first_look(info, work)
    if look is None:
        return Opened((), None, work, prompts, now)
    briefing, tools = look
    batch = opening(first, before, tools, parts.stamps, briefing)
    rows = new_rows(batch, lease.session_id, lease.run_id, now, first=(announcement(1),))
    steers = [prompt for prompt in prompts if prompt.is_steer]
    return Opened(rows, before.apply(batch), work, steers, now)
