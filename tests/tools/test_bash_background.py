"""Commands that go on in the background, in the real sandbox."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable

import pytest

from app.domain.tasks import BackgroundTask, TaskEnd
from app.sandbox.driver import Limits, Spool
from app.tools import shells
from app.tools.shells import MOST_COMMANDS, HostRoom, Shells
from app.tools.stored_output import MOST_STORED, MOST_STORED_BYTES
from tests.sandbox.rooms import Rooms, marked_sleep, processes, until
from tests.tools.desk import Desk, text_of
from tests.tools.test_walls_of_files import resident_bytes

pytestmark = pytest.mark.platform


@pytest.fixture(autouse=True)
async def _nothing_is_left(desk: Desk) -> AsyncIterator[None]:
    yield
    await desk.shells.close()


async def started(desk: Desk, command: str, **given: object) -> tuple[str, str]:
    """Start a command in the background; give its task's id and output file."""
    result = await desk.call("Bash", command=command, run_in_background=True, **given)
    assert result.is_error is False, result.content
    assert result.started is not None
    return result.started.id, result.started.output_file


async def end_of(desk: Desk, task_id: str) -> TaskEnd:
    end: Callable[[], TaskEnd | None] = lambda: desk.shells.end_of(task_id)  # noqa: E731
    await until(end)
    found = end()
    assert found is not None
    return found


async def test_a_background_command_returns_at_once_and_its_output_can_be_read(desk: Desk) -> None:
    result = await desk.call(
        "Bash", command="echo one; echo two >&2; exit 3", run_in_background=True, description="Look"
    )
    assert result.started is not None
    task_id, path = result.started.id, result.started.output_file
    assert result.structured["backgroundTaskId"] == task_id
    assert result.started.description == "Look"
    assert task_id in text_of(result)
    assert path in text_of(result)
    end = await end_of(desk, task_id)
    assert (end.status, end.how) == ("failed", "ended with exit code 3")
    assert end.ended_s is not None
    assert text_of(await desk.call("Read", file_path=path)) == "1\tone\n2\ttwo\n3\t"


async def test_an_output_file_is_there_before_anything_was_printed(desk: Desk) -> None:
    command, _ = marked_sleep()
    _, path = await started(desk, command)
    assert "is empty" in text_of(await desk.call("Read", file_path=path))


async def test_at_its_limit_a_command_goes_on_in_the_background(desk: Desk) -> None:
    desk.mkdir("sub")
    command = "cd sub; echo before; while [ ! -e ../go ]; do sleep 0.05; done; echo after"
    result = await desk.call("Bash", command=command, timeout=300)
    assert result.is_error is False
    assert result.started is not None
    assert text_of(result).startswith("before\n\n(After 0.3 s, its time limit,")
    assert result.structured["timedOutAfterMs"] == 300
    assert result.structured["backgroundTaskId"] == result.started.id
    assert await desk.bash("pwd") == "/workspace"
    await desk.bash("touch go")
    assert (await end_of(desk, result.started.id)).status == "completed"
    assert await desk.bash(f"cat {result.started.output_file}") == "before\nafter"
    assert await desk.bash("pwd") == "/workspace"


async def test_a_limit_that_is_over_at_once_moves_the_command(desk: Desk) -> None:
    result = await desk.call("Bash", command="sleep 0.1; touch done", timeout=-1)
    assert result.started is not None
    assert (await end_of(desk, result.started.id)).status == "completed"
    assert (desk.dirs.ws / "done").exists()


async def test_long_output_before_the_limit_is_in_the_same_file(desk: Desk) -> None:
    command = "seq 1 200000; while [ ! -e go ]; do sleep 0.05; done; echo end"
    result = await desk.call("Bash", command=command, timeout=1500)
    assert result.started is not None
    assert len(text_of(result)) < 31_000
    await desk.bash("touch go")
    await end_of(desk, result.started.id)
    path = result.started.output_file
    assert await desk.bash(f"wc -l <{path}; head -1 {path}; tail -1 {path}") == "200001\n1\nend"


