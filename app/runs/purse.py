"""One budget, drawn on by several runs: the one that has it, its subagents, and what follows it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

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
