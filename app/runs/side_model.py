"""Model requests beside the conversation: `app.agent.effects.SideModel` over a run's provider."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any

from app.agent.broken_off import row_of_cut
from app.agent.effects import Stamps
from app.agent.failure_step import billed
from app.agent.model_effects import Model
from app.agent.model_step import ledger_row
from app.agent.retries import RetryRules, may_retry, retry_delay_s
from app.domain.blocks import TextBlock, encode_block
from app.domain.model import ContextMessage, ModelRequest, ModelResponse, SideRequest
from app.domain.thinking import Abilities
from app.domain.usage import LedgerRow, Purpose, Usage
from app.errors import BudgetSpent, ModelError, ModelRejected
from app.runs.open_message import OpenMessage

LOST_TOKENS = 25_000
"""What a request that nobody heard the end of is taken for: about a window of WebFetch."""
MAX_RETRIES = 3
"""Tries after the first: whoever asks can say that it failed, and the run goes on."""


@dataclass(slots=True)
class SmallModel:
    """Asks the small model; the run's own where the provider does not know the small one."""

    model: Model
    names: tuple[str, ...]
    """The small model, then the run's own; or that alone."""
    stamps: Stamps
    rules: RetryRules
    session_id: str
    _rows: list[LedgerRow] = field(default_factory=list)
    _left_usd: Decimal | None = None

    async def ask(self, request: SideRequest) -> ModelResponse:
        if request.model is not None:
            return await self._ask(self._request(request.model, request), request.purpose)
        while True:
            name, *others = self.names
            try:
                return await self._ask(self._request(name, request), request.purpose)
            except ModelRejected as error:
                if not others or error.status != HTTPStatus.NOT_FOUND:
                    raise
                self.names = tuple(others)

    def lost(self) -> LedgerRow:
        usage = Usage(input_tokens=LOST_TOKENS)
        stamps = self.stamps
        cost_usd = stamps.models.cost_usd(self.names[0], usage, stamps.clock.now())
        return LedgerRow(self.names[0], usage, cost_usd, "tool", http_status=None, estimated=True)

    def allow(self, left_usd: Decimal | None) -> None:
        self._left_usd = left_usd

    def settle(self) -> tuple[LedgerRow, ...]:
        rows, self._rows = tuple(self._rows), []
        if self._left_usd is not None:
            self._left_usd -= _cost_usd(rows)
        return rows

    async def _ask(self, request: ModelRequest, purpose: Purpose) -> ModelResponse:
        rules = replace(self.rules, max_retries=min(self.rules.max_retries, MAX_RETRIES))
        clock = self.stamps.clock
        failures: list[str] = []
        while True:
            if self._left_usd is not None and _cost_usd(self._rows) >= self._left_usd:
                raise BudgetSpent
            started = clock.monotonic()
            try:
                return await self._try(request, purpose)
            except ModelError as error:
                failures.append(error.category)
                self._note(billed(error, request, self.stamps, started), purpose)
                if not may_retry(error, failures, rules):
                    raise
                delay_s = retry_delay_s(len(failures), error, clock.jitter(), rules)
            await clock.sleep(delay_s)

    async def _try(self, request: ModelRequest, purpose: Purpose) -> ModelResponse:
        came = OpenMessage()
        try:
            response = await self.model.respond(request, came.feed)
        except ModelError:
            raise
        except BaseException:
            if (cut := came.partial()) is not None:
                cut = replace(cut, model=cut.model or request.model)
                self._note((row_of_cut(cut, self.stamps),), purpose)
            raise
        self._note((ledger_row(response, self.stamps),), purpose)
        return response

    def _note(self, rows: Iterable[LedgerRow], purpose: Purpose) -> None:
        self._rows += (replace(row, purpose=purpose) for row in rows)

    def _request(self, model: str, request: SideRequest) -> ModelRequest:
        models = self.stamps.models
        is_forced, thinking = _forced(request.tool_choice, models.abilities(model))
        return ModelRequest(
            model=model,
            max_tokens=min(request.max_tokens, models.limits(model).max_output),
            system=(request.system,),
            tools=request.tools,
            messages=(ContextMessage("user", (encode_block(TextBlock(text=request.prompt)),)),),
            thinking=thinking,
            metadata_user_id=self.session_id,
            tool_choice=request.tool_choice if is_forced else None,
            is_cached=False,
        )


def _forced(
    tool_choice: Mapping[str, Any] | None, abilities: Abilities
) -> tuple[bool, Mapping[str, Any] | None]:
    """Say whether a model can be made to call a tool, and what has to be told of thinking then.

    One that thinks in any case cannot.
    """
    if tool_choice is None or not abilities.thinks:
        return tool_choice is not None, None
    can = abilities.off == "disabled"
    return can, {"type": "disabled"} if can else None


def _cost_usd(rows: Iterable[LedgerRow]) -> Decimal:
    return sum((row.cost_usd or Decimal(0) for row in rows), Decimal(0))
