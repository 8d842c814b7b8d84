"""A new text of a file, written beside it under a name of its own, and then put in its place."""

import os
import secrets
import stat
from typing import Self

from app.errors import ToolFailed
from app.tools.failures import file_failure, not_a_file
from app.tools.identity import Identity, acting_as
from app.tools.open_file import Version
from app.tools.paths import shown

_FILE_MODE = 0o644
_PERMISSIONS = 0o777
"""What a replaced file keeps of its mode: never setuid, setgid."""
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Draft:
    """Made on the event loop's thread and put in place there; filled in any.

    Whoever makes it uses `with`: what was not put in place is removed. All trouble is a
    `ToolFailed` whose text is for the model.
    """

    def __init__(
        self, folder_fd: int, name: str, path: str, replaces: Version | None, who: Identity | None
    ) -> None:
        """Begin one, and take `folder_fd` over, in which the file is called `name`."""
        self._folder_fd = folder_fd
        self._name = name
        self._path = path
        self._replaces = replaces
        self._who = who
        self._draft = f".treadle-{secrets.token_hex(8)}"
        self._is_placed = False
        try:
            with acting_as(who):
                self._mode()
                self._fd = os.open(self._draft, _DRAFT, 0o600, dir_fd=folder_fd)
        except BaseException as error:
            os.close(folder_fd)
            if isinstance(error, OSError):
                raise file_failure(path, error) from error
            raise

    def fill(self, data: bytes) -> None:
        """Write the whole content. May be called in a thread."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise file_failure(self._path, error) from error

    def place(self) -> Version:
        """Put it in place of the file, if that is still the version that it replaces."""
        try:
            with acting_as(self._who):
                os.fchmod(self._fd, self._mode())
                version = Version.of(os.fstat(self._fd))
                os.rename(
                    self._draft, self._name, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd
                )
        except OSError as error:
            raise file_failure(self._path, error) from error
        self._is_placed = True
        return version

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._is_placed:
                with acting_as(self._who):
                    os.unlink(self._draft, dir_fd=self._folder_fd)
        except OSError:  # the agent may have removed it, or the folder's rights
            pass
        finally:
            os.close(self._fd)
            os.close(self._folder_fd)

    def _mode(self) -> int:
        """Give the mode for the new file, after a look at what it replaces."""
        try:
            status = os.stat(self._name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        if status is not None and stat.S_ISLNK(status.st_mode):
            target = shown(os.readlink(self._name, dir_fd=self._folder_fd))
            raise ToolFailed(
                f"{shown(self._path)} is a symbolic link; write to its target: {target}"
            )
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise not_a_file(self._path, status.st_mode)
        if (None if status is None else Version.of(status)) != self._replaces:
            raise ToolFailed(
                f"{shown(self._path)} was changed by something else meanwhile. Try again."
            )
        return _FILE_MODE if status is None else status.st_mode & _PERMISSIONS
