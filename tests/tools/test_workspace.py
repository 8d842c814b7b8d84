"""Writing in place, owners and modes, and what the workspace holds."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.errors import ToolFailed
from app.sandbox.driver import SessionDirs
from app.sandbox.unsandboxed import Unsandboxed
from app.tools.identity import Identity, acting_as
from app.tools.open_file import Version
from app.tools.workspace import Workspace
from tests.sandbox.rooms import SANDBOX_UID, Rooms
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def version_of(desk: Desk, path: str) -> Version:
    return Version.of((desk.dirs.ws / path).stat())


def test_new_files_and_folders_belong_to_the_sandboxs_user(desk: Desk) -> None:
    old = os.umask(0o077)
    try:
        desk.workspace.write("/workspace/a/b/new", b"x", replaces=None)
    finally:
        os.umask(old)
    owner = os.geteuid() if SANDBOX_UID is None else SANDBOX_UID
    for path, mode in (("a", 0o755), ("a/b", 0o755), ("a/b/new", 0o644)):
        status = (desk.dirs.ws / path).stat()
        assert (status.st_uid, status.st_gid) == (
            owner,
            os.getegid() if SANDBOX_UID is None else owner,
        )
        assert stat.S_IMODE(status.st_mode) == mode, path


async def test_bash_and_the_file_tools_can_change_each_others_files(desk: Desk) -> None:
    await desk.call("Write", file_path="sub/one", content="1\n")
    await desk.bash("echo 2 >> sub/one && mkdir other && echo 3 > other/two && mv sub/one other/")
    assert not (
        await desk.call("Edit", file_path="other/two", old_string="3", new_string="4")
    ).is_error
    assert desk.content("other/one") + desk.content("other/two") == b"1\n2\n4\n"


def test_a_replaced_file_keeps_its_mode_without_setuid(desk: Desk) -> None:
    desk.put("run.sh", "old")
    (desk.dirs.ws / "run.sh").chmod(0o4750)
    desk.workspace.write("/workspace/run.sh", b"new", replaces=version_of(desk, "run.sh"))
    assert stat.S_IMODE((desk.dirs.ws / "run.sh").stat().st_mode) == 0o750
    assert desk.content("run.sh") == b"new"


def test_an_open_reader_keeps_the_old_file_whole(desk: Desk) -> None:
    desk.put("a", "old content")
    with desk.workspace.open("/workspace/a") as reader:
        desk.workspace.write("/workspace/a", b"new", replaces=version_of(desk, "a"))
        assert reader.content(100) == b"old content"
    assert desk.content("a") == b"new"


def test_a_failed_write_leaves_the_old_file_and_no_draft(desk: Desk) -> None:
    desk.put("a", "old")
    before = version_of(desk, "a")
    desk.put("a", "changed meanwhile")
    desk.later("a")
    with pytest.raises(ToolFailed, match="meanwhile"):
        desk.workspace.write("/workspace/a", b"new", replaces=before)
    with pytest.raises(ToolFailed, match="meanwhile"):
        desk.workspace.write("/workspace/a", b"new", replaces=None)
    assert desk.content("a") == b"changed meanwhile"
    assert [p.name for p in desk.dirs.ws.iterdir()] == ["a"]


WRITE_TOO_MUCH = """
import resource, signal, sys
from pathlib import Path
from app.sandbox.driver import SessionDirs
from app.tools.open_file import Version
from app.tools.workspace import Workspace

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
ws = Path(sys.argv[1])
with Workspace.bare(SessionDirs(ws, ws, ws)) as workspace:
    workspace.write(str(ws / "a"), b"x" * 5000, replaces=Version.of((ws / "a").stat()))
