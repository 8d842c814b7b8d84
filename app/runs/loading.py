"""A run's state from the database: the fold of what its model still sees."""

import time
from collections.abc import Iterable

import orjson

from app.agent.active import JournalRow
from app.agent.fold import fold
from app.agent.run_info import Thread
from app.agent.state import LoopState, RunInfo
from app.domain.messages import parse_message
from app.domain.options import AgentOptions
from app.domain.usage import Spend
from app.store import journal
from app.store.engine import Database
from app.store.leases import Lease
from app.store.ledger import spends
from app.store.runs import Work


async def load(
    database: Database, tenant_id: str, session_id: str, info: RunInfo, inherited: Spend
) -> LoopState:
    """Fold a session's journal for the run of `info`, which may be one that is not there yet."""
    before, run = await spends(database, tenant_id, session_id, info.run_id)
    rows = [row async for row in journal.history(database, tenant_id, session_id)]
    return fold(parsed(rows), info, spent_before=inherited.merged(before), spend=run)


def parsed(rows: Iterable[journal.ConversationRow]) -> list[JournalRow]:
    """Read stored rows."""
    return [
        (run_id, parse_message(body), orjson.loads(facts) if facts else None)
        for run_id, body, facts in rows
    ]


def unread(
    lease: Lease, work: Work, *, spent_before: Spend, spend: Spend, thread: Thread | None = None
) -> LoopState:
    """Give the state of a run that nobody can read: what it takes to end it, with its money."""
    began_s = time.monotonic()
    info = RunInfo(
        lease.session_id,
        lease.run_id,
        AgentOptions(),
        elapsed_ms=work.elapsed_ms,
        began_s=began_s,
        follows=work.follows,
        thread=thread,
    )
    return LoopState(info, spent_before=spent_before, spend=spend, has_started=True)
