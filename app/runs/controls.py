"""The SDK's control requests, as far as they are the service's: they reach a session on any host."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.options import AgentOptions
from app.domain.permissions import ModeUpdate, PermissionMode
from app.errors import NotRunning
from app.permissions.updates import with_updates
from app.runs.changing import Apply, Change, Changed, change_options
from app.runs.commands import Commands
from app.runs.once import Once, guarded
from app.runs.policy import Policy
from app.runs.queries import Queries
from app.runs.receipts import settle
from app.runs.telling import Teller
from app.store.keys import Caller
from app.store.keyset import Keyset
from app.store.runs import RunFilter, list_runs
from app.store.tasks import find_task
from app.store.words import TaskStopAsked, TaskStopped, Word

STOP_WITHIN_S = 5.0
ASK_EVERY_S = 0.5
"""Words may be lost, so they are said again."""


@dataclass(slots=True)
class Controls:
    """Control requests of clients."""

    commands: Commands
    queries: Queries
    policy: Policy
    teller: Teller
    _stopped: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    """By session and task: set when a host says that it has stopped it."""

    def heard(self, word: Word) -> None:
        """Take a word of another host."""
        if isinstance(word, TaskStopped) and (
            event := self._stopped.get((word.session_id, word.task_id))
        ):
            event.set()

    async def interrupt(
        self, caller: Caller, session_id: str, *, once: Once | None = None
    ) -> Sequence[str]:
        """Interrupt the run that goes on, if one does; background tasks are spared. Idempotent.

        Gives the runs that still wait in the session.
        """
        session = await self.queries.session(caller.tenant_id, session_id)
        if session.active_run_id is not None:
            cancelled = await self.commands.cancel(
                caller, session.active_run_id, reason="interrupt", spares_tasks=True, once=once
            )
            await settle(self.queries, caller.tenant_id, [cancelled], wait_s=STOP_WITHIN_S)
        waiting = await list_runs(
            self.queries.database,
            caller.tenant_id,
            Keyset(200),
            RunFilter(session_id, ["queued"]),
        )
        return [run.id for run in waiting]

    async def set_mode(
        self,
        caller: Caller,
        session_id: str,
        mode: PermissionMode,
        *,
        once: Once | None = None,
    ) -> Changed:
        """Set the permission mode of all that the session does from now on."""
        update = ModeUpdate(type="setMode", mode=mode)
        return await self.change(
            caller, session_id, lambda options: with_updates(options, [update]), "/mode", once
        )

    async def set_model(
        self, caller: Caller, session_id: str, model: str | None, *, once: Once | None = None
    ) -> Changed:
        """Set the model of all that the session does from now on; None: the service's default."""

        def apply(options: AgentOptions) -> AgentOptions:
            stored = {name: v for name, v in options.stored().items() if name != "model"}
            chosen = {} if model is None else {"model": model}
            return AgentOptions.model_validate(stored | chosen)

        return await self.change(caller, session_id, apply, "/model", once)

    async def change(
        self,
        caller: Caller,
        session_id: str,
        apply: Apply,
        pointer: str,
        once: Once | None,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> Changed:
        """Change options of the session and of its unfinished runs, and tell who drives them.

        What `check` raises after the change undoes it.
        """
        change = Change(caller, self.policy, session_id, apply, pointer)

        async def write(connection: AsyncConnection) -> Changed:
            changed = await change_options(connection, change)
            check()
            return changed

        changed = await guarded(self.queries.database, once, write)
        self.teller.hub.grew(caller.tenant_id, session_id, changed.session.last_seq)
        for run_id in changed.run_ids:
            self.teller.changed(run_id)
        return changed

    async def stop_task(self, caller: Caller, session_id: str, task_id: str) -> None:
        """Stop what works in the background, on whatever host it does. Raises `NotRunning`."""
        await self.queries.session(caller.tenant_id, session_id)
        worker = self.teller.worker
        if worker is not None and await worker.stop_task(caller.tenant_id, session_id, task_id):
            return
        if (why := await self._not_to_stop(caller, session_id, task_id)) is not None:
            raise NotRunning(why)
        key = (session_id, task_id)
        event = self._stopped.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                while not event.is_set():
                    self.teller.bus.say(TaskStopAsked(caller.tenant_id, session_id, task_id))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), ASK_EVERY_S)
        except TimeoutError:
            raise NotRunning(f"The task {task_id} runs on no host now.") from None
        finally:
            self._stopped.pop(key, None)

    async def _not_to_stop(self, caller: Caller, session_id: str, task_id: str) -> str | None:
        """Say why the log shows that there is nothing to stop; None when there may be."""
        task = await find_task(self.queries.database, caller.tenant_id, session_id, task_id)
        if task is None:
            return f"The session has no task {task_id}. Its log tells of each (`task_started`)."
        if task.is_over:
            return f"The task {task_id} has ended already."
        if not task.is_in_background:
            return (
                f"The run waits for the subagent {task_id}, which ends with the turn: cancel the run, "
                "or send `interrupt`."
            )
        return None
