"""The subagents of a run, as this host offers them: fits `agent.effects.Agents`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.agent.effects import AgentLimits, Aside, Place
from app.agent.model_effects import Previews
from app.agent.tool_effects import Toolbox
from app.domain.agents import AgentDefinition
from app.domain.model import PartialResponse
from app.runs.previews import QuietPreviews


@dataclass(slots=True)
class RunAgents:
    """Made when a run is opened, and gone with it."""

    limits: AgentLimits
    definitions: Mapping[str, AgentDefinition]
    tools: Toolbox
    find_model: Callable[[str], str | None]
    make_place: Callable[[], Place]
    shown: Previews
    """Of the run."""
    _open: dict[str, tuple[Aside, QuietPreviews]] = field(default_factory=dict)

    def model(self, name: str) -> str | None:
        return self.find_model(name)

    def aside(self, call_id: str) -> Aside:
        if call_id not in self._open:
            previews = QuietPreviews(self.shown)
            self._open[call_id] = (Aside(self.make_place(), previews), previews)
        return self._open[call_id][0]

    def partials(self) -> Mapping[str, PartialResponse]:
        parts = {call_id: previews.partial() for call_id, (_, previews) in self._open.items()}
        return {call_id: part for call_id, part in parts.items() if part is not None}
