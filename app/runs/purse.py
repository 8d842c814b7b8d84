"""One budget, drawn on by several runs: the one that has it, its subagents, and what follows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.agent.state import LoopState
from app.domain.options import AgentOptions, stored_budget

NEXT_TO_NOTHING = Decimal("0.000001")
"""What is left of a budget that is spent: options hold some."""


@dataclass(slots=True)
class Purse:
    """What a family of runs may spend together, and what each has spent."""

    budget_usd: Decimal | None
    """Of the run that they go back to; None: no limit."""
    spent: dict[str, Decimal] = field(default_factory=dict)
    """By run."""

    def add(self, run_id: str, usd: Decimal) -> None:
        """Count what a run has spent once more."""
        self.spent[run_id] = self.spent.get(run_id, Decimal(0)) + usd

    def set(self, run_id: str, usd: Decimal) -> None:
        """Say what a run has spent in all."""
        self.spent[run_id] = usd

    @property
    def total_usd(self) -> Decimal:
        return sum(self.spent.values(), Decimal(0))

    @property
    def is_spent(self) -> bool:
        return self.budget_usd is not None and self.total_usd >= self.budget_usd

    def others_usd(self, run_id: str, budget_usd: Decimal | None) -> Decimal:
        """Give what counts against a run's own budget beside what it spent itself.

        A run that follows was given what was left: what had been spent by then is no part of it.
        """
        if self.budget_usd is None or budget_usd is None:
            return Decimal(0)
        own = self.spent.get(run_id, Decimal(0))
        return self.total_usd - own - (self.budget_usd - budget_usd)


@dataclass(frozen=True, slots=True)
class Share:
    """A run's view of the purse that it draws on, if it shares one: fits `agent.effects.Purse`."""

    find: Callable[[], Purse | None]
    run_id: str
    budget_usd: Decimal | None

    def others_usd(self) -> Decimal:
        purse = self.find()
        return Decimal(0) if purse is None else purse.others_usd(self.run_id, self.budget_usd)


@dataclass(slots=True)
class Purses:
    """The purses that runs of a session draw on, as far as this host knows them."""

    _by_run: dict[str, Purse] = field(default_factory=dict)

    def knows(self, run_id: str) -> bool:
        """Whether a run shares a purse that is known."""
        return run_id in self._by_run

    def launch(self, parent: LoopState, run_id: str) -> None:
        """Let a subagent's run draw on what its parent draws on."""
        own = parent.run.run_id
        if own not in self._by_run:
            budget_usd = parent.run.options.max_budget_usd
            self._by_run[own] = Purse(budget_usd, {own: parent.spend.cost_usd})
        self._by_run[run_id] = self._by_run[own]

    def recall(self, budget_usd: Decimal | None, spent: Mapping[str, Decimal]) -> None:
        """Take note of a family of runs and of what each has spent, as the tables have it."""
        purse = Purse(budget_usd, dict(spent))
        self._by_run |= dict.fromkeys(spent, purse)

    def share(self, run_id: str, options: AgentOptions, *, follows: str | None = None) -> Share:
        """Give what a run may see of the budget that it shares; it may follow another."""
        if follows in self._by_run and run_id not in self._by_run:
            self._by_run[run_id] = self._by_run[follows]
        return Share(lambda: self._by_run.get(run_id), run_id, options.max_budget_usd)

    def left_of(self, run_id: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give a run's stored options for one that follows it: that spends what is left of its budget."""
        budget, purse = stored_budget(options.get("max_budget_usd")), self._by_run.get(run_id)
        if budget is None or purse is None:
            return options
        own = purse.spent.get(run_id, Decimal(0))
        left_usd = budget - own - purse.others_usd(run_id, budget)
        return {**options, "max_budget_usd": str(max(left_usd, NEXT_TO_NOTHING))}

    def add(self, run_id: str, usd: Decimal) -> None:
        """Count what a run has spent once more."""
        if (purse := self._by_run.get(run_id)) is not None:
            purse.add(run_id, usd)

    def set(self, run_id: str, usd: Decimal) -> None:
        """Say what a run has spent in all."""
        if (purse := self._by_run.get(run_id)) is not None:
            purse.set(run_id, usd)

    def are_spent_together(self, run_id: str, other_id: str) -> bool:
        """Whether two runs draw on one purse, in which nothing is left."""
        purse = self._by_run.get(run_id)
        return purse is not None and purse.is_spent and self._by_run.get(other_id) is purse


def options_left(state: LoopState) -> dict[str, Any]:
    """Give the stored options of a run that follows: it spends what this one left of its budget."""
    options = state.run.options
    if options.max_budget_usd is not None:
        left_usd = max(options.max_budget_usd - state.spent_usd, NEXT_TO_NOTHING)
        options = options.model_copy(update={"max_budget_usd": left_usd})
    return options.stored()
