"""Skills as they are uploaded: what is taken, what a hostile one is refused for, and their folders."""

import io
import os
import stat
import time
import zipfile
from pathlib import Path

import pytest

from app.errors import ValidationFailed
from app.tools.bundle import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FILES,
    Bundle,
    BundleFile,
    bundle_of_texts,
    bundle_of_zip,
    unpacked,
)
from app.tools.bundle_folders import KEEP_S, BundleFolders

TEXT = "---\ndescription: Review\nallowed-tools: Read Bash(git log *), Bash(echo (x y))\n---\nLook."


def zipped(files: dict[str, bytes | str], *, mode: int = 0o100644) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (mode if not path.endswith(".sh") else 0o100755) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return target.getvalue()


def refused(error: pytest.ExceptionInfo[ValidationFailed]) -> tuple[str, str]:
    [one] = error.value.errors
    assert one["message"] in error.value.detail
    return one["pointer"], one["code"]


@pytest.mark.requirement("skill:uploaded")
def test_a_zip_file_of_a_folder_and_texts_are_one_bundle() -> None:
    files: dict[str, bytes | str] = {"SKILL.md": TEXT, "bin/run.sh": "echo", "a/b.txt": "b"}
    in_folder = {f"review/{path}": data for path, data in files.items()}
    by_folder = bundle_of_zip(
        zipped({"review/": "", "__MACOSX/review/._SKILL.md": "x", **in_folder}), None
    )
    flat = bundle_of_zip(zipped(files), "review")
    assert by_folder == flat
    assert [*flat.files] == ["SKILL.md", "a/b.txt", "bin/run.sh"]
    assert flat.files["bin/run.sh"] == BundleFile(b"echo", is_executable=True)
    assert flat.allowed_tools == ("Read", "Bash(git log *)", "Bash(echo (x y))")
    assert flat.note.description == "Review"
    assert unpacked(flat.packed()) == flat.files
    texts = bundle_of_texts("review", {path: str(data) for path, data in files.items()})
    assert texts.sha256 != flat.sha256  # a text is never executable
    assert texts.sha256 == bundle_of_texts("other", {p: str(d) for p, d in files.items()}).sha256
    assert bundle_of_zip(zipped(in_folder), "mine").name == "mine"


PATHS = {
    "../SKILL": "/files/..~1SKILL",
    "/etc/x": "/files/~1etc~1x",
    "a/../../x": "/files/a~1..~1..~1x",
    "a//b": "/files/a~1~1b",
    "./x": "/files/.~1x",
    "a\\b": "/files/a\\b",
    "a\nb": "/files/a\nb",
    "a\u202eb": "/files/a\u202eb",
    "/".join("a" * (MAX_DEPTH + 1)): "/files/" + "~1".join("a" * (MAX_DEPTH + 1)),
    "x" * 256: "/files/" + "x" * 200,
}


@pytest.mark.requirement("skill:upload-hostile")
@pytest.mark.parametrize("path", PATHS)
def test_names_that_lead_elsewhere_or_are_odd_are_refused_by_name(path: str) -> None:
    with pytest.raises(ValidationFailed) as error:
        bundle_of_texts("review", {"SKILL.md": TEXT, path: "x"})
    assert refused(error) == (PATHS[path], "path")
    with pytest.raises(ValidationFailed):
        bundle_of_zip(zipped({"SKILL.md": TEXT, path: "x"}), "review")


@pytest.mark.requirement("skill:upload-hostile")
@pytest.mark.parametrize(
    ("files", "pointer", "code"),
    [
        ({}, "/files/SKILL.md", "required"),
        ({"skill.md": TEXT}, "/files/SKILL.md", "required"),
        ({"SKILL.md": " \n"}, "/files/SKILL.md", "text"),
        ({"SKILL.md": "\n\ufffd"}, "/files/SKILL.md", "text"),
        ({"SKILL.md": "a\0b"}, "/files/SKILL.md", "text"),
        ({"SKILL.md": "x" * 100_000}, "/files/SKILL.md", "too_large"),
        ({"SKILL.md": TEXT, "a": "", "a/b": ""}, "/files/a", "path"),
        ({"SKILL.md": TEXT, "a\0b": ""}, "/files/a\u2400b", "path"),
        ({"SKILL.md": TEXT, "a\ud800": ""}, "/files/a?", "path"),
        ({"SKILL.md": TEXT, "a": "x" * (MAX_BYTES + 1)}, "/files", "too_large"),
        ({"SKILL.md": TEXT, **{str(n): "" for n in range(MAX_FILES)}}, "/files", "too_many"),
        ({"SKILL.md": "---\nallowed-tools: Bash(x\n---\nx"}, "/files/SKILL.md", "allowed_tools"),
        ({"SKILL.md": "---\nallowed-tools: Bash (x)\n---\nx"}, "/files/SKILL.md", "allowed_tools"),
        ({"SKILL.md": "---\nallowed-tools: [Glob(!x)]\n---\n"}, "/files/SKILL.md", "allowed_tools"),
    ],
)
def test_what_is_no_skill_is_refused(files: dict[str, str], pointer: str, code: str) -> None:
    with pytest.raises(ValidationFailed) as error:
        bundle_of_texts("review", files)
    assert refused(error) == (pointer, code)


