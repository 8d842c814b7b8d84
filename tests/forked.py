"""Processes of the program, forked from one that has loaded it already.

A host loads its modules for one to two seconds of CPU, and hundreds of them start in the tests.
What is loaded afresh is started by the tests of the command, of the demo and of the image.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.cli.program import main

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["app.cli.program", "app.cli.serve"])


class ForkedProcess:
    """A process that runs the command, as `asyncio` shows processes."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = _FORKS.Process(
            target=_run, args=(list(arguments), dict(environment), str(log)), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        return int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """The status; negative for a signal; None while it runs."""
        return self._process.exitcode

    async def wait(self) -> int:
        while (status := self._process.exitcode) is None:
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(self._process.sentinel, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._process.sentinel)
        return status

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(arguments: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sink = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(sink, stream)
    os.close(sink)
    sys.argv = ["treadle", *arguments]
    main()
