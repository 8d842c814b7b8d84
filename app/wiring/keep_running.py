"""Loops that run as long as the service does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack


async def keep_running(stack: AsyncExitStack, *loops: Callable[[], Awaitable[None]]) -> None:
    """Run `loops` until `stack` closes. One that fails ends the others, and the stack."""
    group = await stack.enter_async_context(asyncio.TaskGroup())

    async def run(loop: Callable[[], Awaitable[None]]) -> None:
        await loop()

    for loop in loops:
        stack.callback(group.create_task(run(loop)).cancel)
