"""What clients can do to runs that wait, or go on: change, remove and cancel.

Each command is one transaction; afterwards readers, owners and other hosts are told. With a `once`
a command has its effect at most once: repeated, it raises `Replayed`.
"""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from app.agent.effects import Stamps
from app.runs.cancelling import Cancelled, Canceller, ManyCancelled
from app.runs.once import Once, guarded
from app.runs.starts import Starts, run_of
from app.runs.telling import Teller
from app.runs.wishes import (
    RunChange,
    RunChoice,
    merged_metadata,
    new_prompts,
)
from app.store.engine import Database
from app.store.keys import Caller
from app.store.runs import RunRow
from app.store.waiting import Edit, edit_run


@dataclass(frozen=True, slots=True)
class Commands:
    """All writes that change runs."""

    database: Database
    starts: Starts
    """A changed run's options are checked as those of a new one."""
    teller: Teller
    stamps: Stamps

    async def change(
        self, caller: Caller, run_id: str, change: RunChange, *, once: Once | None = None
    ) -> RunRow:
        """Change a run that has not begun. Raises `RunAlreadyStarted`."""
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> RunRow:
            run = await self._canceller(caller).waiting_run(connection, run_id)
            options = await self.starts.checked(caller, change.options.over(self.starts.asked(run)))
            stored, changed = options.stored(), change.options.stored()
            edit = Edit(
                stored,
                {name: value for name, value in stored.items() if name in changed},
                merged_metadata("run", run.metadata, change.metadata or {}),
                run.priority if change.priority is None else change.priority,
                None if change.prompts is None else new_prompts(change.prompts, steers=False),
            )
            await edit_run(connection, tenant_id, run.session_id, run_id, edit)
            return await run_of(connection, tenant_id, run_id)

        return await guarded(self.database, once, write)

    async def remove(self, caller: Caller, run_id: str, *, once: Once | None = None) -> RunRow:
        """Take a run that has not begun out of the queue. Raises `RunAlreadyStarted`."""
        canceller = self._canceller(caller)
        run = await guarded(
            self.database, once, lambda connection: canceller.remove(connection, run_id)
        )
        self.teller.cancelled(caller.tenant_id, Cancelled(run, is_already_finished=False))
        return run

    async def cancel(
        self,
        caller: Caller,
        run_id: str,
        *,
        reason: str | None,
        spares_tasks: bool = False,
        once: Once | None = None,
    ) -> Cancelled:
        """Cancel a run, wherever it is. Repeating it, or cancelling a finished run, is fine.

        Its background tasks end with it, unless the cancel `spares_tasks`.
        """
        canceller = self._canceller(caller)
        cancelled = await guarded(
            self.database,
            once,
            lambda connection: canceller.one(
                connection, run_id, reason=reason, spares_tasks=spares_tasks
            ),
        )
        self.teller.cancelled(caller.tenant_id, cancelled)
        return cancelled

    async def cancel_many(
        self,
        caller: Caller,
        choice: RunChoice,
        *,
        reason: str | None,
        spares_tasks: bool = False,
        once: Once | None = None,
    ) -> ManyCancelled:
        """Cancel several runs at once."""
        canceller = self._canceller(caller)
        done = await guarded(
            self.database,
            once,
            lambda connection: canceller.many(
                connection, choice, reason=reason, spares_tasks=spares_tasks
            ),
        )
        for cancelled in done.runs:
            self.teller.cancelled(caller.tenant_id, cancelled)
        return done

    def _canceller(self, caller: Caller) -> Canceller:
        return Canceller(self.database, self.stamps, caller.tenant_id)
