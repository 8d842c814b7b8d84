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

    async def first_look(
        self, info: RunInfo, work: Work
    ) -> tuple[Briefing, Sequence[ToolSpec]] | None:
        """Give the briefing of a new session, and the tools on offer to its first run.

        None when that takes more than a look into a folder of this host: when servers or hooks have to
        be asked first, or the folder cannot be read.
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
