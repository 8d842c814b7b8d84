"""The MCP servers of a session, for clients on any host: how they stand, and who is to be connected."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.options import AgentOptions
from app.errors import NotRunning, ValidationFailed
from app.runs.changing import Changed
from app.runs.controls import ASK_EVERY_S, STOP_WITHIN_S, Controls
from app.runs.once import Once
from app.runs.server_states import server_states
from app.store.keys import Caller
from app.store.words import ServerAsked, ServerReached, Word


@dataclass(slots=True)
class ServerControls:
    """What clients ask of servers."""

    controls: Controls
    _reached: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)

    def heard(self, word: Word) -> None:
        """Take a word of another host."""
        if isinstance(word, ServerReached) and (
            event := self._reached.get((word.session_id, word.server))
        ):
            event.set()

    async def statuses(self, caller: Caller, session_id: str) -> Sequence[dict[str, Any]]:
        """Say how each server stood when that was last told. Raises `NotFound`.

        Servers of a session that has not used them yet are pending.
        """
        session = await self.controls.queries.session(caller.tenant_id, session_id)
        return await server_states(self.controls.queries, caller.tenant_id, session)

    async def set_enabled(
        self,
        caller: Caller,
        session_id: str,
        name: str,
        *,
        is_enabled: bool,
        once: Once | None = None,
    ) -> Changed:
        """Switch a server on or off, for what goes on and for what comes later."""
        found = False

        def apply(options: AgentOptions) -> AgentOptions:
            nonlocal found
            server = options.mcp_servers.get(name)
            if server is None:
                return options
            found = True
            other = server.model_copy(update={"enabled": is_enabled})
            servers = {**options.mcp_servers, name: other}
            return AgentOptions(mcp_servers=servers).over(options)

        def check() -> None:
            if not found:
                raise ValidationFailed(
                    f"The session has no MCP server {name!r}.",
                    errors=[
                        {
                            "pointer": "/serverName",
                            "code": "unknown_server",
                            "message": "is none of its servers",
                        }
                    ],
                )

        return await self.controls.change(
            caller, session_id, apply, "/serverName", once, check=check
        )

    async def reconnect(self, caller: Caller, session_id: str, name: str) -> None:
        """Begin to connect a server anew, on the host that drives the session. Raises `NotRunning`."""
        session = await self.controls.queries.session(caller.tenant_id, session_id)
        if session.active_run_id is None:
            raise _no_run(name)
        worker = self.controls.teller.worker
        if worker is not None and await worker.reconnect(caller.tenant_id, session_id, name):
            return
        key = (session_id, name)
        event = self._reached.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                while not event.is_set():
                    self.controls.teller.bus.say(ServerAsked(caller.tenant_id, session_id, name))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), ASK_EVERY_S)
        except TimeoutError:
            raise _no_run(name) from None
        finally:
            self._reached.pop(key, None)


def _no_run(name: str) -> NotRunning:
    return NotRunning(
        f"No run that has the MCP server {name!r} goes on in the session: servers are connected "
        "when a run begins."
    )
