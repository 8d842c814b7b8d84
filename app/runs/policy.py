"""What a client's options become: defaults, aliases, ceilings, refusals. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from app.agent.model_effects import Models
from app.domain.agents import INHERITED
from app.domain.ceiling import NO_CEILING, Ceiling, OperatorRules
from app.domain.hook_options import HttpHook
from app.domain.options import AgentOptions
from app.domain.thinking import misfit
from app.domain.usage import Usage
from app.errors import NoProvider, UnpricedBudget, ValidationFailed
from app.hooks.accepting import HookProblem
from app.runs.rule_checks import check_policy, check_rules


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's defaults and ceilings."""

    default_model: str
    aliases: Mapping[str, str]
    default_max_turns: int
    ceiling_max_turns: int
    default_max_budget_usd: Decimal
    ceiling_max_budget_usd: Decimal
    has_sandbox: bool
    resolve_model: Callable[[str | None, Mapping[str, str], str], str]
    is_served: Callable[[str], bool]
    """Whether some provider serves a (resolved) model."""
    how_to_serve: str
    """What to do when none does."""
    models: Models
    check_servers: Callable[[AgentOptions], None] = lambda _: None
    """Refuses MCP servers that are not reached from here. Raises `ValidationFailed`."""
    hook_problem: Callable[[HttpHook], HookProblem | None] = lambda _: None
    forbidden_modes: frozenset[str] = frozenset()
    """Permission modes that no run may have."""
    rules: OperatorRules = OperatorRules()

    def effective(
        self,
        options: AgentOptions,
        *,
        allows_bypass: bool,
        now: datetime,
        ceiling: Ceiling = NO_CEILING,
    ) -> AgentOptions:
        """Give the options that a run is made with. Raises a `RequestError` that names the field."""
        model = self.model_of(options)
        if not self.is_served(model):
            raise NoProvider(self.how_to_serve, context={"model": model})
        self.check(options, allows_bypass=allows_bypass, ceiling=ceiling)
        self._check_thinking(model, options)
        self._check_agents(options)
        fallback = self._fallback(options, model)
        for name in filter(None, (model, fallback)):
            self._check_price(name, options, now)
        return options.model_copy(
            update={
                "model": model,
                **({"fallback_model": fallback} if fallback is not None else {}),
                "max_turns": options.max_turns
                or min(self.default_max_turns, self.ceiling_max_turns),
                "max_budget_usd": options.max_budget_usd or self._default_budget_usd,
            }
        )

    def without_defaults(self, options: AgentOptions) -> AgentOptions:
        """Give effective options without the budget that the operator's default filled in.

        Else a model without a price would be refused for a budget that no client has set.
        """
        if options.max_budget_usd != self._default_budget_usd:
            return options
        set_fields = options.model_fields_set - {"max_budget_usd"}
        return AgentOptions().model_copy(
            update={name: getattr(options, name) for name in set_fields}
        )

    @property
    def _default_budget_usd(self) -> Decimal:
        return min(self.default_max_budget_usd, self.ceiling_max_budget_usd)

    def model_of(self, options: AgentOptions) -> str:
        """Give the model that options name: the default if none, aliases replaced."""
        return self.resolve_model(options.model, self.aliases, self.default_model)

    def check(
        self, options: AgentOptions, *, allows_bypass: bool, ceiling: Ceiling = NO_CEILING
    ) -> None:
        """Refuse what no run may have, whatever its model. Raises `ValidationFailed`."""
        self._check_mode(options, allows_bypass=allows_bypass)
        self._check_ceilings(options)
        check_rules(options)
        check_policy(options, self.rules, ceiling, self.forbidden_modes)
        self.check_servers(options)
        for number, hook in enumerate(options.hooks):
            if (problem := self.hook_problem(hook)) is not None:
                pointer = f"/options/hooks/{number}/{problem.field}".rstrip("/")
                raise ValidationFailed(
                    f"The hook for {hook.event} cannot be used: {problem.message}",
                    errors=_field(pointer, problem.code, problem.message),
                )

    def _check_agents(self, options: AgentOptions) -> None:
        for agent in options.agents.values():
            if agent.model not in {None, INHERITED}:
                model = self.resolve_model(agent.model, self.aliases, self.default_model)
                if not self.is_served(model):
                    raise NoProvider(self.how_to_serve, context={"model": model})

    def _fallback(self, options: AgentOptions, model: str) -> str | None:
        if options.fallback_model is None:
            return None
        fallback = self.resolve_model(options.fallback_model, self.aliases, self.default_model)
        if not self.is_served(fallback):
            raise NoProvider(self.how_to_serve, context={"model": fallback})
        if fallback == model:
            raise ValidationFailed(
                f"The fallback_model must be another model than {model!r}.",
                errors=_field("/options/fallback_model", "same_model", "is the run's own model"),
            )
        return fallback

    def _check_price(self, model: str, options: AgentOptions, now: datetime) -> None:
        is_priced = self.models.cost_usd(model, Usage(), now) is not None
        if options.max_budget_usd is not None and not is_priced:
            raise UnpricedBudget(
                f"No price is known for {model!r}, so a budget cannot be kept. Leave "
                "max_budget_usd out, or let the operator set a price (TREADLE_MODEL__PRICES).",
                errors=_field("/options/max_budget_usd", "unpriced_model", "needs a priced model"),
            )

    def _check_mode(self, options: AgentOptions, *, allows_bypass: bool) -> None:
        if options.permission_mode != "bypassPermissions" or (allows_bypass and self.has_sandbox):
            return
        missing = (
            "the tenant's policy does not allow it" if not allows_bypass else "it needs a sandbox"
        )
        raise ValidationFailed(
            f"The permission mode bypassPermissions is not available: {missing}.",
            errors=_field("/options/permission_mode", "not_allowed", missing),
        )

    def _check_thinking(self, model: str, options: AgentOptions) -> None:
        abilities, max_output = self.models.abilities(model), self.models.limits(model).max_output
        refusal = misfit(options.thinking, options.effort, abilities, max_output)
        if refusal is not None:
            raise ValidationFailed(
                f"{model} does not take these options: {refusal.message}.",
                errors=_field(f"/options{refusal.pointer}", refusal.code, refusal.message),
            )

    def _check_ceilings(self, options: AgentOptions) -> None:
        if options.max_turns is not None and options.max_turns > self.ceiling_max_turns:
            raise ValidationFailed(
                f"max_turns may be {self.ceiling_max_turns} at the most here.",
                errors=_field(
                    "/options/max_turns", "less_than_equal", f"must be <= {self.ceiling_max_turns}"
                ),
            )
        budget = options.max_budget_usd
        if budget is not None and budget > self.ceiling_max_budget_usd:
            raise ValidationFailed(
                f"max_budget_usd may be {self.ceiling_max_budget_usd} at the most here.",
                errors=_field(
                    "/options/max_budget_usd",
                    "less_than_equal",
                    f"must be <= {self.ceiling_max_budget_usd}",
                ),
            )


def _field(pointer: str, code: str, message: str) -> list[dict[str, str]]:
    return [{"pointer": pointer, "code": code, "message": message}]
