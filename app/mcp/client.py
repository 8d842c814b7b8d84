"""One server of one run: connected, failed, or on its way; connected anew when it is called.

Theory of operation. The package's client belongs to the task that entered it, so a connection has a
task of its own (`_live`), which connects, lists, lists again when the server says so, and closes.
Everybody else only asks the client; a cut connection ends their requests with an error and the
task with it. The next call begins another one. Errors of the package never leave this module.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from app.domain.mcp import NOBODY, ServerState, tool_name
from app.domain.text import printable
from app.domain.tools import ToolCall
from app.errors import ToolFailed
from app.mcp.eliciting import CALL, Ask, elicit_result, elicited
from app.mcp.ending import Ending, Link
from app.mcp.lister import list_all
from app.mcp.listing import MAX_PROMPT, Listing
from app.mcp.results import texts_of
from app.mcp.screen import Screened

log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_CALL = ToolCall("", "", {})
MAX_QUESTIONS = 20
"""Of a server, in one call; it is told that nobody answers those beyond."""
_RELIST_AFTER_S = 1.0
"""Between two listings of a server that changes its list again and again."""
_CLOSE_WITHIN_S = 3.0
_MAX_ERROR = 2_000
_LISTED = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    }
)


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A request that waits for its answer."""

    call: ToolCall
    limit: asyncio.Timeout
    questions: int = 0
    """How many the server has asked in it."""
    unanswered: int = 0
    """How many of them are still to be answered: meanwhile its time stands still."""
    has_nobody: bool = False
    """Whether one found nobody to answer it: then no other is asked."""


