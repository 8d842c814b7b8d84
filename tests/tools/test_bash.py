"""Bash in the real sandbox, through the toolbox."""

import re

import pytest

from app.domain.tools import ToolFacts, ToolMemory
from app.sandbox.unsandboxed import Unsandboxed
from app.tools.builtin.bash import bash_tool
from app.tools.shell import is_silent, meaning_of_status_1, printed_file
from app.tools.workspace import Workspace
from tests.sandbox.rooms import SANDBOX_UID, Rooms
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform


async def test_success_says_that_it_is_no_error_and_carries_the_structured_form(desk: Desk) -> None:
    result = await desk.call("Bash", command="echo out; echo err >&2")
    assert result.content == "out\nerr"
    assert result.is_error is False
    assert result.structured == {
        "stdout": "out\nerr",
        "stderr": "",
        "interrupted": False,
        "isImage": False,
        "noOutputExpected": False,
    }
    assert result.facts == ToolFacts()


async def test_failure_names_the_exit_code_before_the_output(desk: Desk) -> None:
    result = await desk.call("Bash", command="echo out; echo err >&2; exit 3")
    assert (result.content, result.is_error) == ("Exit code 3\nout\nerr", True)
    result = await desk.call("Bash", command="exit 3")
    assert result.content == "Exit code 3"


async def test_no_output_has_a_placeholder(desk: Desk) -> None:
    result = await desk.call("Bash", command="mkdir d")
    assert result.content == "(Bash completed with no output)"
    assert result.structured["stdout"] == ""
    assert result.structured["noOutputExpected"] is True


async def test_an_answering_exit_1_is_explained_to_programs(desk: Desk) -> None:
    desk.put("a.txt", "x\n")
    result = await desk.call("Bash", command="grep y a.txt")
    assert (result.is_error, result.content) == (False, "(Bash completed with no output)")
    assert result.structured["returnCodeInterpretation"] == "No matches found"


async def test_the_directory_is_remembered_only_after_success(desk: Desk) -> None:
    desk.mkdir("sub/deep")
    for command in ("cd sub; exit 4", "cd sub && false", "(cd sub)", "cd sub; exit 0", "pwd"):
        result = await desk.call("Bash", command=command)
        assert result.facts == ToolFacts(), command
    result = await desk.call("Bash", command="cd sub; set -x; cd deep 2>/dev/null")
    assert result.facts == ToolFacts(cwd="/workspace/sub/deep")
    assert await desk.bash("pwd") == "/workspace/sub/deep"
    assert (await desk.call("Bash", command="pwd")).facts == ToolFacts()
    await desk.bash("cd /tmp")
    assert await desk.bash("pwd") == "/tmp"


async def test_a_directory_outside_is_left_with_a_line_that_says_so(desk: Desk) -> None:
    desk.mkdir("sub")
    await desk.bash("cd sub")
    result = await desk.call("Bash", command="echo here; cd /usr/lib")
    assert result.content == (
        "here\nThe shell's directory is /workspace again; it is not kept at /usr/lib."
    )
    assert result.structured["stderr"] != ""
    assert result.facts == ToolFacts(cwd="/workspace")
    assert await desk.bash("pwd") == "/workspace"


async def test_a_link_that_leads_out_is_no_way_out(desk: Desk) -> None:
    desk.symlink("out", "/usr")
    assert "not kept at /usr" in await desk.bash("cd out")


async def test_a_directory_that_is_gone_is_told_and_left(desk: Desk) -> None:
    await desk.bash("mkdir -p gone && cd gone")
    await desk.bash("rmdir /workspace/gone")
    text = await desk.bash("pwd")
    assert text.splitlines()[-1] == "/workspace"
    assert "/workspace/gone is gone" in text
    assert desk.memory.cwd == "/workspace"


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/home/agent"])
async def test_a_session_that_shut_its_own_folder_has_commands_to_open_it(
    folder: str, desk: Desk
) -> None:
    await desk.bash(f"mkdir {folder}/inner; chmod -R 600 {folder}; true")
    assert await desk.bash(f"chmod -R u+X {folder}; ls -d {folder}/inner/") == f"{folder}/inner/"


