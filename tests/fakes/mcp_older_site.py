"""An MCP server over the older HTTP transport whose answer to a call may be anything, in plain bytes."""

import asyncio
import contextlib
from typing import Any, Self

import orjson

_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b"event: endpoint\ndata: /post\n\n"
)
_TAKEN = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
_RESULTS: dict[str, Any] = {
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "fine"}]},
}


class OlderSite:
    """Serves until the block ends."""

    def __init__(self, refusal: bytes | None) -> None:
        """`refusal`: all that a request with a call gets; None: it is answered."""
        self.refusal = refusal
        self._stream: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"get"):
                    self._stream = writer
                    writer.write(_STREAM)
                    continue
                size = int(head.partition(b"content-length:")[2].split()[0])
                await self._take(orjson.loads(await reader.readexactly(size)), writer)
        writer.close()

    async def _take(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        if method == "tools/call" and self.refusal is not None:
            writer.write(self.refusal)
            writer.close()
            return
        writer.write(_TAKEN)
        if "id" in message and self._stream is not None:
            answer = {"jsonrpc": "2.0", "id": message["id"], **_answer(message)}
            self._stream.write(b"event: message\ndata: " + orjson.dumps(answer) + b"\n\n")


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] == "initialize":
        return {
            "result": {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "older", "version": "1"},
            }
        }
    if found := _RESULTS.get(message["method"]):
        return {"result": found}
    return {"error": {"code": -32601, "message": "There is no such method."}}
