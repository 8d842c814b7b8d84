"""What Bash answers: the output as text, an image, or stored; and what the session remembers."""

import base64
import binascii
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.tasks import BackgroundTask
from app.domain.text import printable, unstorable
from app.domain.tools import StoredOutput, ToolFacts, ToolResult
from app.errors import ToolFailed
from app.sandbox.driver import Finished, Limits
from app.tools.builtin.bash_script import reported_directory
from app.tools.images import image_kind
from app.tools.open_file import OpenFile, use
from app.tools.seen import saw, sha256
from app.tools.shell import is_silent, meaning_of_status_1, printed_file
from app.tools.shells import DEFAULT_LIFE_S
from app.tools.stored_output import MAX_CHARS, preview, store, wire_fields
from app.tools.tool import ToolContext

_FAILURE_CHARS = 10_240
_FAILURE_PART = 5_000
_TIMED_OUT = 143
_NO_OUTPUT = "(Bash completed with no output)"
_HASHED_BYTES = 16 * 1024 * 1024
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,([A-Za-z0-9+/=\s]+)")


@dataclass(frozen=True, slots=True)
class _Text:
    """The output as text: bad bytes replaced, trimmed."""

    head: str
    tail: str = ""
    """Empty where the head is all of it."""
    cut_bytes: int = 0
    """What is missing between the two."""

    @staticmethod
    def of(finished: Finished) -> "_Text":
        middle = len(finished.output) // 2 if finished.cut_bytes else len(finished.output)
        head = _BLANK_LINES.sub("", _decoded(finished.output[:middle]))
        if not finished.cut_bytes:
            return _Text(head.rstrip())
        return _Text(head, _decoded(finished.output[middle:]).rstrip(), finished.cut_bytes)

    @property
    def is_short(self) -> bool:
        return not self.tail and len(self.head) <= MAX_CHARS

    def shortened(self, first: int, last: int, where: str = "") -> str:
        """Give the first and the last characters, and between them what is missing."""
        end = self.tail or self.head
        gap = self.cut_bytes + len(self.head[first:].encode()) + len(self.tail[:-last].encode())
        if not self.tail:
            gap -= len(end[-last:].encode())
        note = f"[… about {gap:,} bytes of output are left out here{where} …]"
        return f"{self.head[:first]}\n\n{note}\n\n{end[-last:]}"


