"""Who is calling: keys to callers, remembered for a short while."""

import time
from dataclasses import dataclass, field

from app.store.engine import Database
from app.store.keys import Caller as Caller
from app.store.keys import find_caller

REMEMBER_S = 30.0
"""How long a revoked key may still work."""
MOST = 10_000


@dataclass(slots=True)
class Callers:
    """Answers for keys. Only valid keys are remembered, by the key itself, in memory alone."""

    database: Database
    remember_s: float = REMEMBER_S
    _known: dict[str, tuple[float, Caller]] = field(default_factory=dict)

    async def of(self, key: str) -> Caller | None:
        """Give whom a key speaks for, or None when it is unknown or revoked."""
        now = time.monotonic()
        if (known := self._known.get(key)) and known[0] > now:
            return known[1]
        self._known.pop(key, None)
        caller = await find_caller(self.database, key)
        if caller is not None:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = (now + self.remember_s, caller)
        return caller
