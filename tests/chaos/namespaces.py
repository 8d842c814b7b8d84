"""Namespaces of this program's own, where it may have them: mounts and network.

As root the program starts again inside: the disk that is filled and the wires that are cut are
then seen by nobody else, and are gone with it. What is not allowed has a stand-in (`ground`,
`link`).
"""

import os
import shutil
import subprocess
import sys

_MOVED = "CHAOS_NAMESPACES"
_PROBES = {
    "mount": "mount -t tmpfs -o size=1m chaos /mnt",
    "net": "ip link set lo up && ip link add probe0 type veth peer name probe1 && ip link del probe0",
}


def has_own(kind: str) -> bool:
    """Say whether this program has a namespace of its own of a kind: `mount` or `net`."""
    return kind in os.environ.get(_MOVED, "").split(",")


def move_into_own_namespaces() -> None:
    """Start this program again in what it may have; do nothing when it is there, or may not."""
    unshare = shutil.which("unshare")
    if _MOVED in os.environ or os.geteuid() != 0 or unshare is None:
        return
    allowed = [kind for kind in _PROBES if _is_allowed(unshare, kind)]
    if "mount" not in allowed:  # names of network namespaces are mounts
        allowed = []
    os.environ[_MOVED] = ",".join(allowed)
    if not allowed:
        return
    start = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"] if "net" in allowed else []
    program = [sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    os.execv(unshare, [*_prefix(unshare, allowed), *start, *program])  # noqa: S606 - as in the probe


def _prefix(unshare: str, kinds: list[str]) -> list[str]:
    return [unshare, *(f"--{kind}" for kind in kinds), "--propagation", "private", "--"]


def _is_allowed(unshare: str, kind: str) -> bool:
    # `--propagation` is about mounts, so these are always there.
    kinds = ["mount"] if kind == "mount" else ["mount", kind]
    probe = [*_prefix(unshare, kinds), "sh", "-c", _PROBES[kind]]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
