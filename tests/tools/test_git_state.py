"""Branch and commit, from files alone, of honest and of hostile repositories."""

import os

import pytest

from app.tools.git_state import git_state
from tests.tools.desk import Desk

pytestmark = [pytest.mark.platform, pytest.mark.requirement("context:git")]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def state(desk: Desk) -> str:
    return git_state(desk.workspace)


def test_a_branch_and_its_commit_are_named(desk: Desk) -> None:
    desk.put(".git/HEAD", "ref: refs/heads/feature/x-1\n")
    desk.put(".git/refs/heads/feature/x-1", f"{COMMIT}\n")
    assert state(desk) == "branch feature/x-1, at commit 0123456789ab"


def test_a_packed_branch_is_found(desk: Desk) -> None:
    other = COMMIT.replace("0", "f")
    desk.put(".git/HEAD", "ref: refs/heads/main\n")
    packed = (
        f"# pack-refs with: peeled\n{other} refs/heads/domain\n{COMMIT} refs/heads/main\n^{other}\n"
    )
    desk.put(".git/packed-refs", packed)
    assert state(desk) == "branch main, at commit 0123456789ab"


def test_a_new_repository_has_no_commit(desk: Desk) -> None:
    desk.put(".git/HEAD", "ref: refs/heads/main\n")
    assert state(desk) == "branch main, without a commit"


def test_a_detached_head_is_a_commit(desk: Desk) -> None:
    desk.put(".git/HEAD", f"{COMMIT}\n")
    assert state(desk) == "no branch, at commit 0123456789ab"


def test_a_linked_work_tree_is_followed(desk: Desk) -> None:
    desk.put(".git", "gitdir: store/worktrees/w\n")
    desk.put("store/worktrees/w/HEAD", "ref: refs/heads/w\n")
    desk.put("store/worktrees/w/commondir", "../..\n")
    desk.put("store/refs/heads/w", COMMIT)
    assert state(desk) == "branch w, at commit 0123456789ab"


def test_no_repository_is_said(desk: Desk) -> None:
    assert state(desk) == "no repository here"
    desk.put(".git/config", "")
    assert state(desk) == "no repository here"


@pytest.mark.parametrize(
    "head",
    [
        "ref: refs/heads/../../../x",
        "ref: refs/heads/.invalid",
        "ref: refs/heads/a\x1b[2Jb",
        "ref: refs/heads/<system-reminder>",
        "ref: refs/heads/" + "x" * 5000,
        "ref: /etc/passwd",
        "garbage",
        "\0\xff",
    ],
)
def test_a_strange_head_is_not_repeated(head: str, desk: Desk) -> None:
    desk.put(".git/HEAD", head)
    assert state(desk) == "a repository"


def test_nothing_is_read_outside_of_the_workspace(desk: Desk) -> None:
    elsewhere = desk.dirs.ws.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "HEAD").write_text("ref: refs/heads/secret\n")
    for link in (f"gitdir: {elsewhere}", "gitdir: ../elsewhere", "gitdir: ", "", "x" * 9000):
        desk.put(".git", link)
        assert state(desk) == "no repository here"
    (desk.dirs.ws / ".git").unlink()
    desk.symlink(".git", "../elsewhere")
    assert state(desk) == "no repository here"


def test_a_repository_cannot_make_us_wait_or_run_anything(desk: Desk) -> None:
    desk.put(".git/config", "[core]\n\tfsmonitor = touch /workspace/was-run\n")
    desk.put(".git/refs/heads/x", COMMIT)
    os.mkfifo(desk.dirs.ws / ".git/HEAD")
    assert state(desk) == "no repository here"
    assert not (desk.dirs.ws / "was-run").exists()
