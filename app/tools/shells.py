"""The background commands of one session on this host.

They belong to whoever holds the session's lease: `close` ends them all before the lease is let go,
and what a host does not know has ended with another host. The journal says which tasks there are;
this says only how they are.
"""

import asyncio
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace

from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.text import printable
from app.errors import ToolFailed
from app.sandbox.driver import Command, Finished, Limits

MOST_COMMANDS = 16
"""In the background of a session at once."""
LONGEST_LIFE_S = 7200.0
DEFAULT_LIFE_S = 1800.0
LOST = TaskEnd("killed", "was ended, since the host that ran it is gone")
_ALPHABET = string.ascii_lowercase + string.digits
_MAX_TITLE = 200


@dataclass(slots=True)
class _Live:
    task: BackgroundTask
    command: Command
    life_s: float
    killed: TaskEnd | None = None
    """Set when somebody ends it."""
    end: TaskEnd | None = None
    watch: asyncio.Task[None] | None = None


@dataclass(slots=True)
class HostRoom:
    """How many commands the background of a host has room for, all sessions together."""

    most: int
    taken: int = 0

    @property
    def is_full(self) -> bool:
        return self.taken >= self.most


@dataclass(slots=True)
class Shells:
    """Owns the commands that it took over, and the asyncio tasks that wait for them."""

    host: HostRoom = field(default_factory=lambda: HostRoom(MOST_COMMANDS))
    is_closed: bool = False
    why_closed: str = "The session is ending, so nothing can be left in the background."
    stop_other: Callable[[str], Awaitable[BackgroundTask | None]] | None = None
    """Ends what is in the background and no command."""
    _live: dict[str, _Live] = field(default_factory=dict)
    _bell: asyncio.Event = field(default_factory=asyncio.Event)
    """Rung, and replaced, whenever a task has ended."""

    @property
    def has_room(self) -> bool:
        """Whether a further command may run in the background."""
        is_full = self.host.is_full or len(self.running) >= MOST_COMMANDS
        return not self.is_closed and not is_full

    def check_room(self) -> None:
        """Raise `ToolFailed` when no further command may run in the background."""
        if self.is_closed:
            raise ToolFailed(self.why_closed)
        if len(self.running) >= MOST_COMMANDS:
            raise ToolFailed(
                f"{MOST_COMMANDS} commands run in the background already. Stop one with TaskStop, "
                "or wait until one has ended."
            )
        if self.host.is_full:
            raise ToolFailed(
                f"This host runs {self.host.most} commands in the background already, with those of "
                "other sessions, and takes no more. Try again later, or run it in the foreground."
            )

    def adopt(self, task: BackgroundTask, command: Command, *, life_s: float) -> None:
        """Take a running command over: it ends by itself, at the end of its life, or by `stop`."""
        live = _Live(task, command, life_s)
        self.host.taken += 1
        live.watch = asyncio.create_task(self._watch(live))
        self._live[task.id] = live

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the tasks that run."""
        return tuple(task_id for task_id, live in self._live.items() if live.end is None)

    def knows(self, task_id: str) -> bool:
        """Whether a task runs here, or has ended here."""
        return task_id in self._live

    def end_of(self, task_id: str) -> TaskEnd | None:
        """Say how a task ended; None while it runs. Fits `agent.effects.Tasks`."""
        live = self._live.get(task_id)
        return LOST if live is None else live.end

    async def stop(self, task_id: str) -> BackgroundTask | None:
        """End a task, with its whole tree; None when no such task runs."""
        live = self._live.get(task_id)
        if live is None and self.stop_other is not None:
            return await self.stop_other(task_id)
        if live is None or live.end is not None:
            return None
        await self._kill([live], TaskEnd("killed", "was stopped"))
        return live.task

    async def keep_only(self, task_ids: Collection[str]) -> None:
        """End what the journal does not know: nobody could ever stop it."""
        others = [live for task_id, live in self._live.items() if task_id not in task_ids]
        await self._kill(others, LOST)

    async def close(self, how: str = "was ended, since its host stopped") -> None:
        """End everything; take nothing over any more. May be called again."""
        self.is_closed = True
        await self._kill(list(self._live.values()), TaskEnd("killed", how))

    async def someone_ended(self, among: Collection[str]) -> None:
        """Wait until one of these tasks has ended, also if that was before."""
        while not any(self.end_of(task_id) for task_id in among):
            await self._bell.wait()

    async def _kill(self, some: list[_Live], how: TaskEnd) -> None:
        watches = [live.watch for live in some if live.watch is not None]
        for live in some:
            if live.end is None and live.killed is None:
                live.killed = how
                live.command.kill()
        if watches:
            await asyncio.wait(watches)

    async def _watch(self, live: _Live) -> None:
        in_time = False
        try:
            in_time = await live.command.ended(live.life_s)
        finally:
            words = b"" if in_time and live.killed is None else b"\n\n[killed]\n"
            try:
                finished = await live.command.finish(timed_out=not in_time, last_words=words)
                killed = live.killed and replace(live.killed, ended_s=time.time())
                live.end = killed or _end(finished, live.life_s)
            except ToolFailed as error:
                live.end = TaskEnd("failed", f"did not run: {error.message}", time.time())
            finally:
                self.host.taken -= 1
            bell, self._bell = self._bell, asyncio.Event()
            bell.set()


def title_of(description: str) -> str:
    """Give what a command is shown as: one line of bearable length."""
    title = " ".join(printable(description).split())
    return title if len(title) <= _MAX_TITLE else title[:_MAX_TITLE] + "…"


def new_task_id() -> str:
    """Give a fresh id: `b`, and 8 letters or digits."""
    return "b" + "".join(secrets.choice(_ALPHABET) for _ in range(8))


def _end(finished: Finished, life_s: float) -> TaskEnd:
    now = time.time()
    lost = "" if finished.is_spooled else "Its output could not be stored whole."
    if finished.timed_out:
        hint = f"If it needs longer, start it again with a longer timeout. {lost}".rstrip()
        return TaskEnd("killed", f"was stopped after {life_s:g} s, its time limit", now, hint)
    if finished.flooded:
        limit = Limits().output_bytes
        return TaskEnd("failed", f"was stopped: it printed over {limit:,} bytes", now, lost)
    how = f"ended with exit code {finished.exit_code}"
    return TaskEnd("failed" if finished.exit_code else "completed", how, now, lost)
