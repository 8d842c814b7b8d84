"""No path leads a file tool out of the session's folders, and none makes it hang."""

import asyncio
import json
import os
import socket
import time
from pathlib import Path

import pytest

from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform

OUTSIDE = "the text of another"


def outside(desk: Desk, name: str = "other.txt") -> Path:
    """A file beside the session's folders that everybody may read and write."""
    folder = desk.dirs.ws.parent / "outside"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    path = folder / name
    path.write_text(OUTSIDE)
    path.chmod(0o666)
    desk.dirs.ws.parent.chmod(0o755)
    return path


async def refused(desk: Desk, tool: str, **given: object) -> str:
    result = await desk.call(tool, **given)
    assert result.is_error, result.content
    text = text_of(result)
    assert OUTSIDE not in text
    assert str(desk.dirs.ws.parent) not in text, "a path of the host is shown"
    return text


async def every_tool_refuses(desk: Desk, path: str) -> None:
    await refused(desk, "Read", file_path=path)
    await refused(desk, "Write", file_path=path, content="x")
    await refused(desk, "Edit", file_path=path, old_string="text", new_string="x")
    await refused(desk, "Edit", file_path=path, old_string="", new_string="x")
    await refused(desk, "NotebookEdit", notebook_path=path, new_source="x", cell_id="cell-0")
    await refused(desk, "NotebookEdit", notebook_path=f"{path}.ipynb", new_source="x", cell_id="y")
    await refused(desk, "Glob", pattern="*", path=path)
    await refused(desk, "Grep", pattern="text", path=path)


@pytest.mark.parametrize(
    "path",
    ["../outside/other.txt", "a/../../outside/other.txt", "./../outside/other.txt", "..", "/../x"],
)
async def test_f01_a_way_up_is_refused_by_every_tool(path: str, desk: Desk) -> None:
    other = outside(desk)
    await every_tool_refuses(desk, path)
    assert other.read_text() == OUTSIDE
    assert [p.name for p in other.parent.iterdir()] == [other.name]


@pytest.mark.parametrize("pattern", ["../outside/*", "../**", "a/../../outside/*"])
async def test_f01_a_glob_pattern_that_goes_up_matches_nothing(pattern: str, desk: Desk) -> None:
    outside(desk)
    assert text_of(await desk.call("Glob", pattern=pattern)) == "No files found"
    found = await desk.call("Grep", pattern=".", glob=pattern)
    assert text_of(found) == "No files found"


async def test_f02_absolute_paths_of_the_host_are_refused(desk: Desk) -> None:
    other = outside(desk)
    for path in ("/etc/passwd", "/etc/cron.d/x", str(other), "//etc/passwd", "~root/x"):
        text = await desk.call("Read", file_path=path)
        assert text.is_error, path
    for path in ("/etc/cron.d/x", "/", "/workspace", "/workspacex/y"):
        written = await desk.call("Write", file_path=path, content="x")
        assert written.is_error, path
    # Beneath /tmp the same text means a file in the session's own folder.
    await desk.call("Write", file_path=str(other), content="x")
    assert other.read_text() == OUTSIDE
    await refused(desk, "Glob", pattern="/etc/*")
    await refused(desk, "Glob", pattern="/*")


async def test_f03_paths_of_the_agents_view_reach_what_bash_sees(desk: Desk) -> None:
    desk.put("a.txt", "here")
    await desk.bash("printf there > /tmp/x; printf home > ~/y")
    assert text_of(await desk.call("Read", file_path="/workspace/a.txt")) == "1\there"
    assert text_of(await desk.call("Read", file_path="/tmp/x")) == "1\tthere"
    assert text_of(await desk.call("Read", file_path="~/y")) == "1\thome"
    await desk.call("Write", file_path="/tmp/z/new", content="from Write")
    await desk.call("Write", file_path="~/z/new", content="from Write")
    assert await desk.bash("cat /tmp/z/new ~/z/new; rm -r /tmp/z ~/z") == "from Write" * 2


async def test_f04_a_harmless_way_up_inside_works(desk: Desk) -> None:
    desk.put("ok.txt", "fine")
    desk.mkdir("sub/deep")
    result = await desk.call("Read", file_path="sub/deep/../../ok.txt")
    assert text_of(result) == "1\tfine"


@pytest.mark.parametrize("path", ["..%2f..%2fetc/passwd", "....//....//etc/passwd", "..\\..\\x"])
async def test_f05_encoded_ways_up_are_plain_names(path: str, desk: Desk) -> None:
    assert "does not exist" in await refused(desk, "Read", file_path=path)