@dataclass(slots=True)
class Connection:
    """Owns its task. `close` ends it, and all that it holds."""

    name: str
    link: Link
    start_s: float
    """Longest wait until the server is ready."""
    call_s: float
    """Longest wait for one answer."""
    changed: Callable[[], Awaitable[None]]
    """Told when the state, or what the server lists, is otherwise than before."""
    version: str = ""
    """Our own, for the server."""
    ask: Ask | None = None
    """Puts what the server asks to somebody; None: it is not told that it can ask."""
    state: ServerState = "pending"
    error: str | None = None
    listing: Listing = field(default_factory=Listing)
    has_listed: bool = False
    """Whether `listing` is the server's, now or from before it was lost."""
    _client: Client | None = None
    _task: asyncio.Task[None] | None = None
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _lost: asyncio.Event = field(default_factory=asyncio.Event)
    _stale: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closing: bool = False
    _calls: list[_UnderWay] = field(default_factory=list)
    """Oldest first."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A call has one question open: another one takes the first back."""

    def begin(self) -> None:
        """Begin to connect, if it is not connected and not on its way."""
        if self._task is None or self._task.done():
            self.state, self.error = "pending", None
            self._settled.clear()
            self._lost = asyncio.Event()
            self._is_closing = False
            self._task = asyncio.create_task(self._live())

    async def settled(self) -> None:
        """Wait until it is connected, or has failed to."""
        await self._settled.wait()

    async def close(self, state: ServerState = "disabled") -> None:
        """End the connection, and the server's process if it is one."""
        self._is_closing = True
        self._lost.set()
        if self._task is not None:
            if self._client is not None:
                await asyncio.wait([self._task], timeout=_CLOSE_WITHIN_S)
            self._task.cancel()
            await asyncio.wait([self._task])
        self.state, self.error = state, None
        self._settled.set()

    # -- requests -------------------------------------------------------------------------

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool. Raises `ToolFailed` with what went wrong."""
        return await self._ask(f"the tool {name}", lambda c: c.call_tool(name, dict(arguments)))

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource. Raises `ToolFailed`."""
        return await self._ask(f"the resource {uri}", lambda c: c.read_resource(uri))

    async def prompt_text(self, name: str, arguments: Mapping[str, str]) -> str:
        """Give the words of a prompt. Raises `ToolFailed`."""
        answer = await self._ask(
            f"the prompt {name}", lambda c: c.get_prompt(name, dict(arguments))
        )
        text = "\n\n".join(texts_of(answer.messages))
        return printable(text)[:MAX_PROMPT]

    async def _ask(self, what: str, ask: Callable[[Client], Awaitable[T]]) -> T:
        if self.state == "disabled":
            raise ToolFailed(f"The MCP server {self.name} is switched off.")
        if self._lost.is_set() and self._task is not None:
            await asyncio.wait([self._task])  # what is left of the old one ends first
        self.begin()
        await self.settled()
        client = self._client
        if client is None:
            raise ToolFailed(f"The MCP server {self.name} is not connected: {self.error}.")
        try:
            async with asyncio.timeout(self.call_s) as limit:
                with self._noted(limit):
                    return await ask(client)
        except TimeoutError:
            raise ToolFailed(
                f"The MCP server {self.name} gave no answer within {self.call_s:g} s for {what}."
            ) from None
        except MCPError as error:
            raise ToolFailed(await self._told(error)) from None
        except (ValidationError, RuntimeError) as error:
            raise ToolFailed(
                f"The MCP server {self.name} gave a malformed answer for {what}: {_short(error)}"
            ) from None

    @contextmanager
    def _noted(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Know the call for which the server may ask something."""
        entry = _UnderWay(CALL.get(_NO_CALL), limit)
        self._calls.append(entry)
        try:
            yield
        finally:
            self._calls.remove(entry)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Put what the server asks to somebody; the call's time stands still meanwhile."""
        del context
        # The protocol does not say for which call it is asked; with several, it is the oldest.
        at = next((each for each in self._calls if each.call is not _NO_CALL), None)
        if at is None or self.ask is None or at.questions >= MAX_QUESTIONS:
            return types.ElicitResult(action="cancel")
        at.questions += 1
        asked = elicited(params, self.name, can_repeat=self._can_repeat(at.call))
        if asked is None:
            return types.ElicitResult(action="cancel")
        at.unanswered += 1
        at.limit.reschedule(None)
        try:
            async with self._asking:
                answer = NOBODY if at.has_nobody else await self.ask(at.call, asked)
            at.has_nobody = answer is NOBODY
            return elicit_result(answer)
        finally:
            at.unanswered -= 1
            if not at.unanswered and not at.limit.expired():
                with suppress(RuntimeError):  # the call is over
                    at.limit.reschedule(asyncio.get_running_loop().time() + self.call_s)

    def _can_repeat(self, call: ToolCall) -> bool:
        return any(
            tool.read_only and tool_name(self.name, tool.name) == call.name
            for tool in self.listing.tools
        )

    async def _told(self, error: MCPError) -> str:
        # By what the package says, since servers use its code (-32000) for anything.
        if self._lost.is_set() or error.message in {"Connection closed", "Session terminated"}:
            self._lost.set()
            if self._task is not None:
                await asyncio.wait([self._task], timeout=_CLOSE_WITHIN_S)
            return (
                f"The connection to the MCP server {self.name} was lost during the call "
                f"({self.error or 'closed'}); what the call has done is unknown. The next call "
                "connects again."
            )
        return printable(error.message)[:_MAX_ERROR] or f"The MCP server {self.name} failed."

    # -- the connection's task ------------------------------------------------------------

    async def _live(self) -> None:
        ending = Ending()
        why, is_late = "it did not come up", False
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.start_s):
                    client = await stack.enter_async_context(self._made(ending))
                    self.listing, self.has_listed = await list_all(client), True
                await self.changed()
                self._client, self.state = client, "connected"
                self._settled.set()
                await self._stay(client)
            why = "the connection was lost"
        except TimeoutError:
            why, is_late = f"it was not ready within {self.start_s:g} s", True
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
        except Exception as error:  # noqa: BLE001 - whatever package, server and sandbox come up with
            why = _cause(error)
        finally:
            self._client = None
            if not self._is_closing:
                self.state = "needs-auth" if ending.needs_auth else "failed"
                self.error = why if is_late else ending.why or why
                log.info(
                    "An MCP server is not connected: %s",
                    self.error,
                    extra={"action": "mcp_server_lost", "server": self.name},
                )
                with suppress(asyncio.CancelledError):
                    await self.changed()
            self._settled.set()

    def _made(self, ending: Ending) -> Client:
        over = self._lost  # of this connection, not of one that comes after it

        def lost(why: str) -> None:
            ending.why = ending.why or why
            over.set()

        return Client(
            Screened(self.link(ending), lost),
            cache=None,
            client_info=types.Implementation(name="treadle", version=self.version),
            message_handler=self._heard,
            elicitation_callback=self._elicit if self.ask else None,
        )

    async def _heard(self, message: object) -> None:
        if getattr(message, "method", None) in _LISTED:
            self._stale.set()

    async def _stay(self, client: Client) -> None:
        """Wait until the connection is lost or to be closed; keep the listing up to date."""
        lost = asyncio.create_task(self._lost.wait())
        listening = asyncio.create_task(self._listen(client))
        try:
            while not lost.done():
                stale = asyncio.create_task(self._stale.wait())
                await asyncio.wait((lost, stale), return_when=asyncio.FIRST_COMPLETED)
                stale.cancel()
                if not lost.done():
                    self._stale.clear()
                    await self._list_again(client)
                    await asyncio.wait((lost,), timeout=_RELIST_AFTER_S)
        finally:
            listening.cancel()
            lost.cancel()
            await asyncio.gather(listening, lost, return_exceptions=True)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes where the protocol has subscriptions; older servers just tell."""
        if client.session.initialize_result is not None:
            return
        capabilities = client.server_capabilities
        with suppress(Exception):  # not told of changes: they are seen at the next connection
            async with client.listen(
                tools_list_changed=bool(capabilities.tools and capabilities.tools.list_changed),
                prompts_list_changed=bool(
                    capabilities.prompts and capabilities.prompts.list_changed
                ),
                resources_list_changed=bool(
                    capabilities.resources and capabilities.resources.list_changed
                ),
            ) as changes:
                async for _ in changes:
                    self._stale.set()

    async def _list_again(self, client: Client) -> None:
        try:
            async with asyncio.timeout(self.start_s):
                self.listing = await list_all(client)
        except (TimeoutError, MCPError, ValidationError) as error:
            log.info("An MCP server cannot be listed again: %s", _cause(error))
        else:
            await self.changed()


def _cause(error: BaseException) -> str:
    """Give the first cause of what task groups have wrapped."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ToolFailed):
        return error.message
    return _short(error)


def _short(error: BaseException) -> str:
    said = printable(str(error)).strip().splitlines()
    return said[0][:300] if said else type(error).__name__
