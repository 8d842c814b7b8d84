"""A confined process can compute, and nothing else."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.platform

BEGIN = """
import ctypes, json, os, signal, socket, sys
from app.sandbox.confine import confine
confine(uid={uid}, memory_bytes=300_000_000, cpu_s=2)
def tried(what):
    try:
        what()
    except OSError as error:
        os.write(1, str(error.errno).encode())
    except MemoryError:
        os.write(1, b"memory")
    else:
        os.write(1, b"done")
"""
EPERM = b"1"
UID = 65534 if os.geteuid() == 0 else None


def confined(code: str) -> tuple[bytes, int]:
    """Run code in a confined process; give what it wrote and its status."""
    program = BEGIN.format(uid=UID) + code + "\nos._exit(0)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], check=False, capture_output=True, timeout=30
    )
    return done.stdout or done.stderr, done.returncode


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/passwd')",
        "open('/tmp/x', 'w')",
        "os.listdir('/')",
        "os.stat('/')",
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), signal.SIGKILL)",
        "os.pipe()",
        "os.dup(1)",
        "os.readlink('/proc/self/exe')",
        "os.setuid(0)",
        "os.memfd_create('x')",
    ],
)
def test_nothing_is_opened_made_or_reached(attempt: str) -> None:
    assert confined(f"tried(lambda: {attempt})") == (EPERM, 0)


def test_computing_and_the_descriptors_it_holds_are_left() -> None:
    code = "tried(lambda: os.write(1, str(len(bytes(10**7))).encode()))"
    assert confined(code) == (b"10000000done", 0)


def test_memory_and_time_are_limited() -> None:
    assert confined("tried(lambda: bytes(10**9))") == (b"memory", 0)
    assert confined("while True: pass")[1] == -9
