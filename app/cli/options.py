"""Options that commands share."""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from app.cli.client import Client
from app.cli.failure import CliFailure

DEFAULT_URL = "http://127.0.0.1:8700"

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)]
Url = Annotated[
    str, typer.Option(envvar="TREADLE_URL", help="The server.", rich_help_panel="Connection")
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar="TREADLE_KEY",
        help="An API key. Better in the environment: others can see a command line.",
        rich_help_panel="Connection",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
AsMessages = Annotated[
    bool, typer.Option("--json", help="Print each SDK message as one line of JSON.")
]
NoFollow = Annotated[bool, typer.Option("--no-follow", help="Start the run, print its id, leave.")]


def _usd(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter("an amount such as 0.50 is needed") from None
    if not amount.is_finite() or amount <= 0:
        raise typer.BadParameter("an amount above zero is needed")
    return amount


MaxTurns = Annotated[int | None, typer.Option(min=1, help="Most rounds of tools.")]
Budget = Annotated[
    Decimal | None,
    typer.Option("--budget", metavar="USD", parser=_usd, help="Most that it may cost."),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="Most rows; the newest come first.")
]


def connect(url: str, key: str | None) -> Client:
    """Open a client. Raises `CliFailure` when there is no key or no usable address."""
    if not key:
        raise CliFailure(
            "No API key. On the server's machine, make one:\n"
            "  export TREADLE_KEY=$(treadle keys create --name me)\n"
            "(or pass one with --key)."
        )
    return Client(url, key)
