"""Tools as the loop sees them: what is offered, what is asked, what came back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from app.domain.mcp import ServerPin
from app.domain.tasks import BackgroundTask
from app.domain.value import value
from app.domain.work_items import Items, WorkItem

JsonValue = Any
"""A decoded JSON value. `Any`, since pydantic's recursive alias costs more than it tells."""


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Whose a tool is that the service does not carry out itself."""

    server: str
    """The MCP server's name; `client` for the client's own tools."""
    name: str
    """By which it is known there."""
    title: str = ""
    """For people."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to the model."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of the input: an object without additional properties."""
    read_only: bool = False
    """Neighbouring read-only calls run together, and run again after a crash."""
    edits_files: bool = False
    """Whether `acceptEdits` approves it."""
    reaches_out: bool = False
    """Whether it reaches places outside of the session: it needs an approval though it only reads."""
    asks_model: bool = False
    """Whether a call has a model asked beside the conversation."""
    starts_process: bool = False
    """Whether it runs a command."""
    told_defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    """Properties that a valid call is told with when the model left them out."""
    is_internal: bool = False
    """Whether it changes nothing but the session's own records: such a call needs no approval."""
    deferred: bool = False
    """Whether the model is told only its name at first, and loads the rest by ToolSearch."""
    words_of: Callable[[Mapping[str, Any]], str | None] | None = None
    """Gives what the model reads of a structured output that a hook wrote; None: it has not the
    tool's shape."""
    agents: tuple[str, ...] = ()
    """Kinds of subagents that it begins: the loop carries it out, by a conversation beside its own."""
    may_fork: bool = False
    """Whether it may hand a call to a subagent (`Fork`): such calls run alone."""
    needs_person: bool = False
    """Whether each call is put to a person, whatever rules and modes say."""
    source: ToolSource | None = None
    """Where it comes from, if it is a server's or the client's."""
    is_kept: bool = False
    """Whether a call that was begun is a row, which the next host finds again."""
    _encoded: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)
    """The one encoding, once it was asked for."""

    @property
    def encoded(self) -> bytes:
        """The tool as requests hold it. Encoded once: every request has all tools."""
        if not self._encoded:
            told = {
                "name": self.name,
                "description": self.description,
                "input_schema": self.input_schema,
            }
            self._encoded.append(orjson.dumps(told))
        return self._encoded[0]

    @property
    def can_repeat(self) -> bool:
        """Whether a call whose host was lost is simply made again."""
        return self.read_only or self.is_kept or bool(self.agents)


@value
class ToolCall:
    """A tool use that the model asked for."""

    id: str
    name: str
    input: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    """The call that began the subagent whose call it is; None in the main conversation."""
    agent_id: str | None = None
    """That subagent."""


@value
class FileSeen:
    """What the agent knows of a file: the state when it last read or wrote it."""

    sha256: str
    mtime_ns: int
    partial: bool = False
    """True when only a part was shown; enough for Write, but any newer mtime is a change."""


@value
class ToolMemory:
    """What tools must remember between calls of a session: folded from journal facts.

    Paths are absolute and in the agent's view (`/workspace/…`).
    """

    cwd: str | None = None
    """The shell's directory; None means the workspace's root."""
    files: Mapping[str, FileSeen] = field(default_factory=dict)
    work: Items = field(default_factory=dict)
    """What the agent means to do, deleted items included."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Skills whose text stands in the conversation, and a hash of that text."""
    loaded: tuple[str, ...] = ()
    """Tools that ToolSearch has found, in that order."""
    settled: tuple[str, ...] = ()
    """Those of them whose finding a compaction took out of the conversation."""
    servers: Mapping[str, ServerPin] = field(default_factory=dict)
    """Tools of MCP servers as the session has them, by the server's name."""
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that count as approved since a skill of the tenant's was loaded, by that skill."""

    def compacted(self) -> "ToolMemory":
        """Give the memory after a compaction, which summarises skills and findings with the rest."""
        return replace(self, skills={}, settled=self.loaded)

    def plus(self, facts: "ToolFacts") -> "ToolMemory":
        """Give the memory after a call that reported `facts`."""
        # Not by `replace`: a resumed session does this for each of its calls.
        return ToolMemory(
            facts.cwd or self.cwd,
            {**self.files, **facts.files} if facts.files else self.files,
            {**self.work, **facts.work} if facts.work else self.work,
            {**self.skills, **facts.skills} if facts.skills else self.skills,
            tuple(dict.fromkeys((*self.loaded, *facts.loaded))) if facts.loaded else self.loaded,
            self.settled,
            {**self.servers, **facts.servers} if facts.servers else self.servers,
            {**self.granted, **facts.granted} if facts.granted else self.granted,
        )


