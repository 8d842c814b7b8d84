"""`treadle sessions`: list, show, fork."""

import json
from typing import Annotated

import typer

from app.cli.client import JsonObject, address
from app.cli.options import DEFAULT_URL, AsJson, Key, Limit, Url, connect
from app.cli.plain import json_line, one_line
from app.cli.screen import print_details, print_line, print_table, say

SessionId = Annotated[str, typer.Argument(metavar="ID")]

sessions = typer.Typer(invoke_without_command=True)


@sessions.callback()
def default(
    context: typer.Context,
    limit: Limit = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List, show and branch sessions. Alone it lists them.

    For example:
      treadle sessions
      treadle sessions show 0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f
    """
    if context.invoked_subcommand is None:
        list_all(limit, as_json=as_json, url=url, key=key)


@sessions.command("list")
def list_all(
    limit: Limit = 20, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """List the newest sessions."""
    with connect(url, key) as client:
        found = list(client.items(address("sessions"), limit))
    if as_json:
        print_line(json_line(json.dumps(found)))
        return
    rows = [
        (
            session["id"],
            session["status"],
            session["created_at"][:19],
            one_line(session["title"] or "", 40),
            str(session["num_runs"]),
            session["cost"]["session_usd"],
        )
        for session in found
    ]
    print_table(("ID", "STATUS", "MADE", "TITLE", "RUNS", "USD"), rows, figures=2)
    if not found:
        say('There is none yet: treadle run "…"')


@sessions.command()
def show(
    session_id: SessionId, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """Show a session."""
    with connect(url, key) as client:
        session = client.get(address("sessions", session_id))
    _show(session, as_json=as_json)
    if not as_json:
        say(f'Go on: treadle run --session {session["id"]} "…"')


@sessions.command()
def fork(
    session_id: SessionId,
    at: Annotated[
        str | None, typer.Option(metavar="UUID", help="The last message that the new one has.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the new session.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Branch a session: a new one with its messages; it is not touched itself.

    The new session works in an empty folder of its own, or, when this one
    works in a folder of the server's machine, in the same.

    For example:
      treadle sessions fork 0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f --title "another way"
    """
    wish = {"at_message": at, "title": title}
    with connect(url, key) as client:
        path = address("sessions", session_id, "fork")
        made = client.post(path, {name: value for name, value in wish.items() if value})
    _show(made, as_json=as_json)
    if not as_json:
        say(f'Go on: treadle run --session {made["id"]} "…"')


def _show(session: JsonObject, *, as_json: bool) -> None:
    if as_json:
        print_line(json_line(json.dumps(session)))
        return
    cost = session["cost"]
    print_details(
        (
            ("session", session["id"]),
            ("title", session["title"]),
            ("status", session["status"]),
            ("active run", session["active_run_id"]),
            ("queued runs", session["queued_runs"] or None),
            ("runs", session["num_runs"]),
            ("cost", f"${cost['session_usd']} (inherited: ${cost['inherited_usd']})"),
            ("options", json.dumps(session["options"])),
            ("workspace", json.dumps(session["workspace"])),
            ("forked from", session["parent_id"]),
            ("last seq", session["last_seq"]),
            ("made", session["created_at"]),
            ("changed", session["updated_at"]),
        )
    )
