"""Command hooks in a real sandbox."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.domain.hook_outcome import Failed, HookOutcome, Ran
from app.domain.hooks import HookEvent, PostToolUse, PreToolUse, SessionStart, Stop, Surroundings
from app.errors import ConfigError, WorkspaceUnavailable
from app.hooks.command import CommandHook, Shell, command_hook, read_commands
from app.hooks.runner import RunHooks
from tests.sandbox.rooms import Rooms

pytestmark = pytest.mark.platform

PRE = PreToolUse("t", "Bash", {"command": "ls"}, "t")
POST = PostToolUse("t", "Bash", {}, "t", "out", 1)
STOP = Stop("m", stop_hook_active=False, last_assistant_message="", background_tasks=())
START = SessionStart("s", "startup", "m")


@pytest.fixture(scope="module")
def rooms() -> Iterator[Rooms]:
    with tempfile.TemporaryDirectory(prefix="treadle-hooks-") as name:
        Path(name).chmod(0o755)
        yield Rooms(Path(name))


async def _ready() -> None:
    pass


async def fire(rooms: Rooms, command: str, event: HookEvent, **given: Any) -> HookOutcome:
    spec = CommandHook(event.name, None, command, given.pop("timeout_s", 20.0))
    shell = Shell(rooms.bubblewrap(), "/workspace", given.pop("prepare", _ready))
    hooks = RunHooks([command_hook(spec, shell)], "s", "run_1")
    return await hooks.fire(event, Surroundings("/workspace", "default"))


def ran(outcome: HookOutcome) -> Ran:
    (found,) = (note for note in outcome.notes if isinstance(note, Ran))
    return found


@pytest.mark.requirement("hooks:commands")
async def test_a_command_reads_the_event_and_prints_its_output(rooms: Rooms) -> None:
    told = await fire(rooms, 'cat; echo "$CLAUDE_PROJECT_DIR $PWD" >&2', PRE)
    assert orjson.loads(ran(told).stdout)["tool_input"] == {"command": "ls"}
    assert ran(told).stderr == "/workspace /workspace\n"
    output = {"hookSpecificOutput": {"permissionDecision": "allow"}}
    allowed = await fire(rooms, f"printf %s '{orjson.dumps(output).decode()}'", PRE)
    assert allowed.verdict is not None
    assert allowed.verdict.decision == "allow"


@pytest.mark.requirement("hooks:commands")
async def test_status_2_objects_with_what_it_wrote_to_stderr(rooms: Rooms) -> None:
    command = "echo not here >&2; exit 2"
    denied = await fire(rooms, command, PRE)
    assert denied.verdict is not None
    assert denied.verdict.decision == "deny"
    assert denied.verdict.reason == f"[{command}]: not here"
    for event in (POST, STOP):
        assert (await fire(rooms, command, event)).block == f"[{command}]: not here"


@pytest.mark.requirement("hooks:commands")
async def test_another_status_changes_nothing(rooms: Rooms) -> None:
    outcome = await fire(rooms, 'echo \'{"decision":"block"}\'; exit 1', PRE)
    assert (outcome.verdict, outcome.closed) == (None, None)
    assert (ran(outcome).exit_code, ran(outcome).outcome) == (1, "error")


@pytest.mark.requirement("hooks:commands")
async def test_plain_text_is_told_to_the_model_at_the_start_alone(rooms: Rooms) -> None:
    assert (await fire(rooms, "echo hello", START)).contexts == ("hello",)
    assert (await fire(rooms, "echo hello", PRE)).contexts == ()
    assert ran(await fire(rooms, "echo hello", START)).is_always_told


async def test_a_command_that_is_too_slow_is_killed_and_closes_the_call(rooms: Rooms) -> None:
    outcome = await fire(rooms, "sleep 60", PRE, timeout_s=0.2)
    assert "within 0.2 s" in str(outcome.closed)


async def test_a_command_without_a_workspace_fails(rooms: Rooms) -> None:
    async def gone() -> None:
        raise WorkspaceUnavailable("it is gone")

    (_, failed) = (await fire(rooms, "true", PRE, prepare=gone)).notes
    assert failed == Failed("[true]", "it is gone")


@pytest.mark.requirement("hooks:commands")
def test_a_settings_file_names_commands() -> None:
    command = {"type": "command", "command": "check", "timeout": 5}
    groups = [{"matcher": "Bash", "hooks": [command]}, {"hooks": [{**command, "x": 1}]}]
    text = orjson.dumps({"permissions": {}, "hooks": {"PreToolUse": groups}})
    first, second = read_commands(text, "file")
    assert first == CommandHook("PreToolUse", "Bash", "check", 5.0)
    assert (second.matcher, second.timeout_s) == (None, 5.0)
    assert read_commands(b"{}", "file") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "file: "),
        ("[]", "file: "),
        ('{"hooks": {"NoSuch": [{"hooks": []}]}}', "hooks.NoSuch"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "prompt"}]}]}}', "hooks.Stop.0.hooks.0.type"),
        ('{"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}', "regular expression"),
        (
            '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": ""}]}]}}',
            "hooks.Stop.0.hooks.0.command",
        ),
    ],
)
def test_a_settings_file_that_is_wrong_stops_the_start(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_commands(text.encode(), "file")
    assert words in str(caught.value)
