"""Checks of the engine: one owner at a time, money, nothing lost, nothing left behind."""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.chaos.checks_log import BESIDE
from tests.chaos.evidence import Evidence, Record, token_of

_EPSILON_USD = Decimal("1e-9")
"""Totals are JSON numbers."""
_LATE_S = 1.0
"""A request that left before the takeover may be seen a little after it."""
_ALLOWED_ENDS = frozenset({"completed", "cancelled", "superseded", "worker_lost"})


def one_owner(found: Evidence) -> Iterator[str]:
    """Each row of a run was written by the host that owned the session; epochs only grow."""
    for id_, entries in found.log.items():
        owner_host: str | None = None
        before: tuple[int, str | None] = (0, None)
        epoch = 0
        for entry in entries:
            if entry["kind"] == "owner":
                if entry["epoch"] < max(epoch, entry["old_epoch"]) or (
                    entry["owner"] and entry["epoch"] == entry["old_epoch"]
                ):
                    yield f"session {id_}: epoch {entry['old_epoch']} became {entry['epoch']}"
                epoch = entry["epoch"]
                before = (entry["xid"], owner_host)
                owner_host = entry["host"] if entry["owner"] else None
            elif not _is_clients(entry, found):
                # The append that ends a run also lets the session go: the same transaction.
                allowed = {owner_host, before[1] if before[0] == entry["xid"] else None}
                if entry["host"] not in allowed:
                    yield (
                        f"session {id_}: row {entry['seq']} ({entry['type']}) by {entry['host']}, "
                        f"but the owner was {owner_host}"
                    )


def _is_clients(entry: Record, found: Evidence) -> bool:
    run = found.runs.get(entry["run_id"])
    return entry["type"] in BESIDE or run is None or run["attempt"] == 0


def requests_by_owners(found: Evidence) -> Iterator[str]:
    """A host asks the model for its own sessions only.

    One request that was checked, frozen, and sent after the thaw cannot be told from one that
    left in time: more than one by the same host after a takeover is a zombie at work.
    """
    zombies: Counter[tuple[str, str]] = Counter()
    for request in found.requests:
        owner = _owner_at(found.log.get(request["session"], []), request["started"] - _LATE_S)
        now = _owner_at(found.log.get(request["session"], []), request["started"])
        if request["host"] not in {owner, now}:
            zombies[request["host"], request["session"]] += 1
    for (host, session), number in zombies.items():
        if number > 1:
            yield f"{host} made {number} model requests for {session} that it did not own"


def _owner_at(entries: list[Record], wall_s: float) -> str | None:
    owner: str | None = None
    for entry in entries:
        if entry["at"].timestamp() > wall_s:
            break
        if entry["kind"] == "owner":
            owner = entry["host"] if entry["owner"] else None
    return owner


def nobody_owns(found: Evidence) -> Iterator[str]:
    """When nothing runs, no session has an owner."""
    for id_, session in found.sessions.items():
        if session["owner"] is not None:
            yield f"session {id_} still belongs to {session['owner']}"


def money(found: Evidence) -> Iterator[str]:
    """Ledger, run, session and result say the same; no answer is paid for twice."""
    by_run: dict[str, Decimal] = {}
    by_session: dict[str, Decimal] = {}
    tokens: Counter[str] = Counter()
    for row in found.ledger:
        cost = row["cost_usd"] or Decimal(0)
        by_run[row["run_id"]] = by_run.get(row["run_id"], Decimal(0)) + cost
        by_session[row["session_id"]] = by_session.get(row["session_id"], Decimal(0)) + cost
        tokens[row["run_id"]] += row["input_tokens"]
    for id_, run in found.runs.items():
        if run["cost_usd"] != by_run.get(id_, Decimal(0)) or run["input_tokens"] != tokens[id_]:
            yield f"run {id_}: cost {run['cost_usd']}, ledger {by_run.get(id_, 0)}"
    for id_, session in found.sessions.items():
        if session["cost_usd"] != by_session.get(id_, Decimal(0)):
            yield f"session {id_}: cost {session['cost_usd']}, ledger {by_session.get(id_, 0)}"
        yield from _totals(id_, session, found, by_run)
    yield from _requests_billed_once(found)


