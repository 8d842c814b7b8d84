"""Rows and ends as streams tell them, whatever their form."""

import orjson

from app.runs.items import End
from app.runs.live import Row, service_json


def row_event(row: Row, *, is_wrapped: bool) -> tuple[str, str]:
    """Give a row's name and JSON; `is_wrapped` messages come with their seq and run."""
    if row.kind != "message":
        return "service", service_json(row)
    if not is_wrapped:
        return "message", row.body
    head = orjson.dumps({"seq": row.seq, "run_id": row.run_id}).decode()
    return "entry", f'{head[:-1]},"message":{row.body}}}'


def end_json(item: End, *, run_id: str | None, last_seq: int) -> bytes:
    """Give what the last frame says."""
    body: dict[str, object] = {"reason": item.reason, "last_seq": last_seq}
    if run_id is not None:
        body["run_id"] = run_id
    return orjson.dumps(body)
