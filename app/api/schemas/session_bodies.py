"""What a client says about a session."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from app.api.schemas.common import In, Metadata, MetadataChange, Tags, User, Uuid, example
from app.api.schemas.run_bodies import RunBody
from app.domain.options import AgentOptions
from app.runs.wishes import ForkWish, SessionChange, SessionWish
from app.runs.workspaces import WorkspaceSource


class Workspace(In):
    """Where the agent works."""

    source: Literal["empty", "directory"] = "empty"
    path: Annotated[str, Field(max_length=4096)] | None = None
    """Host folder of a `directory` workspace: absolute, beneath a root that the operator listed."""
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Your name for the place, shared by the sessions that belong to it. Default: the folder."""

    @model_validator(mode="after")
    def _path_fits(self) -> "Workspace":
        if (self.source == "directory") != (self.path is not None):
            raise ValueError("`path` goes with the source `directory`, and only with it")
        return self

    def wish(self) -> WorkspaceSource:
        """Give the command's form."""
        return WorkspaceSource(self.source, self.path, self.key)


class SessionBody(In):
    """A new session."""

    id: Uuid | None = None
    """Chosen by the client; unique within the tenant. Default: a random one."""
    title: Annotated[str, Field(max_length=500)] | None = None
    options: AgentOptions = AgentOptions()
    """Defaults of its runs."""
    workspace: Workspace = Workspace()
    metadata: Metadata = {}
    tags: Tags = []
    user: User | None = None

    def wish(self) -> SessionWish:
        """Give the command's form."""
        return SessionWish(
            self.id,
            self.title,
            self.options,
            self.workspace.wish(),
            self.metadata,
            self.tags,
            self.user,
        )


class SessionBodyWithRun(SessionBody):
    """A new session, with its first run if wanted."""

    model_config = example(
        title="Tidy the notes",
        options={"permission_mode": "acceptEdits", "max_budget_usd": "2.00"},
        metadata={"ticket": "A-1"},
    )

    run: RunBody | None = None


class SessionNames(In):
    """The session that a run creates."""

    id: Uuid | None = None
    title: Annotated[str, Field(max_length=500)] | None = None
    metadata: Metadata = {}
    tags: Tags = []
    user: User | None = None


class StartBody(RunBody):
    """A session and its first run in one call."""

    session: SessionNames = SessionNames()
    workspace: Workspace = Workspace()
    continue_conversation: bool = False
    """Go on with the newest session of `session.user`, or of the workspace's key or folder, or of
    both: the one that was made or prompted last and is not archived. Without one, a new session is
    made."""

    @model_validator(mode="after")
    def _names_whose(self) -> "StartBody":
        if not self.continue_conversation:
            return self
        if self.session.id is not None:
            raise ValueError("`continue_conversation` finds the session: leave out `session.id`")
        if not (self.session.user or self.workspace.key or self.workspace.path):
            raise ValueError(
                "`continue_conversation` needs `session.user`, `workspace.key` or a folder"
            )
        return self

    def session_wish(self) -> SessionWish:
        """Give the session's part: the options are the session's too, so that it goes on alike."""
        names = self.session
        return SessionWish(
            names.id,
            names.title,
            self.options,
            self.workspace.wish(),
            names.metadata,
            names.tags,
            names.user,
            is_continuation=self.continue_conversation,
        )


class ForkBody(In):
    """A copy of a session."""

    model_config = example(title="Another way", at_message="5b0e4a52-7c1f-4d7a-9d0e-6f3f0c1b2a3d")

    at_message: Uuid | None = None
    """The last message that the new session has. Default: the newest; needed while a run is under
    way."""
    title: Annotated[str, Field(max_length=500)] | None = None
    """Of the new session, as are those below. Default: the original's, and so below."""
    id: Uuid | None = None
    """Default: a random one."""
    metadata: Metadata | None = None
    tags: Tags | None = None

    def wish(self) -> ForkWish:
        """Give the command's form."""
        return ForkWish(self.at_message, self.id, self.title, self.metadata, self.tags)


class RewindBody(In):
    """Where a conversation is to end."""

    model_config = example(at_message="5b0e4a52-7c1f-4d7a-9d0e-6f3f0c1b2a3d")

    at_message: Uuid
    """The last message that stays."""


class SessionChangeBody(In):
    """What is to change about a session. What is left out stays."""

    model_config = example(title="Tidy the notes", tags=["ci"], metadata={"ticket": None})

    title: Annotated[str, Field(max_length=500)] | None = None
    """Null, or empty: none."""
    options: AgentOptions = AgentOptions()
    """Laid over the session's options, for later runs."""
    metadata: MetadataChange | None = None
    """Merged; a null takes a name away."""
    tags: Tags | None = None
    """In place of those there were."""
    archived: bool | None = None
    """An archived session can only be read."""

    def change(self) -> SessionChange:
        """Give the command's form."""
        title = (self.title or "") if "title" in self.model_fields_set else None
        return SessionChange(title, self.options, self.metadata, self.tags, self.archived)
