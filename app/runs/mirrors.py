"""Partial messages of runs that other hosts drive: the side of the host with the readers.

Theory of operation. While somebody here watches a session that is driven elsewhere, a `Mirror`
takes the parts that its owner sends and keeps the open message, so that the next reader here gets
what came before it at once. Parts are numbered: when one is missing, the readers give the message
up (what they hold stays a prefix), and a fresh snapshot is asked for, for readers to come.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.agent.effects import Clock
from app.domain.model import StreamPart
from app.runs.items import Piece, Preview, aborted, piece_of
from app.runs.live import Hub
from app.runs.open_message import OpenMessage
from app.runs.topic import RUN_BEGINS, RUN_FINISHED, Key
from app.store.bus import Bus
from app.store.rows import Row
from app.store.words import PreviewPart, PreviewsWanted, Word

REPEAT_S = 5.0
"""How often interest is declared again."""
ASK_S = 1.0
"""Shortest time between two questions for the same session's snapshot."""


@dataclass(slots=True, eq=False)
class Mirror:
    """The open message of a run that another host drives, as far as it was told."""

    open: OpenMessage = field(default_factory=OpenMessage)
    run_id: str = ""
    is_in_step: bool = False
    """Whether every part since a snapshot has come."""
    epoch: int = -1
    done_id: str | None = None
    """The message whose rows came last: pieces of it come too late."""
    asked_s: float = -math.inf
    _stream: str = ""
    _next: int = 0
    _kind: str = ""
    _texts: list[str] = field(default_factory=list)

    def expects(self, part: PreviewPart) -> bool:
        """Whether a part follows on the last one."""
        return (
            self.is_in_step
            and (part.epoch, part.stream, part.n) == (self.epoch, self._stream, self._next)
            and (part.kind != "more" or bool(self._texts))
        )

    def begin(self, part: PreviewPart) -> None:
        """Take up a stream at a snapshot."""
        self.is_in_step = True
        self.epoch, self._stream, self._next = part.epoch, part.stream, part.n
        self._texts = []

    def take(self, part: PreviewPart) -> tuple[str, dict[str, Any]] | None:
        """Take the expected part; give kind and content of what is whole with it."""
        self._next = part.n + 1
        if part.kind != "more":
            self._kind, self._texts = part.kind, []
        self._texts.append(part.text)
        if not part.is_last:
            return None
        content: dict[str, Any] = orjson.loads("".join(self._texts))
        self._texts = []
        return self._kind, content

    def lose(self) -> None:
        """Fall out of step."""
        self.is_in_step = False
        self._texts = []
        self.open.close()


