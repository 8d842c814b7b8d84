"""`treadle runs`: list, show, cancel, retry, result."""

import json
from typing import Annotated

import typer

from app.cli.attach import follow_run, show_started
from app.cli.client import JsonObject, address
from app.cli.failure import CliFailure, Status
from app.cli.follow import status_of
from app.cli.options import (
    DEFAULT_URL,
    AsJson,
    AsMessages,
    Budget,
    Key,
    Limit,
    MaxTurns,
    NoFollow,
    Url,
    connect,
)
from app.cli.plain import json_line, one_line, shown
from app.cli.screen import out, print_details, print_line, print_table, say

RunId = Annotated[str, typer.Argument(metavar="ID")]
OfSession = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="Only runs of this session.")
]
_CANCEL_WAIT_S = 10

runs = typer.Typer(invoke_without_command=True)


@runs.callback()
def default(
    context: typer.Context,
    session: OfSession = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List, show, cancel and retry runs, and read their results. Alone it lists them.

    For example:
      treadle runs
      treadle runs cancel run_01JDZX5E5V8M2Q4T6Y8A0C2E4G
    """
    if context.invoked_subcommand is None:
        list_all(session, limit=limit, as_json=as_json, url=url, key=key)


@runs.command("list")
def list_all(
    session: OfSession = None,
    status: Annotated[
        list[str] | None, typer.Option(help="queued, running or finished; repeat it for more.")
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the newest runs."""
    with connect(url, key) as client:
        found = list(client.items(address("runs"), limit, session_id=session, status=status))
    if as_json:
        print_line(json_line(json.dumps(found)))
        return
    rows = [
        (
            run["id"],
            run["session_id"],
            run["result_subtype"] or run["status"],
            run["created_at"][:19],
            str(run["num_turns"] if run["num_turns"] is not None else ""),
            run["cost"]["run_usd"] or "unknown",
        )
        for run in found
    ]
    print_table(("ID", "SESSION", "HOW", "MADE", "TURNS", "USD"), rows, figures=2)


@runs.command()
def show(run_id: RunId, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Show a run."""
    with connect(url, key) as client:
        run = client.get(address("runs", run_id))
    if as_json:
        print_line(json_line(json.dumps(run)))
        return
    _show(run)


@runs.command()
def cancel(
    run_id: RunId,
    reason: Annotated[str | None, typer.Option(help="Why, for the log.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Stop a run on whatever host it is: its tools are killed. Safe to repeat.

    For example:
      treadle runs cancel run_01JDZX5E5V8M2Q4T6Y8A0C2E4G --reason "wrong folder"
    """
    body = {} if reason is None else {"reason": reason}
    with connect(url, key) as client:
        receipt = client.post(address("runs", run_id, "cancel"), body, wait=_CANCEL_WAIT_S)
    if as_json:
        print_line(json_line(json.dumps(receipt)))
    elif receipt["already_finished"]:
        say(f"{run_id} had finished before.")
    elif receipt["status"] == "finished":
        say(f"{run_id} is stopped.")
    else:
        say(f"{run_id} is being stopped; see `treadle runs show {run_id}`.")


@runs.command()
def retry(
    run_id: RunId,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where it stopped, without its prompts.")
    ] = False,
    max_turns: MaxTurns = None,
    budget: Budget = None,
    no_follow: NoFollow = False,
    as_json: AsMessages = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Try a session's newest run again, which failed, and follow the new run.

    For example:
      treadle runs retry run_01JDZX5E5V8M2Q4T6Y8A0C2E4G
      treadle runs retry run_01JDZX5E5V8M2Q4T6Y8A0C2E4G --resume --max-turns 50
    """
    limits = {"max_turns": max_turns, "max_budget_usd": None if budget is None else str(budget)}
    options = {name: value for name, value in limits.items() if value is not None}
    with connect(url, key) as client:
        body: JsonObject = {"resume": resume, "options": options}
        started = client.post(address("runs", run_id, "retry"), body)
        if not no_follow:
            raise typer.Exit(follow_run(client, started["run"], as_json=as_json))
        show_started(started, as_json=as_json)


@runs.command()
def result(run_id: RunId, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Print what a run answered; with --json its whole `result` message.

    Ends with 0 for success, 1 for a run that failed, 4 while it is not finished.

    For example:
      treadle runs result run_01JDZX5E5V8M2Q4T6Y8A0C2E4G --json | jq .total_cost_usd
    """
    with connect(url, key) as client:
        text = client.text(address("runs", run_id, "result"))
    if text is None:
        raise CliFailure(
            f"{run_id} is not finished. Follow it: treadle tail {run_id}", Status.UNFINISHED
        )
    message = json.loads(text)
    if as_json:
        print_line(json_line(text))
    elif message.get("result") is not None:
        out().print(shown(str(message["result"])))
    else:
        say(f"{message['subtype']}: {'; '.join(message.get('errors') or ())}", "red")
    raise typer.Exit(status_of(message))


def _show(run: JsonObject) -> None:
    usage = run["usage"]
    print_details(
        (
            ("run", run["id"]),
            ("session", run["session_id"]),
            ("status", run["status"]),
            ("queue position", run["queue_position"]),
            ("how it ended", run["result_subtype"]),
            ("why", run["end_reason"]),
            ("stop reason", run["stop_reason"]),
            ("turns", run["num_turns"]),
            ("tokens", ", ".join(f"{name[:-7]} {count:,}" for name, count in usage.items())),
            ("cost", f"${run['cost']['run_usd']}" if run["cost"]["run_usd"] else "unknown"),
            ("attempts", run["attempt"]),
            ("options", json.dumps(run["options"])),
            ("seq", f"{run['first_seq']} to {run['last_seq'] or '…'}"),
            ("denied", ", ".join(str(d.get("tool_name")) for d in run["permission_denials"])),
            ("errors", "\n".join(run["errors"])),
            ("made", run["created_at"]),
            ("finished", run["finished_at"]),
            ("answer", one_line(run["result"]["text"] or "", 500)),
        )
    )
