"""The command `treadle`, put together; and what is said when one fails."""

import contextlib
import importlib.metadata
import io
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli import hosts
from app.cli.actions import actions
from app.cli.cost import cost
from app.cli.db import make_db_app
from app.cli.failure import CliFailure, Status
from app.cli.keys import keys
from app.cli.policy import policy
from app.cli.run import run
from app.cli.runs import runs
from app.cli.screen import complain, print_line
from app.cli.session_care import sessions
from app.cli.skills import skills
from app.cli.tail import tail
from app.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from app.store.embedded import EmbeddedPostgres

_OPERATE = "Operate a server"
_USE = "Use a server"

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(is_wanted: bool) -> None:
    if is_wanted:
        print_line(f"treadle {importlib.metadata.version('treadle')}")
        raise typer.Exit


@cli.callback()
def treadle(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Agents as a service: durable agent loops over HTTP, SSE and Postgres.

    Try it, in two terminals:
      treadle serve
      export TREADLE_KEY=$(treadle keys create --name me)
      treadle run --model demo --mode acceptEdits 'Write "hello" to hello.txt'
    """


def _embedded_place() -> "EmbeddedPostgres":
    from app.settings.loading import load_settings  # noqa: PLC0415 - client commands start without it
    from app.wiring.database import embedded_place  # noqa: PLC0415 - the same

    return embedded_place(load_settings())


for operate in (hosts.serve, hosts.api, hosts.worker, hosts.migrate):
    cli.command(rich_help_panel=_OPERATE)(operate)
cli.add_typer(keys, name="keys", rich_help_panel=_OPERATE)
cli.add_typer(policy, name="policy", rich_help_panel=_OPERATE)
cli.add_typer(make_db_app(_embedded_place), name="db", rich_help_panel=_OPERATE)
for use in (run, tail):
    cli.command(rich_help_panel=_USE)(use)
cli.add_typer(sessions, name="sessions", rich_help_panel=_USE)
cli.add_typer(runs, name="runs", rich_help_panel=_USE)
cli.add_typer(actions, name="actions", rich_help_panel=_USE)
cli.add_typer(skills, name="skills", rich_help_panel=_USE)
cli.command(rich_help_panel=_USE)(cost)


def main() -> None:
    """Run the command. What goes wrong is said in a sentence; the status tells programs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a poor locale must not end a command
    status: int = Status.FAILED
    try:
        cli()
    except CliFailure as failure:
        complain(failure.text)
        status = failure.status
    except ConfigError as error:
        complain(str(error))
        status = Status.REFUSED
    except RequestError as error:  # the commands that speak to the database themselves
        complain(error.detail)
        status = Status.AWAY if error.retryable else Status.REFUSED
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
    except Exception as error:  # noqa: BLE001 - the edge: no traceback for people
        where = traceback.extract_tb(error.__traceback__)[-1]
        complain(
            f"This is a fault of the program: {type(error).__name__}: {error} "
            f"({where.filename}:{where.lineno})."
        )
    sys.exit(status)
