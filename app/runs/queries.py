"""What clients can read: sessions, runs, logs; and the wait for a run's end."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from app.domain.work_items import Items
from app.errors import CursorInvalid, NotFound
from app.runs.items import Comment, End, Framed, Item
from app.runs.live import Hub
from app.runs.topic import RUN_FINISHED
from app.store import audits, journal
from app.store import runs as store_runs
from app.store.audits import AuditRow as AuditRow
from app.store.engine import Database
from app.store.rows import LogRange, Row
from app.store.runs import RunRow, find_run
from app.store.sessions import SessionRow, find_session
from app.store.subagents import SubagentRow, list_subagents
from app.store.transcript import read_active
from app.store.work_items import work_items


@dataclass(frozen=True, slots=True)
class Queries:
    """All reads of the API."""

    database: Database
    hub: Hub

    async def session(self, tenant_id: str, session_id: str) -> SessionRow:
        """Give a session. Raises `NotFound`."""
        async with self.database.connect() as connection:
            row = await find_session(connection, tenant_id, session_id)
        if row is None:
            raise NotFound("There is no such session.")
        return row

    async def work(self, tenant_id: str, session_id: str) -> Items:
        """Give what a session's agent means to do. Raises `NotFound`."""
        await self.session(tenant_id, session_id)
        return await work_items(self.database, tenant_id, session_id)

    async def decisions(
        self,
        tenant_id: str,
        *,
        session_id: str | None,
        run_id: str | None,
        before: tuple[datetime, str, int] | None,
        limit: int,
    ) -> list[AuditRow]:
        """Give decisions about calls, the newest first. What is not there has none."""
        return await audits.decisions(
            self.database,
            tenant_id,
            session_id=session_id,
            run_id=run_id,
            before=before,
            limit=limit,
        )

    async def run(self, tenant_id: str, run_id: str) -> RunRow:
        """Give a run. Raises `NotFound`."""
        async with self.database.connect() as connection:
            row = await find_run(connection, tenant_id, run_id)
        if row is None:
            raise NotFound("There is no such run.")
        return row

    async def finished_run(self, tenant_id: str, run_id: str, wait_s: float) -> RunRow:
        """Give a run when it is finished, or as it is after `wait_s`. Raises `NotFound`."""
        run = await self.run(tenant_id, run_id)
        if run.status == "finished" or wait_s <= 0:
            return run
        # The end is looked for beyond a point at which the run was not finished yet.
        session = await self.session(tenant_id, run.session_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                async with aclosing(
                    self.follow_run(tenant_id, run, after=session.last_seq)
                ) as lists:
                    async for _ in lists:
                        pass
        return await self.run(tenant_id, run_id)

    async def result(self, tenant_id: str, run: RunRow) -> str | None:
        """Give the exact JSON of a run's result message; None while there is none."""
        if run.status != "finished":
            return None
        return await store_runs.result_body(self.database, tenant_id, run)

    async def rows(
        self,
        tenant_id: str,
        session_id: str,
        span: LogRange,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        types: Sequence[str] | None = None,
        thread: str | None = None,
    ) -> tuple[list[Row], bool]:
        """Give a page of a session's log, and whether there is more. Raises `NotFound`."""
        await self.session(tenant_id, session_id)
        rows = await journal.read(
            self.database,
            tenant_id,
            session_id,
            span.and_one,
            run_id=run_id,
            kind=kind,
            types=types,
            thread=thread,
        )
        return span.page(rows)

    async def subagents(
        self, tenant_id: str, session_id: str, *, after: int, limit: int
    ) -> tuple[Sequence[SubagentRow], bool]:
        """Give a page of a session's subagents, and whether there is more. Raises `NotFound`."""
        await self.session(tenant_id, session_id)
        rows = await list_subagents(
            self.database, tenant_id, session_id, after=after, limit=limit + 1
        )
        return rows[:limit], len(rows) > limit

    async def subagent_rows(
        self, tenant_id: str, session_id: str, tool_use_id: str, span: LogRange
    ) -> tuple[list[Row], bool]:
        """Give a page of a subagent's messages, and whether there is more. Raises `NotFound`."""
        await self.session(tenant_id, session_id)
        if not await list_subagents(
            self.database, tenant_id, session_id, limit=1, tool_use_id=tool_use_id
        ):
            raise NotFound("The session has no such subagent.")
        return await self.rows(tenant_id, session_id, span, kind="message", thread=tool_use_id)

    async def active_messages(
        self, tenant_id: str, session_id: str, span: LogRange
    ) -> tuple[list[Row], bool]:
        """Give a page of the messages that the model still sees, as `rows` does."""
        await self.session(tenant_id, session_id)
        return span.page(await read_active(self.database, tenant_id, session_id, span.and_one))

    async def something_new(
        self,
        tenant_id: str,
        session_id: str,
        *,
        after: int,
        wait_s: float,
        run_id: str | None = None,
        types: Sequence[str] | None = None,
        thread: str | None = None,
    ) -> bool:
        """Wait for an entry of a session's log beyond `after`; False when none came."""
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(wait_s),
                aclosing(
                    self.hub.follow(tenant_id, session_id, after=after, previews=False)
                ) as lists,
            ):
                async for items in lists:
                    rows = [item.row for item in items if isinstance(item, Framed)]
                    if any(
                        run_id in {None, row.run_id}
                        and (not types or row.type in types)
                        and _is_of(row, thread)
                        for row in rows
                    ):
                        return True
        return False

    async def check_cursor(self, tenant_id: str, session_id: str, cursor: int) -> SessionRow:
        """Raise `CursorInvalid` for a cursor beyond the log's end, `NotFound` for no session."""
        session = await self.session(tenant_id, session_id)
        if cursor > session.last_seq:
            raise CursorInvalid(
                f"The cursor {cursor} is beyond the end of the log ({session.last_seq}).",
                context={"last_seq": session.last_seq},
            )
        return session

    def follow_session(
        self,
        tenant_id: str,
        session_id: str,
        *,
        after: int,
        previews: str = "none",
        thread: str | None = None,
    ) -> AsyncGenerator[list[Item]]:
        """Give a session's log beyond `after`, then what comes, until this host goes.

        Of a `thread`, all its messages and nothing else.
        """
        return _shown(
            self.hub.follow(tenant_id, session_id, after=after, previews=previews != "none"),
            previews=previews,
            run_id=None,
            thread=thread,
        )

    async def follow_run(
        self,
        tenant_id: str,
        run: RunRow,
        *,
        after: int | None,
        previews: str = "none",
        known: Sequence[Row] = (),
    ) -> AsyncGenerator[list[Item]]:
        """Give a run's part of its session's log beyond `after`, until the run has ended.

        `after` is at the most the log's end at the time of the call. `known` are all rows that
        there are beyond it, when the caller has them: they are not given again.
        """
        start = max(run.first_seq - 1, -1 if after is None else after)
        if not known and start >= run.first_seq:
            # The run may have ended since it was read: then nothing would ever come.
            run = await self.run(tenant_id, run.id)
            if run.last_seq is not None and run.last_seq <= start:
                yield [End("run_finished")]
                return
        items = self.hub.follow(
            tenant_id, run.session_id, after=start, previews=previews != "none", known=known
        )
        shown_lists = _shown(
            items, previews=previews, run_id=run.id, is_main=run.origin != "subagent"
        )
        async with aclosing(shown_lists) as lists:
            async for shown in lists:
                yield shown


