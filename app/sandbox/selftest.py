"""Does the sandbox hold here? Asked once at start, with the very list that commands get."""

import re
import secrets
import shlex
import shutil
from pathlib import Path

from app.errors import ConfigError
from app.sandbox.bubblewrap import BubblewrapSandbox, SandboxNotStarted
from app.sandbox.dirs import check_reachable, make_session_dirs
from app.sandbox.driver import Finished, Limits
from app.sandbox.programs import Programs

_PROBE_S = 20.0
_HOLDS = b"the sandbox holds\n"
_REMEDIES = {  # the wording of bubblewrap or the kernel → what to do; the first match counts
    r"proc on /newroot/proc": (
        "/proc is partly masked, as container engines do. Start the container with "
        "--security-opt systempaths=unconfined (compose: security_opt)."
    ),
    r"ENOSPC|max_\w+_namespaces|No space left": (
        "The kernel's limit of namespaces is reached or 0. Raise user.max_user_namespaces."
    ),
    r"setting up uid map: Operation not permitted": (
        "Root lacks the capability SETFCAP here. Run the service as an ordinary user (best), or "
        "add the capability SETFCAP to the container."
    ),
    r"RTM_NEWADDR|setting up uid map: Permission denied|apparmor": (
        "AppArmor forbids user namespaces to ordinary programs, as Ubuntu 24.04 does. Load an "
        "AppArmor profile that grants bwrap `userns,`, start the container with --security-opt "
        "apparmor=unconfined, or set kernel.apparmor_restrict_unprivileged_userns=0."
    ),
    r"[Nn]o permissions to creat|[Cc]reating new namespace failed|unshare": (
        "New namespaces are forbidden, as by Docker's default profile. Start the container with "
        "--security-opt seccomp=PROFILE, where the profile allows clone, unshare, mount, "
        "umount2, pivot_root and setns; on a host, set kernel.unprivileged_userns_clone=1."
    ),
    r"execvp (prlimit|timeout|bash)": (
        "A program that the sandbox needs is missing. Install bash, coreutils and util-linux."
    ),
    r"[Uu]nknown option": "This bubblewrap is too old. Install version 0.8 or newer.",
    r"No such file or directory: '|failed to execute \./bwrap": "bubblewrap is missing. Install it.",
}
_SCRIPT = r"""
exec 2>/dev/null
bad() { printf '%s\n' "$1"; }
[ -e PLANTED ] || [ -e /proc/1/rootPLANTED ] && bad 'a file of the host is visible'
read -r -N 1 byte </proc/1/environ && bad 'the environment of pid 1 is not empty'
for name in $(compgen -e); do
  case $name in
    PATH|HOME|LANG|TMPDIR|TERM|USER|PWD|OLDPWD|SHLVL|_) ;;
    *) bad "the environment holds $name" ;;
  esac
done
while IFS=': ' read -r name rest; do
  case $name in Inter-*|face*|lo) ;; *) bad "there is a network interface $name" ;; esac
done </proc/net/dev
read -r comm </proc/1/comm && [ "$comm" = bwrap ] || bad 'pid 1 is not the one of the sandbox'
set -- /proc/[0-9]*
[ $# -le 6 ] || bad "there are $# processes"
{ : >/probe; } && bad '/ can be written'
{ : >/usr/probe; } && bad '/usr can be written'
{ : >/workspace/probe && : >/tmp/probe; } || bad 'the workspace cannot be written'
[[ $(</proc/self/status) == *Seccomp:?2* ]] || bad 'there is no system call filter'
[ $UID = 1000 ] || bad "the user is $UID"
rg --version >/dev/null || bad 'ripgrep does not run'
echo 'the sandbox holds'
"""


async def check_sandbox(folder: Path, programs: Programs, *, uid: int | None) -> None:
    """Run one real command and look around; raise `ConfigError` that says what to do.

    `folder` is where sessions' folders will lie. Leaves nothing behind.
    """
    if uid is not None:
        check_reachable(folder, uid=uid)
        check_reachable(programs.bin, uid=uid)
    name = f"probe-{secrets.token_hex(8)}"
    try:
        dirs = make_session_dirs(folder, name, uid=uid)
        planted = folder / name / "planted"
        planted.write_bytes(b"canary")
        script = _SCRIPT.replace("PLANTED", shlex.quote(str(planted.resolve()))).encode()
        found = await BubblewrapSandbox(dirs, programs, uid).exec(
            ["bash"], cwd="/workspace", limits=Limits(wall_s=_PROBE_S), script=script
        )
    except SandboxNotStarted as refused:
        raise ConfigError(_refusal(refused.detail)) from refused
    except OSError as error:
        raise ConfigError(f"{folder} cannot hold sessions: {error.strerror}.") from error
    finally:
        shutil.rmtree(folder / name, ignore_errors=True)
    if found.exit_code != 0 or found.output != _HOLDS:
        raise ConfigError(_leak(found))


def remedy(detail: str) -> str | None:
    """Say what to do about a sandbox that was refused with these words, if we know it."""
    return next((text for words, text in _REMEDIES.items() if re.search(words, detail)), None)


def _refusal(detail: str) -> str:
    known = remedy(detail) or "See whether the kernel allows user namespaces to this user."
    return (
        f"Commands cannot be sandboxed on this host: {detail}\n{known}\n"
        "The service does not start without a sandbox, unless TREADLE_SANDBOX=none says that a "
        "single trusted tenant is served."
    )


def _leak(found: Finished) -> str:
    said = found.output.decode(errors="replace").strip()
    why = "it took too long" if found.timed_out else said or f"exit status {found.exit_code}"
    lines = [f"The sandbox does not hold on this host, so the service does not start: {why}"]
    return "\n".join([*lines, *filter(None, [remedy(said)])])
