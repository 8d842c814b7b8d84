"""`treadle run`: send a prompt and follow what comes of it."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.attach import follow_run, show_started
from app.cli.client import Client, JsonObject, address
from app.cli.failure import CliFailure, Status
from app.cli.options import DEFAULT_URL, AsMessages, Budget, Key, MaxTurns, NoFollow, Url, connect
from app.cli.screen import say
from app.domain.permissions import PermissionMode


def run(
    prompt: Annotated[
        str, typer.Argument(help="What to do, in plain words; `-` reads it from standard input.")
    ],
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this session.")
    ] = None,
    resume_at: Annotated[
        str | None,
        typer.Option(metavar="UUID", help="With --session: the last message that stays in it."),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Go on with the newest session of --user or --dir.")
    ] = False,
    user: Annotated[str | None, typer.Option(help="Who a new session is for.")] = None,
    model: Annotated[
        str | None, typer.Option(help='Model or alias; "demo" needs no provider key.')
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="A tool that may run; repeat it.")
    ] = None,
    mode: Annotated[PermissionMode | None, typer.Option(help="What else may run.")] = None,
    max_turns: MaxTurns = None,
    budget: Budget = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="PATH", help="Work in this folder of the server's machine."),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Ask at the end for what could come next.")
    ] = False,
    ask: Annotated[
        bool,
        typer.Option("--ask", help="Be asked for approvals and answers, here or by `actions`."),
    ] = False,
    no_follow: NoFollow = False,
    as_json: AsMessages = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Send a prompt, then follow the run until it ends.

    Ctrl-C leaves; the run goes on. Exit status: 0 success, 1 the run failed,
    2 the command cannot work, 3 no server answers, 130 left by Ctrl-C.

    For example:
      treadle run "What is in this folder?" --dir /srv/project
      treadle run "Fix the failing test" --mode acceptEdits --allow Bash
      treadle run "Now update the docs" --session 0e6f2f5e-… --budget 0.50
      treadle run "Tidy up" --ask
      treadle run "And the tests" --continue --dir /srv/project
      echo "Say hello" | treadle run --model demo --json - | jq .type
    """
    if session is not None and (folder is not None or user is not None or go_on):
        raise CliFailure(
            "A session keeps its folder and user: leave out --dir, --user and --continue, "
            "or --session."
        )
    if resume_at is not None and session is None:
        raise CliFailure("--resume-at needs the --session that has the message.")
    if go_on and user is None and folder is None:
        raise CliFailure("--continue needs --user or --dir.")
    options = {
        "model": model,
        "allowed_tools": allow or None,
        "permission_mode": mode,
        "max_turns": max_turns,
        "max_budget_usd": None if budget is None else str(budget),
        "prompt_suggestions": suggest or None,
        "actions": {"permissions": "ask", "questions": "ask"} if ask else None,
    }
    body: dict[str, Any] = {  # Any: JSON
        "prompt": sys.stdin.read() if prompt == "-" else prompt,
        "options": {name: value for name, value in options.items() if value is not None},
    }
    if resume_at is not None:
        body["resume_at"] = resume_at
    if go_on:
        body["continue_conversation"] = True
    if user is not None:
        body["session"] = {"user": user}
    if folder is not None:
        body["workspace"] = {"source": "directory", "path": str(folder.absolute())}
    with connect(url, key) as client:
        path = address("runs") if session is None else address("sessions", session, "runs")
        started = _start(client, path, body)
        if not no_follow:
            raise typer.Exit(follow_run(client, started["run"], as_json=as_json))
        show_started(started, as_json=as_json)


def _start(client: Client, path: str, body: JsonObject) -> JsonObject:
    try:
        return client.post(path, body)
    except KeyboardInterrupt:
        say("Whether the run was begun is not known: look at `treadle runs`.", "yellow")
        raise typer.Exit(Status.DETACHED) from None