async def _shown(
    lists: AsyncGenerator[list[Item]],
    *,
    previews: str,
    run_id: str | None,
    thread: str | None = None,
    is_main: bool = False,
) -> AsyncGenerator[list[Item]]:
    """Leave out what the reader did not ask for; end a run's stream after its last row.

    The stream of a run that `is_main` shows what subagents say in the background meanwhile.
    """

    def is_wanted(item: Item) -> bool:
        return _is_wanted(item, previews, run_id, thread) or (is_main and _is_beside(item))

    async with aclosing(lists):
        async for items in lists:
            wanted = [item for item in items if is_wanted(item)]
            if run_id is not None and any(_is_end_of_run(item) for item in wanted):
                # What follows the end in the same list is the run's too; a host that goes is not.
                said = [item for item in wanted if not isinstance(item, End)]
                yield [*said, End("run_finished")]
                return
            if wanted:
                yield wanted


def _is_of(row: Row, thread: str | None) -> bool:
    """Whether a row is of a thread; without one, whether everybody sees it."""
    if thread is None:
        return not row.is_aside
    return row.thread == thread and row.kind == "message"


def _is_beside(item: Item) -> bool:
    """Whether it is what a subagent says that readers of the session see."""
    if not isinstance(item, Framed):
        return False
    row = item.row
    return row.thread is not None and row.kind == "message" and not row.is_aside


def _is_wanted(item: Item, previews: str, run_id: str | None, thread: str | None) -> bool:
    if isinstance(item, Framed):
        return run_id in {None, item.row.run_id} and _is_of(item.row, thread)
    if isinstance(item, End):
        return True
    is_shown = previews == "all" or isinstance(item, Comment) or item.is_text
    return is_shown and (run_id is None or item.run_id == run_id)


def _is_end_of_run(item: Item) -> bool:
    return isinstance(item, Framed) and item.row.type == RUN_FINISHED
