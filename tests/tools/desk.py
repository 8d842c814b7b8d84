"""A session's files and tools, for tests: real folders, the real sandbox, the real toolbox."""

from dataclasses import dataclass, field
from typing import Any

from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.sandbox.driver import Sandbox, SessionDirs
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.shells import Shells
from app.tools.tool import Beyond, Tool
from app.tools.toolbox import Toolbox
from app.tools.workspace import Workspace
from tests.sandbox.rooms import SANDBOX_UID, Rooms
from tests.tools.folder import Folder


@dataclass
class Desk:
    dirs: SessionDirs
    sandbox: Sandbox
    workspace: Workspace
    memory: ToolMemory = field(default_factory=ToolMemory)
    disabled: frozenset[str] = frozenset()
    shells: Shells = field(default_factory=Shells)
    """Whoever leaves commands in the background closes them."""
    calls: int = 0
    tools: tuple[Tool[Any], ...] = BUILTIN_TOOLS
    beyond: Beyond = field(default_factory=Beyond)

    @classmethod
    def make(cls, rooms: Rooms) -> "Desk":
        sandbox = rooms.bubblewrap()
        return cls(sandbox.dirs, sandbox, Workspace.sandboxed(sandbox.dirs, uid=SANDBOX_UID))

    @property
    def toolbox(self) -> Toolbox:
        return Toolbox(
            self.tools,
            self.workspace,
            self.sandbox,
            shells=self.shells,
            disabled=self.disabled,
            beyond=self.beyond,
        )

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

    @property
    def folder(self) -> Folder:
        return Folder(self.dirs.ws)

    def put(self, path: str, content: str | bytes = b"") -> None:
        self.folder.put(path, content)

    def mkdir(self, path: str) -> None:
        self.folder.mkdir(path)

    def symlink(self, path: str, target: str) -> None:
        self.folder.symlink(path, target)

    def later(self, path: str, by_s: int = 1) -> None:
        self.folder.later(path, by_s)

    def content_of(self, path: str) -> bytes:
        """Give what a file in /tmp, as the agent sees it, holds."""
        return (self.dirs.tmp / path.removeprefix("/tmp/")).read_bytes()

    def content(self, path: str) -> bytes:
        return self.folder.content(path)


def text_of(result: ToolResult) -> str:
    """The result's text; fails for one that holds other blocks."""
    assert isinstance(result.content, str), result.content
    return result.content


def blocks_of(result: ToolResult) -> list[dict[str, Any]]:
    """The result's blocks; fails for one that is a plain text."""
    assert isinstance(result.content, list), result.content
    return result.content
