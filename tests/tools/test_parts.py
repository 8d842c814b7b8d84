"""The pure parts of the file tools: differences, encodings, images, windows."""

import os
import random
import tempfile

import pytest

from app.errors import ToolFailed
from app.tools.diff import Hunk, structured_patch
from app.tools.encoding import decode
from app.tools.images import ImageKind, image_kind
from app.tools.open_file import OpenFile, Version
from app.tools.windows import numbered, scan


def applied(old: str, patch: list[Hunk]) -> str:
    """Apply a patch as `patch` does, checking context and what is removed."""
    lines = old.split("\n")
    before = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    result: list[str] = []
    position = 0
    last = ""
    for hunk in patch:
        start = hunk["oldStart"] - 1
        result += before[position:start]
        position = start
        for line in hunk["lines"]:
            if line.startswith("\\"):
                if last in " +":
                    result[-1] = result[-1].removesuffix("\n")
                continue
            last, text = line[0], line[1:]
            if last in " -":
                assert before[position].rstrip("\n") == text
                position += 1
            if last in " +":
                result.append(text + "\n")
        assert position == start + hunk["oldLines"]
    return "".join(result + before[position:])


def test_a_patch_gives_the_new_text_when_it_is_applied() -> None:
    chance = random.Random(4)  # noqa: S311 - any numbers do, the same each time
    for _ in range(300):
        old = [chance.choice("abc") for _ in range(chance.randrange(30))]
        new = [line for line in old if chance.random() < 0.8]
        for _ in range(chance.randrange(4)):
            new.insert(chance.randrange(len(new) + 1), chance.choice("xyz"))
        before = "\n".join(old) + ("\n" if old and chance.random() < 0.5 else "")
        after = "\n".join(new) + ("\n" if new and chance.random() < 0.5 else "")
        patch = structured_patch(before, after)
        assert applied(before, patch) == after
        assert bool(patch) == (before != after)
        for hunk in patch:
            signs = [line[0] for line in hunk["lines"]]
            assert signs.count(" ") + signs.count("-") == hunk["oldLines"]
            assert signs.count(" ") + signs.count("+") == hunk["newLines"]


def test_far_changes_are_hunks_of_their_own_with_three_lines_around() -> None:
    old = "".join(f"{n}\n" for n in range(1, 41))
    new = old.replace("\n5\n", "\nfive\n").replace("\n30\n", "\n")
    assert structured_patch(old, new) == [
        {
            "oldStart": 2,
            "oldLines": 7,
            "newStart": 2,
            "newLines": 7,
            "lines": [" 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8"],
        },
        {
            "oldStart": 27,
            "oldLines": 7,
            "newStart": 27,
            "newLines": 6,
            "lines": [" 27", " 28", " 29", "-30", " 31", " 32", " 33"],
        },
    ]


def test_a_last_line_without_an_end_is_marked() -> None:
    assert structured_patch("a\nb", "a\nb\n")[0]["lines"] == [
        " a",
        "-b",
        "\\ No newline at end of file",
        "+b",
    ]


def test_a_large_changed_region_is_one_replacement() -> None:
    old = "".join(f"a{n % 7}\n" for n in range(5000))
    new = "".join(f"b{n % 5}\n" for n in range(5000))
    (hunk,) = structured_patch("head\n" + old, "head\n" + new)
    assert (hunk["oldLines"], hunk["newLines"]) == (5001, 5001)


@pytest.mark.parametrize(
    ("data", "text", "flaw"),
    [
        (b"", "", None),
        ("é".encode(), "é", None),
        (b"\xef\xbb\xbfx", "x", None),
        (b"\xff\xfex\0", "x", None),
        (b"\xff\xfex\0y", "x\ufffd", "is not valid UTF-16LE"),
        (b"\xfe\xff\0x", "\ufffd\ufffd\0x", "is UTF-16BE"),
        (b"caf\xe9", "caf\ufffd", "is not valid UTF-8"),
        (b"a\0b", "a\0b", "contains NUL bytes"),
        (b"a" * 9000 + b"\0", "a" * 9000 + "\0", None),
    ],
)
def test_bytes_are_decoded_and_flaws_named(data: bytes, text: str, flaw: str | None) -> None:
    decoded = decode(data)
    assert (decoded.text, decoded.flaw) == (text, flaw)
    if flaw is None:
        assert decoded.encode(decoded.text) == data


def test_a_mark_in_the_new_text_is_not_doubled() -> None:
    assert decode(b"\xef\xbb\xbfold").encode("\ufeffnew") == b"\xef\xbb\xbfnew"
    assert decode(b"old").encode("\ufeffnew") == "\ufeffnew".encode()
    with pytest.raises(ToolFailed):
        decode(b"old").encode("\ud800")


JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffc0001108000a001403012200021101031101"
)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x0dIHDR\0\0\0\x14\0\0\0\x0a", ("image/png", 20, 10)),
        (b"GIF89a\x14\0\x0a\0", ("image/gif", 20, 10)),
        (JPEG, ("image/jpeg", 20, 10)),
        (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + b"\x14\0\x0a\0", ("image/webp", 20, 10)),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x13\x40\x02\0", ("image/webp", 20, 10)),
        (b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x13\0\0\x09\0\0", ("image/webp", 20, 10)),
        (b"\x89PNG\r\n\x1a\n", ("image/png", 0, 0)),
        (b"\xff\xd8\xff\xe0\xff\xff", ("image/jpeg", 0, 0)),
        (b"RIFF\0\0\0\0WEBP", ("image/webp", 0, 0)),
        (b"BM....", None),
        (b"", None),
    ],
)
def test_images_are_known_by_their_bytes(data: bytes, kind: tuple[str, int, int] | None) -> None:
    assert image_kind(data) == (None if kind is None else ImageKind(*kind))


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_scanning_in_chunks_gives_the_same_window_as_splitting(ends: str) -> None:
    chance = random.Random(len(ends))  # noqa: S311 - any numbers do, the same each time
    lines = ["x" * chance.choice([0, 1, 50, 700_000]) + str(n) for n in range(60)]
    data = ends.join(lines).encode()
    for first, count in [(0, 1), (0, 60), (3, 7), (58, 9), (59, 1), (60, 1), (500, 2)]:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            opened = OpenFile(os.dup(file.fileno()), Version.of(os.fstat(file.fileno())))
            with opened:
                found = scan(opened, first, count, keep_bytes=100_000_000)
        expected = data.split(b"\n")[first : first + count]
        assert found.total_lines == 60
        whole = b"\n".join(expected)
        assert found.data == (whole.removesuffix(b"\r") if first + count < 60 else whole)
        assert not found.is_cut


def test_scanning_keeps_no_more_than_it_may() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"y" * 5_000_000)
        file.seek(0)
        with OpenFile(os.dup(file.fileno()), Version.of(os.fstat(file.fileno()))) as opened:
            found = scan(opened, 0, 1, keep_bytes=1000)
    assert (len(found.data), found.is_cut, found.total_lines) == (1000, True, 1)


@pytest.mark.parametrize("first", [0, 1, 9, 1_995, 1_999, 2_000, 70_000])
@pytest.mark.parametrize("count", [1, 2, 12])
def test_lines_stand_behind_their_numbers_wherever_the_window_lies(first: int, count: int) -> None:
    lines = [f"line of {number}" for number in range(count)]
    shown = [line.split("\t") for line in numbered(lines, first).split("\n")]
    assert shown == [[str(first + index), line] for index, line in enumerate(lines)]