@pytest.mark.parametrize(
    "name", ["new\nline", "it's", "$(touch /workspace/pwned)", "ünï", "-n", " a "]
)
async def test_a_directory_may_have_any_name(desk: Desk, name: str) -> None:
    desk.mkdir(name)
    (desk.dirs.ws / "go").write_text(f"/workspace/{name}")
    desk.folder.own("go")
    await desk.bash('IFS= read -r -d "" d <go; cd -- "$d"')
    assert desk.memory.cwd == f"/workspace/{name}"
    await desk.bash("touch was-here")
    assert (desk.dirs.ws / name / "was-here").exists()
    assert not (desk.dirs.ws / "pwned").exists()


async def test_a_directory_whose_name_is_no_text_is_not_kept(desk: Desk) -> None:
    text = await desk.bash("mkdir $'\\xff' && cd $'\\xff'")
    assert "/workspace again" in text
    assert await desk.bash("pwd") == "/workspace"


async def test_printing_does_not_forge_the_directory(desk: Desk) -> None:
    desk.mkdir("sub")
    command = "echo /workspace/sub; echo /workspace/sub >&2; echo /workspace/sub >&3; true"
    result = await desk.call("Bash", command=command)
    assert "Bad file descriptor" in text_of(result)
    assert result.facts == ToolFacts()


async def test_output_of_30000_characters_is_shown_and_more_is_stored(desk: Desk) -> None:
    shown = await desk.call(
        "Bash", command="head -c 120000 /dev/zero | tr '\\0' '\\351' >x; head -c 30000 x"
    )
    assert len(text_of(shown)) == 30_000
    assert "persistedOutputPath" not in shown.structured
    stored = await desk.call("Bash", command="seq 1 20000")
    text = text_of(stored)
    path = stored.structured["persistedOutputPath"]
    whole = "".join(f"{n}\n" for n in range(1, 20001))
    assert stored.structured["persistedOutputSize"] == len(whole)
    assert stored.structured["stdout"] == whole[:30_000]
    assert text.startswith("<persisted-output>\n")
    assert text.endswith("\n527\n...\n</persisted-output>")
    assert "106.3KB" in text
    assert path in text
    assert path.startswith("/tmp/treadle/")
    read = await desk.call("Read", file_path=path, offset=19_999, limit=2)
    assert text_of(read) == "19999\t19999\n20000\t20000"


async def test_output_that_memory_does_not_hold_is_stored_whole(desk: Desk) -> None:
    command = "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last"
    result = await desk.call("Bash", command=command)
    assert result.structured["persistedOutputSize"] == 5_000_012
    path = result.structured["persistedOutputPath"]
    assert (
        await desk.bash(f"wc -c <{path}; head -1 {path}; tail -1 {path}") == "5000012\nfirst\nlast"
    )


async def test_a_long_failure_keeps_its_beginning_and_its_end(desk: Desk) -> None:
    failed = text_of(await desk.call("Bash", command="seq 1 20000; echo the reason; exit 2"))
    assert failed.startswith("Exit code 2\n1\n2\n")
    assert failed.endswith("20000\nthe reason")
    assert len(failed) < 10_300
    (path,) = re.findall(r"all of it is in (\S+)", failed)
    assert await desk.bash(f"wc -l <{path}") == "20001"


async def test_where_no_file_can_be_made_the_middle_is_left_out(desk: Desk) -> None:
    await desk.bash("touch /tmp/treadle")
    text = await desk.bash("seq 1 20000")
    head, note, tail = text.split("\n\n")
    assert head.startswith("1\n2\n3\n")
    assert tail.endswith("\n19999\n20000")
    assert len(head + tail) == 30_000
    whole = len("".join(f"{n}\n" for n in range(1, 20001)))
    assert f"{whole - 30_001:,} bytes" in note
    started = await desk.call("Bash", command="sleep 60", run_in_background=True)
    assert started.is_error is True
    assert desk.shells.running == ()


async def test_a_flood_is_an_error_that_names_the_bound(desk: Desk) -> None:
    result = await desk.call("Bash", command="yes")
    assert result.is_error is True
    assert text_of(result).startswith("Exit code 137\nThe command was stopped: it printed over")
    assert len(text_of(result)) < 31_000


async def test_nul_escapes_and_bad_bytes_are_made_storable(desk: Desk) -> None:
    assert await desk.bash(r"printf 'a\x00\x1b]0;x\x07\xff\n'") == "a\u2400\x1b]0;x\x07\ufffd"


