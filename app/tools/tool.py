"""What a tool is: a function over a validated input, with its name, schema and annotations.

A new tool is one file in `builtin/` and one line in `builtin/__init__.py`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from app.agent.model_effects import SideModel
from app.domain.model import ModelResponse, SideRequest
from app.domain.tools import JsonValue, ToolMemory, ToolResult, ToolSpec
from app.domain.value import value
from app.errors import ModelError, ToolFailed
from app.sandbox.driver import Sandbox
from app.tools.decoder import Decoder
from app.tools.pages import Page, Pages
from app.tools.shells import Shells
from app.tools.skills import Shelf
from app.tools.workspace import Workspace


class ToolInput(BaseModel):
    """Base of tool inputs: unknown properties are refused; field docstrings reach the model."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


MOST_CHARS = 50_000
"""Of text in a result, unless a tool says otherwise."""

InputT = TypeVar("InputT", bound=ToolInput)


@dataclass(frozen=True, slots=True)
class Beyond:
    """What a session's tools reach outside of it."""

    pages: Pages = field(default_factory=Pages)
    side: SideModel | None = None
    """None: there is no model to ask."""
    session: str = ""
    """Whose pages are kept apart from those of others."""


@value
class ToolContext:
    """What a running tool may touch."""

    workspace: Workspace
    """Files, beneath the session's root."""
    sandbox: Sandbox
    """Commands."""
    memory: ToolMemory
    """What earlier calls of the session left."""
    shelf: Shelf
    """Skills and commands."""
    decoder: Decoder = field(default_factory=Decoder)
    """Images and documents."""
    shells: Shells = field(default_factory=Shells)
    """Commands in the background."""
    beyond: Beyond = field(default_factory=Beyond)
    """Web pages, and a model that answers beside the conversation."""
    catalogue: Sequence[ToolSpec] = ()
    """All tools on offer, in a stable order."""
    hidden: Callable[[], Callable[[str], bool] | None] = lambda: None
    """Gives the test of absolute paths that a search keeps to itself, if there are any."""

    @property
    def cwd(self) -> str:
        """The session's directory in the agent's view."""
        return self.memory.cwd or self.workspace.root

    async def ask(self, request: SideRequest) -> ModelResponse:
        """Have a small model answer; what it costs is the run's. Raises `ToolFailed`."""
        if self.beyond.side is None:
            raise ToolFailed("There is no model here that could be asked.")
        try:
            return await self.beyond.side.ask(request)
        except ModelError as error:
            raise ToolFailed(f"The model that was asked gave no answer: {error.message}") from error

    async def page(self, url: str) -> Page:
        """Fetch a web page, or give it as it was a while ago. Raises `ToolFailed`."""
        return await self.beyond.pages.get(url, session=self.beyond.session)


@dataclass(frozen=True, slots=True)
class Tool(Generic[InputT]):
    """A tool: its offer and its function.

    `run` raises `ToolFailed` for its own failures; any other exception is a bug, which the
    toolbox logs and turns into a short error result.
    """

    spec: ToolSpec
    input_model: type[InputT]
    run: Callable[[InputT, ToolContext], Awaitable[ToolResult]]
    aliases: tuple[str, ...] = ()
    """Older names, by which it may be called too. They are not offered."""
    most_chars: int | None = MOST_CHARS
    """Of text in a result: more is stored, and its beginning shown. None: it sees to that itself."""


def tool(
    *,
    name: str,
    description: str,
    input_model: type[InputT],
    read_only: bool = False,
    edits_files: bool = False,
    reaches_out: bool = False,
    asks_model: bool = False,
    starts_process: bool = False,
    told_defaults: Mapping[str, JsonValue] | None = None,
    is_internal: bool = False,
    needs_person: bool = False,
    may_fork: bool = False,
    deferred: bool = False,
    words_of: Callable[[Mapping[str, Any]], str | None] | None = None,
    aliases: tuple[str, ...] = (),
    most_chars: int | None = MOST_CHARS,
) -> Callable[[Callable[[InputT, ToolContext], Awaitable[ToolResult]]], Tool[InputT]]:
    """Make a tool of an async function `(input, context) -> ToolResult`."""
    schema = input_schema(input_model)

    def make(run: Callable[[InputT, ToolContext], Awaitable[ToolResult]]) -> Tool[InputT]:
        spec = ToolSpec(
            name,
            description,
            schema,
            read_only=read_only,
            edits_files=edits_files,
            reaches_out=reaches_out,
            asks_model=asks_model,
            starts_process=starts_process,
            told_defaults=told_defaults or {},
            is_internal=is_internal,
            needs_person=needs_person,
            may_fork=may_fork,
            deferred=deferred,
            words_of=words_of,
        )
        return Tool(spec, input_model, run, aliases, most_chars)

    return make


def input_schema(input_model: type[ToolInput]) -> dict[str, Any]:
    """Give the JSON Schema that the model is shown."""
    schema = input_model.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("title", None)
        part.pop("description", None)
        for described in part.get("properties", {}).values():
            described.pop("title", None)
            _say_optional_once(described)
    return schema


def _say_optional_once(field: dict[str, Any]) -> None:
    """Take "or null, by default null" out of a field that need not be given."""
    kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del field["anyOf"]
        field.update(kinds[0])
        if field.get("default", ...) is None:
            del field["default"]
