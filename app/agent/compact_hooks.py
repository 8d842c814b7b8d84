"""Hooks around a compaction."""

from dataclasses import dataclass
from typing import Any

from app.agent.effects import Effects
from app.agent.hook_memory import hook_facts
from app.agent.hook_points import contexts, fire, told, with_hook
from app.agent.state import LoopState
from app.domain.compaction import CompactTrigger
from app.domain.hooks import PostCompact, PreCompact, SessionStart
from app.domain.journal import Entry


@dataclass(frozen=True, slots=True)
class CompactHooks:
    """Asks them; `state` is where the run stands when the compaction begins."""

    trigger: CompactTrigger
    state: LoopState
    effects: Effects

    @property
    def _key(self) -> str:
        return f"{self.state.message_id}:{self.state.compactions}"

    async def before(self, instructions: str | None) -> tuple[Entry, ...]:
        """Ask `PreCompact`; give what readers are told."""
        event = PreCompact(self._key, self.trigger, instructions)
        outcome = await fire(event, self.state, self.effects)
        return told(outcome, event, self.state, self.effects)

    async def after(self, summary: str, ended: Entry) -> tuple[Entry, ...]:
        """Ask `SessionStart` and `PostCompact`; give what is told, with `ended` behind it.

        What hooks add for the model goes with `ended`, so it stands behind the messages that stay.
        """
        start = SessionStart(f"compact:{self._key}", "compact", self.state.run.options.model or "")
        begun = await fire(start, self.state, self.effects)
        done = PostCompact(self._key, self.trigger, summary)
        finished = await fire(done, self.state, self.effects)
        facts: dict[str, Any] = hook_facts(contexts=contexts(begun, start))
        return (
            *told(begun, start, self.state, self.effects),
            *told(finished, done, self.state, self.effects),
            with_hook(ended, facts),
        )
