"""Versions of what clients edit: `ETag` out, `If-Match` in."""

import re
from typing import Annotated

from fastapi import Depends, Header

from app.errors import InvalidRequest

_TAG = re.compile(r'(?:W/)?"(\d{1,9})"')


async def _expected(
    if_match: Annotated[
        str | None,
        Header(description="The `etag` that you have seen; 409 when the resource has another one."),
    ] = None,
) -> int | None:
    """Give the version that the client has seen; None when any will do."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        raise InvalidRequest('If-Match must be one etag, such as "3", or *.')
    return int(found[1])


ExpectedDep = Annotated[int | None, Depends(_expected)]
