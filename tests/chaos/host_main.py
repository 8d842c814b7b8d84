"""A host under test: `treadle serve`, with what only a test may have.

- It ends when the process that started it ends.
- Its wall clock can be shifted while it runs, by eight bytes in a file (`CHAOS_CLOCK`): the
  machine's clock is never touched.
- `--no-fence` is the test build that shows what the fence is for: an append no longer asks who
  owns the session, and neither do model requests and tools.
"""

import argparse
import ctypes
import datetime as dt
import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-fence", action="store_true")
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if clock := os.environ.pop("CHAOS_CLOCK", ""):
        shift_clock_by(Path(clock))
    # The clock has to be shifted before anything takes a name out of these modules.
    from app.cli.serve import run_host  # noqa: PLC0415
    from app.errors import ConfigError  # noqa: PLC0415
    from app.settings.loading import load_settings  # noqa: PLC0415

    if given.no_fence:
        take_the_fence_down()
    try:
        run_host(load_settings(), "serve", "127.0.0.1", given.port)
    except ConfigError as error:  # as the command does it
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


def shift_clock_by(file: Path) -> None:
    """Let wall time in this process be what it is plus the seconds (a double) in the file."""
    with file.open("rb") as source:
        cell = mmap.mmap(source.fileno(), 8, access=mmap.ACCESS_READ)

    def shift_s() -> float:
        return float(struct.unpack("d", cell[:8])[0])

    true: Any = dt.datetime  # a name that the type checker does not take for the class
    true_time, true_time_ns = time.time, time.time_ns

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, true)

    class Shifted(true, metaclass=Meta):  # type: ignore[misc] # the class is chosen at run time
        __slots__ = ()  # C code checks the size

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return true.now(tz) + dt.timedelta(seconds=shift_s())

    time.time = lambda: true_time() + shift_s()
    time.time_ns = lambda: true_time_ns() + int(shift_s() * 1e9)
    vars(dt)["datetime"] = Shifted


def take_the_fence_down() -> None:
    """Switch the checks of ownership off. Fails when they are not where they are looked for."""
    from app.runs import ownership  # noqa: PLC0415 - as in `main`
    from app.store import append_many, append_statement  # noqa: PLC0415

    one, many = "epoch = $3 AND owner IS NOT NULL", "s.epoch = w.epoch AND s.owner IS NOT NULL"
    if append_statement._FENCE.count(one) != 1 or append_many._APPEND_MANY.count(many) != 1:
        raise RuntimeError("the fence is not where the test build looks for it")
    append_statement._FENCE = append_statement._FENCE.replace(one, "$3::bigint IS NOT NULL")
    append_many._APPEND_MANY = append_many._APPEND_MANY.replace(many, "w.epoch IS NOT NULL")

    async def trusting(_: ownership.Ownership) -> None:
        return

    vars(ownership)["Ownership"].check = trusting


if __name__ == "__main__":
    main()
