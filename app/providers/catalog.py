"""What the provider says of its models' sizes (`GET /v1/models/{id}`), where it says anything."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

from app.providers.repair import loads_repaired

log = logging.getLogger(__name__)

ASK_S = 10.0
_LARGEST = 10**9


@dataclass(slots=True)
class ModelCatalog:
    """Asks once for each model that is used, in the background: no run waits for it."""

    client: httpx.AsyncClient
    messages_url: httpx.URL
    headers: httpx.Headers
    learn: Callable[[str, int, int | None], None]
    """Takes a model, its window and its largest answer (if told), in tokens."""
    _asked: set[str] = field(default_factory=set)
    _wanted: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)

    def want(self, model: str) -> None:
        """Say that a model is used."""
        if model not in self._asked:
            self._asked.add(model)
            self._wanted.put_nowait(model)

    async def ask_forever(self) -> None:
        """Ask for what is wanted, until cancelled."""
        while True:
            model = await self._wanted.get()
            try:
                async with asyncio.timeout(ASK_S):
                    await self._ask(model)
            except (httpx.HTTPError, TimeoutError, ValueError) as error:
                log.info("The provider tells no size of %r: %s", model, type(error).__name__)

    async def _ask(self, model: str) -> None:
        url = self.messages_url.join(f"models/{quote(model, safe='')}")
        answer = await self.client.get(url, headers=self.headers)
        answer.raise_for_status()
        told = loads_repaired(answer.content)
        window = _size(told, "max_input_tokens")
        if window is not None:
            self.learn(model, window, _size(told, "max_tokens"))


def _size(told: object, name: str) -> int | None:
    value = told.get(name) if isinstance(told, dict) else None
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST
    return value if is_size else None
