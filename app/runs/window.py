"""How full the window of a session is: for clients, on any host."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.agent.context_usage import context_usage
from app.agent.model_effects import Models
from app.agent.state import RunInfo
from app.domain.context_usage import ContextUsage
from app.domain.tools import ToolSpec
from app.runs.loading import load
from app.runs.queries import Queries
from app.runs.server_states import served_tools, server_states
from app.store.ledger import spend_of


@dataclass(frozen=True, slots=True)
class WindowReader:
    """Looks a session up and reports."""

    queries: Queries
    describe: Callable[[str, Mapping[str, Any]], RunInfo]
    """Give what a next run of the session would be, from its id and options."""
    specs: Callable[[RunInfo], Sequence[ToolSpec]]
    models: Models

    async def usage(self, tenant_id: str, session_id: str) -> ContextUsage:
        """Give what the session's next request would hold. Raises `NotFound`."""
        session = await self.queries.session(tenant_id, session_id)
        info = self.describe(session_id, session.options)
        state = await load(
            self.queries.database, tenant_id, session_id, info, spend_of(session.inherited)
        )
        own = self.specs(info)
        states = await server_states(self.queries, tenant_id, session)
        served, sizes = served_tools(states, info.options)
        has_search = self.models.abilities(state.model).tool_search
        return context_usage(
            state, (*own, *served), state.spent_before, has_search=has_search, sizes=sizes
        )
