"""Pages of runs and sessions, for the HTTP layer, which does not know the store."""

from app.store.keyset import Keyset as Keyset
from app.store.rows import LogRange as LogRange
from app.store.rows import Row as Row
from app.store.runs import RunFilter as RunFilter
from app.store.runs import RunRow as RunRow
from app.store.runs import list_runs as list_runs
from app.store.session_lists import SessionFilter as SessionFilter
from app.store.session_lists import list_sessions as list_sessions
from app.store.sessions import SessionRow as SessionRow
from app.store.subagents import SubagentRow as SubagentRow
