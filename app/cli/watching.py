"""Read a stream to its end, however often the connection breaks."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from app.cli.client import Client, Frame, decode
from app.cli.failure import Away, CliFailure

_LAST_WORDS = frozenset({"run_finished", "session_deleted"})
"""Reasons of `end` after which nothing comes; after any other one the cursor goes on."""
_MAY_PASS = frozenset({429, 500, 502, 503, 504})
_STEADY_S = 5.0
"""A connection that held so long was no part of an outage, even if nothing came."""
_LONGEST_PAUSE_S = 3.0


@dataclass(slots=True)
class Watch:
    """A reader of one stream. `after` is always the last durable frame that was handed over."""

    client: Client
    path: str
    say: Callable[[str], None]
    """Hears that the connection broke, once an outage."""
    after: int | None = None
    previews: str = "none"
    patience_s: float = 60.0
    """How long an outage may last."""
    _lost_at: float | None = field(default=None, init=False)
    _tries: int = field(default=0, init=False)

    def frames(self) -> Iterator[Frame]:
        """Give every frame beyond `after`, each durable one exactly once, until the last.

        Raises `Away` when the server stays away, `CliFailure` when it refuses.
        """
        while True:
            began = time.monotonic()
            why = Away("The server ended the stream.")
            try:
                if (yield from self._connection()):
                    return
            except Away as error:
                why = error
            if time.monotonic() - began > _STEADY_S:
                self._steady()
            self._bear(why)

    def _connection(self) -> Generator[Frame, None, bool]:
        """Hand over what one connection gives; return whether nothing more will ever come."""
        with self.client.stream(self.path, after=self.after, previews=self.previews) as incoming:
            if incoming is None:
                return True
            for frame in incoming:
                if frame.event == "end":
                    return decode(frame).get("reason") in _LAST_WORDS
                _raise_problem(frame)
                self._steady()
                self.after = self.after if frame.id is None else frame.id
                yield frame
        return False

    def _steady(self) -> None:
        self._lost_at, self._tries = None, 0

    def _bear(self, why: Away) -> None:
        """Wait a little before the next try. Raises `why` when that has lasted too long."""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self.say(f"{why.text.splitlines()[0]} Connecting again …")
        elif now - self._lost_at > self.patience_s:
            raise why
        time.sleep(min(0.2 * 2.0**self._tries, _LONGEST_PAUSE_S))
        self._tries += 1


def _raise_problem(frame: Frame) -> None:
    if frame.event != "problem":
        return
    problem = decode(frame)
    text = f"{problem.get('detail')} ({problem.get('status')} {problem.get('code')})"
    if problem.get("status") in _MAY_PASS:
        raise Away(text)
    raise CliFailure(text)
