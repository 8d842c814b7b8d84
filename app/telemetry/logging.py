"""Logs: one record a fact; JSON at the edge. No prompts, tool inputs or secrets at INFO."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

_CONTEXT: ContextVar[dict[str, str]] = ContextVar("treadle_log_context")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def run_context(**names: str) -> Iterator[None]:
    """Add names (`run_id`, `session_id`, `request_id`) to every record made inside."""
    token = _CONTEXT.set({**_CONTEXT.get({}), **names})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "at": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_CONTEXT.get({}),
        }
        fields |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # a lone surrogate, a huge integer: escaped rather than lost
            return json.dumps(fields, default=str)


def set_up_logging(level: str, form: Literal["json", "text"]) -> None:
    """Send all records to standard error in the given form. Called once, by the program."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True
    for chatty in ("uvicorn.error", "sse_starlette", "httpx", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It shows a traceback each time that the database is away, of which our own records tell.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    # It tells at length of what strangers send; our own records say what came of it.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
