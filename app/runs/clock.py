"""The real clock."""

import asyncio
import os
import random
import time
from datetime import UTC, datetime

_FREE = ~(0xF << 76 | 0x3 << 62)
_VERSION_4 = 0x4 << 76 | 0x2 << 62


class SystemClock:
    """Time, waiting and ids of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def uuid(self) -> str:
        # As `uuid.uuid4` does it, without the object: each message has one.
        digits = f"{int.from_bytes(os.urandom(16)) & _FREE | _VERSION_4:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def jitter(self) -> float:
        return random.random()  # noqa: S311 - spreads retries, guards nothing

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
