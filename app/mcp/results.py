"""What a server answered, as a result of ours (spec: tools 11.2)."""

import base64
import binascii
import mimetypes
import secrets
from collections.abc import Sequence
from typing import Any

import mcp_types as types
import orjson

from app.domain.text import is_too_deep, printable, printable_value
from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.read_image import image_block
from app.tools.open_file import compute
from app.tools.stored_output import human_size, store
from app.tools.tool import ToolContext

Block = dict[str, Any]

MAX_SHOWN_BYTES = 10_000_000
"""Of base64 of one result's images: they are part of every later request."""
MAX_BLOCKS = 1_000
_NO_WORDS = "The server says that the call failed, and not why (unknown error)."


async def tool_result(
    answer: types.CallToolResult, server: str, context: ToolContext
) -> ToolResult:
    """Give a call's result. Raises `ToolFailed` for one that the server calls an error.

    Images and other binary parts are saved in files of the session.
    """
    if answer.is_error:
        texts = [block.text for block in answer.content if isinstance(block, types.TextContent)]
        raise ToolFailed("\n".join(texts).strip() or _NO_WORDS)
    if answer.structured_content is not None:
        if is_too_deep(answer.structured_content):
            raise ToolFailed("The server's answer nests too deep.")
        value = printable_value(answer.structured_content)
        text = orjson.dumps(value).decode()
        structured = {"content": text, "structuredContent": value}
        return ToolResult(text, structured=structured)
    writer = _Writer(server, context)
    for block in answer.content[:MAX_BLOCKS]:
        await writer.add(block)
    if (more := len(answer.content) - MAX_BLOCKS) > 0:
        writer.say(f"[{more} more blocks of the answer are left out]")
    if writer.links:
        structured_links = {"content": writer.blocks, "resourceLinks": writer.links}
        return ToolResult(writer.blocks, structured=structured_links)
    return ToolResult(writer.blocks, structured=writer.told)


async def resource_contents(
    answer: types.ReadResourceResult, server: str, context: ToolContext
) -> ToolResult:
    """Give what a resource holds as JSON text; binary parts are saved in files."""
    writer = _Writer(server, context)
    told: list[Block] = []
    for part in answer.contents[:MAX_BLOCKS]:
        about = {"uri": str(part.uri), "mimeType": part.mime_type}
        if isinstance(part, types.TextResourceContents):
            told.append({**about, "text": part.text})
        else:
            told.append({**about, "blobSavedTo": await writer.saved(part.blob, part.mime_type)})
    structured = printable_value({"contents": told})
    return ToolResult(orjson.dumps(structured).decode(), structured=structured)


class _Writer:
    """Collects blocks for the model."""

    def __init__(self, server: str, context: ToolContext) -> None:
        self._server = server
        self._context = context
        self._room = MAX_SHOWN_BYTES
        self.blocks: list[Block] = []
        self.links: list[Block] = []

    @property
    def told(self) -> list[Block]:
        """The blocks for clients: images are in the message already."""
        return [
            block if block["type"] == "text" else {"type": block["type"]} for block in self.blocks
        ]

    def say(self, text: str) -> None:
        self.blocks.append({"type": "text", "text": text})

    async def add(self, block: types.ContentBlock) -> None:
        match block:
            case types.TextContent(text=text):
                if text:
                    self.say(text)
            case types.ImageContent(data=data, mime_type=kind):
                await self._image(data, kind)
            case types.AudioContent(data=data, mime_type=kind):
                await self._file(f"Audio from {self._server}", data, kind)
            case types.ResourceLink():
                self._link(block)
            case types.EmbeddedResource(resource=resource):
                await self._resource(resource)

    def _link(self, link: types.ResourceLink) -> None:
        about = f" ({link.description})" if link.description else ""
        self.say(f"[Resource link: {link.name}] {link.uri}{about}")
        told = {"uri": str(link.uri), "name": link.name}
        further = {"description": link.description, "mimeType": link.mime_type}
        self.links.append({**told, **{key: value for key, value in further.items() if value}})

    async def _resource(
        self, resource: types.TextResourceContents | types.BlobResourceContents
    ) -> None:
        where = f"[Resource from {self._server} at {resource.uri}]"
        if isinstance(resource, types.TextResourceContents):
            self.say(f"{where} {resource.text}")
        elif (resource.mime_type or "").startswith("image/"):
            self.say(where)
            await self._image(resource.blob, resource.mime_type)
        else:
            await self._file(where, resource.blob, resource.mime_type)

    async def _image(self, data: str, kind: str | None) -> None:
        """Show an image as the decoder gives it: a broken one would spoil every later request."""
        content = await _decoded(data)
        path = None if content is None else await self._save(content, _suffix(kind))
        if path is None:
            self.say(f"[Image from {self._server}: it cannot be read or saved]")
            return
        try:
            with self._context.workspace.open(path) as file:
                answer = await self._context.decoder.image(file)
        except (OSError, ToolFailed) as error:
            why = error.message if isinstance(error, ToolFailed) else "it is gone"
            self.say(f"[Image from {self._server}, saved as {path}, is not shown: {why}]")
            return
        (picture,) = answer["pictures"]
        self._room -= len(picture["base64"])
        if self._room < 0:
            self.say(f"[Image from {self._server}, saved as {path}, is not shown: too many]")
            return
        self.blocks.append(image_block(picture))
        self.say(f"[The image is saved as {path}]")

    async def _file(self, what: str, data: str, kind: str | None) -> None:
        content = await _decoded(data)
        if content is None:
            self.say(f"[{what}: it is no base64]")
            return
        about = f"{printable(kind or 'unknown type')[:100]}, {human_size(len(content))}"
        path = await self._save(content, _suffix(kind))
        where = f"saved as {path}" if path else "it could not be saved"
        self.say(f"{what} ({about}): {where}")

    async def saved(self, data: str, kind: str | None) -> str | None:
        """Save base64; give the path, or None where that cannot be done."""
        content = await _decoded(data)
        return None if content is None else await self._save(content, _suffix(kind))

    async def _save(self, content: bytes, suffix: str) -> str | None:
        workspace = self._context.workspace
        path = f"{workspace.view.tmp}/treadle/m{secrets.token_hex(6)}{suffix}"
        return path if await store(content, path, workspace) else None


async def _decoded(data: str) -> bytes | None:
    def decode() -> bytes | None:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None

    return await compute(decode, size_bytes=len(data))


def _suffix(kind: str | None) -> str:
    return mimetypes.guess_extension((kind or "").partition(";")[0].strip()) or ".bin"


def texts_of(messages: Sequence[types.PromptMessage]) -> list[str]:
    """Give the texts of a prompt's messages; what is no text is named."""
    return [
        message.content.text
        if isinstance(message.content, types.TextContent)
        else f"[{message.content.type}: not shown]"
        for message in messages[:MAX_BLOCKS]
    ]