@pytest.mark.parametrize("name", ["TaskStop", "KillShell"])
async def test_a_task_is_stopped_with_all_it_started(desk: Desk, name: str) -> None:
    command, mark = marked_sleep()
    script = f"trap '' TERM INT HUP; echo up; setsid {command} & kill -STOP -1; {command}"
    task_id, path = await started(desk, script)
    await until(lambda: processes(mark))
    given = {"task_id": task_id} if name == "TaskStop" else {"shell_id": task_id}
    async with asyncio.timeout(20):
        result = await desk.call_with(name, dict(given))
    assert result.is_error is None, result.content
    assert json.loads(text_of(result)) == result.structured
    assert result.structured["task_id"] == task_id
    assert result.structured["task_type"] == "local_bash"
    assert result.stopped == task_id
    assert processes(mark) == []
    assert desk.content_of(path).endswith(b"\n\n[killed]\n")
    again = await desk.call("TaskStop", task_id=task_id)
    assert (again.is_error, task_id in text_of(again)) == (True, True)


async def test_a_stop_needs_to_know_what_to_stop(desk: Desk) -> None:
    assert "task_id" in text_of(await desk.call("TaskStop"))
    unknown = await desk.call("TaskStop", task_id="b1234567")
    assert text_of(unknown).startswith("<tool_use_error>No background task b1234567")


async def test_the_life_of_a_background_command_is_bounded(desk: Desk) -> None:
    command, mark = marked_sleep()
    task_id, _ = await started(desk, command, timeout=200)
    end = await end_of(desk, task_id)
    assert (end.status, "0.2 s" in end.how, bool(end.hint)) == ("killed", True, True)
    assert processes(mark) == []


async def test_a_flood_in_the_background_is_stopped_and_its_file_bounded(desk: Desk) -> None:
    before = resident_bytes()
    task_id, path = await started(desk, "yes")
    end = await end_of(desk, task_id)
    assert resident_bytes() - before < 20_000_000
    assert (end.status, "printed over" in end.how) == ("failed", True)
    assert 64 * 1024 * 1024 < len(desk.content_of(path)) < 70 * 1024 * 1024


async def test_outputs_are_counted_in_a_quota_those_that_still_grow_whole(desk: Desk) -> None:
    room_for = 3
    task_id, path = await started(desk, "echo first")
    await end_of(desk, task_id)
    taken = desk.dirs.tmp / "treadle" / "taken"
    with taken.open("wb") as file:
        file.truncate(MOST_STORED_BYTES - room_for * Limits().output_bytes - 1_000_000)
    command, _ = marked_sleep()
    for _ in range(room_for):
        await started(desk, command)
    refused = await desk.call("Bash", command="touch ran", run_in_background=True)
    assert refused.is_error is True
    assert "quota of stored outputs is used up (2.0GB, 5,000 files)" in text_of(refused)
    assert not (desk.dirs.ws / "ran").exists()
    # In the foreground it runs, but what has printed much cannot go on in the background.
    moved = await desk.call("Bash", command=f"seq 1 40000; {command}", timeout=1000)
    assert moved.is_error is True
    assert text_of(moved).startswith("Exit code 143\nThe command was stopped after 1 s")
    assert "quota of stored outputs" in text_of(moved)
    assert text_of(moved).endswith("\n40000")
    assert len(desk.shells.running) == room_for
    os.truncate(taken, MOST_STORED_BYTES)
    long = text_of(await desk.call("Bash", command="seq 1 20000"))
    assert "bytes of output are left out here …]" in long
    taken.unlink()
    await started(desk, "true")
    assert desk.content_of(path) == b"first\n"


async def test_there_is_a_bound_on_the_number_of_stored_outputs(desk: Desk) -> None:
    await desk.bash(f"mkdir -p /tmp/treadle && cd /tmp/treadle && seq {MOST_STORED} | xargs touch")
    refused = await desk.call("Bash", command="true", run_in_background=True)
    assert "quota of stored outputs" in text_of(refused)


async def test_output_that_could_not_be_stored_whole_is_told(desk: Desk) -> None:
    full = Spool(lambda: os.open("/dev/full", os.O_WRONLY), after_bytes=10)
    command = desk.sandbox.start(
        ["head", "-c", "100000", "/dev/zero"], cwd="/workspace", limits=Limits(), spool=full
    )
    desk.shells.adopt(BackgroundTask("b1", "fill", "/tmp/full"), command, life_s=30)
    end = await end_of(desk, "b1")
    assert (end.status, end.hint) == ("completed", "Its output could not be stored whole.")