@pytest.mark.parametrize("path", ["ok\0.txt", "ok\0", "ok\ud800", "x" * 5000])
async def test_f06_text_that_names_no_file_is_refused(path: str, desk: Desk) -> None:
    desk.put("ok", "content")
    await every_tool_refuses(desk, path)
    assert desk.content("ok") == b"content"


@pytest.mark.parametrize("way", ["absolute", "relative"])
async def test_f07_a_link_that_leads_out_is_refused(way: str, desk: Desk) -> None:
    other = outside(desk)
    desk.symlink("l", str(other) if way == "absolute" else "../outside/other.txt")
    desk.symlink("passwd", "/etc/passwd")
    await every_tool_refuses(desk, "l")
    await every_tool_refuses(desk, "passwd")
    assert other.read_text() == OUTSIDE
    assert (desk.dirs.ws / "l").is_symlink()


async def test_f07_f08_images_documents_and_notebooks_outside_are_not_decoded(desk: Desk) -> None:
    for extension in ("png", "pdf", "ipynb"):
        outside(desk, f"x.{extension}")
        desk.symlink(f"l.{extension}", f"../outside/x.{extension}")
        desk.symlink(f"zero.{extension}", "/dev/zero")
        for path in (f"l.{extension}", f"zero.{extension}", f"../outside/x.{extension}"):
            await refused(desk, "Read", file_path=path)


async def test_f08_a_linked_folder_outside_is_not_followed(desk: Desk) -> None:
    outside(desk)
    desk.put("inside.txt", "text")
    desk.symlink("l", "../outside")
    await every_tool_refuses(desk, "l/other.txt")
    await refused(desk, "Glob", pattern="*", path="l")
    await refused(desk, "Grep", pattern="text", path="l")
    assert text_of(await desk.call("Glob", pattern="l/**")) == "No files found"
    assert text_of(await desk.call("Glob", pattern="**")) == "inside.txt"
    assert text_of(await desk.call("Grep", pattern="text")) == "Found 1 file\ninside.txt"


async def test_f09_links_inside_are_followed_for_reading(desk: Desk) -> None:
    desk.put("sub/ok.txt", "fine")
    desk.symlink("l", "sub/ok.txt")
    desk.symlink("sub/up", "../sub/./ok.txt")
    desk.symlink("folder", "sub")
    for path in ("l", "sub/up", "folder/ok.txt"):
        assert text_of(await desk.call("Read", file_path=path)) == "1\tfine"
    assert "symbolic link" in await refused(
        desk, "Edit", file_path="l", old_string="fine", new_string="x"
    )
    assert "sub/ok.txt" in await refused(desk, "Write", file_path="l", content="x")
    assert desk.content("sub/ok.txt") == b"fine"


async def test_f10_a_linked_parent_is_no_way_to_write_outside(desk: Desk) -> None:
    other = outside(desk)
    desk.symlink("d", "/tmp")
    desk.symlink("o", str(other.parent))
    desk.symlink("r", "../outside")
    for path in ("d/x", "o/x", "r/x", "r/new/x"):
        await refused(desk, "Write", file_path=path, content="x")
    assert [p.name for p in other.parent.iterdir()] == [other.name]
    assert not (desk.dirs.tmp / "x").exists()


async def test_f13_process_files_are_refused(desk: Desk) -> None:
    desk.symlink("l", "/proc/self/root/etc/hostname")
    for path in ("/proc/self/environ", "/proc/1/root/etc/passwd", "l", "/proc/self/fd/0"):
        await refused(desk, "Read", file_path=path)


async def test_f14_files_of_the_host_cannot_be_linked_hard(desk: Desk) -> None:
    result = await desk.call("Bash", command="ln /usr/bin/env hl; ln /etc/passwd hl2; ls")
    assert not (desk.dirs.ws / "hl").exists()
    assert not (desk.dirs.ws / "hl2").exists()
    assert "hl" in text_of(result)


async def test_f15_a_fifo_is_refused_at_once(desk: Desk) -> None:
    desk.put("a.txt", "needle")
    await desk.bash("mkfifo p")
    async with asyncio.timeout(30):
        assert "not a regular file" in await refused(desk, "Read", file_path="p")
        assert "not a regular file" in await refused(desk, "Write", file_path="p", content="x")
        assert "not a regular file" in await refused(desk, "Grep", pattern="x", path="p")
        found = await desk.call("Grep", pattern="needle")
    assert text_of(found) == "Found 1 file\na.txt"