async def answer(
    command: str, finished: Finished, task: BackgroundTask, context: ToolContext, limit: str
) -> ToolResult:
    """Report a command that has ended; `limit` says what is to be said when its time was over."""
    text = _Text.of(finished)
    meaning = meaning_of_status_1(command) if finished.exit_code == 1 else None
    if finished.timed_out or finished.flooded or (finished.exit_code != 0 and meaning is None):
        stored = (
            None if len(text.head) <= _FAILURE_CHARS else await _stored(finished, task, context)
        )
        failure = _failure(finished, text, stored, limit)
        return ToolResult(failure, is_error=True, stored=stored)
    facts, note = await _facts(command, finished, context)
    stored = None if text.is_short else await _stored(finished, task, context)
    structured = _structured(command, text.head[:MAX_CHARS], note)
    if meaning is not None:
        structured["returnCodeInterpretation"] = meaning
    if (image := _image(text)) is not None:
        structured["isImage"] = True
        return ToolResult([image], is_error=False, structured=structured, facts=facts)
    if stored is not None:
        structured |= wire_fields(stored)
        shown = preview(stored, text.head)
    else:
        shown = text.head if text.is_short else text.shortened(MAX_CHARS // 2, MAX_CHARS // 2)
    content = "\n".join(part for part in (shown, note) if part)
    return ToolResult(
        content or _NO_OUTPUT,
        is_error=False,
        structured=structured,
        facts=facts,
        stored=stored,
    )


def words_of_output(structured: Mapping[str, Any]) -> str | None:
    """Give what the model reads of an output of Bash's shape; None for one of another shape."""
    streams = [structured.get("stdout"), structured.get("stderr", "")]
    if not all(isinstance(stream, str) for stream in streams):
        return None
    return "\n".join(filter(None, streams)) or _NO_OUTPUT


def background_answer(task: BackgroundTask, life_s: float) -> ToolResult:
    """Report a command that was started in the background."""
    text = (
        f"The command runs in the background as task {task.id}. All it prints goes to "
        f"{task.output_file}: Read that file to see how it is getting on. You will be told when it "
        f"has ended; after {life_s:g} s it is stopped. TaskStop stops it before."
    )
    return _running(text, "", task)


def moved_answer(printed: Finished, task: BackgroundTask, wait_s: float) -> ToolResult:
    """Report a command that goes on in the background after its time limit."""
    text = _Text.of(printed)
    said = text.head if text.is_short else text.shortened(MAX_CHARS // 2, MAX_CHARS // 2)
    note = (
        f"(After {wait_s:g} s, its time limit, the command goes on in the background as task "
        f"{task.id}. All it prints is in {task.output_file}. You will be told when it has ended; "
        f"after {DEFAULT_LIFE_S / 60:g} minutes it is stopped. TaskStop stops it before.)"
    )
    result = _running("\n\n".join(part for part in (said, note) if part), said, task)
    result.structured["timedOutAfterMs"] = round(wait_s * 1000)
    return result


def _running(text: str, stdout: str, task: BackgroundTask) -> ToolResult:
    structured = _structured("", stdout, "") | {"backgroundTaskId": task.id}
    return ToolResult(text, is_error=False, structured=structured, started=task)


def _structured(command: str, stdout: str, stderr: str) -> dict[str, Any]:
    return {
        "stdout": stdout,
        "stderr": stderr,
        "interrupted": False,
        "isImage": False,
        "noOutputExpected": is_silent(command),
    }


def _failure(finished: Finished, text: _Text, stored: StoredOutput | None, limit: str) -> str:
    lines = [f"Exit code {_TIMED_OUT if finished.timed_out else finished.exit_code}"]
    if finished.timed_out:
        lines.append(limit)
    if finished.flooded:
        lines.append(f"The command was stopped: it printed over {Limits().output_bytes:,} bytes.")
    code = "\n".join(lines)
    if not text.head:
        return code
    whole = _Text(f"{code}\n{text.head}", text.tail, text.cut_bytes)
    if not text.tail and len(whole.head) <= _FAILURE_CHARS:
        return whole.head
    where = f"; all of it is in {stored.path}" if stored else ""
    return whole.shortened(_FAILURE_PART, _FAILURE_PART, where)


async def _stored(
    finished: Finished, task: BackgroundTask, context: ToolContext
) -> StoredOutput | None:
    """Put the whole output into its file, unless it is there; None when it cannot be had whole."""
    if finished.is_spooled:
        return StoredOutput(task.output_file, len(finished.output) + finished.cut_bytes)
    if finished.cut_bytes:
        return None
    return await store(finished.output, task.output_file, context.workspace)


def _image(text: _Text) -> dict[str, Any] | None:
    """Give the block of an output that is an image's data URI."""
    found = None if text.tail else _IMAGE.fullmatch(text.head)
    if found is None:
        return None
    try:
        data = base64.b64decode("".join(found[1].split()), validate=True)
    except binascii.Error:
        return None
    kind = image_kind(data)
    if kind is None:
        return None
    encoded = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": kind.media_type, "data": encoded}
    return {"type": "image", "source": source}


async def _facts(command: str, finished: Finished, context: ToolContext) -> tuple[ToolFacts, str]:
    """Give what the session must remember, and a line where the directory was not kept."""
    cat = await _read_by_cat(command, context) if finished.exit_code == 0 else ToolFacts()
    cwd = reported_directory(finished)
    if cwd is None or cwd == context.cwd:
        return cat, ""
    if _is_kept(cwd, context):
        return ToolFacts(cwd, cat.files), ""
    root = context.workspace.root
    note = f"The shell's directory is {root} again; it is not kept at {printable(cwd)}."
    return ToolFacts(None if context.cwd == root else root, cat.files), note


def _is_kept(cwd: str, context: ToolContext) -> bool:
    """Tell whether later calls may start there: in the workspace or /tmp, and a storable name."""
    view = context.workspace.view
    folders = [mount for mount in view.mounts if mount != view.home]
    return (
        unstorable(cwd) is None
        and posixpath.normpath(cwd) == cwd
        and any(cwd == folder or cwd.startswith(folder + "/") for folder in folders)
    )


async def _read_by_cat(command: str, context: ToolContext) -> ToolFacts:
    """Give the fact of a Read if the command was a plain `cat FILE`."""
    path = printed_file(command)
    if path is None:
        return ToolFacts()
    try:
        path = context.workspace.absolute(path, context.cwd)
        file = context.workspace.open(path)
    except (FileNotFoundError, ToolFailed):
        return ToolFacts()
    if file.size_bytes > _HASHED_BYTES:
        file.close()
        return ToolFacts()
    return saw(path, sha256(await use(file, _content)), file.version)


def _content(file: OpenFile) -> bytes:
    return file.content(_HASHED_BYTES)


def _decoded(output: bytes) -> str:
    return printable(output.decode(errors="replace"))
