"""What ends a command: a sentence that says what to do next, and an exit status."""

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses, the same for all commands."""

    SUCCESS = 0
    FAILED = 1
    """The run ended with an error, or the program has a fault."""
    REFUSED = 2
    """The command, its options or the configuration cannot work like this."""
    AWAY = 3
    """The server is not reachable, or cannot answer now."""
    UNFINISHED = 4
    """What was asked for is not there yet: the run goes on."""
    DETACHED = 130
    """Ctrl-C: the command ended, the run goes on."""


class CliFailure(Exception):
    """A command that cannot go on. The text is for people: what is wrong, and what to do."""

    def __init__(self, text: str, status: Status = Status.REFUSED) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class Away(CliFailure):
    """The server cannot be reached now; the same may work later."""

    def __init__(self, text: str) -> None:
        super().__init__(text, Status.AWAY)
