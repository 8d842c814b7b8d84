"""What a client says about a session."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from app.api.schemas.common import In, Metadata, Uuid, example
from app.api.schemas.run_bodies import RunBody
from app.domain.options import AgentOptions
from app.runs.wishes import SessionWish
from app.runs.workspaces import WorkspaceSource


class Workspace(In):
    """Where the agent works."""

    source: Literal["empty", "directory"] = "empty"
    path: Annotated[str, Field(max_length=4096)] | None = None
    """Host folder of a `directory` workspace: absolute, beneath a root that the operator listed."""

    @model_validator(mode="after")
    def _path_fits(self) -> "Workspace":
        if (self.source == "directory") != (self.path is not None):
            raise ValueError("`path` goes with the source `directory`, and only with it")
        return self

    def wish(self) -> WorkspaceSource:
        """Give the command's form."""
        return WorkspaceSource(self.source, self.path)


class SessionBody(In):
    """A new session."""

    id: Uuid | None = None
    """Chosen by the client; unique within the tenant. Default: a random one."""
    title: Annotated[str, Field(max_length=500)] | None = None
    options: AgentOptions = AgentOptions()
    """Defaults of its runs."""
    workspace: Workspace = Workspace()
    metadata: Metadata = {}

    def wish(self) -> SessionWish:
        """Give the command's form."""
        return SessionWish(self.id, self.title, self.options, self.workspace.wish(), self.metadata)


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


class StartBody(RunBody):
    """A session and its first run in one call."""

    session: SessionNames = SessionNames()
    workspace: Workspace = Workspace()

    def session_wish(self) -> SessionWish:
        """Give the session's part: the options are the session's too, so that it goes on alike."""
        names = self.session
        return SessionWish(
            names.id, names.title, self.options, self.workspace.wish(), names.metadata
        )


class ForkBody(In):
    model_config = example(title="Another way")

    at_message: Uuid | None = None
    """The last message that the new session has. Default: the newest."""
    title: Annotated[str, Field(max_length=500)] | None = None
    id: Uuid | None = None
    """Of the new session."""
