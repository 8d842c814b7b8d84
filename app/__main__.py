"""The command `treadle`."""

import sys

import typer

from app.cli.db import make_db_app
from app.cli.serve import Host, Port, run_host, run_worker
from app.errors import ConfigError
from app.settings import load_settings
from app.wiring import embedded_place

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="Agents as a service.")
cli.add_typer(make_db_app(lambda: embedded_place(load_settings())), name="db")


@cli.command()
def serve(host: Host = "127.0.0.1", port: Port = 8700) -> None:
    """Run a host: HTTP and worker in one process."""
    run_host(load_settings(), "serve", host, port)


@cli.command()
def api(host: Host = "127.0.0.1", port: Port = 8700) -> None:
    """Run a host that only serves HTTP."""
    run_host(load_settings(), "api", host, port)


@cli.command()
def worker() -> None:
    """Run a host that only drives runs."""
    run_worker(load_settings())


def main() -> None:
    """Run the command; a configuration that cannot work ends with status 2 and one message."""
    try:
        cli()
    except ConfigError as error:
        print(f"treadle: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
