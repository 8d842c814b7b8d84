"""How many streams a session and a key may have on this host at once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.errors import RateLimited
from app.runs.callers import Caller

RETRY_AFTER_S = 5


@dataclass(slots=True)
class StreamSlots:
    """Counts open streams."""

    per_session: int
    per_key: int
    _sessions: Counter[tuple[str, str]] = field(default_factory=Counter)
    _keys: Counter[tuple[str, str]] = field(default_factory=Counter)

    def check(self, caller: Caller, session_id: str | None) -> None:
        """Raise `RateLimited` when no further stream may begin. `None`: of a session to come."""
        if self._keys[caller.tenant_id, caller.key_id] >= self.per_key:
            raise _too_many(f"This key has {self.per_key} streams open on this host.")
        if session_id and self._sessions[caller.tenant_id, session_id] >= self.per_session:
            raise _too_many(f"This session has {self.per_session} streams open on this host.")

    @contextmanager
    def hold(self, caller: Caller, session_id: str, *, is_promised: bool = False) -> Iterator[None]:
        """Hold a slot. Raises `RateLimited` unless the stream `is_promised`."""
        if not is_promised:
            self.check(caller, session_id)
        held = (
            (self._keys, (caller.tenant_id, caller.key_id)),
            (self._sessions, (caller.tenant_id, session_id)),
        )
        for counter, key in held:
            counter[key] += 1
        try:
            yield
        finally:
            for counter, key in held:
                counter[key] -= 1
                if counter[key] <= 0:
                    del counter[key]

    @property
    def open(self) -> int:
        """How many streams are open."""
        return self._keys.total()


def _too_many(detail: str) -> RateLimited:
    return RateLimited(f"{detail} Close some, or try again later.", retry_after_s=RETRY_AFTER_S)
