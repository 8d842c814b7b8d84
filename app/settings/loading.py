"""Read the settings, and say of each variable that is wrong which it is."""

import json
import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from app.errors import ConfigError
from app.settings.settings import PLAIN_NAMES, Settings


def load_settings() -> Settings:
    """Read the environment. Raises `ConfigError` naming each variable that is wrong."""
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = "; ".join(
            f"{_variable(problem['loc'])}: {_what(problem)}"
            for problem in error.errors(include_input=False)
        )
        raise ConfigError(f"The settings are not valid. {wrong}") from None
    except SettingsError:
        wrong = ", ".join(_not_json()) or "a TREADLE_ variable"
        raise ConfigError(
            f'The settings are not valid. {wrong}: must be JSON, such as ["…"] or {{"…": "…"}}.'
        ) from None
    if settings.engine.heartbeat_s * 2 > settings.engine.lease_s:
        raise ConfigError(
            "TREADLE_ENGINE__LEASE_S must be at least twice TREADLE_ENGINE__HEARTBEAT_S: "
            "a host that misses one heartbeat must not lose its sessions."
        )
    return settings


def unknown_variables() -> Iterator[tuple[str, str | None]]:
    """Give each `TREADLE_` variable of the environment that sets nothing, and one it may mean."""
    known = set(_known_variables())
    for name in sorted(os.environ):
        head = "__".join(name.upper().split("__")[:2])  # beyond it lie keys of a JSON object
        if head.startswith("TREADLE_") and head not in known | _OF_COMMANDS:
            yield name, next(iter(get_close_matches(head, known, n=1, cutoff=0.8)), None)


_OF_COMMANDS = frozenset({"TREADLE_URL", "TREADLE_KEY"})
"""Read by the commands that are clients of a server."""


def _known_variables() -> Iterator[str]:
    for group, group_field in Settings.model_fields.items():
        yield f"TREADLE_{group}".upper()
        for name in getattr(group_field.annotation, "model_fields", {}):
            yield f"TREADLE_{group}__{name}".upper()


def _variable(path: Sequence[int | str]) -> str:
    """Give the variable that was set, ours or the plain one."""
    name = f"TREADLE_{'__'.join(str(part).upper() for part in path)}"
    plain = next((n for n, place in PLAIN_NAMES.items() if place == tuple(path)), name)
    return plain if plain in os.environ and name not in os.environ else name


def _what(problem: ErrorDetails) -> str:
    if problem["type"] == "too_short":  # said of a secret as of a list
        return f"at least {problem['ctx']['min_length']} characters are needed"
    return problem["msg"].removeprefix("Value error, ")


def _not_json() -> Iterator[str]:
    """Give the variables of compound settings that hold no JSON."""
    for group, group_field in Settings.model_fields.items():
        fields = getattr(group_field.annotation, "model_fields", {})
        names = [f"TREADLE_{group}".upper()] if fields else []
        names += [
            f"TREADLE_{group}__{name}".upper()
            for name, field in fields.items()
            if _kinds(field.annotation) & {list, dict}
        ]
        yield from (name for name in names if name in os.environ and not _is_json(os.environ[name]))


def _kinds(annotation: object) -> set[object]:
    """Give what a type is made of: `list` of `list[str] | None`."""
    return {get_origin(part) for part in (annotation, *get_args(annotation))}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
