"""Who asks first: calls of one id, each in its turn.

The model chooses the ids, so calls of two subagents that work side by side may have the same one, while a
call has one open question: the second would withdraw that of the first.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turns:
    """The turns of one run's calls."""

    on_change: Callable[[], None]
    """Called when one begins, or ends, to wait for its turn."""
    behind: int = 0
    """How many wait for theirs."""
    _by_call: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )

    @asynccontextmanager
    async def of(self, tool_use_id: str) -> AsyncIterator[None]:
        """Wait until no other call of this id asks; have the turn until the block ends."""
        turn = self._by_call[tool_use_id]
        if turn.locked():
            self._count(1)
            try:
                await turn.acquire()
            finally:
                self._count(-1)
        else:
            await turn.acquire()
        try:
            yield
        finally:
            turn.release()

    def _count(self, more: int) -> None:
        self.behind += more
        self.on_change()
