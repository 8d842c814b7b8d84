"""`treadle db`: the embedded PostgreSQL by hand."""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from app.store import embedded
from app.store.embedded import EmbeddedPostgres

_NOT_RUNNING = 3
"""Exit status of `status`, as init scripts have it."""


def make_db_app(place: Callable[[], EmbeddedPostgres]) -> typer.Typer:
    """`place` is asked when a command runs. ConfigError passes through to the entry point."""
    db = typer.Typer(help="The embedded PostgreSQL (without DATABASE_URL).", no_args_is_help=True)

    @db.command()
    def start() -> None:
        """Start the server; it goes on until `stop`, or until the machine ends."""
        typer.echo(asyncio.run(embedded.ensure_running(place(), on_progress=_say)))

    @db.command()
    def stop() -> None:
        """Stop the server. Clients are disconnected; what they committed is kept."""
        typer.echo("stopped" if asyncio.run(embedded.stop(place())) else "was not running")

    @db.command()
    def status(
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    ) -> None:
        """Say whether the server runs; exit status 3 if it does not."""
        now = asyncio.run(embedded.status(place()))
        if as_json:
            typer.echo(json.dumps(asdict(now), default=str))
        else:
            state = f"running, pid {now.pid}" if now.running else "not running"
            typer.echo(f"{state}\nversion   {now.version or '-'}\ndata      {now.data_dir}")
            typer.echo(f"address   {now.dsn}")
        raise typer.Exit(0 if now.running else _NOT_RUNNING)

    @db.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def psql(context: typer.Context) -> None:
        """Open psql on the database, starting the server if needed; takes psql's options."""
        here = place()
        asyncio.run(embedded.ensure_running(here, on_progress=_say))
        argv = [*embedded.psql_argv(here), *context.args]
        os.execv(argv[0], argv)  # noqa: S606 - psql takes our terminal and our place

    @db.command()
    def path() -> None:
        """Print the address (DSN) for other programs; starts nothing."""
        typer.echo(asyncio.run(embedded.status(place())).dsn)

    return db


def _say(text: str) -> None:
    typer.echo(text, err=True)
