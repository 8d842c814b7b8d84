"""`treadle cost`: what was spent, by session, by run."""

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any

import typer

from app.cli.client import Client, JsonObject, address
from app.cli.options import DEFAULT_URL, AsJson, Key, Limit, Url, connect
from app.cli.plain import json_line, one_line
from app.cli.screen import print_line, print_table, say

_RUN_HEADS = ("RUN", "HOW", "TURNS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "USD")
_TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


def cost(
    of: Annotated[
        str | None, typer.Argument(metavar="SESSION|RUN", help="Its id. None: all sessions.")
    ] = None,
    limit: Limit = 1000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Say what sessions and runs cost, with the sum.

    A fork's own cost begins at zero: what its parent had spent is not counted twice.

    For example:
      treadle cost
      treadle cost 0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f
      treadle cost run_01JDZX5E5V8M2Q4T6Y8A0C2E4G --json
    """
    with connect(url, key) as client:
        if of is None:
            _sessions(list(client.items(address("sessions"), limit)), as_json=as_json)
        else:
            _runs(list(_found(client, of, limit)), as_json=as_json)


def total_usd(costs: Iterable[str | None]) -> tuple[Decimal, bool]:
    """Give the sum of what is known, and whether all was."""
    listed = list(costs)
    known = [Decimal(cost) for cost in listed if cost is not None]
    return sum(known, Decimal(0)), len(known) == len(listed)


def _found(client: Client, of: str, limit: int) -> Iterable[JsonObject]:
    if of.startswith("run_"):
        return [client.get(address("runs", of))]
    return client.items(address("sessions", of, "runs"), limit)


def _sessions(sessions: Sequence[JsonObject], *, as_json: bool) -> None:
    costs = [session["cost"]["session_usd"] for session in sessions]
    if as_json:
        rows = [
            {"session_id": session["id"], "usd": usd}
            for session, usd in zip(sessions, costs, strict=True)
        ]
        _print_json(rows, costs)
        return
    lines = [
        (session["id"], one_line(session["title"] or "", 40), str(session["num_runs"]), usd)
        for session, usd in zip(sessions, costs, strict=True)
    ]
    last = ("total", "", str(sum(session["num_runs"] for session in sessions)), _sum_text(costs))
    print_table(("SESSION", "TITLE", "RUNS", "USD"), [*lines, last], figures=2)


def _runs(runs: Sequence[JsonObject], *, as_json: bool) -> None:
    costs = [run["cost"]["run_usd"] for run in runs]
    if as_json:
        rows = [
            {"run_id": run["id"], "usd": run["cost"]["run_usd"], **run["usage"]} for run in runs
        ]
        _print_json(rows, costs)
        return
    lines = [
        (
            run["id"],
            run["result_subtype"] or run["status"],
            str(run["num_turns"] or 0),
            *(f"{run['usage'][name]:,}" for name in _TOKENS),
            run["cost"]["run_usd"] or "unknown",
        )
        for run in runs
    ]
    sums = [sum(run["usage"][name] for run in runs) for name in _TOKENS]
    turns = sum(run["num_turns"] or 0 for run in runs)
    last = ("total", "", str(turns), *(f"{tokens:,}" for tokens in sums), _sum_text(costs))
    print_table(_RUN_HEADS, [*lines, last], figures=6)
    if any(run["cost"]["estimated"] for run in runs):
        say("Some of it is an estimate, or has no known price (TREADLE_MODEL__PRICES sets one).")


def _sum_text(costs: Iterable[str | None]) -> str:
    total, is_whole = total_usd(costs)
    return f"{total:.6f}" if is_whole else f"{total:.6f} and more"


def _print_json(rows: Sequence[dict[str, Any]], costs: Iterable[str | None]) -> None:  # Any: JSON
    total, is_whole = total_usd(costs)
    body = {"rows": rows, "total_usd": f"{total:.6f}", "complete": is_whole}
    print_line(json_line(json.dumps(body)))