def _totals(
    id_: str, session: Record, found: Evidence, by_run: Mapping[str, Decimal]
) -> Iterator[str]:
    inherited = json.loads(session["inherited"]) if session["inherited"] else {}
    total = sum((Decimal(part["cost_usd"]) for part in inherited.values()), Decimal(0))
    for row, message in found.messages.get(id_, []):
        if message["type"] == "result" and row["run_id"]:
            total += by_run.get(row["run_id"], Decimal(0))
            told = Decimal(str(message["total_cost_usd"]))
            # What goes on beside it counts with what it has spent by then.
            beside = [run for run in found.children.values() if run["session_id"] == id_]
            most = total + sum(run["cost_usd"] for run in beside if run["queued_seq"] < row["seq"])
            if not found.runs[row["run_id"]]["attempt"]:
                # One that was cancelled before it began tells what another had spent by then.
                most += session["cost_usd"]
            if not total - _EPSILON_USD < told < most + _EPSILON_USD:
                yield f"run {row['run_id']}: its result says {told}, the ledger {total} to {most}"


def _requests_billed_once(found: Evidence) -> Iterator[str]:
    asked = {request["request_id"] for request in found.requests}
    billed = Counter(row["request_id"] for row in found.ledger if row["request_id"])
    yield from (f"request {id_} is {n} times in the ledger" for id_, n in billed.items() if n > 1)
    yield from (f"request {id_} is in the ledger alone" for id_ in billed.keys() - asked)


def nothing_lost(found: Evidence, acknowledged: Mapping[str, str]) -> Iterator[str]:
    """What a client was told to be stored is stored; runs end for reasons that we know."""
    for acked, session in acknowledged.items():
        if acked not in found.runs:
            yield f"run {acked} of {session} was acknowledged and is not there"
    for id_, run in found.runs.items():
        if run["status"] != "finished":
            continue
        if run["end_reason"] == "internal" and _met_full_disk(run, found.full_s):
            continue
        if run["end_reason"] not in _ALLOWED_ENDS:
            yield f"run {id_} ended as {run['end_reason']}: {run['errors']}"
        elif run["end_reason"] in {"cancelled", "superseded"} and not _is_wanted(run, found):
            yield f"run {id_} was stopped by nobody"


def _is_wanted(run: Record, found: Evidence) -> bool:
    """Whether somebody has cancelled it, or, of a subagent, a run that may take it along."""
    whom = [run]
    if run["origin"] == "subagent":
        whom += [r for r in found.runs.values() if r["session_id"] == run["session_id"]]
    return any(each["cancel_requested_at"] is not None for each in whom)


def _met_full_disk(run: Record, full_s: Sequence[tuple[float, float]]) -> bool:
    began_s, ended_s = run["created_at"].timestamp(), run["finished_at"].timestamp()
    return any(began_s < to_s + _LATE_S and from_s < ended_s for from_s, to_s in full_s)


def nothing_left(found: Evidence, data_dir: Path, sleep_mark: str, uid: int) -> Iterator[str]:
    """No process, socket or folder of a command is left."""
    for pid, what in _processes(data_dir, sleep_mark, uid):
        yield f"process {pid} is left: {what}"
    known = {token_of(session) for session in found.sessions.values()}
    for folder, _, files in os.walk(data_dir):
        for name in files:
            path = Path(folder, name)
            if stat.S_ISSOCK(path.lstat().st_mode):
                yield f"socket {path} is left"
    for entry in (data_dir / "sessions").iterdir():
        if entry.name not in known:
            yield f"folder {entry} belongs to no session"
        elif extra := {e.name for e in entry.iterdir()} - {"ws", "tmp", "home"}:
            yield f"folder {entry} holds {extra}"


def _processes(data_dir: Path, sleep_mark: str, uid: int) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            program = str((entry / "exe").readlink())
            owner = entry.stat().st_uid
        except OSError:
            continue
        is_ours = program.startswith(str(data_dir)) or f".{sleep_mark} " in f"{command} "
        if is_ours or (owner == uid and os.geteuid() == 0):
            yield int(entry.name), command[:200]


def outcomes(found: Evidence) -> dict[str, Any]:
    """Count how runs ended, and how sessions went from host to host and why."""
    ends = Counter(f"{run['result_subtype']}/{run['end_reason']}" for run in found.runs.values())
    moves: Counter[str] = Counter()
    waits: list[float] = []
    for entries in found.log.values():
        owner, is_released = "", False
        for entry in entries:
            if entry["kind"] == "row":
                is_released = is_released and entry["type"] != "run.finished"
            elif entry["owner"] is None:
                is_released = True
            else:
                if entry["old_owner"] is not None:
                    cause = _cause(found.hurts.get(owner, []), entry["at"].timestamp())
                    moves[f"taken over after {cause}"] += 1
                    waits.append(entry["expired_s"])
                elif is_released and owner:
                    moves["handed over by a drain"] += 1
                owner, is_released = entry["host"], False
    return {"ends": dict(ends), "moves": dict(moves), "waits_s": sorted(waits)}


def _cause(hurts: list[tuple[float, str]], at_s: float) -> str:
    before = [kind for hurt_s, kind in hurts if hurt_s < at_s]
    return before[-1] if before else "database trouble"
