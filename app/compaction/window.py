"""How full a model's window may become, and how much of a conversation stays when it is."""

from dataclasses import dataclass

_ROOM_TO_SUMMARISE = 33_000
_ROOM_TO_ANSWER = 23_000
_LARGEST_TAIL = 20_000


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window and what follows from it, in tokens.

    The room that is kept free is the reference's where a window is large (loop 8), and a share
    of a small one.
    """

    tokens: int
    is_auto: bool = True
    """Whether a conversation is compacted by itself."""

    @property
    def compact_at(self) -> int:
        """Size from which on a conversation is compacted before the next request."""
        return self.tokens - min(_ROOM_TO_SUMMARISE, self.tokens // 5)

    @property
    def blocked_at(self) -> int:
        """Size from which on no request is made any more, where nothing is compacted."""
        return self.tokens - min(_ROOM_TO_ANSWER, self.tokens // 8)

    @property
    def tail(self) -> int:
        """Most that stays unchanged in a compaction, unless the last exchange alone is larger."""
        return min(_LARGEST_TAIL, self.tokens // 10)
