"""`treadle keys`: API keys, directly in the database, so that the first one can be made."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from app.cli.failure import CliFailure
from app.cli.options import AsJson
from app.cli.progress import show_progress
from app.cli.screen import print_line, print_table, say

keys = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke API keys.\n\nTalks to the database: run it where the server runs, "
    "with the same settings.",
)


def _name(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("it must say something")
    return text


@keys.command()
def create(
    name: Annotated[
        str, typer.Option(metavar="NAME", parser=_name, help="Whom or what it is for.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once; the database has only its hash.

    For example:
      export TREADLE_KEY=$(treadle keys create --name me)
      treadle keys create --name ci --json
    """
    from app.cli import key_store  # noqa: PLC0415 - needs much that client commands do not

    show_progress()
    key_id, key, tenant = key_store.create(name)
    if as_json:
        print_line(json.dumps({"key": key, "id": key_id, "name": name, "tenant": tenant}))
        return
    print_line(key)
    say(f"This key is not shown again. To take it back: treadle keys revoke {key_id}")


@keys.command("list")
def list_all(as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    from app.cli import key_store  # noqa: PLC0415 - as above

    show_progress()
    found = key_store.all_keys()
    if as_json:
        print_line(json.dumps([asdict(key) for key in found]))
        return
    rows = [(key.id, key.name, key.created_at[:19], (key.revoked_at or "")[:19]) for key in found]
    print_table(("ID", "NAME", "MADE", "REVOKED"), rows)


@keys.command("hook-secret")
def hook_secret() -> None:
    """Print the secret with which requests of HTTP hooks are signed: their servers verify by it.

    It follows from TREADLE_HOOKS__SECRET alone; the database is not asked.
    """
    from app.cli import key_store  # noqa: PLC0415 - as above

    print_line(key_store.hook_secret())


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `treadle keys list` shows it.")],
) -> None:
    """Take a key back. Servers refuse it within half a minute. Safe to repeat."""
    from app.cli import key_store  # noqa: PLC0415 - as above

    show_progress()
    if not key_store.revoke(key_id):
        raise CliFailure(f"There is no key {key_id}. See `treadle keys list`.")
    say(f"{key_id} is revoked; servers refuse it within half a minute.")
