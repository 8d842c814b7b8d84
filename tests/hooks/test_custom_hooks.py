"""Hooks of the operator's own packages."""

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from app.errors import ConfigError
from app.hooks.custom import GROUP, PythonHook, hook, installed_hooks
from app.hooks.hook import Asked, HookFailed
from tests.conftest import MakeSettings
from tests.hooks.test_runner import PRE
from tests.hosts import environment, host_process
from tests.runs.prompts import messages, scripted

EXAMPLE = Path(__file__).parents[2] / "examples" / "house-rules"
NOT_HOOKS = object()


@hook("PreToolUse", matcher="Bash", timeout_s=5, on_failure="block")
async def one_hook(told: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"systemMessage": told["hook_id"]}


@hook("Stop")
async def silent_hook(_: Mapping[str, Any]) -> None:
    return None


HOOKS = (one_hook, silent_hook)


def point(value: str) -> EntryPoint:
    return EntryPoint("mine", value, GROUP)


@pytest.mark.requirement("hooks:python")
async def test_an_entry_point_gives_one_hook_or_several() -> None:
    assert installed_hooks([point(f"{__name__}:one_hook")]) == (one_hook,)
    assert installed_hooks([point(f"{__name__}:HOOKS")]) == HOOKS
    bound = one_hook.bound()
    assert (bound.name, bound.timeout_s, bound.on_failure) == ("one_hook", 5, "block")
    assert (await bound.ask(Asked("hook_1", PRE, {}))).output == {"systemMessage": "hook_1"}
    assert (await silent_hook.bound().ask(Asked("hook_1", PRE, {}))).output is None


@pytest.mark.requirement("hooks:failures")
@pytest.mark.parametrize(
    "value", [object(), b"x", {"a"}, {1: 2}, Path("x")], ids=lambda v: type(v).__name__
)
async def test_an_answer_that_is_no_json_is_none(value: object) -> None:
    @hook("PreToolUse")
    async def odd(_: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"hookSpecificOutput": {"updatedInput": {"x": value}}}

    with pytest.raises(HookFailed, match="no JSON"):
        await odd.bound().ask(Asked("hook_1", PRE, {}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:hook", "No module named"),
        (f"{__name__}:no_such_hook", "no_such_hook"),
        (f"{__name__}:NOT_HOOKS", "neither a hook nor a sequence"),
    ],
)
def test_one_that_cannot_be_used_stops_the_start_and_is_named(value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        installed_hooks([point(value)])
    assert f"mine = {value}" in str(caught.value)


def test_a_hook_for_nothing_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="no event 'PreToolUsed'"):
        hook("PreToolUsed")
    with pytest.raises(ValueError, match="no regular expression"):
        hook("PreToolUse", matcher="(")
    assert isinstance(one_hook, PythonHook)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    source = folder.parent / "house-rules"
    source.mkdir()
    for file in EXAMPLE.iterdir():
        if file.is_file():  # a build leaves files behind
            (source / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", folder, source],
        check=True,
        capture_output=True,
        timeout=100,
    )
    return folder


@pytest.mark.requirement("hooks:python")
async def test_the_example_is_installed_and_asked(
    installed: Path, make_settings: MakeSettings, tmp_path: Path
) -> None:
    bash = {"tool": "Bash", "input": {"command": "git push --force"}}
    env = {**environment(make_settings()), "PYTHONPATH": str(installed)}
    async with host_process(env, tmp_path / "host.log") as host:
        body = {
            "prompt": scripted(bash, {"text": "done"}),
            "wait": 30,
            "options": {"allowed_tools": ["Bash"]},
        }
        answer = await host.client.post("/v1/runs", json=body)
        assert answer.status_code == 200, answer.text
        told = await messages(host.client, answer.json()["session"]["id"])
    denied = told[-1]["permission_denials"]
    assert [each["tool_input"] for each in denied] == [{"command": "git push --force"}]
