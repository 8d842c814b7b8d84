"""`treadle sessions`: change, archive, export, import."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.client import JsonObject, address
from app.cli.failure import CliFailure
from app.cli.options import DEFAULT_URL, AsJson, Key, Url, connect
from app.cli.screen import say
from app.cli.sessions import SessionId, show_session
from app.cli.sessions import sessions as sessions
from app.runs.transcripts.formats import Format


@sessions.command()
def change(
    session_id: SessionId,
    title: Annotated[str | None, typer.Option(help="Its new title; empty for none.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag, in place of those there were; repeat it.")
    ] = None,
    meta: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Metadata; NAME= removes it.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Change a session's title, tags or metadata.

    For example:
      treadle sessions change 0e6f2f5e-… --title "Tidy the notes" --tag ci --meta ticket=A-1
    """
    body: dict[str, Any] = {}  # Any: JSON
    if title is not None:
        body["title"] = title
    if tag:
        body["tags"] = tag
    if meta:
        body["metadata"] = dict(map(_pair, meta))
    if not body:
        raise CliFailure("Say what is to change: --title, --tag or --meta.")
    with connect(url, key) as client:
        show_session(client.patch(address("sessions", session_id), body), as_json=as_json)


def _pair(text: str) -> tuple[str, str | None]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise CliFailure(f"{text!r} is not NAME=VALUE.")
    return name, value or None


@sessions.command()
def archive(
    session_id: SessionId, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """Let a session only be read from now on, and leave it out of lists."""
    with connect(url, key) as client:
        show_session(client.post(address("sessions", session_id, "archive")), as_json=as_json)


@sessions.command()
def unarchive(
    session_id: SessionId, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """Take a session out of the archive."""
    with connect(url, key) as client:
        show_session(client.post(address("sessions", session_id, "unarchive")), as_json=as_json)


@sessions.command()
def export(
    session_id: SessionId,
    form: Annotated[
        Format, typer.Option("--format", help="claude-jsonl can be imported again.")
    ] = "markdown",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; else standard output.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Write a session as a file.

    For example:
      treadle sessions export 0e6f2f5e-… --format claude-jsonl -o session.jsonl
    """
    with connect(url, key) as client:
        pieces = client.download(address("sessions", session_id, "export"), format=form)
        first = next(pieces, b"")  # a refusal leaves the file alone
        try:
            with output.open("wb") if output else sys.stdout.buffer as sink:
                sink.write(first)
                sink.writelines(pieces)
        except OSError as error:
            raise CliFailure(f"{output or 'Standard output'}: {error.strerror}.") from None


@sessions.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A claude-jsonl transcript.")],
    title: Annotated[str | None, typer.Option(help="Of the session. Default: the file's.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make a session of a transcript."""
    try:
        lines = file.read_bytes()
    except OSError as error:
        raise CliFailure(f"{file}: {error.strerror}.") from None
    with connect(url, key) as client:
        made: JsonObject = client.upload(address("sessions", "import"), lines, title=title)
    show_session(made, as_json=as_json)
    counts = made["imported"]
    say(f"{counts['messages']} messages came in; {counts['skipped_lines']} lines were left out.")
