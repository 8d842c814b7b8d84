"""`treadle serve`, `api`, `worker`, `migrate`: what an operator runs."""

from typing import Annotated

import typer

from app.cli.options import Host, Port
from app.cli.progress import show_progress
from app.cli.screen import print_line


def serve(host: Host = "127.0.0.1", port: Port = 8700) -> None:
    """Run a host: HTTP and worker in one process.

    Without DATABASE_URL it starts a PostgreSQL of its own, which goes on
    afterwards (`treadle db stop` ends it). Without ANTHROPIC_API_KEY only the
    model "demo" answers. `.env.example` lists all settings.

    For example:
      treadle serve
      DATABASE_URL=postgresql://me@db/treadle treadle serve --host 0.0.0.0
    """
    from app.cli.serve import run_host  # noqa: PLC0415 - client commands start without it
    from app.settings.loading import load_settings  # noqa: PLC0415 - the same

    run_host(load_settings(), "serve", host, port)


def api(host: Host = "127.0.0.1", port: Port = 8700) -> None:
    """Run a host that only serves HTTP. Some `treadle worker` must drive the runs.

    For example:
      treadle api --port 8701
    """
    from app.cli.serve import run_host  # noqa: PLC0415 - as above
    from app.settings.loading import load_settings  # noqa: PLC0415 - as above

    run_host(load_settings(), "api", host, port)


def worker() -> None:
    """Run a host that only drives runs. It needs the database of the hosts that serve HTTP.

    For example:
      DATABASE_URL=postgresql://me@db/treadle treadle worker
    """
    from app.cli.serve import run_worker  # noqa: PLC0415 - as above
    from app.settings.loading import load_settings  # noqa: PLC0415 - as above

    run_worker(load_settings())


def migrate(
    to: Annotated[
        str, typer.Option(metavar="REVISION", help="Where to: newer or older, or `base`: empty.")
    ] = "head",
) -> None:
    """Bring the database's schema up to date. Hosts do so at their start, unless told not to.

    Going back to an older revision drops what the newer ones added.

    For example:
      treadle migrate
      MIGRATE_ON_START=0 treadle serve
    """
    from app.cli.schema import move  # noqa: PLC0415 - as above

    show_progress()
    before, after = move(to)
    if before == after:
        print_line(f"The schema is at {after or 'nothing'}; nothing to do.")
    else:
        print_line(f"The schema went from {before or 'nothing'} to {after or 'nothing'}.")
