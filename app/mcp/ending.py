"""What a connection and its transport have between them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

from mcp.client._transport import TransportStreams


@dataclass(slots=True)
class Ending:
    """Written by the transport, read by the connection that it failed."""

    why: str = ""
    """In words for clients; empty where there is nothing to say."""
    needs_auth: bool = False


Link: TypeAlias = Callable[[Ending], AbstractAsyncContextManager[TransportStreams]]
"""Makes the transport of a connection. Raises `ToolFailed` for one that cannot be."""
