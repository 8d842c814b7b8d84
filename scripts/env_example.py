"""Write `.env.example` from the settings, or with --check say whether the one checked in is current."""

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from app.settings.settings import PLAIN_NAMES, Settings

PATH = Path(__file__).parents[1] / ".env.example"
HEAD = """\
# Every setting, with its default. The service reads its environment; it does not read this file:
#   set -a; . ./.env; set +a; treadle serve
# Values that hold more than one thing are JSON. A variable set to nothing counts as unset.
"""
_PREFIX = Settings.model_config.get("env_prefix", "")
_PLAIN = {place: name for name, place in PLAIN_NAMES.items()}


def env_example() -> str:
    """Give the file's text."""
    parts = [HEAD, *_entries(Settings, ())]
    for group, field in Settings.model_fields.items():
        if (kind := _group(field)) is not None:
            parts += [f"# -- {group} --\n", *_entries(kind, (group,))]
    return "\n".join(parts)


def _entries(kind: type[BaseModel], group: tuple[str, ...]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if _group(field) is not None:
            continue
        lines = [f"# {line.strip()}" for line in (field.description or "").splitlines()]
        path = (*group, name)
        value = _text(field.get_default(call_default_factory=True))
        plain = _PLAIN.get((path[0], path[-1])) if len(path) > 1 else None
        if plain is not None:
            lines.append(f"#{plain}={value}")
        lines.append(f"#{_variable(path)}={value}")
        yield "\n".join(lines) + "\n"


def _variable(path: tuple[str, ...]) -> str:
    return _PREFIX + "__".join(path).upper()


def _group(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _text(value: Any) -> str:  # noqa: ANN401 - a default is of its field's type
    match value:
        case None | SecretStr():
            return ""
        case bool():
            return str(value).lower()
        case list() | dict():
            text = json.dumps(value, default=str)
            return f"'{text}'" if value else text  # quoted for shells
        case Decimal() | int() | float() | str():
            return str(value)
        case _:
            raise TypeError(f"a setting has a default that cannot be shown: {value!r}")


def main() -> int:
    """Write, or check."""
    current = env_example()
    if "--check" not in sys.argv[1:]:
        PATH.write_text(current)
        return 0
    if PATH.read_text() == current:
        return 0
    sys.stderr.write(".env.example is not current. Run `python scripts/env_example.py`.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
