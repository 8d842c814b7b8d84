"""Hooks of the operator in Python: packages that name theirs under the entry point `treadle.hooks`.

They run in the service's own process, as trusted as the service. See `examples/`.

    @hook("PreToolUse", matcher="Bash")
    async def no_sudo(told: Mapping[str, Any]) -> Mapping[str, Any] | None:
        ...

A hook is given what an HTTP hook is given as its body, and gives back what that would answer.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Literal

import orjson

from app.domain.hooks import EVENTS
from app.domain.text import printable_value
from app.hooks.hook import DEFAULT_TIMEOUT_S, Asked, Hook, HookFailed, Reply
from app.hooks.matching import matcher_of
from app.plugins.entry_points import installed

GROUP = "treadle.hooks"

Answer = Mapping[str, Any] | None
AskPython = Callable[[Mapping[str, Any]], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class PythonHook:
    """A function that is asked in this process."""

    name: str
    event: str
    matcher: str | None
    timeout_s: float
    on_failure: Literal["block", "continue"]
    ask: AskPython

    def bound(self) -> Hook:
        """Give it as any other hook."""

        async def ask(asked: Asked) -> Reply:
            answer = await self.ask({**asked.input, "hook_id": asked.id})
            return Reply() if answer is None else _read(answer)

        return Hook(
            self.name, self.event, matcher_of(self.matcher), ask, self.timeout_s, self.on_failure
        )


def _read(answer: Mapping[str, Any]) -> Reply:
    """Take an answer as an HTTP hook's would come: what is no JSON would break the run later."""
    try:
        encoded = orjson.dumps(printable_value(dict(answer)))
    except (TypeError, ValueError, RecursionError) as error:
        raise HookFailed(f"its answer is no JSON ({error})") from None
    return Reply(orjson.loads(encoded), encoded.decode())


def hook(
    event: str,
    *,
    matcher: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_failure: Literal["block", "continue"] = "continue",
) -> Callable[[AskPython], PythonHook]:
    """Make a hook of an async function. Raises `ValueError` for an event that there is not."""
    if event not in EVENTS:
        raise ValueError(f"there is no event {event!r}; there are: {', '.join(EVENTS)}")
    matcher_of(matcher)

    def make(ask: AskPython) -> PythonHook:
        name = getattr(ask, "__qualname__", type(ask).__name__)
        return PythonHook(name, event, matcher, timeout_s, on_failure, ask)

    return make


def installed_hooks(found: Iterable[EntryPoint] | None = None) -> tuple[PythonHook, ...]:
    """Load the hooks of all installed packages. Raises `ConfigError`: see `installed`."""
    return tuple(each for _, each in installed(GROUP, PythonHook, "hook", found))