@pytest.mark.parametrize("command", ["echo a\0b", "echo \ud800"])
async def test_a_command_that_no_shell_can_hold_is_refused(desk: Desk, command: str) -> None:
    result = await desk.call("Bash", command=command)
    assert result.is_error is True
    assert "<tool_use_error>The command cannot be run" in text_of(result)


async def test_a_command_may_be_long(desk: Desk) -> None:
    assert await desk.bash(f"x='{'y' * 200_000}'; echo ${{#x}}") == "200000"


async def test_the_wish_to_leave_the_sandbox_has_no_effect(desk: Desk) -> None:
    result = await desk.call("Bash", command="cat /proc/1/comm", dangerouslyDisableSandbox=True)
    assert result.content == "bwrap"


async def test_a_plain_cat_counts_as_a_read(desk: Desk) -> None:
    desk.put("a file.txt", "old\n")
    desk.put("b.txt", "old\n")
    await desk.bash("cat 'a file.txt'")
    assert list(desk.memory.files) == ["/workspace/a file.txt"]
    result = await desk.call("Write", file_path="a file.txt", content="new\n")
    assert not result.is_error, result.content
    await desk.bash("cat b.txt | head -1")
    result = await desk.call("Write", file_path="b.txt", content="new\n")
    assert result.is_error is True


async def test_without_a_sandbox_the_agents_paths_are_the_hosts(desk: Desk, rooms: Rooms) -> None:
    bare = Unsandboxed(desk.dirs, rooms.programs, SANDBOX_UID)
    with Workspace.bare(desk.dirs) as workspace:
        there = Desk(desk.dirs, bare, workspace, ToolMemory())
        root = str(desk.dirs.ws.resolve())
        assert await there.bash("pwd") == root
        await there.bash("mkdir sub && cd sub")
        assert there.memory.cwd == f"{root}/sub"
        assert f"{root} again" in await there.bash("cd /usr")


def test_the_offer_names_the_contracts_properties() -> None:
    assert set(bash_tool.spec.input_schema["properties"]) == {
        "command",
        "timeout",
        "description",
        "run_in_background",
        "dangerouslyDisableSandbox",
    }
    assert bash_tool.spec.input_schema["required"] == ["command"]
    assert not bash_tool.spec.read_only


@pytest.mark.parametrize(
    ("command", "meaning"),
    [
        ("grep x f", "No matches found"),
        ("LC_ALL=C grep 'a;b && c' f 2>&1", "No matches found"),
        ("cat f | rg x", "No matches found"),
        ("true && true; ls | grep x;\n", "No matches found"),
        ("diff a b", "The files differ"),
        ("git diff --no-index a b > /dev/null", "The files differ"),
        ("git log", None),
        ("[ -f x ]", "The condition is false"),
        ("test -f x", "The condition is false"),
        ("find . -exec grep x {} \\;", "Some folders could not be read"),
        ("grep x f && echo yes", None),
        ("true && grep x f", None),
        ("false || grep x f | grep y", None),
        ("grep x f; false", None),
        ("(grep x f)", None),
        ("cmp a b", None),
        ("! grep x f", None),
        ("", None),
    ],
)
def test_exit_1_is_an_answer_of_some_last_commands(command: str, meaning: str | None) -> None:
    assert meaning_of_status_1(command) == meaning


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("cat a.txt", "a.txt"),
        (" cat  /workspace/a-b_c.txt ", "/workspace/a-b_c.txt"),
        ("cat 'a b.txt'", "a b.txt"),
        ('cat "a b.txt"', "a b.txt"),
        ("cat -- x", "x"),
        ("cat -n x", None),
        ("cat -n", None),
        ("cat a b", None),
        ("cat a | head", None),
        ("cat a; rm a", None),
        ('cat "$x"', None),
        ("cat *.txt", None),
        ("cat <a", None),
        ("cat", None),
    ],
)
def test_a_plain_cat_of_one_file_is_recognised(command: str, path: str | None) -> None:
    assert printed_file(command) == path


def test_commands_that_print_nothing_are_known() -> None:
    assert is_silent("mkdir -p a/b")
    assert not is_silent("ls")
    assert not is_silent("")
