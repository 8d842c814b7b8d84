"""Command hooks in a real sandbox."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.domain.hook_outcome import Failed, HookOutcome, Ran
from app.domain.hooks import HookEvent, PostToolUse, PreToolUse, SessionStart, Stop, Surroundings
from app.errors import ConfigError, WorkspaceUnavailable
from app.hooks.command import CommandHook, Shell, command_hook, read_commands
from app.hooks.detached import MOST, Detached
from app.hooks.runner import RunHooks
from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.driver import Limits
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
    async with asked(rooms.bubblewrap(), command, event, **given) as outcome:
        return outcome


@asynccontextmanager
async def asked(
    sandbox: BubblewrapSandbox, command: str, event: HookEvent, **given: Any
) -> AsyncIterator[HookOutcome]:
    """Ask a command's hook; its run ends when this is left."""
    prepare = given.pop("prepare", _ready)
    spec = CommandHook(event.name, None, command, given.pop("timeout_s", 20.0), **given)
    async with Detached() as detached:
        shell = Shell(sandbox, "/workspace", prepare)
        hooks = RunHooks([command_hook(spec, shell, detached)], "s", "run_1")
        yield await hooks.fire(event, Surroundings("/workspace", "default"))


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


ASYNC = """printf '{"async": true%s}'; """


@pytest.mark.requirement("hooks:commands")
@pytest.mark.parametrize(
    ("said", "given"),
    [
        (ASYNC % "", {}),
        ('echo {\\"async\\": true}; echo {; ', {}),
        ("", {"is_async": True, "timeout_s": 20.0}),
    ],
)
async def test_a_command_that_says_so_has_been_heard_and_runs_on(
    rooms: Rooms, said: str, given: dict[str, Any]
) -> None:
    sandbox = rooms.bubblewrap()
    waits = "while ! [ -e go ]; do sleep 0.02; done; touch done"
    given = {"timeout_s": 1.0} | given
    async with asyncio.timeout(20), asked(sandbox, said + waits, PRE, **given) as outcome:
        assert (outcome.closed, outcome.verdict, ran(outcome).outcome) == (None, None, "success")
        await asyncio.sleep(1.1)  # beyond its time-out
        assert not (sandbox.dirs.ws / "done").exists()
        (sandbox.dirs.ws / "go").touch()
    assert (sandbox.dirs.ws / "done").exists()  # the end of the run waited for it


async def test_a_command_that_runs_on_ends_with_its_limit_and_with_its_run(rooms: Rooms) -> None:
    sandbox = rooms.bubblewrap()
    forever = "trap '' TERM; touch alive; %swhile :; do touch alive; sleep 0.01; done"
    limited = forever % (ASYNC % ', "asyncTimeout": 200')
    async with asyncio.timeout(20), asked(sandbox, limited, PRE):
        pass
    (sandbox.dirs.ws / "alive").unlink()
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(20), asked(sandbox, forever % (ASYNC % ""), PRE):
            raise ConnectionError
    (sandbox.dirs.ws / "alive").unlink()  # it was there before the command was heard
    await asyncio.sleep(0.1)
    assert not (sandbox.dirs.ws / "alive").exists()


async def test_a_command_ends_with_a_run_that_is_over_as_soon_as_it_runs_on(rooms: Rooms) -> None:
    sandbox = rooms.bubblewrap()
    forever = "while :; do touch alive; sleep 0.01; done"
    limits = Limits(wall_s=30)
    command = sandbox.start(["sh", "-c", forever], cwd="/workspace", limits=limits)
    alive = sandbox.dirs.ws / "alive"
    async with asyncio.timeout(10):
        while not alive.exists():  # noqa: ASYNC110 - a file makes no event
            await asyncio.sleep(0.01)

    async def cut_short() -> None:
        async with Detached() as detached:
            await detached.keep(command, 20.0)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await cut_short()
    alive.unlink()
    await asyncio.sleep(0.1)
    assert not alive.exists()


async def test_a_run_has_only_so_many_commands_that_run_on(rooms: Rooms) -> None:
    sandbox = rooms.bubblewrap()
    async with Detached() as detached:
        spec = CommandHook("Stop", None, ASYNC % "" + "exec sleep 0.5", 20.0)
        shell = Shell(sandbox, "/workspace", _ready)
        hooks = RunHooks([command_hook(spec, shell, detached)] * (MOST + 1), "s", "run_1")
        outcome = await hooks.fire(STOP, Surroundings("/workspace", "default"))
    failed = [note.why for note in outcome.notes if isinstance(note, Failed)]
    assert failed == [f"{MOST} commands of this run's hooks run on already"]


async def test_a_command_without_a_workspace_fails(rooms: Rooms) -> None:
    async def gone() -> None:
        raise WorkspaceUnavailable("it is gone")

    (_, failed) = (await fire(rooms, "true", PRE, prepare=gone)).notes
    assert failed == Failed("[true]", "it is gone")


@pytest.mark.requirement("hooks:commands")
def test_a_settings_file_names_commands() -> None:
    command = {"type": "command", "command": "check", "timeout": 5, "async": True}
    groups = [{"matcher": "Bash", "hooks": [command]}, {"hooks": [{**command, "x": 1}]}]
    text = orjson.dumps({"permissions": {}, "hooks": {"PreToolUse": groups}})
    first, second = read_commands(text, "file")
    assert first == CommandHook("PreToolUse", "Bash", "check", 5.0, is_async=True)
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
