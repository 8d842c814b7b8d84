"""Which files deny rules for reading keep out of the results of searches."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.permissions.permissions import Permissions


@dataclass(slots=True)
class Hidden:
    """For one search: where folders lead is remembered. Searches follow no links below their start."""

    permissions: Permissions
    _real: dict[str, str] = field(default_factory=dict)

    def __call__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        real = self._real.get(folder)
        if real is None:
            real = self._real[folder] = self.permissions.place.real(folder or "/")
        forms = {path, f"{real.rstrip('/')}/{name}"}
        return any(
            rule.path is not None and any(rule.path.touches(form) for form in forms)
            for rule in self.permissions.rules.paths("deny", ["Read"])
        )


def hidden_by(permissions: Permissions) -> Callable[[str], bool] | None:
    """Give the test of a path for one search; None when nothing is hidden."""
    return Hidden(permissions) if permissions.rules.paths("deny", ["Read"]) else None
