"""A skill as it is uploaded: a folder of files, checked whole before anything is stored.

It comes as a zip file or as texts by path. All of it is a stranger's: bounded in number, size and
depth before it is unpacked, with plain names, and without links or anything that is no file.
"""

import hashlib
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.domain.skills import SkillNote
from app.domain.text import unstorable
from app.errors import ValidationFailed
from app.permissions.rules import MalformedRule, parse_rule
from app.tools.frontmatter import Document
from app.tools.skills import (
    MANIFEST,
    MAX_FILE_BYTES,
    NAME,
    allowed_tools,
    is_free,
    manifest,
    note_of,
)

MAX_FILES = 200
MAX_BYTES = 8 * 1024 * 1024
"""Of all files, unpacked."""
MAX_DEPTH = 8
MAX_PATH_BYTES = 400
MAX_ALLOWED_TOOLS = 50
_MAX_ENTRIES = 2_000
"""What is read of a zip file's list: folders count too, and what systems add to their own files."""
_ENTRY = b"PK\x01\x02"
_LEFT_OUT = "__MACOSX/"
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, OverflowError, RuntimeError, ValueError),
)
"""What a broken zip file shows as."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file."""

    data: bytes
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """A skill's files, in order of their paths."""

    name: str
    files: Mapping[str, BundleFile]
    document: Document
    """Its `SKILL.md`."""

    @property
    def note(self) -> SkillNote:
        """What is announced of it."""
        return note_of(self.name, self.document)

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The rules that it brings."""
        return allowed_tools(self.document)

    @property
    def sha256(self) -> str:
        """Give a hash of names, modes and contents, as hex."""
        digest = hashlib.sha256()
        for path, file in self.files.items():
            head = f"{len(path.encode())} {file.is_executable:d} {len(file.data)}\n"
            digest.update(head.encode() + path.encode() + file.data)
        return digest.hexdigest()

    def packed(self) -> bytes:
        """Give the files as a zip file; `unpacked` reads it."""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, file in self.files.items():
                entry = zipfile.ZipInfo(path, _EARLIEST)
                entry.external_attr = (0o100755 if file.is_executable else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.data)
        return target.getvalue()


def bundle_of_texts(name: str, files: Mapping[str, str]) -> Bundle:
    """Make a bundle of texts by path. Raises `ValidationFailed`."""
    return _bundle(name, {path: BundleFile(text.encode()) for path, text in files.items()})


def bundle_of_zip(data: bytes, name: str | None) -> Bundle:
    """Read a bundle. Its files are at the top, or all in one folder. Raises `ValidationFailed`.

    Without a `name` it is that folder's.
    """
    files = unpacked(data)
    if MANIFEST not in files:
        top, inside = _without_folder(files)
        files, name = inside, name or top
    if name is None:
        raise _refused(
            "/name", "required", "name the skill (?name=…), or put its files in a folder"
        )
    return _bundle(name, files)


def unpacked(data: bytes) -> dict[str, BundleFile]:
    """Read a zip file within the bounds. Raises `ValidationFailed`. Blocking."""
    if data.count(_ENTRY) > _MAX_ENTRIES:
        raise _refused("", "too_many", f"the zip file lists more than {_MAX_ENTRIES} entries")
    files: dict[str, BundleFile] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [each for each in archive.infolist() if _is_wanted(each)]
            _check_count(len(entries))
            left = MAX_BYTES
            for entry in entries:
                _check_entry(entry)
                if entry.filename in files:
                    raise _refused(_pointer(entry.filename), "duplicate", "it is there twice")
                content = _content(archive, entry, left)
                left -= len(content)
                mode = entry.external_attr >> 16
                files[entry.filename] = BundleFile(content, bool(mode & stat.S_IXUSR))
    except _BROKEN as error:
        raise _refused("", "zip", f"it cannot be read as a zip file ({error})") from None
    return files


def _is_wanted(entry: zipfile.ZipInfo) -> bool:
    return not entry.is_dir() and not entry.filename.startswith(_LEFT_OUT)


def _check_entry(entry: zipfile.ZipInfo) -> None:
    mode = entry.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind not in {0, stat.S_IFREG}:
        raise _refused(_pointer(entry.filename), "not_a_file", "only plain files can be in a skill")
    # `orig_filename`, since the module cuts a name at its NUL.
    if entry.orig_filename != entry.filename:
        raise _refused(_pointer(entry.filename), "path", "its name is not plain")
    if entry.flag_bits & 0x1:
        raise _refused(_pointer(entry.filename), "encrypted", "it is encrypted")
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        message = "it is compressed in another way than zip usually does (deflate)"
        raise _refused(_pointer(entry.filename), "compression", message)


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int) -> bytes:
    # What an entry says of its size is a claim; what comes out is counted.
    if entry.file_size <= left:
        with archive.open(entry) as file:
            content = file.read(left + 1)
        if len(content) <= left:
            return content
    raise _too_large()


def _without_folder(files: Mapping[str, BundleFile]) -> tuple[str | None, dict[str, BundleFile]]:
    tops = {path.partition("/")[0] for path in files}
    if len(tops) != 1 or not all("/" in path for path in files):
        return None, dict(files)
    return next(iter(tops)), {path.partition("/")[2]: file for path, file in files.items()}


def _bundle(name: str, files: Mapping[str, BundleFile]) -> Bundle:
    if not NAME.fullmatch(name):
        message = "a name has letters, digits, `_`, `-` and `.`, and is at most 64 characters long"
        raise _refused("/name", "name", message)
    if not is_free(name):
        raise _refused("/name", "name", f"/{name} is a command of the service")
    _check_count(len(files))
    for path in files:
        _check_path(path)
    if sum(len(file.data) for file in files.values()) > MAX_BYTES:
        raise _too_large()
    for path in files:
        for folder in _folders(path):
            if folder in files:
                raise _refused(_pointer(folder), "path", "it is a file and a folder")
    document = _document(files.get(MANIFEST))
    return Bundle(name, dict(sorted(files.items())), document)


def _document(file: BundleFile | None) -> Document:
    at = _pointer(MANIFEST)
    if file is None:
        raise _refused(at, "required", "a skill has this file at its top")
    if len(file.data) > MAX_FILE_BYTES:
        raise _refused(at, "too_large", f"it may have {MAX_FILE_BYTES} bytes")
    document = manifest(file.data)
    if document is None:
        raise _refused(at, "text", "it is blank, or no text")
    rules = allowed_tools(document)
    if len(rules) > MAX_ALLOWED_TOOLS:
        raise _refused(at, "allowed_tools", f"more than {MAX_ALLOWED_TOOLS} allowed-tools")
    for rule in rules:
        try:
            parse_rule(rule)
        except MalformedRule as error:
            raise _refused(at, "allowed_tools", f"allowed-tools, {rule[:100]!r}: {error}") from None
    return document


def _check_count(count: int) -> None:
    if count > MAX_FILES:
        raise _refused("/files", "too_many", f"a skill may have {MAX_FILES} files")


def _check_path(path: str) -> None:
    parts = path.split("/")
    flaw = unstorable(path)
    if flaw is not None:
        raise _refused(_pointer(path), "path", f"its name holds {flaw}")
    if not path.isprintable() or "\\" in path:
        raise _refused(_pointer(path), "path", "its name holds a control character or a backslash")
    if any(part in {"", ".", ".."} for part in parts):
        raise _refused(
            _pointer(path), "path", "a path leads down from the skill's folder, without `..`"
        )
    if len(parts) > MAX_DEPTH:
        raise _refused(_pointer(path), "path", f"it lies deeper than {MAX_DEPTH} levels")
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > 255 for part in parts):
        raise _refused(_pointer(path), "path", "its name is too long")


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _pointer(path: str) -> str:
    shown = path.encode(errors="replace").decode()[:200]
    return "/files/" + shown.replace("\0", "\u2400").replace("~", "~0").replace("/", "~1")


def _too_large() -> ValidationFailed:
    message = f"the files may have {MAX_BYTES // (1024 * 1024)} MB together, unpacked"
    return _refused("/files", "too_large", message)


def _refused(pointer: str, code: str, message: str) -> ValidationFailed:
    where = pointer.removeprefix("/files/").replace("~1", "/").replace("~0", "~") or "The skill"
    return ValidationFailed(
        f"{where}: {message}.",
        errors=[{"pointer": pointer, "code": code, "message": message}],
    )
