"""A session's files and tools, for tests: real folders, the real sandbox, the real toolbox."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.sandbox.driver import Sandbox, SessionDirs
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.toolbox import Toolbox
from app.tools.workspace import Workspace
from tests.sandbox.rooms import SANDBOX_UID, Rooms


@dataclass
class Desk:
    dirs: SessionDirs
    sandbox: Sandbox
    workspace: Workspace
    memory: ToolMemory = field(default_factory=ToolMemory)
    disabled: frozenset[str] = frozenset()
    calls: int = 0

    @classmethod
    def make(cls, rooms: Rooms) -> "Desk":
        sandbox = rooms.bubblewrap()
        return cls(sandbox.dirs, sandbox, Workspace.sandboxed(sandbox.dirs, uid=SANDBOX_UID))

    @property
    def toolbox(self) -> Toolbox:
        return Toolbox(BUILTIN_TOOLS, self.workspace, self.sandbox, disabled=self.disabled)

    async def call(self, tool: str, **given: object) -> ToolResult:
        """Call as the loop does, and remember what the call reports."""
        return await self.call_with(tool, given)

    async def call_with(self, tool: str, given: dict[str, object]) -> ToolResult:
        self.calls += 1
        call = ToolCall(f"toolu_{self.calls}", tool, given)
        result = await self.toolbox.call(call, self.memory)
        self.memory = self.memory.plus(result.facts)
        return result

    async def bash(self, command: str) -> str:
        result = await self.call("Bash", command=command)
        assert not result.is_error, result.content
        return text_of(result)

    # -- behind the agent's back ----------------------------------------------------------------

    def put(self, path: str, content: str | bytes = b"") -> None:
        """Make a file as the sandbox's user would."""
        target = self.dirs.ws / path
        self.mkdir(str(target.parent.relative_to(self.dirs.ws)))
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        self.own(path)

    def mkdir(self, path: str) -> None:
        for folder in reversed([self.dirs.ws / path, *(self.dirs.ws / path).parents]):
            if folder.is_relative_to(self.dirs.ws) and not folder.exists():
                folder.mkdir()
                self.own(str(folder.relative_to(self.dirs.ws)))

    def own(self, path: str) -> None:
        if SANDBOX_UID is not None:
            os.chown(self.dirs.ws / path, SANDBOX_UID, SANDBOX_UID, follow_symlinks=False)

    def symlink(self, path: str, target: str) -> None:
        (self.dirs.ws / path).symlink_to(target)
        self.own(path)

    def later(self, path: str, by_s: int = 1) -> None:
        """Move a file's time on, as if it had been changed a while after."""
        status = (self.dirs.ws / path).stat()
        changed_ns = status.st_mtime_ns + by_s * 10**9
        os.utime(self.dirs.ws / path, ns=(changed_ns, changed_ns))

    def content(self, path: str) -> bytes:
        return (self.dirs.ws / path).read_bytes()


MakeDesk = Callable[[], Desk]


def text_of(result: ToolResult) -> str:
    """The result's text; fails for one that holds other blocks."""
    assert isinstance(result.content, str), result.content
    return result.content
