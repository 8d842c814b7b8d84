"""All hooks that a host knows: the operator's commands, Python hooks, and those of runs' options."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
from standardwebhooks import Webhook

from app.domain.hook_options import HttpHook
from app.hooks.command import CommandHook, Shell, command_hook
from app.hooks.custom import PythonHook
from app.hooks.detached import Detached
from app.hooks.hook import Asked, Hook, HookFailed, Reply
from app.hooks.matching import matcher_of
from app.hooks.runner import RunHooks
from app.hooks.signing import tenant_secret
from app.hooks.webhook import CAPS, http_hook
from app.sandbox.guarded_http import Guard

CANNOT_SIGN = (
    "This service cannot sign the requests of HTTP hooks: its operator has to set "
    "TREADLE_HOOKS__SECRET."
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose run it is."""

    tenant_id: str
    session_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class HostHooks:
    """What is the same for all runs of a host."""

    guard: Guard
    commands: tuple[CommandHook, ...] = ()
    python: tuple[PythonHook, ...] = ()
    secret: str | None = None
    """What tenants' signing secrets are made of; None: HTTP hooks fail."""
    user_agent: str = "Treadle"

    def events(self, given: Sequence[HttpHook]) -> frozenset[str]:
        """Give the events that somebody wants to hear of in a run with these HTTP hooks."""
        return frozenset(
            (
                *(hook.event for hook in self.commands),
                *(hook.event for hook in self.python),
                *(hook.event for hook in given),
            )
        )

    @asynccontextmanager
    async def open(
        self, owner: Owner, given: Sequence[HttpHook], shell: Shell
    ) -> AsyncIterator[RunHooks]:
        """Give the hooks of a run; connections are closed at the end."""
        async with AsyncExitStack() as stack:
            detached = await stack.enter_async_context(Detached())
            commands = (command_hook(each, shell, detached) for each in self.commands)
            python = (each.bound() for each in self.python)
            http = await self._http(stack, owner, given) if given else ()
            yield RunHooks((*commands, *python, *http), owner.session_id, owner.run_id)

    async def _http(
        self, stack: AsyncExitStack, owner: Owner, given: Sequence[HttpHook]
    ) -> tuple[Hook, ...]:
        if self.secret is None:
            return tuple(_unsigned(each) for each in given)
        signer = Webhook(tenant_secret(self.secret, owner.tenant_id))
        client: httpx.AsyncClient = await stack.enter_async_context(self.guard.client(CAPS))
        return tuple(http_hook(each, client, signer, self.user_agent) for each in given)


def _unsigned(given: HttpHook) -> Hook:
    async def ask(_: Asked) -> Reply:
        raise HookFailed(CANNOT_SIGN)

    return Hook(
        given.url.partition("?")[0],
        given.event,
        matcher_of(given.matcher),
        ask,
        on_failure=given.on_failure,
    )
