"""Hooks of the operator in Python: packages that name theirs under the entry point `treadle.hooks`.

They run in the service's own process, as trusted as the service. See `examples/`.

    @hook("PreToolUse", matcher="Bash")
    async def no_sudo(told: Mapping[str, Any]) -> Mapping[str, Any] | None:
        ...

A hook is given what an HTTP hook is given as its body, and gives back what that would answer.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from app.domain.hooks import EVENTS
from app.errors import ConfigError
from app.hooks.hook import DEFAULT_TIMEOUT_S, Asked, Hook, Reply
from app.hooks.matching import matcher_of

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
            return Reply() if answer is None else Reply(dict(answer), str(dict(answer)))

        return Hook(
            self.name, self.event, matcher_of(self.matcher), ask, self.timeout_s, self.on_failure
        )


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
    """Load the hooks of all installed packages, in the order of their entry points' names.

    An entry point is one hook or a sequence of them. Raises `ConfigError`, which names the entry
    point: a hook that is missing would let through what it is there to stop.
    """
    every = entry_points(group=GROUP) if found is None else found
    return tuple(
        each for point in sorted(every, key=lambda point: point.name) for each in _loaded(point)
    )


def _loaded(point: EntryPoint) -> Sequence[PythonHook]:
    try:
        value = point.load()
    except Exception as error:  # whatever a package does when it is imported
        raise _useless(point, f"{type(error).__name__}: {error}") from error
    hooks = [value] if isinstance(value, PythonHook) else value
    if not isinstance(hooks, Sequence) or not all(isinstance(each, PythonHook) for each in hooks):
        raise _useless(point, "it is neither a hook nor a sequence of hooks")
    return hooks


def _useless(point: EntryPoint, why: str) -> ConfigError:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return ConfigError(
        f"The entry point {point.name} = {point.value}{package} ({GROUP}) cannot be used: {why}. "
        "Mend the package, or uninstall it."
    )
