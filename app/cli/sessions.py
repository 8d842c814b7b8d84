"""`treadle sessions`: list, show, fork, rewind."""

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
    """List, show, branch and keep sessions. Alone it lists them.

    For example:
      treadle sessions
      treadle sessions show 0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f
    """
    if context.invoked_subcommand is None:
        list_all(limit, as_json=as_json, url=url, key=key)


@sessions.command("list")
def list_all(
    limit: Limit = 20,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeat it.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived ones.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the newest sessions."""
    with connect(url, key) as client:
        filters = {"user": user, "tag": tag or None, "archived": "true" if archived else None}
        found = list(client.items(address("sessions"), limit, **filters))
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
    show_session(session, as_json=as_json)


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
    show_session(made, as_json=as_json)


@sessions.command()
def rewind(
    session_id: SessionId,
    at: Annotated[str, typer.Argument(metavar="UUID", help="The last message that stays.")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Take what came after a message out of the conversation.

    The log keeps it, and files stay as they are.
    """
    with connect(url, key) as client:
        path = address("sessions", session_id, "rewind")
        rewound = client.post(path, {"at_message": at})
    show_session(rewound, as_json=as_json)


def show_session(session: JsonObject, *, as_json: bool) -> None:
    """Print a session, and say how to go on with it."""
    if as_json:
        print_line(json_line(json.dumps(session)))
        return
    cost = session["cost"]
    print_details(
        (
            ("session", session["id"]),
            ("title", session["title"]),
            ("status", session["status"]),
            ("tags", ", ".join(session["tags"]) or None),
            ("user", session["user"]),
            ("metadata", json.dumps(session["metadata"]) if session["metadata"] else None),
            ("active run", session["active_run_id"]),
            ("queued runs", session["queued_runs"] or None),
            ("runs", session["num_runs"]),
            ("cost", f"${cost['session_usd']} (inherited: ${cost['inherited_usd']})"),
            ("options", json.dumps(session["options"])),
            ("workspace", json.dumps(session["workspace"])),
            ("forked from", session["parent_id"]),
            ("ends with", session["last_message_uuid"]),
            ("last seq", session["last_seq"]),
            ("made", session["created_at"]),
            ("changed", session["updated_at"]),
        )
    )
    if session["status"] != "archived":
        say(f'Go on: treadle run --session {session["id"]} "…"')
