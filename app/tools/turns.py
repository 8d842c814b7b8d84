"""Long work on the event loop, in slices between which others have their turn."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_SLICE_S = 0.005


async def kept(items: Iterable[T], keep: Callable[[T], bool]) -> list[T]:
    """Give the items that are to be kept, in their order.

    For tests that cannot be made in a thread, since they ask the session's workspace.
    """
    found = []
    began = time.monotonic()
    for item in items:
        if keep(item):
            found.append(item)
        if time.monotonic() - began > _SLICE_S:
            await asyncio.sleep(0)
            began = time.monotonic()
    return found
