"""Bodies of JSON lines: decoded as strictly as other bodies, with the line named."""

from typing import Any

from app.api.body import decode
from app.errors import InvalidRequest


def decode_lines(body: bytes) -> list[tuple[int, Any]]:
    """Give each line's number, from 1, and value; blank lines are none. Raises `InvalidRequest`."""
    found: list[tuple[int, Any]] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append((number, decode(line)))
        except InvalidRequest as error:
            errors = [{**each, "pointer": f"/{number}{each['pointer']}"} for each in error.errors]
            raise InvalidRequest(f"Line {number}: {error.detail}", errors=errors) from None
    return found
