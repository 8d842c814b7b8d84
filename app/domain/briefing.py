"""What a run tells the model about the place it works in.

It is read once a run and journalled as facts, so every request, on every host, repeats the same
bytes: later runs add what is new and change nothing that was said.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from app.domain.skills import SkillNote
from app.domain.value import value


@value
class News:
    """How a briefing differs from an older one."""

    environment: str | None = None
    """None when it is as it was."""
    files: Mapping[str, str] = field(default_factory=dict)
    """New and changed ones."""
    gone: tuple[str, ...] = ()
    """Paths whose instructions count no longer."""
    skills: tuple[SkillNote, ...] | None = None
    """All that there are now. None when they are as they were."""
    tools: tuple[str, ...] = ()
    """Names of tools that can be loaded from now on."""
    tools_gone: tuple[str, ...] = ()
    """Names of those that cannot any more, or need not."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """What MCP servers say of their use, new or otherwise than before, by the server's name."""

    def __bool__(self) -> bool:
        is_placed = self.environment is not None or self.skills is not None
        told = (self.files, self.gone, self.tools, self.tools_gone, self.servers)
        return is_placed or any(told)

    def to_json(self) -> dict[str, Any]:
        """Give the form stored in the journal's private `facts` column."""
        json: dict[str, Any] = {
            "environment": self.environment,
            "files": [*self.files.items()],
            "gone": self.gone,
            **({"tools": self.tools} if self.tools else {}),
            **({"tools_gone": self.tools_gone} if self.tools_gone else {}),
            **({"servers": dict(self.servers)} if self.servers else {}),
        }
        if self.skills is not None:
            json["skills"] = [note.to_json() for note in self.skills]
        return json

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "News":
        """Read what `to_json` wrote."""
        skills = value.get("skills")
        return News(
            value["environment"],
            dict(value["files"]),
            tuple(value["gone"]),
            None if skills is None else tuple(map(SkillNote.from_json, skills)),
            tuple(value.get("tools", ())),
            tuple(value.get("tools_gone", ())),
            value.get("servers", {}),
        )


@value
class Briefing:
    """Where a run works, and by which instructions."""

    environment: str = ""
    """Facts of the place and the day, one a line."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Project instructions: the text by its path in the agent's view, in the order to read."""
    skills: tuple[SkillNote, ...] = ()
    """Skills and commands that can be loaded."""
    tools: tuple[str, ...] = ()
    """Names of the tools that ToolSearch can load."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """What MCP servers say of their use, by the server's name. One that is away stays told of."""
    warnings: tuple[str, ...] = ()
    """What a person should know of the place. No model reads it, and no later run remembers it."""

    def since(self, older: "Briefing") -> News:
        """Give what this briefing says beyond `older`."""
        is_same = self.environment == older.environment
        return News(
            None if is_same else self.environment,
            {path: text for path, text in self.files.items() if older.files.get(path) != text},
            tuple(path for path in older.files if path not in self.files),
            None if self.skills == older.skills else self.skills,
            tuple(name for name in self.tools if name not in older.tools),
            tuple(name for name in older.tools if name not in self.tools),
            {name: text for name, text in self.servers.items() if older.servers.get(name) != text},
        )

    def unknown(self, told: News) -> News:
        """Give what of `told` this briefing does not say already."""
        files = {path: text for path, text in told.files.items() if self.files.get(path) != text}
        is_known = told.environment == self.environment
        skills = None if told.skills == self.skills else told.skills
        tools = tuple(name for name in told.tools if name not in self.tools)
        environment = None if is_known else told.environment
        servers = {n: text for n, text in told.servers.items() if self.servers.get(n) != text}
        return News(environment, files, told.gone, skills, tools, told.tools_gone, servers)

    def plus(self, news: News) -> "Briefing":
        """Give the briefing after `news`."""
        kept = {path: text for path, text in self.files.items() if path not in news.gone}
        environment = self.environment if news.environment is None else news.environment
        skills = self.skills if news.skills is None else news.skills
        tools = (*(name for name in self.tools if name not in news.tools_gone), *news.tools)
        return Briefing(
            environment,
            {**kept, **news.files},
            skills,
            tuple(dict.fromkeys(tools)),
            {**self.servers, **news.servers},
        )
