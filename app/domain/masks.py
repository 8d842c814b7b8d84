"""What looks like a credential where none belongs: in a URL, in the arguments of a program. Pure.

Secrets belong into headers and variables, whose values are masked whole. These are found by their
names, so the rest stays readable: a guess that errs for what it does not know.
"""

import re
from collections.abc import Sequence

MASK = "[masked]"
"""Stands for a literal value where options are shown."""
_NAME = (
    r"[\w.-]*?(?:api[-_]?key|access[-_]?key|secret|token|passw(?:or)?d|passphrase|credentials?|"
    r"authorization|cookie|signature|bearer|[-_]auth|[-_]key|[-_]sig)"
)
_IS_SECRET = re.compile(rf"-{{0,2}}(?:{_NAME}|key|auth|sig|pass|pwd)", re.IGNORECASE)
_MOST_CHARS = 100
"""Of a name: what is longer is none."""
_QUERY = re.compile(r"(?<=[?&;#])([^=&;#?\s]+)=([^&;#\s]*)")
_USER = re.compile(r"(?<=://)[^/?#\s@]+(?=@)")
_ASSIGNED = re.compile(r"(-{0,2}[\w.-]+)(=|:\s*)(.+)", re.DOTALL)


def masked_url(url: str) -> str:
    """Mask who calls, and the values of parameters whose names say that they are secret."""
    return _QUERY.sub(_parameter, _USER.sub(MASK, url))


def masked_args(args: Sequence[str]) -> list[str]:
    """Mask what stands behind `--token=`, `--token`, `API_KEY=`, `Authorization:`, and within URLs."""
    shown: list[str] = []
    is_value = False
    for arg in args:
        if is_value and not arg.startswith("-"):
            shown.append(MASK if arg else arg)
            is_value = False
            continue
        assigned = _ASSIGNED.fullmatch(arg)
        if assigned and _is_secret(assigned[1]):
            shown.append(f"{assigned[1]}{assigned[2]}{MASK}")
        else:
            shown.append(masked_url(arg) if "://" in arg else arg)
        is_value = arg.startswith("-") and _is_secret(arg)
    return shown


def _is_secret(name: str) -> bool:
    return len(name) <= _MOST_CHARS and _IS_SECRET.fullmatch(name) is not None


def _parameter(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if found[2] and _is_secret(found[1]) else found[0]
