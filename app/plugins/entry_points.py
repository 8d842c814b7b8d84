"""What installed packages bring: Python objects that they name under an entry point of ours."""

from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from app.errors import ConfigError

T = TypeVar("T")


def installed(
    group: str, kind: type[T], what: str, found: Iterable[EntryPoint] | None = None
) -> Iterator[tuple[EntryPoint, T]]:
    """Load what all packages name under `group`, in the order of the entry points' names.

    An entry point is one object of `kind` or a sequence of them; `what` says in the singular what
    that is. Raises `ConfigError`, which names the entry point: what is missing would be missed only
    in the middle of a run.
    """
    every = entry_points(group=group) if found is None else found
    for point in sorted(every, key=lambda point: point.name):
        for each in _loaded(point, kind, what):
            yield point, each


def unusable(point: EntryPoint, why: str) -> ConfigError:
    """Make the error that says which package has to be mended."""
    package = f" of the package {point.dist.name}" if point.dist else ""
    return ConfigError(
        f"The entry point {point.name} = {point.value}{package} ({point.group}) cannot be used: "
        f"{why}. Mend the package, or uninstall it."
    )


def _loaded(point: EntryPoint, kind: type[T], what: str) -> Sequence[T]:
    try:
        value = point.load()
    except Exception as error:  # whatever a package does when it is imported
        raise unusable(point, f"{type(error).__name__}: {error}") from error
    loaded = [value] if isinstance(value, kind) else value
    if not isinstance(loaded, Sequence) or not all(isinstance(each, kind) for each in loaded):
        raise unusable(point, f"it is neither a {what} nor a sequence of {what}s")
    return loaded
