"""Server processes of the demo: start, wait until ready, stop; and commands beside them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

TREADLE = [sys.executable, "-m", "app"]
START_LIMIT_S = 120
STOP_LIMIT_S = 40
Say = Callable[[str], None]


class DemoFailed(Exception):
    """Something is not as it must be. The text says what was expected."""


def environment(base: Path) -> dict[str, str]:
    """Give the environment of the servers: nothing of the user's own but the provider's key."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TREADLE_") and name not in {"DATABASE_URL", "MIGRATE_ON_START"}
    }
    return kept | {
        "TREADLE_DATA_DIR": str(base / "data"),
        "TREADLE_WORKSPACE__ALLOWED_ROOTS": json.dumps([str(base)]),
        "XDG_RUNTIME_DIR": str(base),  # the database's socket lies here, and goes with the rest
    }


@contextmanager
def server(base: Path, number: int, say: Say) -> Iterator[str]:
    """Run a server process; give its address when it is ready. It is stopped at the end."""
    log = base / f"server-{number}.log"
    with log.open("wb") as sink:
        command = [*TREADLE, "serve", "--port", "0"]
        process = subprocess.Popen(command, env=environment(base), stdout=sink, stderr=sink)
    try:
        url = wait_until_ready(process, log, say)
        say(f"Server {number} is process {process.pid}, at {url}")
        yield url
    finally:
        stop(process)
    if process.returncode != 0:
        raise DemoFailed(f"server {number} must stop with status 0, not {process.returncode}")
    say(f"Server {number} has stopped.")


def wait_until_ready(process: "subprocess.Popen[bytes]", log: Path, say: Say) -> str:
    """Wait for readiness, telling what takes long; give the address."""
    url, told, deadline = None, 0, time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        records = log_records(log)
        for record in records[told:]:
            if str(record.get("logger")).startswith("app.wiring") and record.get("level") == "INFO":
                say(f"{record['message']} …")
            if record.get("action") == "listening":
                url = str(record["message"]).rpartition(" ")[2]
        told = len(records)
        if url is not None and is_ready(url):
            return url
        time.sleep(0.1)
    last = [str(record.get("message")) for record in log_records(log)[-3:]]
    raise DemoFailed(f"the server must become ready; it said: {' / '.join(last)}")


def log_records(log: Path) -> list[Mapping[str, object]]:
    """Give the complete lines of a log; what is no JSON is a message for people."""
    records = []
    for line in log.read_text(errors="replace").split("\n")[:-1]:
        try:
            record = json.loads(line)
        except ValueError:
            record = {"message": line}
        records.append(record)
    return records


def is_ready(url: str) -> bool:
    """Say whether a server serves."""
    try:
        return httpx.get(f"{url}/readyz", timeout=2, trust_env=False).is_success
    except httpx.TransportError:
        return False


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask a server to stop, and wait until it has."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def treadle(base: Path, *arguments: str) -> str:
    """Run a command of ours; give what it prints."""
    done = subprocess.run(
        [*TREADLE, *arguments],
        env=environment(base),
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise DemoFailed(f"`treadle {' '.join(arguments)}` must work; it said: {done.stderr}")
    return done.stdout


def complaints(base: Path) -> list[str]:
    """Give what the servers' logs say of trouble."""
    records = [record for log in sorted(base.glob("server-*.log")) for record in log_records(log)]
    bad = [record for record in records if record.get("level") in {"ERROR", "CRITICAL"}]
    return [f"{record.get('message')}\n{record.get('exception', '')}" for record in bad]
