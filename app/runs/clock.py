"""The real clock."""

import asyncio
import random
import time
import uuid
from datetime import UTC, datetime


class SystemClock:
    """Time, waiting and ids of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self) -> float:
        return random.random()  # noqa: S311 - spreads retries, guards nothing

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
