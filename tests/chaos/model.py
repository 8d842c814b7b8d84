"""The scripted Messages API as a process that writes down who asked when.

`python -m tests.chaos.model LOG` prints its address and appends one JSON line for each request:
number, session, host (a header that each host sends), wall times, status.
"""

import asyncio
import ctypes
import json
import signal
import sys
import time
from pathlib import Path

import uvloop

from tests.fakes.messages_api import MessagesApi, Recorded

HOST_HEADER = "x-chaos-host"
_EVERY_S = 0.3


def _line(recorded: Recorded, shift_s: float) -> str:
    body = recorded.body
    return json.dumps(
        {
            "request_id": f"req_{recorded.n}",
            "session": (body.get("metadata") or {}).get("user_id"),
            "host": recorded.headers.get(HOST_HEADER),
            "started": recorded.started + shift_s,
            "ended": recorded.ended + shift_s if recorded.ended else None,
            "status": recorded.status,
            "disconnected": recorded.disconnected,
        }
    )


def _write_down(api: MessagesApi, log: Path, shift_s: float, *, everything: bool = False) -> None:
    kept = []
    with log.open("a") as out:
        while api.requests:
            recorded = api.requests.popleft()
            if recorded.ended is None and not everything:
                kept.append(recorded)
            elif recorded.started:
                out.write(_line(recorded, shift_s) + "\n")
    api.requests.extend(kept)


async def _serve(log: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    shift_s = time.time() - time.monotonic()
    async with MessagesApi() as api:
        sys.stdout.write(api.base_url + "\n")
        sys.stdout.flush()
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), _EVERY_S)
            except TimeoutError:
                _write_down(api, log, shift_s)
    _write_down(api, log, shift_s, everything=True)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    uvloop.run(_serve(Path(sys.argv[1])))
