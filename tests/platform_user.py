"""Runs a command as an ordinary user: `python tests/platform_user.py [--fresh] -- CMD…`

As an ordinary user it just becomes CMD. As root it runs CMD under a uid that nobody uses, without
groups, in a copy of the checkout, with an empty HOME: as on a newcomer's machine. What root alone
can read is not there for this uid, so the copy brings its own environment (`.venv`) and, where the
interpreter lies in a private folder (`/root/.pyenv`), a copy of that too. `--fresh` leaves the
environment out: the command makes its own. Everything is removed at the end, the status is CMD's.
Only the standard library: it may run before there is an environment.
"""

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
UIDS = range(54321, 54400)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [--fresh] -- CMD…")
    parser.add_argument("--fresh", action="store_true", help="without a copy of the environment")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command")
    if os.geteuid() != 0:
        say(f"already an ordinary user (uid {os.geteuid()}): running the command as it is")
        os.execvp(command[0], command)  # noqa: S606 - that is the job
    uid = unused_uid()
    stage = Path(tempfile.mkdtemp(prefix="tu-", dir="/tmp"))
    try:
        return run(command, uid=uid, stage=stage, with_venv=not options.fresh)
    finally:
        end_processes(uid)
        shutil.rmtree(stage, ignore_errors=True)


def run(command: list[str], *, uid: int, stage: Path, with_venv: bool) -> int:
    stage.chmod(0o755)
    home, checkout = stage / "home", stage / "checkout"
    home.mkdir()
    copy_checkout(checkout)
    python = reachable_python(uid, stage)
    venv = Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    moved = {str(CHECKOUT): str(checkout)}
    if with_venv and venv:
        copy_venv(venv, checkout / ".venv", python, moved)
        moved = {str(venv): str(checkout / ".venv"), **moved}
    for path in (home, checkout):
        give(path, uid)
    folders = [str(checkout / ".venv/bin"), str(python.parent), *os.get_exec_path()]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH"))
    }
    environment |= {"HOME": str(home), "USER": f"u{uid}", "LOGNAME": f"u{uid}"}
    environment |= {"PATH": os.pathsep.join(folders)}
    command = [translated(word, moved) for word in command]
    say(f"uid {uid}, in {checkout}: {' '.join(command)}")
    # Found along the command's own PATH, not along ours.
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    program = str(checkout / program)
    child = subprocess.Popen(
        [program, *command[1:]],
        cwd=checkout,
        env=environment,
        user=uid,
        group=uid,
        extra_groups=[],
        umask=0o022,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: child.send_signal(received))
    status = child.wait()
    return 128 - status if status < 0 else status


def copy_checkout(target: Path) -> None:
    """What is tracked or could be; outside of git everything but environments and caches."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={CHECKOUT}", "ls-files", "-zco", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        say("no git checkout: copying the folder")
        caches = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(CHECKOUT, target, symlinks=True, ignore=caches)
        return
    target.mkdir()
    for name in filter(None, listed.stdout.split(b"\0")):
        source, copy = CHECKOUT / os.fsdecode(name), target / os.fsdecode(name)
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def reachable_python(uid: int, stage: Path) -> Path:
    """The base interpreter where `uid` can run it: in its place, or copied."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    probe = [str(base), "-c", "import encodings, ssl, venv"]
    try:
        subprocess.run(
            probe,
            check=True,
            capture_output=True,
            user=uid,
            group=uid,
            extra_groups=[],
            cwd="/",
            env={},
        )
    except (OSError, subprocess.CalledProcessError):
        return copy_python(base, stage / "python")
    say(f"uid {uid} can run {base}")
    return base


def copy_python(base: Path, target: Path) -> Path:
    prefix = Path(sys.base_prefix)
    say(f"{base} lies in a private folder: copying {prefix} to {target}")
    # What is compiled goes along: this uid could not keep what it compiled itself.
    skip = shutil.ignore_patterns(
        "site-packages", "test", "tests", "idlelib", "tkinter", "config-*", "*.a"
    )
    library = Path(sysconfig.get_path("stdlib")).relative_to(prefix)
    shutil.copytree(prefix / library, target / library, symlinks=True, ignore=skip)
    (target / library / "site-packages").mkdir()
    for shared in (prefix / "lib").glob("libpython*"):
        shutil.copy2(shared, target / "lib" / shared.name, follow_symlinks=False)
    program = target / "bin" / base.name
    program.parent.mkdir()
    # An interpreter with a shared library names its folder by its absolute path.
    old, new = os.fsencode(prefix / "lib") + b"\0", b"$ORIGIN/../lib\0"
    program.write_bytes(base.read_bytes().replace(old, new.ljust(len(old), b"\0")))
    program.chmod(0o755)
    for name in ("python", "python3"):
        (program.parent / name).symlink_to(program.name)
    open_to_all(target)
    return program


def copy_venv(venv: Path, target: Path, python: Path, moved: dict[str, str]) -> None:
    """A copy that works at its new place: programs and links that name the old one are rewritten."""
    say(f"copying the environment {venv}")
    shutil.copytree(venv, target, symlinks=True, ignore=shutil.ignore_patterns("python*.exe"))
    old_home = Path(sys.base_prefix) / "bin"
    moved = {str(venv): str(target), **moved}
    rewrite(target / "pyvenv.cfg", {str(old_home): str(python.parent), **moved})
    scripts = [path for path in (target / "bin").iterdir() if not path.is_symlink()]
    for path in (*scripts, *target.rglob("*.pth"), *target.rglob("__editable__*.py")):
        rewrite(path, moved)
    for link in (path for path in (target / "bin").iterdir() if path.is_symlink()):
        if Path(link.readlink()).is_absolute():
            link.unlink()
            link.symlink_to(python)
    open_to_all(target)


def rewrite(path: Path, moved: dict[str, str]) -> None:
    content = path.read_bytes()
    if b"\0" in content:
        return  # a program
    changed = content
    for old, new in moved.items():
        changed = changed.replace(os.fsencode(old), os.fsencode(new))
    if changed != content:
        path.write_bytes(changed)


def translated(word: str, moved: dict[str, str]) -> str:
    """An absolute path into the environment or the checkout means its copy."""
    for old, new in moved.items():
        if word == old or word.startswith(f"{old}/"):
            return new + word[len(old) :]
    return word


def open_to_all(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def give(root: Path, uid: int) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def unused_uid() -> int:
    """One that no account and no process has."""
    taken = {entry.pw_uid for entry in pwd.getpwall()} | {uid for _, uid in processes()}
    return next(uid for uid in UIDS if uid not in taken)


def processes() -> list[tuple[int, int]]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes():  # what has ended and waits to be reaped has none
                found.append((int(entry.name), entry.stat().st_uid))
        except OSError:
            continue  # it has ended
    return found


def end_processes(uid: int) -> None:
    """What the command left behind under its uid, which is ours alone."""
    for pid, owner in processes():
        if owner == uid:
            say(f"the command left process {pid} behind: ending it")
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def say(text: str) -> None:
    sys.stderr.write(f"platform_user: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
