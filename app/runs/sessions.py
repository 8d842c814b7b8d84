"""What clients can do to sessions themselves: create, fork, edit, archive, rewind, import.

Each is one transaction; afterwards readers are told. With a `once` it has its effect at most once:
repeated, it raises `Replayed`.
"""

from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.options import AgentOptions
from app.errors import IdTaken, VersionConflict
from app.runs.changing import Change, change_next
from app.runs.ends import check_is_at_rest, check_is_free, find_end, rewind
from app.runs.live import Hub
from app.runs.once import Once, guarded
from app.runs.policy import Policy
from app.runs.schemas import check_schemas
from app.runs.transcripts.reading import Transcript
from app.runs.wishes import (
    ForkWish,
    SessionChange,
    SessionWish,
    event_body,
    merged_metadata,
    new_session,
)
from app.runs.workspaces import WorkspaceRules, workspace_key
from app.store.engine import Database
from app.store.forking import fork_session
from app.store.importing import import_session
from app.store.keys import Caller
from app.store.ledger import spend_json, spend_of, spends
from app.store.search import index_title
from app.store.session_edits import SessionEdit, edit_session
from app.store.sessions import (
    NewSession,
    SessionRow,
    archived,
    create_session,
    find_session,
    session_of,
)
from app.store.waiting import hold_session


