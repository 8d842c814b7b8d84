"""What a model request consumed, and what that cost."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from app.domain.value import value


@value
class Usage:
    """Token counts of one or more responses. Addition is field by field."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    """Cache writes kept five minutes; also those whose lifetime the provider did not tell."""
    cache_write_1h_tokens: int = 0
    thinking_tokens: int = 0
    web_search_requests: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_5m_tokens + other.cache_write_5m_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            self.thinking_tokens + other.thinking_tokens,
            self.web_search_requests + other.web_search_requests,
        )

    @property
    def cache_write_tokens(self) -> int:
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens


Purpose = Literal["main", "compaction", "subagent", "suggestion", "tool", "permission"]
"""What a request was for. `tool`: a tool asked it, beside the conversation; `permission`: the mode `auto`."""


@value
class LedgerRow:
    """One model request that consumed something: the unit that all money is summed from."""

    model: str
    """The id that answered, as the provider names it."""
    usage: Usage
    cost_usd: Decimal | None
    """None when the model has no known price (decisions B24)."""
    purpose: Purpose = "main"
    thread: str | None = None
    """The tool use id of the subagent that asked; None for the main thread."""
    request_id: str | None = None
    http_status: int | None = 200
    duration_ms: int = 0
    estimated: bool = False
    """True when the response was cut off, so that its output is a lower bound."""


@value
class ModelSpend:
    """What one model consumed over some span (a run, a session)."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)
    """Sum of the known costs."""
    unpriced: bool = False
    """True when some request in the sum had no known price."""

    def plus(self, row: LedgerRow) -> "ModelSpend":
        return ModelSpend(
            self.usage + row.usage,
            self.cost_usd + (row.cost_usd or 0),
            self.unpriced or row.cost_usd is None,
        )


@value
class Spend:
    """Sums over ledger rows by model, and over the main thread alone."""

    by_model: dict[str, ModelSpend] = field(default_factory=dict)
    main_thread: Usage = field(default_factory=Usage)
    """The sum over requests with purpose `main` and no thread, and the web searches of its tools:
    the wire's `usage`."""
    api_ms: int = 0
    cost_usd: Decimal = field(init=False, compare=False)
    """Summed once: it is asked for several times a turn."""

    def __post_init__(self) -> None:
        costs = (spend.cost_usd for spend in self.by_model.values())
        object.__setattr__(self, "cost_usd", sum(costs, Decimal(0)))

    @property
    def unpriced(self) -> bool:
        return any(spend.unpriced for spend in self.by_model.values())

    def plus(self, row: LedgerRow) -> "Spend":
        return Spend(
            {**self.by_model, row.model: self.by_model.get(row.model, ModelSpend()).plus(row)},
            self.main_thread + of_main_thread(row.usage, row.purpose, row.thread),
            self.api_ms + row.duration_ms,
        )

    def merged(self, other: "Spend") -> "Spend":
        """Give the sum of two spans."""
        if not other.by_model:
            return self  # nothing was asked in it
        models = dict(self.by_model)
        for model, spend in other.by_model.items():
            mine = models.get(model, ModelSpend())
            models[model] = ModelSpend(
                mine.usage + spend.usage,
                mine.cost_usd + spend.cost_usd,
                mine.unpriced or spend.unpriced,
            )
        return Spend(models, self.main_thread + other.main_thread, self.api_ms + other.api_ms)


def of_main_thread(usage: Usage, purpose: str, thread: str | None) -> Usage:
    """Give the part of a request's usage that the main thread is told to have used."""
    if thread is not None or purpose not in {"main", "tool"}:
        return Usage()
    return usage if purpose == "main" else Usage(web_search_requests=usage.web_search_requests)


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a model can take. Sizes in tokens."""

    context_window: int
    max_output: int