@value
class ToolFacts:
    """What one call adds to the memory."""

    cwd: str | None = None
    files: Mapping[str, FileSeen] = field(default_factory=dict)
    work: Items = field(default_factory=dict)
    """Items that are new, or otherwise than before."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Skills that were loaded, each with a hash of its text."""
    loaded: tuple[str, ...] = ()
    """Tools that the model may call from now on, since it was told all of them."""
    servers: Mapping[str, ServerPin] = field(default_factory=dict)
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that are approved from now on, by the skill; in the place of what it brought before."""

    def __bool__(self) -> bool:
        parts = (self.cwd, self.files, self.work, self.skills, self.loaded, self.servers)
        return any((*parts, self.granted))

    def to_json(self) -> dict[str, Any]:
        """Give the form stored in the journal's private `facts` column."""
        facts: dict[str, Any] = {
            "cwd": self.cwd,
            "files": {p: [f.sha256, f.mtime_ns, f.partial] for p, f in self.files.items()},
        }
        if self.work:
            facts["work"] = [item.to_json() for item in self.work.values()]
        if self.skills:
            facts["skills"] = dict(self.skills)
        if self.loaded:
            facts["loaded"] = self.loaded
        if self.servers:
            facts["servers"] = {name: pin.to_json() for name, pin in self.servers.items()}
        if self.granted:
            facts["granted"] = {name: list(rules) for name, rules in self.granted.items()}
        return facts

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "ToolFacts":
        """Read what `to_json` wrote."""
        files = {path: FileSeen(*seen) for path, seen in (value.get("files") or {}).items()}
        if value.keys() <= _USUAL:
            return ToolFacts(value.get("cwd"), files)
        work = [WorkItem.from_json(item) for item in value.get("work") or ()]
        return ToolFacts(
            value.get("cwd"),
            files,
            {item.id: item for item in work},
            value.get("skills") or {},
            tuple(value.get("loaded") or ()),
            {name: ServerPin.from_json(pin) for name, pin in (value.get("servers") or {}).items()},
            {name: tuple(rules) for name, rules in (value.get("granted") or {}).items()},
        )


_USUAL = frozenset({"cwd", "files"})
"""All that most calls add."""
STORED = "stored"
"""Fact on the message of a result that is stored: its `StoredOutput`."""


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A file of the session that holds a whole output."""

    path: str
    """In the agent's view; Read takes it."""
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Give the form stored in the journal's private `facts` column."""
        return {"path": self.path, "size_bytes": self.size_bytes}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "StoredOutput":
        """Read what `to_json` wrote."""
        return StoredOutput(value["path"], value["size_bytes"])


@dataclass(frozen=True, slots=True)
class Fork:
    """A task that a tool hands to a subagent: its last words are the call's result."""

    skill: str
    """Whose text the task is."""
    prompt: str
    kind: str | None = None
    """Of subagent; None: the usual one."""
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that count as approved in that conversation, by the skill that brings them."""


@value
class ToolResult:
    """The outcome of a call. A failing tool is a result, never an exception."""

    content: str | list[dict[str, Any]]
    """For the model: text, or content blocks (text, image, document)."""
    is_error: bool | None = None
    """True on failure; False explicitly on a successful Bash; else None."""
    structured: JsonValue = None
    """`tool_use_result` on the wire. For failures the loop writes `Error: <content>` itself."""
    facts: ToolFacts = field(default_factory=ToolFacts)
    started: BackgroundTask | None = None
    """What goes on in the background from now on."""
    stopped: str | None = None
    """The id of the background task that the call ended."""
    notes: tuple[str, ...] = ()
    """Texts that the model is given behind the result, each as a message of its own."""
    stored: StoredOutput | None = None
    """Where all of it is, when `content` is only a part."""
    fork: Fork | None = None
    """What a subagent is to do first: what comes of it stands in place of this result."""
