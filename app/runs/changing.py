"""Options of a session changed for all that it does from now on: its unfinished runs, and later ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.options import AgentOptions
from app.errors import UnsupportedOption, ValidationFailed
from app.runs.policy import Policy
from app.runs.sessions import session_of
from app.runs.wishes import event_body
from app.store.keys import Caller
from app.store.runs import find_run
from app.store.session_edits import (
    SessionEdit,
    edit_next_options,
    edit_run_options,
    edit_session,
    followed_run,
)
from app.store.sessions import SessionRow, archived
from app.store.waiting import hold_session, unfinished_runs

MOST_RUNS = 1000
Change = Callable[[AgentOptions], AgentOptions]
"""May raise pydantic's `ValidationError`."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change reached."""

    session: SessionRow
    run_ids: tuple[str, ...]
    """Unfinished runs that go on otherwise; whoever drives them is to be told."""
    model: str
    """What the session's next run asks."""


async def change_options(
    connection: AsyncConnection,
    caller: Caller,
    policy: Policy,
    session_id: str,
    change: Change,
    *,
    pointer: str,
) -> Changed:
    """Change options inside the caller's transaction. Raises a `RequestError` that names `pointer`."""
    held = await hold_session(connection, caller.tenant_id, session_id)
    if held.is_archived:
        raise archived()
    found = await session_of(connection, caller.tenant_id, session_id)
    old = AgentOptions.model_validate(dict(found.options))
    new = _changed(change, old, pointer)
    policy.check(new, allows_bypass=caller.allow_bypass, ceiling=caller.ceiling)
    if new != old:
        edit = SessionEdit(found.title, new.stored(), found.metadata, found.tags, is_archived=False)
        told = event_body(session_id, "session.updated", {"changed": ["options"]})
        events = [("session.updated", told)]
        await edit_session(connection, caller.tenant_id, session_id, edit, events)
    runs = await unfinished_runs(
        connection, caller.tenant_id, session_id=session_id, statuses=(), limit=MOST_RUNS
    )
    reached = [
        run_id
        for run_id in runs
        if await _change_run(connection, caller, policy, run_id, change, pointer)
    ]
    await _change_next(connection, caller, policy, session_id, change, pointer)
    session = await session_of(connection, caller.tenant_id, session_id)
    return Changed(session, tuple(reached), policy.model_of(new))


async def _change_run(
    connection: AsyncConnection,
    caller: Caller,
    policy: Policy,
    run_id: str,
    change: Change,
    pointer: str,
) -> bool:
    run = await find_run(connection, caller.tenant_id, run_id)
    if run is None:
        return False
    new = _effective(caller, policy, run.options, change, pointer)
    if new is None:
        return False
    await edit_run_options(connection, caller.tenant_id, run_id, new.stored())
    return True


async def _change_next(
    connection: AsyncConnection,
    caller: Caller,
    policy: Policy,
    session_id: str,
    change: Change,
    pointer: str,
) -> None:
    """Change what a run begins with that the end of something in the background brings about."""
    last = await followed_run(connection, caller.tenant_id, session_id)
    if last is None:
        return
    new = _effective(caller, policy, last.options, change, pointer)
    if new is not None:
        await edit_next_options(connection, caller.tenant_id, last.id, new.stored())


def _effective(
    caller: Caller, policy: Policy, stored: Mapping[str, Any], change: Change, pointer: str
) -> AgentOptions | None:
    """Give a run's options after a change; None where it changes nothing."""
    old = AgentOptions.model_validate(dict(stored))
    new = policy.effective(
        _changed(change, old, pointer),
        allows_bypass=caller.allow_bypass,
        ceiling=caller.ceiling,
        now=datetime.now(UTC),
    )
    return None if new == old else new


def _changed(change: Change, options: AgentOptions, pointer: str) -> AgentOptions:
    try:
        return change(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        errors = [{"pointer": pointer, "code": first["type"], "message": first["msg"]}]
        kind = UnsupportedOption if first["type"] == "unsupported_option" else ValidationFailed
        raise kind(f"{pointer}: {first['msg']}", errors=errors) from None
