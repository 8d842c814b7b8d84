"""A small model that says what a test wants, and remembers what it was asked."""

from dataclasses import dataclass, field
from decimal import Decimal

from app.domain.blocks import Block, parse_block
from app.domain.model import ModelResponse, SideRequest
from app.domain.usage import LedgerRow, Usage
from app.errors import ModelError

Json = dict[str, object]


@dataclass
class Small:
    """Answers with `blocks`, or raises."""

    blocks: list[Json] = field(default_factory=lambda: [{"type": "text", "text": "A fine page."}])
    error: ModelError | None = None
    requests: list[SideRequest] = field(default_factory=list)

    async def ask(self, request: SideRequest) -> ModelResponse:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        blocks: tuple[Block, ...] = tuple(map(parse_block, self.blocks))
        return ModelResponse("msg_1", "small", blocks, "end_turn", None, Usage(), None, 1, 1)

    def lost(self) -> LedgerRow:
        raise AssertionError("tools do not lose")

    def allow(self, left_usd: Decimal | None) -> None:
        raise AssertionError(left_usd)

    def settle(self) -> tuple[LedgerRow, ...]:
        raise AssertionError("tools do not settle")