@dataclass(slots=True)
class Mirrors:
    """All mirrors of this host. `declare_forever` runs as a task of the service."""

    hub: Hub
    bus: Bus
    clock: Clock
    repeat_s: float = REPEAT_S
    _mirrors: dict[Key, Mirror] = field(default_factory=dict)

    # -- readers here ---------------------------------------------------------------------

    def joined(self, key: Key) -> Sequence[Piece]:
        """Hear of a reader; give what came so far of the message that is on its way."""
        mirror = self._mirrors.setdefault(key, Mirror())
        if not mirror.is_in_step:
            self._ask(key, mirror)
        return self._snapshot(key, mirror)

    def left(self, key: Key) -> None:
        """Hear that nobody here looks any more."""
        self._mirrors.pop(key, None)

    def delivered(self, key: Key, rows: Sequence[Row]) -> None:
        """Hear of rows that readers here were just given: they may complete the open message."""
        mirror = self._mirrors.setdefault(key, Mirror())
        for row in rows:
            if row.kind == "service":
                self._run_turned(key, mirror, row)
            elif row.type == "assistant":
                mirror.done_id = orjson.loads(row.body)["message"]["id"]
                if mirror.open.message_id == mirror.done_id:
                    mirror.open.close()

    def _run_turned(self, key: Key, mirror: Mirror, row: Row) -> None:
        # Rows may come later than the pieces of the next message, or run: those stay.
        if row.type in RUN_BEGINS:
            self.bus.say(PreviewsWanted(*key, is_fresh=not mirror.is_in_step))
        elif row.type == RUN_FINISHED and row.run_id == mirror.run_id:
            mirror.open.close()

    # -- words ----------------------------------------------------------------------------

    def heard(self, word: Word) -> None:
        """Take a word of another host."""
        if not isinstance(word, PreviewPart):
            return
        key = (word.tenant_id, word.session_id)
        if not self.hub.watchers(key):
            self._mirrors.pop(key, None)
            return
        mirror = self._mirrors.setdefault(key, Mirror())
        if word.epoch < mirror.epoch:
            return  # of an owner that does not know yet that it is none
        if not mirror.expects(word):
            if word.epoch > mirror.epoch:
                self._give_up(key, mirror)
            self._lose(key, mirror)
            if word.kind != "snapshot":
                self._ask(key, mirror)
                return
            mirror.begin(word)
        if (whole := mirror.take(word)) is not None:
            self._show(key, mirror, *whole)

    def look_everywhere(self) -> None:
        """Begin anew everywhere: parts may have been missed."""
        for key, mirror in self._mirrors.items():
            self._lose(key, mirror)
            self._ask(key, mirror)

    async def declare_forever(self) -> None:
        """Say again and again what is watched here, until cancelled."""
        while True:
            await asyncio.sleep(self.repeat_s)
            for key in self.hub.watched_elsewhere():
                mirror = self._mirrors.get(key)
                is_fresh = mirror is None or not mirror.is_in_step
                self.bus.say(PreviewsWanted(*key, is_fresh=is_fresh))

    def _show(self, key: Key, mirror: Mirror, kind: str, content: dict[str, Any]) -> None:
        mirror.run_id = content["run"]
        if kind == "snapshot":
            mirror.open.close()
        if content["message"] is not None and content["message"] == mirror.done_id:
            return  # the poll may find rows before the word of them comes
        for part in _parts(content):
            mirror.open.feed(part)
            if kind != "snapshot":
                self.hub.preview(*key, self._piece(key, mirror, part))
        if kind == "snapshot":
            for reader in self.hub.watchers(key):
                reader.join(self._snapshot(key, mirror))
        for note in content.get("notes", ()):
            self.hub.preview(*key, Preview(mirror.run_id, orjson.dumps(note)))
        if (reason := content.get("aborted")) is not None:
            mirror.open.close()
            self.hub.preview(*key, aborted(key[1], mirror.run_id, content["message"], reason))

    def _snapshot(self, key: Key, mirror: Mirror) -> list[Piece]:
        return [self._piece(key, mirror, part) for part in mirror.open.snapshot()]

    def _piece(self, key: Key, mirror: Mirror, part: StreamPart) -> Piece:
        return piece_of(part, session_id=key[1], run_id=mirror.run_id, uuid=self.clock.uuid())

    def _give_up(self, key: Key, mirror: Mirror) -> None:
        """Say that the open message will not be completed: its owner was lost."""
        if (message_id := mirror.open.message_id) is not None:
            self.hub.preview(*key, aborted(key[1], mirror.run_id, message_id, "broken"))

    def _lose(self, key: Key, mirror: Mirror) -> None:
        if mirror.is_in_step:
            mirror.lose()
            for reader in self.hub.watchers(key):
                reader.shed()

    def _ask(self, key: Key, mirror: Mirror) -> None:
        now = asyncio.get_running_loop().time()
        if now - mirror.asked_s >= ASK_S:
            mirror.asked_s = now
            self.bus.say(PreviewsWanted(*key, is_fresh=True))


def _parts(content: dict[str, Any]) -> Iterator[StreamPart]:
    for event in content["events"]:
        ttft_ms = content.get("ttft_ms") if event.get("type") == "message_start" else None
        yield StreamPart(event, content["message"], ttft_ms)
