"""Tools of the operator's own packages."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from app.errors import ConfigError
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.builtin.read import read_tool
from app.tools.custom import GROUP, installed_tools
from tests.api.stage import scripted
from tests.conftest import MakeSettings
from tests.hosts import environment, host_process

EXAMPLE = Path(__file__).parents[2] / "examples" / "word-count"

NOT_TOOLS = object()


def point(value: str, name: str = "mine") -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_an_entry_point_gives_one_tool_or_several() -> None:
    one = point("app.tools.builtin.read:read_tool")
    all_ = point("app.tools.builtin:BUILTIN_TOOLS")
    assert installed_tools([], [one]) == (read_tool,)
    assert installed_tools([], [all_]) == BUILTIN_TOOLS


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:tool", "No module named"),
        ("app.tools.builtin.read:no_such_tool", "no_such_tool"),
        (f"{__name__}:NOT_TOOLS", "neither a tool nor a sequence"),
        ("app.tools.builtin.read:read_tool", "another tool of the name Read"),
    ],
)
def test_one_that_cannot_be_used_stops_the_start_and_is_named(value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        installed_tools(["Read"], [point(value)])
    assert f"mine = {value}" in str(caught.value)


def test_two_packages_cannot_have_the_same_name() -> None:
    points = [point("app.tools.builtin.read:read_tool", name) for name in ("a", "b")]
    with pytest.raises(ConfigError, match=r"b = .*another tool of the name Read"):
        installed_tools([], points)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", folder, copy_of(EXAMPLE, folder.parent)],
        check=True,
        capture_output=True,
        timeout=100,
    )
    return folder


def copy_of(package: Path, folder: Path) -> Path:
    """Copy a package: a build leaves files behind."""
    target = folder / "source"
    target.mkdir()
    for file in package.iterdir():
        if file.is_file():
            (target / file.name).write_bytes(file.read_bytes())
    return target


async def test_the_example_is_installed_offered_and_called(
    installed: Path, make_settings: MakeSettings, tmp_path: Path
) -> None:
    call = {"tool": "WordCount", "input": {"file_path": "notes.txt"}}
    prompt = scripted(
        {"tool": "NoteDown", "input": {"text": "three plain words"}},
        {"blocks": [call, call]},
        {"text": "done"},
    )
    env = {**environment(make_settings()), "PYTHONPATH": str(installed)}
    async with host_process(env, tmp_path / "host.log") as host:
        body = {"prompt": prompt, "wait": 30, "options": {"permission_mode": "acceptEdits"}}
        answer = await host.client.post("/v1/runs", json=body)
        assert answer.status_code == 200, answer.text
        session = answer.json()["session"]["id"]
        page = await host.client.get(f"/v1/sessions/{session}/events", params={"limit": 100})
    messages = [entry["data"] for entry in page.json()["data"] if entry["kind"] == "message"]
    assert {"WordCount", "NoteDown"} <= set(messages[0]["tools"])
    assert results(messages) == ["Noted.", "3 words", "3 words"]


def results(messages: list[dict[str, Any]]) -> list[str]:
    contents = [m["message"]["content"] for m in messages if m["type"] == "user"]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def test_a_custom_tool_runs_alone_unless_it_says_that_it_only_reads(installed: Path) -> None:
    code = (
        "import json; from app.tools.custom import installed_tools; "
        "print(json.dumps({t.spec.name: t.spec.read_only for t in installed_tools([])}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        timeout=60,
        env={"PYTHONPATH": str(installed)},
    )
    assert json.loads(done.stdout) == {"WordCount": True, "NoteDown": False}
