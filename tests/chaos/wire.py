"""The wire between one host and Postgres, which can be cut: a pair of network devices.

Postgres has a network namespace of its own (`POSTGRES`); each host reaches it by a wire that no other
host uses. `hole` takes the far end down: what is sent is lost, and nobody says so. `drop` takes the
near end down: no route is left, new connections fail at once and old ones fall silent.
"""

import asyncio
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.link import Mode

POSTGRES = "chaos-postgres"
NETWORK = "10.213.0.0/16"
_MOST = 16_384
_NAMES = Path("/run/netns")


def make_room() -> None:
    """Make the namespace of Postgres. Blocking."""
    # Names of namespaces are files there; ours are nobody else's, and are gone with us.
    _NAMES.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "chaos", str(_NAMES)], check=True)
    subprocess.run(["ip", "netns", "add", POSTGRES], check=True)
    subprocess.run(["ip", "-n", POSTGRES, "link", "set", "lo", "up"], check=True)


def enter(uid: int | None) -> list[str]:
    """Give what starts a program where Postgres is, as somebody else if `uid` says so."""
    account = [] if uid is None else [f"--setuid={uid}", f"--setgid={uid}"]
    return ["nsenter", f"--net={_NAMES / POSTGRES}", *account, "--"]


@dataclass(slots=True)
class Wire:
    """One wire; the number is its own while it is there."""

    number: int
    target: int
    """The port of Postgres."""

    @property
    def address(self) -> tuple[str, int]:
        """Where the host finds Postgres."""
        return self._end(2), self.target

    async def open(self) -> None:
        """Lay the wire."""
        near, far = self._names
        await _ip(
            f"link add {near} type veth peer name {far} netns {POSTGRES}",
            f"addr add {self._end(1)}/30 dev {near}",
            f"link set {near} up",
        )
        await _ip(f"addr add {self._end(2)}/30 dev {far}", f"link set {far} up", there=True)

    async def set(self, mode: Mode) -> None:
        """Cut the wire, or mend it."""
        near, far = self._names
        await _ip(f"link set {near} {'down' if mode == 'drop' else 'up'}")
        await _ip(f"link set {far} {'down' if mode == 'hole' else 'up'}", there=True)

    async def close(self) -> None:
        """Take the wire away. Safe to repeat."""
        with suppress(RuntimeError):
            await _ip(f"link del {self._names[0]}")

    @property
    def _names(self) -> tuple[str, str]:
        return f"near{self.number}", f"far{self.number}"

    def _end(self, which: int) -> str:
        place = self.number % _MOST * 4
        return f"10.213.{place // 256}.{place % 256 + which}"


async def _ip(*commands: str, there: bool = False) -> None:
    argv = ["ip", *(("-n", POSTGRES) if there else ()), "-batch", "-"]
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate("\n".join(commands).encode() + b"\n")
    if process.returncode != 0:
        raise RuntimeError(f"{commands}: {said.decode(errors='replace')}")
