"""Who the embedded server is, for the kernel and for itself.

PostgreSQL refuses to run as uid 0, and `initdb` refuses a uid without an entry in passwd.

- An ordinary user: nothing to do. Without an entry (arbitrary uids in containers) `initdb` alone
  runs in a user namespace that shows it an entry that exists.
- Root: everything runs in such a user namespace. The files stay root's, nothing is copied, and
  folders that only root may enter remain usable.
- Root where namespaces are forbidden (containers): an unused uid owns the cluster and the
  programs are copied to where it can read them. The choice is kept with the cluster.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.errors import ConfigError

_UIDS = range(54900, 55000)
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}
"""Nothing of ours: PGPORT, PGDATA and the like would change what the programs do."""


@dataclass(frozen=True, slots=True)
class Account:
    """How to start a program: behind a prefix (a user namespace) or under another uid."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None

    def run(
        self,
        argv: list[str],
        *,
        output: IO[bytes] | int,
        pass_fds: tuple[int, ...] = (),
        environment: dict[str, str] | None = None,
        timeout_s: float,
    ) -> "subprocess.CompletedProcess[str]":
        """Run to its end, away from our terminal: a Ctrl-C for us is not one for the server.

        Past its time it is killed, and the status is 124.
        """
        command = [*self.prefix, *argv]
        try:
            return self._run(command, output, pass_fds, environment or {}, timeout_s)
        except subprocess.TimeoutExpired:
            said = f"{argv[0]} did not end within {timeout_s:.0f} s"
            return subprocess.CompletedProcess(command, 124, said)

    def _run(
        self,
        command: list[str],
        output: IO[bytes] | int,
        pass_fds: tuple[int, ...],
        environment: dict[str, str],
        timeout_s: float,
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT | environment,
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )


@dataclass(frozen=True, slots=True)
class Identity:
    server: Account
    initdb: Account
    """Differs from `server` where the server's uid has no entry in passwd."""


def choose_identity(*, kept_uid: int | None) -> Identity:
    """`kept_uid` is the uid that an earlier start as root gave the cluster to, if any.

    Raises:
        ConfigError: this user can neither run `initdb` nor start it in a user namespace.
    """
    if os.geteuid() != 0:
        return Identity(Account(), Account() if _has_entry(os.geteuid()) else _namespace_or_error())
    if kept_uid is None and (namespace := _namespace()):
        return Identity(namespace, namespace)
    named = _named_uid()
    if named is None:
        raise ConfigError(
            "PostgreSQL does not run as root, and /etc/passwd names no other user. Add one (for"
            " example nobody), start the service as an ordinary user, or set DATABASE_URL."
        )
    return Identity(Account(uid=kept_uid or _unused_uid()), Account(uid=named))


def give(path: Path, uid: int) -> None:
    """Make `uid` the owner of `path` and all below; symbolic links are not followed."""
    for folder, _, names in os.walk(path):
        for entry in (folder, *(os.path.join(folder, name) for name in names)):  # noqa: PTH118 - thousands of files
            os.chown(entry, uid, uid, follow_symlinks=False)


def check_reachable(folder: Path, uid: int, *, setting: str) -> None:
    """Raises ConfigError when `uid` cannot pass the folders above `folder`."""
    for parent in folder.resolve().parents:
        if not parent.stat().st_mode & 0o001:
            raise ConfigError(
                f"PostgreSQL does not run as root, user namespaces are not allowed here, and uid"
                f" {uid} cannot pass {parent} to reach {folder}. Set {setting} to a folder"
                " below directories that everybody may enter, start the service as an ordinary"
                " user, or set DATABASE_URL."
            )


def _namespace_or_error() -> Account:
    namespace = _namespace()
    if namespace is None:
        raise ConfigError(
            f"The user id {os.geteuid()} has no entry in /etc/passwd, which initdb requires, and"
            " user namespaces are not allowed here. Add an entry, or set DATABASE_URL."
        )
    return namespace


def _namespace() -> Account | None:
    """A user namespace in which we appear as a named, ordinary user; None where it is refused."""
    unshare, uid = shutil.which("unshare"), _named_uid()
    if unshare is None or uid is None:
        return None
    prefix = (unshare, "--user", f"--map-user={uid}", f"--map-group={uid}", "--")
    account = Account(prefix=prefix)
    probe = account.run(["/bin/sh", "-c", "id -u"], output=subprocess.PIPE, timeout_s=10)
    return account if probe.stdout.strip() == str(uid) else None


def _has_entry(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _named_uid() -> int | None:
    entries = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0}
    return entries.get("nobody", next(iter(entries.values()), None))


def _unused_uid() -> int:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in _UIDS if uid not in taken)
