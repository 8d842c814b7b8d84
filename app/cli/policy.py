"""`treadle policy`: what the tenant's runs may not do, directly in the database."""

import json
from typing import Annotated

import typer

from app.cli.failure import CliFailure
from app.cli.options import AsJson
from app.cli.progress import show_progress
from app.cli.screen import print_line, say

policy = typer.Typer(
    no_args_is_help=True,
    help="Show and set what no option of a run can allow.\n\nTalks to the database: run it where the "
    "server runs, with the same settings.",
)


@policy.command()
def show(as_json: AsJson = False) -> None:
    """Show the policy."""
    from app.cli import key_store  # noqa: PLC0415 - needs much that client commands do not

    show_progress()
    found = key_store.policy()
    if as_json:
        print_line(json.dumps(found))
        return
    for name, values in found.items():
        print_line(f"{name}: {', '.join(values) or '-'}")


@policy.command("set")
def set_all(
    deny: Annotated[list[str] | None, typer.Option(help="A rule; again for more.")] = None,
    ask: Annotated[list[str] | None, typer.Option(help="A rule; again for more.")] = None,
    forbid_mode: Annotated[list[str] | None, typer.Option(help="A permission mode.")] = None,
) -> None:
    """Set the whole policy: what is not named is no part of it any more.

    For example:
      treadle policy set --deny WebFetch --deny 'Bash(curl *)' --forbid-mode bypassPermissions
    """
    from app.cli import key_store  # noqa: PLC0415 - as above

    show_progress()
    if wrong := key_store.set_policy(deny or [], ask or [], forbid_mode or []):
        raise CliFailure(wrong)
    say("The policy is set. Requests hear of it within half a minute, new runs at once.")
