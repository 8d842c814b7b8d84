"""The hooks of a host, from its settings."""

from collections.abc import Sequence

from app.agent.state import RunInfo
from app.errors import ConfigError
from app.hooks.command import CommandHook, read_commands
from app.hooks.custom import PythonHook, installed_hooks
from app.hooks.registry import HostHooks
from app.runs.asking import PersonAsker
from app.runs.gate import Asker
from app.runs.hooked_asking import EVENTS, HookedAsker
from app.sandbox.guarded_http import Guard
from app.settings.groups import HookSettings
from app.wiring.rules import version


def host_hooks(settings: HookSettings, guard: Guard, extra: Sequence[PythonHook] = ()) -> HostHooks:
    """Read the operator's file, load the installed packages. Raises `ConfigError`."""
    secret = settings.secret
    return HostHooks(
        guard,
        commands=_commands(settings),
        python=(*installed_hooks(), *extra),
        secret=None if secret is None else secret.get_secret_value(),
        user_agent=f"Treadle/{version()}",
    )


def hooked(person: PersonAsker, info: RunInfo) -> Asker:
    """Let hooks answer beside a person, if there are any that do."""
    return HookedAsker(person) if info.hooks & EVENTS else person


def _commands(settings: HookSettings) -> tuple[CommandHook, ...]:
    if settings.file is None:
        return ()
    path = settings.file.expanduser()
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"TREADLE_HOOKS__FILE: {path} cannot be read ({error.strerror})."
        ) from None
    return read_commands(text, f"TREADLE_HOOKS__FILE: {path}")
