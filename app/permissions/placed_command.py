"""A shell command taken apart, each of its simple commands with where it may stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.permissions.commands import destination
from app.permissions.place import Place
from app.permissions.runners import unwrapped
from app.permissions.shell import parse_shell
from app.permissions.shell_script import Command, Script

_MAX_FOLDERS = 8
"""Folders that a command may stand in, before it is unknown where."""
_MOVE = frozenset(["HOME", "CDPATH"])
"""Variables that say where `~` and `cd` lead."""

Folders = frozenset[str] | None
"""Where a command may stand; None: nobody knows."""


@dataclass(frozen=True, slots=True)
class PlacedCommand:
    """A script: one shell command of a call, or what such a command hands to a shell."""

    text: str
    script: Script
    commands: Sequence[tuple[Command, Folders]]
    """Its simple commands, in their order; none of the scripts that they hand to a shell."""
    anywhere: Folders
    """Where any of it may stand."""
    place: Place


def placed_command(text: str, place: Place, folders: Folders) -> PlacedCommand:
    """Take a command apart. Never raises: what is not understood is `script.is_broken`."""
    script = parse_shell(text)
    commands = tuple(_placed(script, place, folders))
    after = (where for _, where in commands)
    anywhere: Folders = folders
    for where in after:
        anywhere = None if anywhere is None or where is None else anywhere | where
    return PlacedCommand(text, script, commands, anywhere, place)


def behind_wrappers(command: Command) -> tuple[bool, str]:
    """Give a command's text, as it is written, behind what a rule reaches through."""
    words, adds_words = unwrapped(command.words)
    text = command.source
    for word in command.words[: len(command.words) - len(words)]:
        text = text.removeprefix(word.source).lstrip()
    return adds_words, text


def _placed(script: Script, place: Place, folders: Folders) -> Iterator[tuple[Command, Folders]]:
    """Give each command with the folders that it may stand in: `cd` may have worked or failed."""
    for command in script.commands:
        yield command, folders
        words = unwrapped(command.words)[0]
        name = words[0].text if words else ""
        if name in ("pushd", "popd", "eval", "source", ".") or name is None:
            folders = None
        moves = any(variable in _MOVE for variable, _ in command.assignments)
        if moves and not command.words:
            folders = None
        if name in ("cd", "builtin", "command") and folders is not None:
            target = destination(words, place.home) if name == "cd" and not moves else None
            if target is None or len(folders) > _MAX_FOLDERS:
                folders = None
            else:
                folders |= {place.absolute(target, folder) for folder in folders}
