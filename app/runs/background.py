"""All that goes on in the background of one session: its commands and its subagents."""

import asyncio
from collections.abc import Awaitable, Collection
from dataclasses import dataclass

from app.domain.tasks import BackgroundTask, TaskEnd
from app.runs.crew import Crew
from app.tools.shells import Shells


@dataclass(frozen=True, slots=True)
class Background:
    """What this host has of it: fits `agent.effects.Tasks`."""

    shells: Shells
    crew: Crew

    def __post_init__(self) -> None:
        self.shells.stop_other = self.crew.stop

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the tasks that run here."""
        return (*self.shells.running, *self.crew.running)

    def is_in_tables(self, tasks: Collection[str]) -> bool:
        """Whether any host would learn of these tasks what this one knows: nothing runs here.

        How a command has ended is known here alone until it is told.
        """
        return not self.running and not any(map(self.shells.knows, tasks))

    async def stop(self, task_id: str) -> BackgroundTask | None:
        """End a task, and wait until it has ended; None when no such task runs here."""
        return await self.shells.stop(task_id)

    def end_of(self, task_id: str) -> TaskEnd | None:
        if self.crew.knows(task_id):
            return self.crew.end_of(task_id)
        return self.shells.end_of(task_id)

    async def someone_ended(self, among: Collection[str]) -> None:
        agents = [task_id for task_id in among if self.crew.knows(task_id)]
        others = [task_id for task_id in among if not self.crew.knows(task_id)]
        waits: list[Awaitable[None]] = []
        if agents:
            waits.append(self.crew.changed(lambda: any(map(self.crew.end_of, agents))))
        if others:
            waits.append(self.shells.someone_ended(others))
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
