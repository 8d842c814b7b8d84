"""What a tenant's runs may not do, whatever their options say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A tenant's policy. Options may stay below it, never above."""

    forbidden_modes: frozenset[str] = frozenset()
    denied: tuple[str, ...] = ()
    """Deny rules: tools, uses of tools, hosts."""
    asked: tuple[str, ...] = ()
    """Ask rules."""

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Ceiling":
        """Read the stored form. Raises `ValueError` when it is not one: nothing is let through then."""
        lists = {name: value.get(name, []) for name in ("forbidden_modes", "deny", "ask")}
        if not all(_is_texts(given) for given in lists.values()):
            raise ValueError("a tenant's policy holds something other than lists of texts")
        return Ceiling(
            frozenset(lists["forbidden_modes"]), tuple(lists["deny"]), tuple(lists["ask"])
        )

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {
            "forbidden_modes": sorted(self.forbidden_modes),
            "deny": list(self.denied),
            "ask": list(self.asked),
        }


def _is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(text, str) for text in given)


NO_CEILING = Ceiling()


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """Rules over the runs of all tenants."""

    denied: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def over(self, ceiling: Ceiling) -> Iterable[str]:
        """Give all deny rules that no option can take away."""
        return (*self.denied, *ceiling.denied)