@dataclass(frozen=True, slots=True)
class Sessions:
    """All writes that concern sessions and no run."""

    database: Database
    hub: Hub
    policy: Policy
    workspaces: WorkspaceRules

    async def create(
        self, caller: Caller, wish: SessionWish, *, once: Once | None = None
    ) -> SessionRow:
        """Create a session without a run. Raises `IdTaken`."""

        async def write(connection: AsyncConnection) -> SessionRow:
            self.policy.check(
                wish.options, allows_bypass=caller.allow_bypass, ceiling=caller.ceiling
            )
            await check_schemas(wish.options)
            new = new_session(self.workspaces, wish)
            await create_session(connection, caller.tenant_id, new)
            await index_title(connection, caller.tenant_id, new.id)
            return await session_of(connection, caller.tenant_id, new.id)

        return await guarded(self.database, once, write)

    async def fork(
        self, caller: Caller, session_id: str, wish: ForkWish, *, once: Once | None = None
    ) -> SessionRow:
        """Make a new session with the conversation of another one, up to a message of it.

        The new session works in an empty workspace, or in the same folder of the host. Raises
        `SessionBusy` for one that is at work when no message is named: its newest is in the
        middle of something.
        """
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> SessionRow:
            parent = await session_of(connection, tenant_id, session_id)
            up_to = parent.last_seq
            if wish.at_message is not None:
                up_to = (await find_end(connection, tenant_id, session_id, wish.at_message)).seq
            else:
                await check_is_at_rest(connection, tenant_id, parent)
            before, _ = await spends(self.database, tenant_id, session_id, "")
            new = self._copy(parent, wish)
            await fork_session(
                connection,
                tenant_id,
                session_id,
                new,
                up_to_seq=up_to,
                inherited=spend_json(spend_of(parent.inherited).merged(before)),
                forked_body=event_body(new.id, "session.forked", {"parent_id": session_id}),
            )
            await index_title(connection, tenant_id, new.id)
            return await session_of(connection, tenant_id, new.id)

        return await guarded(self.database, once, write)

    async def change(
        self,
        caller: Caller,
        session_id: str,
        change: SessionChange,
        *,
        expects: int | None = None,
        once: Once | None = None,
    ) -> SessionRow:
        """Change a session; `expects` is the version that the client has seen.

        Raises `VersionConflict`, `SessionArchived` (unless the change unarchives it), and
        `SessionBusy` for one that is to be archived while it has unfinished runs.
        """
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> SessionRow:
            held = await hold_session(connection, tenant_id, session_id)
            found = await session_of(connection, tenant_id, session_id)
            if expects not in {None, found.version}:
                raise VersionConflict(
                    f"The session has version {found.version} now. Read it again.",
                    context={"version": found.version},
                )
            stored = AgentOptions.model_validate(dict(found.options))
            asked = change.options.with_secrets_of(stored)
            self.policy.check(asked, allows_bypass=caller.allow_bypass, ceiling=caller.ceiling)
            await check_schemas(asked)
            edit = _edited(found, change)
            events = _events(found, edit)
            if not events:
                return found
            if held.is_archived and edit.is_archived:
                raise archived()
            if edit.is_archived:
                check_is_free(held, "archived")
            await edit_session(connection, tenant_id, session_id, edit, events)
            if change.options.model_fields_set:
                wanted = Change(caller, self.policy, session_id, change.options.over, "/options")
                await change_next(connection, wanted, with_unfinished=True)
            await index_title(connection, tenant_id, session_id)
            return await session_of(connection, tenant_id, session_id)

        return self._told(tenant_id, await guarded(self.database, once, write))

    async def rewind(
        self, caller: Caller, session_id: str, at_message: str, *, once: Once | None = None
    ) -> SessionRow:
        """Take what came after a message out of the conversation; the log keeps it.

        Raises `SessionBusy` while the session has unfinished runs, and `SessionArchived`.
        """
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> SessionRow:
            await rewind(connection, tenant_id, session_id, at_message)
            return await session_of(connection, tenant_id, session_id)

        return self._told(tenant_id, await guarded(self.database, once, write))

    async def import_(
        self,
        caller: Caller,
        transcript: Transcript,
        wish: SessionWish,
        *,
        once: Once | None = None,
    ) -> SessionRow:
        """Make a session of a transcript. Its id is the file's unless that is taken.

        Raises `IdTaken` for an id that the client chose.
        """
        tenant_id = caller.tenant_id

        async def write(connection: AsyncConnection) -> SessionRow:
            own_id = wish.id or transcript.session_id
            if wish.id is None and own_id is not None:
                is_taken = await find_session(connection, tenant_id, own_id) is not None
                own_id = None if is_taken else own_id
            named = replace(wish, id=own_id, title=wish.title or transcript.title)
            new = new_session(self.workspaces, named)
            created = event_body(new.id, "session.created", {"imported": len(transcript.messages)})
            await import_session(
                connection,
                tenant_id,
                replace(new, created_body=created),
                transcript.messages_of(new.id),
                inherited=spend_json(transcript.spent),
            )
            await index_title(connection, tenant_id, new.id)
            return await session_of(connection, tenant_id, new.id)

        try:
            return await guarded(self.database, once, write)
        except IdTaken:
            if wish.id is not None:
                raise
            # Another import of the file was a moment faster: its id is seen to be taken now.
            return await guarded(self.database, once, write)

    # -- parts ----------------------------------------------------------------------------

    def _told(self, tenant_id: str, session: SessionRow) -> SessionRow:
        self.hub.grew(tenant_id, session.id, session.last_seq)
        return session

    def _copy(self, parent: SessionRow, wish: ForkWish) -> NewSession:
        own = SessionWish(wish.id, wish.title or parent.title, user=parent.user)
        new = new_session(self.workspaces, own)
        workspace = dict(parent.workspace) | {"token": new.workspace["token"]}
        return replace(
            new,
            options=parent.options,
            workspace=workspace,
            workspace_key=workspace_key(workspace),
            metadata=parent.metadata if wish.metadata is None else wish.metadata,
            tags=parent.tags if wish.tags is None else wish.tags,
        )


def _edited(found: SessionRow, change: SessionChange) -> SessionEdit:
    options = change.options.over(AgentOptions.model_validate(dict(found.options)))
    is_archived = found.archived_at is not None
    return SessionEdit(
        found.title if change.title is None else change.title or None,
        options.stored(),
        merged_metadata("session", found.metadata, change.metadata or {}),
        found.tags if change.tags is None else change.tags,
        is_archived if change.is_archived is None else change.is_archived,
    )


def _events(found: SessionRow, edit: SessionEdit) -> list[tuple[str, str]]:
    """Say what changes, as events of the session's log."""
    was_archived = found.archived_at is not None
    pairs = {
        "title": (found.title, edit.title),
        "options": (dict(found.options), dict(edit.options)),
        "metadata": (dict(found.metadata), dict(edit.metadata)),
        "tags": (list(found.tags), list(edit.tags)),
        "archived": (was_archived, was_archived and edit.is_archived),
    }
    changed = [name for name, (old, new) in pairs.items() if old != new]
    events = [("session.updated", {"changed": changed})] if changed else []
    if edit.is_archived and not was_archived:
        events.append(("session.archived", {}))
    return [(kind, event_body(found.id, kind, data)) for kind, data in events]
