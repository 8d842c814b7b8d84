"""Read: windows, caps, kinds of files, and what it remembers."""

import base64
import hashlib
import struct
import zlib

import pytest

from app.domain.tools import FileSeen
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


async def test_a_text_is_numbered_and_described(desk: Desk) -> None:
    desk.put("a.txt", "one\r\ntwo\nthree\n")
    result = await desk.call("Read", file_path="a.txt", offset=2, limit=2)
    assert result.content == "2\ttwo\n3\tthree"
    assert result.is_error is None
    assert result.structured == {
        "type": "text",
        "file": {
            "filePath": "a.txt",
            "content": "two\nthree",
            "numLines": 2,
            "startLine": 2,
            "totalLines": 4,
        },
    }


async def test_a_read_is_remembered_as_whole_or_in_part(desk: Desk) -> None:
    desk.put("a.txt", "one\ntwo\n")
    mtime_ns = (desk.dirs.ws / "a.txt").stat().st_mtime_ns
    await desk.call("Read", file_path="a.txt", limit=1)
    seen = desk.memory.files["/workspace/a.txt"]
    assert (seen.mtime_ns, seen.partial) == (mtime_ns, True)
    await desk.call("Read", file_path="./x/../a.txt")
    whole = desk.memory.files["/workspace/a.txt"]
    digest = hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert whole == FileSeen(digest, mtime_ns, partial=False)


async def test_a_text_over_the_token_cap_is_cut_at_a_line_and_says_so(desk: Desk) -> None:
    desk.put("a.txt", "".join(f"{n:04} {'word ' * 20}\n" for n in range(1, 1501)))
    result = await desk.call("Read", file_path="a.txt")
    body, _, note = text_of(result).partition("\n\n<system-reminder>")
    shown = result.structured["file"]
    assert shown["truncatedByTokenCap"] is True
    assert shown["totalLines"] == 1501
    assert 20_000 * 4 < len(shown["content"]) <= 25_000 * 4 * 0.85
    last = shown["numLines"]
    assert body.endswith(f"{last}\t{last:04} {'word ' * 20}")
    assert f"lines 1 to {last} of 1501" in note
    assert f"offset {last + 1}" in note
    assert desk.memory.files["/workspace/a.txt"].partial
    rest = await desk.call("Read", file_path="a.txt", offset=last + 1, limit=1501 - last)
    assert text_of(rest).startswith(f"{last + 1}\t{last + 1:04}")
    everything = await desk.call("Read", file_path="a.txt", allow_large=True)
    assert text_of(everything).endswith("1501\t")
    assert not desk.memory.files["/workspace/a.txt"].partial


async def test_a_window_over_the_token_cap_is_an_error_with_the_count(desk: Desk) -> None:
    desk.put("a.txt", "word " * 25_000)
    result = await desk.call("Read", file_path="a.txt", limit=1)
    assert result.is_error
    assert "31250 tokens" in text_of(result)


async def test_an_endless_line_is_shown_by_its_start(desk: Desk) -> None:
    desk.put("a.txt", "x" * 200_000 + "\nsecond")
    result = await desk.call("Read", file_path="a.txt")
    assert text_of(result).startswith("1\txxx")
    assert "Only the start of line 1 is shown" in text_of(result)
    assert len(text_of(result)) < 30_000


async def test_a_window_of_a_large_file_is_found(desk: Desk) -> None:
    lines = [f"line {n} {'é' * (n % 50)}\r\n" for n in range(1, 300_001)]
    desk.put("log", "".join(lines))
    for first in (1, 2, 77_777, 299_999):
        result = await desk.call("Read", file_path="log", offset=first, limit=2)
        expected = [line.rstrip("\r\n") for line in lines[first - 1 : first + 1]]
        assert text_of(result) == f"{first}\t{expected[0]}\n{first + 1}\t{expected[1]}"
        assert result.structured["file"]["totalLines"] == 300_001
    past = await desk.call("Read", file_path="log", offset=300_002, limit=5)
    assert "has 300001 line(s)" in text_of(past)
    last = await desk.call("Read", file_path="log", offset=300_001, limit=5)
    assert text_of(last) == "300001\t"
    too_large = await desk.call("Read", file_path="log")
    assert too_large.is_error


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_more_lines_than_can_be_parted_are_shown_by_windows(end: str, desk: Desk) -> None:
    desk.put("log", f"x\ry{end}" * 600_000)
    for given in ({}, {"limit": 600_000}, {"offset": 2, "limit": 500_001}):
        refused = await desk.call("Read", file_path="log", allow_large=True, **given)
        assert refused.is_error
        assert "More than 500000 lines of /workspace/log cannot be shown" in text_of(refused)
    found = await desk.call("Read", file_path="log", offset=550_000, limit=2)
    assert text_of(found) == "550000\tx\ry\n550001\tx\ry"
    assert found.structured["file"]["totalLines"] == 600_001
    assert desk.memory.files["/workspace/log"].partial
    many = await desk.call("Read", file_path="log", limit=500_000, allow_large=True)
    assert text_of(many).endswith("\n500000\tx\ry")


async def test_a_line_that_is_longer_than_what_is_ever_shown_is_told(desk: Desk) -> None:
    desk.put("line", "x" * 5_000_000 + "\nsecond")
    for large in (False, True):
        refused = await desk.call("Read", file_path="line", limit=1, allow_large=large)
        assert refused.is_error
        assert "more than the 4096KB that are shown at most" in text_of(refused)
    assert text_of(await desk.call("Read", file_path="line", offset=2, limit=1)) == "2\tsecond"


@pytest.mark.parametrize("name", ["i.png", "i.jpg", "i", "I.PNG"])
async def test_an_image_becomes_a_block_of_its_real_type(name: str, desk: Desk) -> None:
    data = png(3, 2)
    desk.put(name, data)
    result = await desk.call("Read", file_path=name)
    encoded = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": "image/png", "data": encoded}
    assert result.content == [{"type": "image", "source": source}]
    assert result.structured["file"]["dimensions"] == {
        "originalWidth": 3,
        "originalHeight": 2,
        "displayWidth": 3,
        "displayHeight": 2,
    }


async def test_a_missing_file_gets_the_name_of_a_like_one(desk: Desk) -> None:
    desk.put("src/config.yaml")
    result = await desk.call("Read", file_path="src/config.json")
    assert result.content == (
        "/workspace/src/config.json does not exist. The working directory is /workspace. "
        "Did you mean config.yaml?"
    )
    other_case = await desk.call("Read", file_path="src/Config.json")
    assert "Did you mean" not in text_of(other_case)


async def test_relative_paths_start_where_the_shell_is(desk: Desk) -> None:
    desk.put("sub/a.txt", "here")
    await desk.bash("cd sub")
    assert text_of(await desk.call("Read", file_path="a.txt")) == "1\there"
    missing = await desk.call("Read", file_path="b.txt")
    assert "The working directory is /workspace/sub." in text_of(missing)
