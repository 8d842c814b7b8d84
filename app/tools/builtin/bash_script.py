"""The script that a command is wrapped in, and what is looked at before it runs."""

import posixpath
import shlex

from app.sandbox.driver import Finished
from app.tools.shell import removed_folders
from app.tools.tool import ToolContext

_LAST_WRITES_S = 0.3


def script(command: str, context: ToolContext) -> bytes:
    """Wrap the command so that the shell's last directory comes back on its old stderr.

    All before the command stands on one line, so that line numbers in messages are right. The
    directory is only told after a status of 0; the `&&` also robs `set -e` of its effect, so
    that it cannot end the shell early. All that the command left running dies with the shell, so
    jobs that are still at it have a moment for what they would write just then.
    """
    root = context.workspace.root
    cwd = shlex.quote(context.cwd)
    lost = shlex.quote(f"(The directory {context.cwd} is gone; the command ran in {root}.)")
    return (
        "exec 3>&2 2>&1; shopt -s expand_aliases; "
        f"cd -- {cwd} 2>/dev/null || echo {lost}; "
        f"eval {shlex.quote(command)} 3>&- && "
        "{ builtin pwd -P >&3 || builtin true; } 2>/dev/null\n"
        f"set -- $?; [[ -z $(jobs -rp) ]] || command sleep {_LAST_WRITES_S}; exit $1\n"
    ).encode()


def reported_directory(finished: Finished) -> str | None:
    """Give the directory in which the command ended; None if it failed or told no valid one."""
    if finished.exit_code != 0 or not finished.stderr.endswith(b"\n"):
        return None
    cwd = finished.stderr[:-1].decode(errors="surrogateescape")
    return cwd if cwd.startswith("/") and len(cwd) < 4096 and "\0" not in cwd else None


def removes_the_workspace(command: str, context: ToolContext) -> bool:
    """Tell whether the command plainly removes the session's directory, or one above it.

    A help against slips, not a wall: the sandbox is that.
    """
    kept = (context.workspace.root, context.cwd)
    for path in removed_folders(command):
        target = "/" + posixpath.normpath(posixpath.join(context.cwd, path)).lstrip("/")
        if any(folder == target or folder.startswith(target.rstrip("/") + "/") for folder in kept):
            return True
    return False