async def test_there_is_a_bound_on_commands_in_the_background(desk: Desk) -> None:
    command, mark = marked_sleep()
    for _ in range(MOST_COMMANDS):
        await started(desk, command)
    refused = await desk.call("Bash", command="touch ran", run_in_background=True)
    assert (refused.is_error, "TaskStop" in text_of(refused)) == (True, True)
    at_limit = await desk.call("Bash", command=f"echo first; {command}", timeout=400)
    assert text_of(at_limit).startswith("Exit code 143\nThe command was stopped after 0.4 s")
    assert text_of(at_limit).endswith("\nfirst")
    await desk.shells.close()
    assert processes(mark) == []
    assert not (desk.dirs.ws / "ran").exists()
    closed = await desk.call("Bash", command="true", run_in_background=True)
    assert closed.is_error is True


async def test_a_host_has_room_for_so_many_of_all_sessions_together(
    desk: Desk, rooms: Rooms
) -> None:
    room = HostRoom(2)
    other = Desk.make(rooms)
    desk.shells, other.shells = Shells(room), Shells(room)
    command, mark = marked_sleep()
    try:
        first, _ = await started(desk, command)
        await started(other, command)
        for each in (desk, other):
            refused = await each.call("Bash", command="touch ran", run_in_background=True)
            assert refused.is_error
            assert "This host runs 2 commands in the background already" in text_of(refused)
            at_limit = await each.call("Bash", command=command, timeout=100)
            assert text_of(at_limit).startswith(
                "Exit code 143\nThe command was stopped after 0.1 s"
            )
        await desk.call("TaskStop", task_id=first)
        assert room.taken == 1
        await started(other, command)
        assert room.is_full
    finally:
        await other.shells.close()
        other.workspace.close()
    assert room.taken == 0
    assert processes(mark) == []


async def test_what_nobody_knows_of_is_ended_and_the_rest_goes_on(desk: Desk) -> None:
    kept_command, kept_mark = marked_sleep()
    other_command, other_mark = marked_sleep()
    kept, _ = await started(desk, kept_command)
    await started(desk, other_command)
    await until(lambda: processes(kept_mark))
    await desk.shells.keep_only([kept])
    assert processes(other_mark) == []
    assert desk.shells.running == (kept,)
    assert desk.shells.end_of("b0000000") == shells.LOST


async def test_a_link_in_place_of_the_output_folder_leads_nowhere(desk: Desk) -> None:
    await desk.bash("ln -s /usr /tmp/treadle")
    refused = await desk.call("Bash", command="echo x", run_in_background=True)
    assert refused.is_error is True
    assert desk.shells.running == ()


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("rm -rf /workspace", True),
        ("rm -rf /workspace/", True),
        ("true; rm -fr .. ", True),
        ("rm -r -f '/workspace/../workspace'", True),
        ("rm --recursive /", True),
        ("rm -rf \\\n /workspace", True),
        ("rm -rf sub", False),
        ("rm -rf sub\nls /workspace", False),
        ("# rm -rf /workspace", False),
        ("rm -f " + "x" * 90_000, False),
        ("rm -rf /workspace/*", False),
        ("rm .", False),
        ("echo 'rm -rf /workspace'", False),
    ],
)
async def test_the_sessions_own_folder_is_not_removed_by_a_slip(
    desk: Desk, command: str, is_refused: bool
) -> None:
    result = await desk.call("Bash", command=command)
    assert ("would remove the session's own directory" in text_of(result)) == is_refused


async def test_an_image_as_a_data_uri_is_shown_as_an_image(desk: Desk) -> None:
    png = (
        "iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAIAAAA7ljmRAAAAEElEQVR4nGP4z8AARww4OQD1MQv1NXv7ggAA"
        "AABJRU5ErkJggg=="
    )
    result = await desk.call("Bash", command=f"echo 'data:image/gif;base64,{png}'")
    assert result.structured["isImage"] is True
    source = {"type": "base64", "media_type": "image/png", "data": png}
    assert result.content == [{"type": "image", "source": source}]
    for no_image in (
        "data:image/png;base64,AAAA",
        f"x data:image/png;base64,{png}",
        "data:image/png;base64,A",
    ):
        result = await desk.call("Bash", command=f"echo '{no_image}'")
        assert (result.content, result.structured["isImage"]) == (no_image, False)
