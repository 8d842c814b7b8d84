"""`treadle skills`: list, add, show, delete."""

import io
import json
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import JsonObject, address
from app.cli.failure import CliFailure
from app.cli.options import DEFAULT_URL, AsJson, Key, Url, connect
from app.cli.plain import json_line, shown
from app.cli.screen import print_details, print_line, print_table, say

SkillName = Annotated[str, typer.Argument(metavar="NAME")]

skills = typer.Typer(invoke_without_command=True)


@skills.callback()
def default(
    context: typer.Context, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """List, add, show and delete skills that all your runs may load. Alone it lists them.

    For example:
      treadle skills add .claude/skills/review
    """
    if context.invoked_subcommand is None:
        list_all(as_json=as_json, url=url, key=key)


@skills.command("list")
def list_all(as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the skills."""
    with connect(url, key) as client:
        found = client.get(address("skills"))["data"]
    if as_json:
        print_line(json_line(json.dumps(found)))
        return
    rows = [(each["name"], each["version"][:12], each["description"]) for each in found]
    print_table(("NAME", "VERSION", "WHAT"), rows)


@skills.command()
def add(
    source: Annotated[Path, typer.Argument(help="A folder with SKILL.md, or a zip file of one.")],
    name: Annotated[
        str | None, typer.Option(help="What it is called by. Default: the folder's name.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Upload a skill, in the place of one of the same name."""
    try:
        if source.is_dir():
            data, name = _zipped(source), name or source.resolve().name
        else:
            data = source.read_bytes()
    except OSError as error:
        raise CliFailure(f"{error.filename or source}: {error.strerror}.") from None
    with connect(url, key) as client:
        made = client.upload(address("skills"), data, kind="application/zip", name=name)
    _show(made, as_json=as_json)


@skills.command()
def show(name: SkillName, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Show a skill and the names of its files."""
    with connect(url, key) as client:
        found = client.get(address("skills", name))
    _show(found, as_json=as_json)


@skills.command()
def delete(name: SkillName, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Delete a skill. Runs that are under way keep it."""
    with connect(url, key) as client:
        client.delete(address("skills", name))
    say(f"{shown(name)} is deleted.")


def _zipped(folder: Path) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink():
                raise CliFailure(f"{path} is a link: a skill holds plain files alone.")
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return target.getvalue()


def _show(skill: JsonObject, *, as_json: bool) -> None:
    if as_json:
        print_line(json_line(json.dumps(skill)))
        return
    print_details(
        [
            ("name", skill["name"]),
            ("what", skill["description"]),
            ("version", skill["version"]),
            ("approves", ", ".join(skill["allowed_tools"]) or "nothing"),
            ("changed", skill["updated_at"]),
            *(("file", f"{file['path']} ({file['size_bytes']} bytes)") for file in skill["files"]),
        ]
    )
