"""End what a killed service left of a sandbox that was just starting."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_PROC = Path("/proc")
_INNER_IDS = 2
"""A pid 1 of a sandbox has at least two numbers: ours, and its own."""


def end_strays(uid: int) -> int:
    """Kill sandboxes' first processes that outlived their bubblewrap; give how many.

    When bubblewrap is killed before its pid 1 has armed `--die-with-parent`, that process waits
    for ever for a word of its parent, and the command never begins. `uid` is whom commands run as.
    """
    ended = 0
    for pid in list(_strays(uid)):
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if pid in _strays(uid, only=pid):  # the number may have a new holder
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    ended += 1
            finally:
                os.close(handle)
    if ended:
        logger.warning(
            "%d sandboxes that a killed service had been starting were ended",
            ended,
            extra={"action": "strays_ended"},
        )
    return ended


def _strays(uid: int, only: int | None = None) -> Iterator[int]:
    for entry in [_PROC / str(only)] if only else _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):  # it has ended
            if entry.stat().st_uid != uid or not _is_sandbox(entry):
                continue
            status = dict(
                line.split(":\t", 1)
                for line in (entry / "status").read_text("utf-8", "replace").splitlines()
                if ":\t" in line
            )
            is_inner = len(status.get("NSpid", "").split()) >= _INNER_IDS
            parent = status["PPid"]  # 0: in a process space that we cannot see
            if is_inner and parent != "0" and not _is_sandbox(_PROC / parent):
                yield int(entry.name)


def _is_sandbox(process: Path) -> bool:
    words = (process / "cmdline").read_bytes().split(b"\0")
    is_bwrap = words[0].rpartition(b"/")[2] == b"bwrap" and words[1:2] == [b"--args"]
    return is_bwrap and words[3:5] == [b"--", b"prlimit"]
