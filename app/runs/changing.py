"""Options of a session changed for all that it does from now on: its unfinished runs, and later ones."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.options import AgentOptions
from app.errors import RequestError, Unavailable, UnsupportedOption, ValidationFailed
from app.runs.policy import Policy
from app.runs.wishes import event_body
from app.store.keys import Caller
from app.store.runs import find_run
from app.store.session_edits import (
    SessionEdit,
    edit_next_options,
    edit_run_options,
    edit_session,
    followed_runs,
)
from app.store.sessions import SessionRow, archived, session_of
from app.store.waiting import hold_session, unfinished_runs

log = logging.getLogger(__name__)

MOST_RUNS = 1000
Apply = Callable[[AgentOptions], AgentOptions]
"""Gives options as they are after a change. May raise pydantic's `ValidationError`."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is changed, on whose behalf, and what it is held against. Raises a `RequestError`."""

    caller: Caller
    policy: Policy
    session_id: str
    apply: Apply
    pointer: str
    """The field of the request that errors name."""

    @property
    def tenant_id(self) -> str:
        return self.caller.tenant_id

    def of_session(self, old: AgentOptions) -> AgentOptions:
        """Give a session's options after the change."""
        new = self._applied(old)
        with self._as_field():
            self.policy.check(
                new, allows_bypass=self.caller.allow_bypass, ceiling=self.caller.ceiling
            )
        return new

    def of_run(self, stored: Mapping[str, Any]) -> AgentOptions | None:
        """Give a run's options after the change; None where it changes nothing.

        Raises `Unavailable` where they cannot be read: a newer version's host may have made the run. What a
        client makes stricter must not be taken for done then; the run ends, or a newer host is asked.
        """
        try:
            old = AgentOptions.model_validate(dict(stored))
        except ValidationError:
            log.warning("Options of a run cannot be read, so they are not changed")
            raise Unavailable(
                "This host cannot read the options of a run of the session. Try again shortly.",
                retry_after_s=2,
            ) from None
        changed = self._applied(self.policy.without_defaults(old))
        with self._as_field():
            new = self.policy.effective(
                changed,
                allows_bypass=self.caller.allow_bypass,
                ceiling=self.caller.ceiling,
                now=datetime.now(UTC),
            )
        return None if new == old else new

    @contextmanager
    def _as_field(self) -> Iterator[None]:
        """Name the request's own field in a refusal: it holds no options."""
        try:
            yield
        except RequestError as refusal:
            for error in refusal.errors:
                error["pointer"] = self.pointer
            raise

    def _applied(self, options: AgentOptions) -> AgentOptions:
        try:
            return self.apply(options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            errors = [{"pointer": self.pointer, "code": first["type"], "message": first["msg"]}]
            kind = UnsupportedOption if first["type"] == "unsupported_option" else ValidationFailed
            raise kind(f"{self.pointer}: {first['msg']}", errors=errors) from None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change reached."""

    session: SessionRow
    run_ids: tuple[str, ...]
    """Unfinished runs that go on otherwise; whoever drives them is to be told."""
    model: str
    """What the session's next run asks."""


async def change_options(connection: AsyncConnection, change: Change) -> Changed:
    """Change options inside the caller's transaction. Raises a `RequestError`."""
    tenant_id, session_id = change.tenant_id, change.session_id
    held = await hold_session(connection, tenant_id, session_id)
    if held.is_archived:
        raise archived()
    found = await session_of(connection, tenant_id, session_id)
    old = AgentOptions.model_validate(dict(found.options))
    new = change.of_session(old)
    if new != old:
        edit = SessionEdit(found.title, new.stored(), found.metadata, found.tags, is_archived=False)
        told = event_body(session_id, "session.updated", {"changed": ["options"]})
        events = [("session.updated", told)]
        await edit_session(connection, tenant_id, session_id, edit, events)
    runs = await unfinished_runs(
        connection, tenant_id, session_id=session_id, statuses=(), limit=MOST_RUNS
    )
    reached = [run_id for run_id in runs if await _change_run(connection, change, run_id)]
    await change_next(connection, change, with_unfinished=False)
    session = await session_of(connection, tenant_id, session_id)
    return Changed(session, tuple(reached), change.policy.model_of(new))


async def _change_run(connection: AsyncConnection, change: Change, run_id: str) -> bool:
    run = await find_run(connection, change.tenant_id, run_id)
    if run is None:
        return False
    new = change.of_run(run.options)
    if new is None:
        return False
    await edit_run_options(connection, change.tenant_id, run_id, new.stored())
    return True


async def change_next(
    connection: AsyncConnection, change: Change, *, with_unfinished: bool
) -> None:
    """Change what runs begin with that the end of something in the background brings about.

    `with_unfinished`: also of those that follow runs which are not over, and stay as they are themselves.
    Else these hand on what they are by then. Raises a `RequestError`.
    """
    for last in await followed_runs(connection, change.tenant_id, change.session_id):
        if last.is_finished or last.are_own or with_unfinished:
            new = change.of_run(last.options)
            if new is not None:
                await edit_next_options(connection, change.tenant_id, last.id, new.stored())