async def test_f16_devices_and_sockets_are_refused(desk: Desk) -> None:
    desk.symlink("zero", "/dev/zero")
    await every_tool_refuses(desk, "zero")
    await every_tool_refuses(desk, "/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(desk.dirs.ws / "s"))
        assert "not a regular file" in await refused(desk, "Read", file_path="s")
        assert "not a regular file" in await refused(desk, "Grep", pattern="x", path="s")
        await refused(desk, "Write", file_path="s", content="x")


async def test_f17_a_huge_file_takes_neither_memory_nor_time(desk: Desk) -> None:
    for name, size_bytes in (("big", 1 << 40), ("zeros", 200 << 20)):
        desk.put(name)
        os.truncate(desk.dirs.ws / name, size_bytes)
    desk.put("small", "needle")
    before = resident_bytes()
    async with asyncio.timeout(60):
        await refused(desk, "Read", file_path="big")
        await refused(desk, "Read", file_path="big", limit=1)
        await refused(desk, "Read", file_path="big", allow_large=True)
        await refused(desk, "Read", file_path="zeros", limit=1)
        for extension in ("png", "pdf", "ipynb"):
            desk.put(f"big.{extension}")
            os.truncate(desk.dirs.ws / f"big.{extension}", 1 << 40)
            await refused(desk, "Read", file_path=f"big.{extension}")
        await refused(desk, "Write", file_path="big", content="x")
        await refused(desk, "Edit", file_path="big", old_string="x", new_string="y")
        found = await desk.call("Grep", pattern="needle")
    assert text_of(found) == "Found 1 file\nsmall"
    assert resident_bytes() - before < 50 * 1024 * 1024


async def test_f18_bytes_that_are_no_text_become_an_answer(desk: Desk) -> None:
    noise = bytes(range(256)) * 20
    desk.put("noise", noise)
    desk.put("late", b"needle\n" * 10 + b"\xff\xfe\xed\xa0\x80 needle\n")
    shown = text_of(await desk.call("Read", file_path="noise"))
    assert "[The file is not valid UTF-8" in shown
    found = await desk.call("Grep", pattern="needle", output_mode="content", path="late")
    direct = await desk.call("Grep", pattern="[a-z]", output_mode="content", path="noise")
    for text in (shown, text_of(found), text_of(direct)):
        assert "\0" not in text
        json.dumps(text).encode()
        text.encode()  # no surrogates


ODD_NAMES = [
    "-rf",
    "--help",
    "'\"$(x)`",
    "n" * 251 + ".txt",
    "\u202eabc.txt",
    " lead",
    "*",
    "a,b c",
]


async def test_f19_odd_names_are_only_names(desk: Desk) -> None:
    for name in ODD_NAMES:
        desk.put(name, "needle")
    desk.put("new\nline", "needle")
    (desk.dirs.ws / b"bad\xff".decode("utf-8", "surrogateescape")).write_bytes(b"needle")
    for name in ODD_NAMES:
        assert text_of(await desk.call("Read", file_path=name)) == "1\tneedle", name
        counted = await desk.call("Grep", pattern="needle", path=name, output_mode="count")
        assert text_of(counted).startswith(f"{name}:1\n"), name
    listed = text_of(await desk.call("Glob", pattern="**"))
    assert sorted(listed.split("\n")) == sorted([*ODD_NAMES, "new\u240aline", "bad\ufffd"])
    found = await desk.call("Grep", pattern="needle", output_mode="content")
    assert "new\u240aline:1:needle" in text_of(found)
    assert len(text_of(found).split("\n")) == len(ODD_NAMES) + 2
    for given in ({"pattern": "--files"}, {"pattern": "x", "glob": "--pre=sh", "type": "py"}):
        searched = await desk.call("Grep", **given)
        assert text_of(searched) == "No files found"


async def test_f20_deep_and_wide_trees_are_listed_within_limits(desk: Desk) -> None:
    await desk.bash("mkdir wide; cd wide; seq 100000 | xargs touch")
    deep = "/".join(["d"] * 500)
    await desk.bash(f"mkdir -p {deep}; echo needle > {deep}/x")
    started = time.monotonic()
    result = await desk.call("Glob", pattern="**/*")
    took_s = time.monotonic() - started
    assert "(Showing 100 of 100001 files; 99901 are hidden." in text_of(result)
    assert result.structured["truncated"] is True
    assert took_s < 20
    assert text_of(await desk.call("Glob", pattern="**/x")) == f"{deep}/x"
    assert text_of(await desk.call("Read", file_path=f"{deep}/x")) == "1\tneedle\n2\t"


async def test_f21_a_regex_bomb_neither_hangs_nor_blocks(desk: Desk) -> None:
    desk.put("a.txt", "a" * 100_000 + "!")
    lags: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - before - 0.01)

    ticking = asyncio.create_task(tick())
    async with asyncio.timeout(30):
        await desk.call("Grep", pattern="(a+)+$", output_mode="content")
    await asyncio.sleep(0.02)  # the tick that a blocked loop would have delayed
    ticking.cancel()
    await asyncio.wait([ticking])
    assert max(lags) < 0.5


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024
