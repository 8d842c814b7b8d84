"""A server of HTTP hooks: answers each event by a script, and records what it was asked."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from tests.fakes.site import Asked, Page, Site, answer

NEVER = 3600.0
"""An answer that does not come."""

Said = dict[str, Any] | bytes | float
"""A JSON output, a whole HTTP answer, or seconds until an empty one."""


@dataclass(slots=True)
class HookServer:
    """Each event has a URL of its own; past the end of its script it is answered by `{}`."""

    script: dict[str, Sequence[Said]] = field(default_factory=dict)
    site: Site = field(default_factory=Site)
    _asked: dict[str, int] = field(default_factory=dict)
    _is_closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        await self.site.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_closing.set()
        await self.site.__aexit__(*error)

    def url(self, event: str) -> str:
        self.site.pages.setdefault(f"/{event}", self._page(event))
        return f"http://127.0.0.1:{self.site.port}/{event}"

    def hook(self, event: str, **given: Any) -> dict[str, Any]:
        """Give a hook as options name it."""
        return {"event": event, "url": self.url(event), **given}

    @property
    def asked(self) -> Sequence[Asked]:
        return self.site.asked

    @property
    def told(self) -> list[dict[str, Any]]:
        """The bodies of all requests, in order."""
        return [orjson.loads(request.body) for request in self.site.asked]

    def events(self) -> list[str]:
        return [told["hook_event_name"] for told in self.told]

    def _page(self, event: str) -> Page:
        async def write(writer: asyncio.StreamWriter) -> None:
            number = self._asked.get(event, 0)
            self._asked[event] = number + 1
            script = self.script.get(event, ())
            said = script[number] if number < len(script) else {}
            if isinstance(said, float):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_closing.wait(), said)
                said = {}
            whole = said if isinstance(said, bytes) else answer(orjson.dumps(said))
            writer.write(whole)

        return write
