"""`treadle tail`: follow a run or a session, from its beginning or from where one left."""

from typing import Annotated

import typer

from app.cli.attach import follow_run, follow_session
from app.cli.client import address
from app.cli.options import DEFAULT_URL, AsMessages, Key, Url, connect


def tail(
    what: Annotated[str, typer.Argument(metavar="RUN_OR_SESSION", help="Its id.")],
    after: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Begin behind this place of the log.")
    ] = None,
    as_json: AsMessages = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Follow a run from its beginning until it ends, or a session across its runs.

    The exit status is that of `treadle run`. Following a session does not end
    by itself: Ctrl-C leaves.

    For example:
      treadle tail run_01JDZX5E5V8M2Q4T6Y8A0C2E4G
      treadle tail 0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f --after 17
    """
    with connect(url, key) as client:
        if what.startswith("run_"):
            found = client.get(address("runs", what))
            raise typer.Exit(
                follow_run(client, found, after=after, as_json=as_json, shows_prompts=True)
            )
        client.get(address("sessions", what))
        raise typer.Exit(follow_session(client, what, after=after, as_json=as_json))