@pytest.mark.requirement("skill:upload-hostile")
@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "a b", "-x", "x" * 65, "a\0", ".hidden", "a:b", "clear"]
)
def test_names_of_skills_are_plain(name: str) -> None:
    with pytest.raises(ValidationFailed) as error:
        bundle_of_texts(name, {"SKILL.md": TEXT})
    assert refused(error) == ("/name", "name")


def _bomb() -> bytes:
    return zipped({"SKILL.md": TEXT, **{f"{n}": b"\0" * (MAX_BYTES // 2) for n in range(4)}})


def _liar() -> bytes:
    """Claims that a large file is small."""
    data = bytearray(zipped({"SKILL.md": TEXT, "big": b"\0" * (MAX_BYTES * 2)}))
    real, claimed = (MAX_BYTES * 2).to_bytes(4, "little"), (10).to_bytes(4, "little")
    return bytes(data.replace(real, claimed))


def _twice() -> bytes:
    target = io.BytesIO(zipped({"SKILL.md": TEXT}))
    with zipfile.ZipFile(target, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("SKILL.md", "other")
    return target.getvalue()


def _lzma() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("SKILL.md", TEXT)
    return target.getvalue()


@pytest.mark.requirement("skill:upload-hostile")
@pytest.mark.parametrize(
    ("data", "pointer", "code"),
    [
        (b"PK no zip", "", "zip"),
        (zipped({"SKILL.md": TEXT})[:-30], "", "zip"),
        (zipped({"SKILL.md": TEXT}).replace(b"PK\x03\x04", b"PK\x03\x05"), "", "zip"),
        (_bomb(), "/files", "too_large"),
        (_liar(), "", "zip"),
        (_twice(), "/files/SKILL.md", "duplicate"),
        (_lzma(), "/files/SKILL.md", "compression"),
        (zipped({f"{n}/": "" for n in range(2_001)}), "", "too_many"),
        (zipped({f"{n}": "" for n in range(MAX_FILES + 1)}), "/files", "too_many"),
        (zipped({"l": "/etc/passwd"}, mode=stat.S_IFLNK | 0o777), "/files/l", "not_a_file"),
        (zipped({"f": ""}, mode=stat.S_IFIFO | 0o644), "/files/f", "not_a_file"),
        (zipped({"SKILL.md": TEXT}), "/name", "required"),
    ],
    ids=[
        "junk",
        "cut",
        "broken",
        "bomb",
        "liar",
        "twice",
        "lzma",
        "list",
        "many",
        "link",
        "fifo",
        "?",
    ],
)
def test_hostile_zip_files_are_refused(data: bytes, pointer: str, code: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValidationFailed) as error:
        bundle_of_zip(data, None)
    assert time.monotonic() - began < 10
    assert refused(error) == (pointer, code)


def small(text: str) -> Bundle:
    return bundle_of_texts("review", {"SKILL.md": TEXT, "a/b.txt": text})


@pytest.mark.requirement("skill:upload-folders")
def test_folders_are_made_whole_can_only_be_read_and_go_when_nobody_needs_them(
    tmp_path: Path,
) -> None:
    folders = BundleFolders(tmp_path)
    first, second = small("1"), small("2")
    umask = os.umask(0o077)
    try:
        assert not folders.has(first.sha256)
        folders.put(first.sha256, first.packed())
        folders.put(first.sha256, first.packed())  # another process was quicker
    finally:
        os.umask(umask)
    folder = folders.path(first.sha256)
    assert (folder / "a/b.txt").read_text() == "1"
    modes = [stat.S_IMODE((folder / path).stat().st_mode) for path in (".", "a", "a/b.txt")]
    assert modes == [0o755, 0o755, 0o444]

    long_ago = time.time() - KEEP_S - 60
    os.utime(folder, (long_ago, long_ago))
    assert folders.has(first.sha256)  # a run opens it: it stays
    folders.put(second.sha256, second.packed())
    os.utime(folder, (long_ago, long_ago))
    third = small("3")
    folders.put(third.sha256, third.packed())
    assert {path.name for path in tmp_path.iterdir()} == {second.sha256, third.sha256}
