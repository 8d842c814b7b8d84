"""What the model is told when a file cannot be had."""

import errno
import os
import posixpath
import stat

from app.errors import ToolFailed
from app.tools.paths import shown

_REASONS = {
    errno.EACCES: "permission denied.",
    errno.EPERM: "permission denied.",
    errno.EROFS: "the file system is read-only.",
    errno.ENOTDIR: "a part of the path is a file, not a folder.",
    errno.EISDIR: "it is a folder, not a file.",
    errno.ELOOP: "it leads through a symbolic link that cannot be followed.",
    errno.EXDEV: "it leads outside the session's folders.",
    errno.ENAMETOOLONG: "a name in the path is too long.",
    errno.ENXIO: "it is not a regular file.",
    errno.ENOSPC: "there is no space left.",
    errno.EDQUOT: "the quota is used up.",
    errno.EFBIG: "the file would be too large.",
}


def file_failure(path: str, error: OSError) -> ToolFailed:
    """Say why a file could not be opened or written."""
    reason = _REASONS.get(error.errno or 0) or f"{os.strerror(error.errno or errno.EIO)}."
    return ToolFailed(f"{shown(path)}: {reason}")


def not_a_file(path: str, mode: int) -> ToolFailed:
    """Say that something else than a file stands there; `mode` is what `stat` gave."""
    if stat.S_ISDIR(mode):
        return ToolFailed(f"{shown(path)} is a folder, not a file.")
    return ToolFailed(f"{shown(path)} is not a regular file.")


def no_such_file(path: str, cwd: str, names: list[str], *, wrapped: bool = False) -> ToolFailed:
    """Say that a file is missing. A name in its folder with the same stem is suggested."""
    stem, extension = posixpath.splitext(posixpath.basename(path))
    alike = sorted(
        name
        for name in names
        if posixpath.splitext(name)[0] == stem and posixpath.splitext(name)[1] != extension
    )
    hint = f" Did you mean {shown(alike[0])}?" if stem and alike else ""
    return ToolFailed(
        f"{shown(path)} does not exist. The working directory is {cwd}.{hint}", wrapped=wrapped
    )
