"""What a sandboxed command sees and may use: the argument list of bubblewrap.

`bwrap_arguments` is the only place that says so. Each option and each order answers an attack
that was measured; see docs/adr/0009-bubblewrap-per-command.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.driver import Limits, SessionDirs
from app.sandbox.programs import Programs

_HOME = "/home/agent"
_TOOLS = "/opt/treadle/bin"
SCRIPT = "/opt/treadle/command"
_ENVIRONMENT = {
    "PATH": f"{_TOOLS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": _HOME,
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 -- the sandbox's own
    "TERM": "dumb",
    "USER": "agent",
}
ETC = {
    "/etc/passwd": b"root:x:0:0::/:/bin/false\nagent:x:1000:1000::/home/agent:/bin/bash\n",
    "/etc/group": b"root:x:0:\nagent:x:1000:\n",
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/hostname": b"sandbox\n",
    # A folder that looks like a bare repository may name programs in a file that is not protected.
    "/etc/gitconfig": b"[safe]\n\tbareRepository = explicit\n",
}
_HOST_ETC = ("ssl/certs", "ld.so.cache", "alternatives", "localtime", "mime.types")
"""Never /etc whole: as root its secrets would be readable."""
_RESOURCES = (
    "--fsize=1073741824",
    "--nofile=1024",
    "--core=0",
    "--data=4294967296",  # not --as: node reserves address space that it never uses
)
_PROCESSES = 256
_LATE_S = 5
"""The inner time limit: for the case that the service dies before `--die-with-parent` holds."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Open files that bubblewrap reads and closes, by number."""

    etc: Mapping[str, int]
    seccomp: int
    status: int
    script: int | None = None

    def all(self) -> list[int]:
        fds = [*self.etc.values(), self.seccomp, self.status]
        return fds if self.script is None else [*fds, self.script]


def bwrap_arguments(
    dirs: SessionDirs,
    programs: Programs,
    cwd: str,
    fds: Descriptors,
    folders: Sequence[Path] = (),
) -> list[str]:
    """Give everything between `bwrap` and the command. Later mounts lie over earlier ones.

    `folders` of the host can be read at their own paths.
    """
    args = [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--unshare-net"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *("--ro-bind", "/usr", "/usr"),
    ]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        args += _system_folder(f"/{name}")
    for name in _HOST_ETC:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path, fd in fds.etc.items():
        args += ["--perms", "0444", "--ro-bind-data", str(fd), path]
    # Before our own folders: none of them can be put over.
    for folder in folders:
        args += ["--ro-bind-try", str(folder), str(folder)]
    args += ["--ro-bind", str(programs.bin), _TOOLS]
    if fds.script is not None:
        args += ["--perms", "0444", "--ro-bind-data", str(fds.script), SCRIPT]
    args += [
        *("--proc", "/proc", "--dev", "/dev"),
        # A tmpfs is by default half the machine's memory.
        *("--size", "67108864", "--perms", "1777", "--tmpfs", "/dev/shm"),  # noqa: S108
        *("--remount-ro", "/dev"),
        *("--bind", str(dirs.tmp), "/tmp"),  # noqa: S108 -- the sandbox's own
        *("--bind", str(dirs.home), _HOME),
        *("--bind", str(dirs.ws), "/workspace", "--chdir", cwd),
    ]
    for path, folder in dirs.readable.items():
        args += ["--ro-bind-try", str(folder), path]
    for name, value in _ENVIRONMENT.items():
        args += ["--setenv", name, value]
    return [
        *args,
        *("--remount-ro", "/", "--disable-userns"),
        *("--json-status-fd", str(fds.status), "--seccomp", str(fds.seccomp)),
    ]


def _system_folder(path: str) -> list[str]:
    """Show a folder of the host's root as it is there: a link into /usr, a folder, or nothing."""
    if Path(path).is_symlink():
        return ["--symlink", str(Path(path).readlink()), path]
    return ["--ro-bind-try", path, path]


def limited(
    argv: Sequence[str], limits: Limits, *, processes: int | None = _PROCESSES
) -> list[str]:
    """Wrap a command in the limits that are set inside the sandbox.

    There `processes` counts this sandbox alone; elsewhere it would count the whole user.
    """
    count = [] if processes is None else [f"--nproc={processes}"]
    bound = str(int(limits.wall_s) + _LATE_S)
    return ["prlimit", *count, *_RESOURCES, "--", "timeout", "-s", "KILL", bound, *argv]
