"""The loop's seams to model APIs: requests, previews of what comes, and what is known of models."""

from datetime import datetime
from decimal import Decimal
from typing import Protocol

from app.agent.run_info import Thread
from app.domain.messages import ApiRetryMessage
from app.domain.model import (
    Hear,
    ModelRequest,
    ModelResponse,
    PartialResponse,
    SideRequest,
    StreamPart,
    unheard,
)
from app.domain.thinking import Abilities
from app.domain.usage import LedgerRow, ModelLimits, Usage


class Model(Protocol):
    """A model API."""

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        """Send the request; `hear` each event as it comes, then give the complete response.

        Only a response that ended properly is given; every other outcome raises a `ModelError`,
        which carries what was billed. Time-outs (connect, first byte, silence) are the
        implementation's and raise `ModelUnreachable`. Cancelling the task closes the connection
        at once.
        """
        ...


class SideModel(Protocol):
    """Model requests beside the conversation, with their rows in the ledger.

    For whatever of a run needs a model's word without a turn: a tool asks about a page or has
    the web searched, a gate has a call classified. Who has to ask is handed this where its parts are
    wired (`HostParts.open`; a tool finds it as `context.side`) and calls `ask`. It need not think
    of money: the loop settles what was asked with the results that it journals, at the next step, or when
    the run is stopped, so that no row is lost to a failing call or a cancel.
    """

    async def ask(self, request: SideRequest) -> ModelResponse:
        """Send the request to the small model that the operator chose, with retries.

        Raises `ModelError`; `BudgetSpent` when the run's budget leaves nothing for it. Cancelling
        the task closes the connection; what came until then is estimated and settled.
        """
        ...

    def lost(self) -> LedgerRow:
        """Give the row of a request that a lost host may have had under way: an estimate."""
        ...

    def allow(self, left_usd: Decimal | None) -> None:
        """Say what the run may still spend, unsettled rows not counted. None: no limit."""
        ...

    def settle(self) -> tuple[LedgerRow, ...]:
        """Take the rows of what was asked since the last time. Each is given once."""
        ...


class Previews(Protocol):
    """Where partial messages go. Best effort: nothing here is stored."""

    def publish(self, part: StreamPart) -> None:
        """Hand on one raw event. Never blocks, never raises."""
        ...

    def requesting(self) -> None:
        """Say that a model request is about to be made. Never blocks, never raises."""
        ...

    def retrying(self, thread: Thread, retry: ApiRetryMessage) -> None:
        """Say that a subagent's request failed and will be made again. Never blocks, never raises.

        Of the main conversation a row tells it.
        """
        ...

    def abort(self, message_id: str, reason: str) -> None:
        """Say that the open message will not be completed (retry, cancel)."""
        ...

    def complete(self) -> None:
        """Say that the open message is complete: it is about to be journalled."""
        ...

    def partial(self) -> PartialResponse | None:
        """Give what came of the open message; None when none is on its way."""
        ...


class Models(Protocol):
    """What is known of models: prices and sizes."""

    def cost_usd(self, model: str, usage: Usage, at: datetime) -> Decimal | None:
        """Price one request; None when the model has no known price."""
        ...

    def limits(self, model: str) -> ModelLimits:
        """Give the model's sizes; a safe guess for an unknown one."""
        ...

    def abilities(self, model: str) -> Abilities:
        """Give what the model takes of thinking and effort."""
        ...

    def canonical(self, model: str) -> str:
        """Give the model's name without its date."""
        ...
