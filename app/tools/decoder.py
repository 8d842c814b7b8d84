"""Decoding images, documents and web pages in confined children: their bytes are hostile.

The decoders are C, or take as much time and memory as a page wants.

The child (`app/tools/decoding`) gets the open file as its standard input and a request as its
argument. It can open nothing, and ends at a limit of memory, time or output.
"""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.errors import ToolFailed
from app.sandbox.driver import Limits, run_to_end
from app.sandbox.process import Child, Spawn
from app.tools.decoding.answer import Answer
from app.tools.open_file import OpenFile

logger = logging.getLogger(__name__)

_WALL_S = 30.0
_OUTPUT_BYTES = 16 * 1024 * 1024
_AT_ONCE = 2
"""A child may take more than a gigabyte, and a core."""
_MAX_IMAGE_BYTES = 32 * 1024 * 1024
_MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
"""Shown whole: in base64 it is part of every later request."""
_MAX_PAGED_BYTES = 64 * 1024 * 1024
_MAX_WHOLE_PAGES = 100
"""More are refused by the Messages API."""
_NOBODY = 65534
_ANSWER = TypeAdapter(Answer)


class Decoder:
    """Starts the children, a few at once. One for a host."""

    def __init__(self, *, wall_s: float = _WALL_S) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._limits = Limits(wall_s, _OUTPUT_BYTES, _OUTPUT_BYTES)

    async def image(self, file: OpenFile) -> Answer:
        """Give an image that can be shown: its `pictures` hold one. Raises `ToolFailed`."""
        return await self._ask(file, _MAX_IMAGE_BYTES, job="image")

    async def document(self, file: OpenFile) -> Answer:
        """Give a PDF document whole. Raises `ToolFailed`."""
        return await self._ask(
            file, _MAX_DOCUMENT_BYTES, job="document", max_pages=_MAX_WHOLE_PAGES
        )

    async def pages(self, file: OpenFile, first: int, last: int) -> Answer:
        """Give pages of a PDF document, counted from 1, as pictures. Raises `ToolFailed`."""
        return await self._ask(file, _MAX_PAGED_BYTES, job="pages", first=first, last=last)

    async def page(self, data: bytes, *, charset: str, is_html: bool) -> Answer:
        """Give the text of a web page, HTML as Markdown. `charset` is one that Python knows.

        Raises `ToolFailed`.
        """
        fd = os.memfd_create("page", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(data)
            return await self._ask_of(fd, len(data), job="page", charset=charset, is_html=is_html)
        finally:
            os.close(fd)

    async def _ask(self, file: OpenFile, max_bytes: int, **request: str | int) -> Answer:
        if file.size_bytes > max_bytes:
            raise ToolFailed(f"it has {file.size_bytes} bytes, at most {max_bytes} are shown")
        return await self._ask_of(file.fd, max_bytes, **request)

    async def _ask_of(self, fd: int, max_bytes: int, **request: str | int) -> Answer:
        uid = _NOBODY if os.geteuid() == 0 else None
        async with self._slots:
            return await _run(fd, {**request, "max_bytes": max_bytes, "uid": uid}, self._limits)


async def _run(fd: int, request: dict[str, Any], limits: Limits) -> Answer:
    spawn = Spawn(
        Path(sys.executable),
        # Isolated: neither the environment nor the directory says what is imported.
        [sys.executable, "-I", "-m", "app.tools.decoding", json.dumps(request)],
        env={},
        cwd="/",
        limits=limits,
        merge_stderr=False,
        stdin=fd,
    )
    finished = await run_to_end(Child(spawn), limits.wall_s)
    if finished.timed_out or finished.flooded:
        raise ToolFailed("it takes too long to decode")
    if finished.exit_code != 0:
        logger.warning(
            "A decoder ended with status %s: %s",
            finished.exit_code,
            finished.stderr.decode(errors="replace")[-2000:],
            extra={"action": "decoder_failed", "job": request["job"]},
        )
        raise ToolFailed("it cannot be decoded within the limits of memory and time")
    try:
        answer = _ANSWER.validate_json(finished.output, strict=True)
    except ValidationError as error:  # it may have been taken over
        raise ToolFailed("it cannot be decoded") from error
    if "refused" in answer:
        raise ToolFailed(answer["refused"])
    return answer
