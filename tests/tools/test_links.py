"""Where links lead, for rules that must see through them."""

from pathlib import Path

import pytest

from app.permissions.place import Place
from app.sandbox.driver import SessionDirs
from app.tools.workspace import Workspace
from tests.permissions.tables import bash, decided, file, letter
from tests.tools.desk import Desk

pytestmark = pytest.mark.platform


def lay(desk: Desk, links: dict[str, str]) -> None:
    for name, target in links.items():
        path = desk.dirs.ws / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


LINKS = {
    "link": "secret",
    "sub/up": "../secret",
    "full": "/workspace/secret",
    "chain": "link",
    "circle": "circle",
    "out": "/etc",
    "deep": "secret/inner",
    "hooks": ".git/hooks",
}


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("a/b", "/workspace/a/b"),
        ("link/s", "/workspace/secret/s"),
        ("sub/up/s", "/workspace/secret/s"),
        ("full/new/x", "/workspace/secret/new/x"),
        ("chain/s", "/workspace/secret/s"),
        ("out/passwd", "/etc/passwd"),
        ("deep/../s", "/workspace/secret/s"),
        ("circle/x", "/workspace/circle/x"),
        ("../../etc/x", "/etc/x"),
    ],
)
def test_links_are_followed_as_a_command_would(desk: Desk, path: str, leads_to: str) -> None:
    lay(desk, LINKS)
    assert desk.workspace.real(f"/workspace/{path}") == leads_to


@pytest.mark.requirement("permissions:rules")
def test_rules_see_through_links(desk: Desk) -> None:
    lay(desk, LINKS)
    (desk.dirs.ws / "secret" / "inner").mkdir(parents=True)
    place = Place(real=desk.workspace.real)
    denied = [
        *(file(tool, "link/s") for tool in ("Read", "Grep", "Edit", "Write")),
        *map(bash, ("cat link/s", "cat full/s", "cd sub/up && cat s", "cat deep/../s")),
    ]
    for call in denied:
        found = decided(
            call,
            place=place,
            permission_mode="bypassPermissions",
            disallowed_tools=["Read(./secret/**)"],
        )
        assert letter(found) == "D", call
    asked = [file("Write", "hooks/pre-commit"), file("Write", "out/x"), bash("echo > out/x")]
    for call in asked:
        found = decided(call, place=place, permission_mode="acceptEdits")
        assert letter(found) == "?", call


def test_a_folder_that_is_not_there_yet_has_no_links(tmp_path: Path) -> None:
    missing = SessionDirs(tmp_path / "ws", tmp_path / "tmp", tmp_path / "home")
    with Workspace.sandboxed(missing) as workspace:
        assert workspace.real("/workspace/a/../b") == "/workspace/b"
