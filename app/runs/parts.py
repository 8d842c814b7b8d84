"""What a host offers to the runs that it drives."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.agent.effects import Effects, Inbox, Stamps
from app.agent.state import RunInfo
from app.domain.briefing import Briefing
from app.domain.tools import ToolSpec
from app.runs.desk import Desk
from app.store.claims import Claim
from app.store.leases import Lease
from app.store.runs import Work
from app.tools.shells import Shells


class Parts(Protocol):
    """What a host offers to runs. Built where settings become parts."""

    @property
    def stamps(self) -> Stamps:
        """Time, ids and prices, for what is written about a run that cannot be opened."""
        ...

    def describe(self, lease: Lease, work: Work) -> RunInfo:
        """Give what is fixed for the run's life on this host."""
        ...

    def specs(self, info: RunInfo) -> Sequence[ToolSpec]:
        """Give the tools on offer to a run."""
        ...

    def first_briefing(self, info: RunInfo, work: Work) -> Briefing | None:
        """Give the briefing of a new session.

        None when its workspace has to be read for it, or hooks have to be asked first.
        """
        ...

    def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> AbstractAsyncContextManager[Effects]:
        """Open workspace, sandbox and model for a run, and close them afterwards.

        `shells` are the session's background commands, `desk` is where calls wait for answers; they
        are the caller's. Raises `WorkspaceUnavailable`.
        """
        ...
