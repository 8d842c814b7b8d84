"""A run's state from the database: the fold of what its model still sees."""

import orjson

from app.agent.fold import fold
from app.agent.state import LoopState, RunInfo
from app.domain.messages import parse_message
from app.domain.usage import Spend
from app.store import journal
from app.store.engine import Database
from app.store.ledger import spends


async def load(
    database: Database, tenant_id: str, session_id: str, info: RunInfo, inherited: Spend
) -> LoopState:
    """Fold a session's journal for the run of `info`, which may be one that is not there yet."""
    before, run = await spends(database, tenant_id, session_id, info.run_id)
    rows = [
        (run_id, parse_message(body), orjson.loads(facts) if facts else None)
        async for run_id, body, facts in journal.history(database, tenant_id, session_id)
    ]
    return fold(rows, info, spent_before=inherited.merged(before), spend=run)
