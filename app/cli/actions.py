"""`treadle actions`: what runs ask, and the answers."""

import json
from typing import Annotated

import typer

from app.cli.asking import answers_of, lines_of
from app.cli.client import JsonObject, address
from app.cli.failure import CliFailure
from app.cli.options import DEFAULT_URL, AsJson, Key, Limit, Url, connect
from app.cli.plain import json_line, one_line
from app.cli.screen import print_details, print_line, print_table, say

ActionId = Annotated[str, typer.Argument(metavar="ID")]

actions = typer.Typer(invoke_without_command=True)


@actions.callback()
def default(
    context: typer.Context,
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List what runs ask, and answer it. Alone it lists what waits for an answer.

    For example:
      treadle actions
      treadle actions allow act_01JDZX5E5V8M2Q4T6Y8A0C2E4G
      treadle actions answer act_01JDZX5E5V8M2Q4T6Y8A0C2E4G Postgres
    """
    if context.invoked_subcommand is None:
        list_all(limit=limit, as_json=as_json, url=url, key=key)


@actions.command("list")
def list_all(
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only those of this session.")
    ] = None,
    status: Annotated[
        str, typer.Option(help="pending, resolved, expired or withdrawn; `all` for every one.")
    ] = "pending",
    limit: Limit = 50,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List what is asked, the oldest first."""
    wanted = None if status == "all" else status
    with connect(url, key) as client:
        found = list(client.items(address("actions"), limit, session_id=session, status=wanted))
    if as_json:
        print_line(json_line(json.dumps(found)))
        return
    rows = [
        (
            action["id"],
            action["type"],
            action["status"],
            action["requested_at"][:19],
            one_line(next(lines_of(action)).removeprefix("? "), 60),
        )
        for action in found
    ]
    print_table(("ID", "TYPE", "STATUS", "ASKED", "WHAT"), rows)


@actions.command()
def show(
    action_id: ActionId, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """Show what is asked."""
    with connect(url, key) as client:
        action = client.get(address("actions", action_id))
    if as_json:
        print_line(json_line(json.dumps(action)))
        return
    print_details(
        (
            ("action", action["id"]),
            ("type", action["type"]),
            ("status", action["status"]),
            ("session", action["session_id"]),
            ("run", action["run_id"]),
            ("asked", "\n".join(lines_of(action))),
            ("answer", json.dumps(action["resolution"]) if action["resolution"] else None),
            ("expires", action["expires_at"]),
        )
    )


@actions.command()
def allow(
    action_id: ActionId,
    always: Annotated[
        bool, typer.Option("--always", help="Spare the next questions of its like, too.")
    ] = False,
    given: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="What runs instead.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Let a call run."""
    answer: dict[str, object] = {"behavior": "allow"}
    if given is not None:
        try:
            answer["updated_input"] = json.loads(given)
        except ValueError as error:
            raise CliFailure(f"--input is no JSON: {error}.") from None
    with connect(url, key) as client:
        if always:
            action = client.get(address("actions", action_id))
            answer["updated_permissions"] = (action["permission"] or {}).get("suggestions") or []
        _told(client.post(address("actions", action_id, "resolve"), answer))


@actions.command()
def deny(
    action_id: ActionId,
    why: Annotated[
        str, typer.Option("--message", "-m", help="Why, for the model.")
    ] = "The user denied this call.",
    interrupt: Annotated[
        bool, typer.Option("--interrupt", help="End the whole run with it.")
    ] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Deny a call, or turn a question down."""
    answer: JsonObject = {"behavior": "deny", "message": why, "interrupt": interrupt}
    with connect(url, key) as client:
        _told(client.post(address("actions", action_id, "resolve"), answer))


@actions.command()
def answer(
    action_id: ActionId,
    answers: Annotated[
        list[str], typer.Argument(help="One for each question: a label, its number, other words.")
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Answer a question, or give the result of a tool of your own (as text)."""
    with connect(url, key) as client:
        action = client.get(address("actions", action_id))
        body: JsonObject
        match action["type"]:
            case "question":
                body = {"answers": answers_of(action, answers)}
            case "client_tool":
                body = {"content": " ".join(answers)}
            case other:
                raise CliFailure(f"A {other} is not answered in words: see `treadle actions show`.")
        _told(client.post(address("actions", action_id, "resolve"), body))


def _told(action: JsonObject) -> None:
    say(f"{action['id']} is answered; {action['run_id']} goes on.")
