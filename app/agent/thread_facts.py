"""How the journal says which thread a row belongs to: facts, nested once a level."""

from collections.abc import Mapping
from typing import Any

THREAD = "thread"
"""Fact on each row of a subagent: the call that began it, seen from its parent."""
OF_THREAD = "of"
"""Beside it: the row's own facts, as they would stand in a main conversation."""
LAUNCHED = "launched"
"""Fact on `task_started` of a subagent: all that it was given."""
KILLED_BY = "killed_by"
"""Fact on `task_updated` of a subagent that was stopped: by whom."""
BELOW = "below"
"""Fact on `task_updated` of a subagent in the background: what it had begun itself, in numbers."""
REFUSED = "refused"
"""Fact on the result of a call that began no subagent: the limit that was the reason."""
WISH = "wish"
"""Among what a subagent is launched with: what its call said of whether it is waited for."""

LOADED = "loaded"
"""Among those too: what it knows of skills as it begins, `loaded_skill` each."""


def own_facts(facts: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Give a row's facts as they stand in its own thread."""
    while facts and THREAD in facts:
        facts = facts[OF_THREAD]
    return facts or {}
