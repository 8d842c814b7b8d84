"""Rows and ends as the API tells them, whatever their form."""

import orjson
from fastapi import Response

from app.domain.messages import wire_time
from app.runs.items import End
from app.runs.listing import Row
from app.runs.topic import service_json


def entry_json(row: Row, **more: bytes) -> str:
    """Wrap a row; its data stays the exact JSON that readers got. `more` are encoded fields."""
    at = wire_time(row.at) if row.at else None
    head = orjson.dumps({"seq": row.seq, "at": at, "run_id": row.run_id, "kind": row.kind})
    fields = "".join(f',"{name}":{value.decode()}' for name, value in more.items())
    data = row.body if row.kind == "message" else service_json(row)
    return f'{head.decode()[:-1]}{fields},"data":{data}}}'


def message_page(items: list[str], rows: list[Row], *, has_more: bool) -> Response:
    """Give a page of encoded entries or messages."""
    following = rows[-1].seq if has_more else "null"
    more = "true" if has_more else "false"
    body = f'{{"data":[{",".join(items)}],"has_more":{more},"next_after":{following}}}'
    return Response(body, media_type="application/json")


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
