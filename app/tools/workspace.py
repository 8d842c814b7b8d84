"""Files of a session, beneath its folders whatever a path says.

All methods are synchronous and short: they run on the event loop's thread, so that closing a
workspace can never pull a descriptor from under a call. What may take long (reading a large
file, walking a folder) works on a descriptor of its own, which `open` hands out.
"""

import os
import stat
from typing import Self

from app.errors import ToolFailed
from app.sandbox.driver import SessionDirs
from app.tools.beneath import open_beneath
from app.tools.draft import Draft
from app.tools.failures import file_failure, not_a_file
from app.tools.identity import Identity, acting_as
from app.tools.links import real_path
from app.tools.open_file import OpenFile, Version
from app.tools.paths import View

_FILE_MODE = 0o644
_FOLDER_MODE = 0o755
_MAX_NAMES = 10_000
"""How many entries of a folder are looked at for a suggestion."""


class Workspace:
    """A session's files. Holds descriptors: whoever makes it closes it, or uses `with`.

    Paths are absolute, in the agent's view, as `absolute` gives them. A missing file raises
    `FileNotFoundError`; all other trouble is a `ToolFailed` whose text is for the model.
    """

    def __init__(self, view: View, *, identity: Identity | None = None) -> None:
        self.view = view
        self._identity = identity
        self._roots: dict[str, int] = {}

    @classmethod
    def sandboxed(
        cls, dirs: SessionDirs, *, uid: int | None = None, gid: int | None = None
    ) -> Self:
        """Give the view that commands in the sandbox have.

        A service that runs as root names the sandbox's `uid` (and `gid`, else the same number):
        all access is that user's, and new files are its own.
        """
        mounts = {"/workspace": dirs.ws, "/tmp": dirs.tmp, "/home/agent": dirs.home}  # noqa: S108 - inside the sandbox
        view = View(
            "/workspace",
            "/home/agent",
            {**mounts, **dirs.readable},
            readable=frozenset(dirs.readable),
        )
        return cls(view, identity=_identity(uid, gid))

    @classmethod
    def bare(cls, dirs: SessionDirs, *, uid: int | None = None, gid: int | None = None) -> Self:
        """Give the view without a sandbox: the folders at their real paths."""
        mounts = {str(path.resolve()): path for path in (dirs.ws, dirs.tmp, dirs.home)}
        root, tmp, home = (str(path.resolve()) for path in (dirs.ws, dirs.tmp, dirs.home))
        view = View(root, home, {**mounts, **dirs.readable}, tmp, frozenset(dirs.readable))
        return cls(view, identity=_identity(uid, gid))

    @property
    def root(self) -> str:
        """The session's folder in the agent's view."""
        return self.view.root

    def absolute(self, path: str, cwd: str) -> str:
        """Make what the model wrote absolute and normal; `ToolFailed` for no valid path."""
        return self.view.absolute(path, cwd)

    def real(self, path: str) -> str:
        """Give where an absolute path leads when links are followed. Never raises."""
        return real_path(path, self.view, self._root)

    def close(self) -> None:
        """Let go of the folders. Further calls open them anew."""
        roots, self._roots = self._roots, {}
        for fd in roots.values():
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading ------------------------------------------------------------------------------

    def open(self, path: str) -> OpenFile:
        """Open a regular file for reading; the caller closes it.

        Links that stay beneath the folder are followed. Folders, FIFOs, devices and sockets
        are refused at once.
        """
        # Without O_NONBLOCK the open of a FIFO would wait for a writer.
        fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return OpenFile(fd, Version.of(status))
        os.close(fd)
        raise not_a_file(path, status.st_mode)

    def is_folder(self, path: str) -> bool:
        """Tell a folder from a regular file; all else is refused."""
        fd = self._open(path, os.O_PATH)
        try:
            mode = os.fstat(fd).st_mode
        finally:
            os.close(fd)
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise not_a_file(path, mode)
        return stat.S_ISDIR(mode)

    def open_folder(self, path: str) -> int:
        """Open a folder for reading; gives a descriptor, which the caller closes."""
        return self._open(path, os.O_RDONLY | os.O_DIRECTORY)

    def names(self, folder: str) -> list[str]:
        """List a folder, in no order, up to a bound; nothing if it cannot be listed."""
        try:
            fd = self.open_folder(folder)
        except (FileNotFoundError, ToolFailed):
            return []
        try:
            with os.scandir(fd) as entries:
                return [entry.name for entry, _ in zip(entries, range(_MAX_NAMES), strict=False)]
        finally:
            os.close(fd)

    def usage(self, folder: str, most: int) -> tuple[int, int]:
        """Count a folder's entries, `most` at most, and their bytes; nothing where there is no folder."""
        try:
            fd = self.open_folder(folder)
        except (FileNotFoundError, ToolFailed):
            return 0, 0
        try:
            with os.scandir(fd) as entries:
                sizes = [_size_bytes(entry) for entry, _ in zip(entries, range(most), strict=False)]
        finally:
            os.close(fd)
        return len(sizes), sum(sizes)

    # -- writing ------------------------------------------------------------------------------

    def write(self, path: str, data: bytes, *, replaces: Version | None) -> Version:
        """Put a file in place whole; missing folders are made. Gives the new version.

        Readers, and a crash of this process, see the old file or the new one. `replaces` is the
        version that the change was computed from, None for a new file: if another stands
        there by now nothing is written. Links are refused. A replaced file keeps its mode.
        """
        with self.draft(path, replaces=replaces) as draft:
            draft.fill(data)
            return draft.place()

    def draft(self, path: str, *, replaces: Version | None) -> Draft:
        """Begin what `write` does at once: for much data, which is then filled in in a thread."""
        mount, rest = self.view.writable(path)
        folder, _, name = rest.rpartition("/")
        if not name:
            raise not_a_file(path, stat.S_IFDIR)
        root_fd = self._root(mount)
        try:
            with acting_as(self._identity):
                folder_fd = _make_folder(root_fd, folder)
        except OSError as error:
            raise file_failure(path, error) from error
        return Draft(folder_fd, name, path, replaces, self._identity)

    def create(self, path: str) -> int:
        """Make a new file; give a descriptor for writing, which the caller closes.

        Missing folders are made. What stands there already, links included, is refused.
        """
        mount, rest = self.view.writable(path)
        folder, _, name = rest.rpartition("/")
        root_fd = self._root(mount)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with acting_as(self._identity):
                folder_fd = _make_folder(root_fd, folder)
                try:
                    return os.open(name, flags, _FILE_MODE, dir_fd=folder_fd)
                finally:
                    os.close(folder_fd)
        except OSError as error:
            raise file_failure(path, error) from error

    # -- descriptors --------------------------------------------------------------------------

    def _open(self, path: str, flags: int) -> int:
        mount, rest = self.view.locate(path)
        root_fd = self._root(mount)
        try:
            with acting_as(self._identity):
                return open_beneath(root_fd, rest, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise file_failure(path, error) from error

    def _root(self, mount: str) -> int:
        # As the service itself: the way to the folder need not be open to the sandbox's user.
        fd = self._roots.get(mount)
        if fd is None:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            fd = self._roots[mount] = os.open(self.view.mounts[mount], flags)
        return fd


def _size_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # just removed
        return 0


def _identity(uid: int | None, gid: int | None) -> Identity | None:
    return None if uid is None else Identity(uid, uid if gid is None else gid)


def _make_folder(root_fd: int, folder: str) -> int:
    """Open a folder, making what is missing of it."""
    missing: list[str] = []
    while True:
        try:
            fd = open_beneath(root_fd, folder, os.O_PATH | os.O_DIRECTORY)
            break
        except FileNotFoundError:
            folder, _, name = folder.rpartition("/")
            missing.append(name)
    for name in reversed(missing):
        try:
            child = _make_one(fd, name)
        finally:
            os.close(fd)
        fd = child
    return fd


def _make_one(parent_fd: int, name: str) -> int:
    try:
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent_fd)
    except FileExistsError:  # a dangling link, or another was quicker
        return open_beneath(parent_fd, name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    fd = open_beneath(parent_fd, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    os.fchmod(fd, _FOLDER_MODE)  # whatever the service's umask is
    return fd
