"""Opening beneath a descriptor, by the kernel and by walking."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.tools.beneath import open_beneath, walk_beneath

pytestmark = pytest.mark.platform

Opening = Callable[..., int]
BOTH = pytest.mark.parametrize("opening", [open_beneath, walk_beneath])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "f").write_text("f")
    (root / "a" / "b" / "g").write_text("g")
    (tmp_path / "secret").write_text("secret")
    for name, target in {
        "to_f": "f",
        "a/up": "../f",
        "folder": "a/b",
        "chain": "to_f",
        "loop": "loop",
        "out": "../secret",
        "a/b/out": "../../../secret",
        "absolute": str(root / "f"),
        "dangling": "nothing",
        "magic": "/proc/self/root",
    }.items():
        (root / name).symlink_to(target)
    return root


def descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def read(opening: Opening, root: Path, path: str, flags: int = os.O_RDONLY) -> str:
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        fd = opening(root_fd, path, flags)
    finally:
        os.close(root_fd)
    with os.fdopen(fd) as file:
        return file.read()


@BOTH
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("f", "f"),
        ("./a//b/g", "g"),
        ("a/../f", "f"),
        ("a/b/../../f", "f"),
        ("to_f", "f"),
        ("chain", "f"),
        ("a/up", "f"),
        ("folder/g", "g"),
        ("folder/../b/g", "g"),
    ],
)
def test_what_lies_beneath_opens(opening: Opening, path: str, content: str, root: Path) -> None:
    assert read(opening, root, path) == content


@BOTH
@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("..", errno.EXDEV),
        ("../secret", errno.EXDEV),
        ("a/../../secret", errno.EXDEV),
        ("out", errno.EXDEV),
        ("a/b/out", errno.EXDEV),
        ("folder/out", errno.EXDEV),
        ("absolute", errno.EXDEV),
        ("magic/etc/hostname", errno.EXDEV),
        ("/f", errno.EXDEV),
        ("loop", errno.ELOOP),
        ("dangling", errno.ENOENT),
        ("nothing/x", errno.ENOENT),
        ("f/x", errno.ENOTDIR),
        ("n" * 256, errno.ENAMETOOLONG),
    ],
)
def test_a_way_out_or_a_dead_end_is_an_error(
    opening: Opening, path: str, number: int, root: Path
) -> None:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number says which
        read(opening, root, path)
    assert raised.value.errno == number


@BOTH
def test_the_last_link_is_not_followed_when_the_caller_says_so(
    opening: Opening, root: Path
) -> None:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number says which
        read(opening, root, "to_f", os.O_RDONLY | os.O_NOFOLLOW)
    assert raised.value.errno == errno.ELOOP
    assert read(opening, root, "folder/g", os.O_RDONLY | os.O_NOFOLLOW) == "g"


@BOTH
def test_descriptors_are_not_inherited_and_none_is_left_open(opening: Opening, root: Path) -> None:
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    before = descriptors()
    for path in ("folder/../b/g", "a/../../secret", "loop", "f/x"):
        try:
            fd = opening(root_fd, path, os.O_RDONLY)
        except OSError:
            continue
        assert not os.get_inheritable(fd)
        os.close(fd)
    assert descriptors() == before
    os.close(root_fd)


@BOTH
def test_the_root_itself_opens(opening: Opening, root: Path) -> None:
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    fd = opening(root_fd, "", os.O_RDONLY | os.O_DIRECTORY)
    assert (os.stat("f", dir_fd=fd)).st_size == 1
    os.close(fd)
    os.close(root_fd)