"""


def test_a_write_that_finds_no_room_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    # In a process of its own, since the limit is the process's.
    done = subprocess.run(
        [sys.executable, "-c", WRITE_TOO_MUCH, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ToolFailed" in done.stderr
    assert "too large" in done.stderr
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"old")]


def test_a_closed_workspace_holds_no_descriptor(desk: Desk) -> None:
    before = descriptors()
    workspace = Workspace.sandboxed(desk.dirs, uid=SANDBOX_UID)
    for path in ("/workspace/a", "/tmp/a", "/home/agent/a"):
        with pytest.raises(FileNotFoundError):
            workspace.open(path)
        workspace.write(path, b"x", replaces=None)
        workspace.names(path.rpartition("/")[0])
    workspace.close()
    assert descriptors() == before


def test_without_a_sandbox_the_view_is_the_real_folder(tmp_path: Path) -> None:
    dirs = SessionDirs(tmp_path / "ws", tmp_path / "tmp", tmp_path / "home")
    for folder in (dirs.ws, dirs.tmp, dirs.home):
        folder.mkdir()
    (tmp_path / "other").write_text("other")
    with Workspace.bare(dirs) as workspace:
        root = str(dirs.ws.resolve())
        assert workspace.root == root
        workspace.write(f"{root}/sub/a", b"x", replaces=None)
        workspace.write(workspace.absolute("~/b", root), b"y", replaces=None)
        assert (dirs.ws / "sub" / "a").read_bytes() == b"x"
        assert (dirs.home / "b").read_bytes() == b"y"
        with pytest.raises(ToolFailed, match="outside"):
            workspace.open(str(tmp_path / "other"))


async def test_without_a_sandbox_the_tools_speak_of_real_paths(rooms: Rooms) -> None:
    dirs = rooms.dirs()
    sandbox = Unsandboxed(dirs, rooms.programs, SANDBOX_UID)
    with Workspace.bare(dirs, uid=SANDBOX_UID) as workspace:
        desk = Desk(dirs, sandbox, workspace)
        root = workspace.root
        await desk.call("Write", file_path="sub/a.txt", content="needle")
        assert (
            await desk.bash("cd sub && pwd && cat a.txt && echo more > b.txt")
            == f"{root}/sub\nneedle"
        )
        assert text_of(await desk.call("Read", file_path=f"{root}/sub/b.txt")) == "1\tmore\n2\t"
        assert text_of(await desk.call("Glob", pattern="*.txt")) == "a.txt\nb.txt"
        found = await desk.call("Grep", pattern="e", path=root, output_mode="content")
        assert text_of(found) == "a.txt:1:needle\nb.txt:1:more"
        refused = await desk.call("Grep", pattern="root", path="/etc")
        assert refused.is_error


def test_acting_as_another_ends_with_the_block_and_is_the_threads_alone(rooms: Rooms) -> None:
    folder = rooms.folder / "open_to_all"
    folder.mkdir()
    folder.chmod(0o777)
    identity = Identity(200_123, 200_124)
    if os.geteuid() != 0:
        # An ordinary user cannot: it is said, and nothing is done as the wrong user.
        with pytest.raises(PermissionError), acting_as(identity):
            (folder / "never").touch()
        assert not (folder / "never").exists()
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(os.getpid).result()  # the thread is there before
        with acting_as(identity):
            (folder / "theirs").touch()
            pool.submit((folder / "other_thread").touch).result()
    (folder / "ours").touch()
    owners = {p.name: (p.stat().st_uid, p.stat().st_gid) for p in folder.iterdir()}
    assert owners == {
        "theirs": (200_123, 200_124),
        "other_thread": (0, os.getegid()),
        "ours": (0, os.getegid()),
    }


def test_acting_as_another_takes_roots_rights_away(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.write_text("x")
    closed.chmod(0o000)
    if os.geteuid() == 0:
        with acting_as(Identity(200_123, 200_123)), pytest.raises(PermissionError):
            closed.read_text()
        assert closed.read_text() == "x", "and gives them back"
    else:
        with acting_as(None), pytest.raises(PermissionError):
            closed.read_text()
