"""What is known of a skill or a command before it is used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

SKILL_TOOL = "Skill"
"""The tool that loads one."""
SkillName = Annotated[str, Field(min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True)
class SkillNote:
    """A skill or a command, as it is announced."""

    name: str
    """What it is called by: `review`, or `docs:review` for a command in a folder."""
    description: str
    """One line."""
    other_name: str | None = None
    """What a skill calls itself, when that is not its folder's name; it works as well."""
    is_command: bool = False
    """Whether it is a file of commands rather than a skill with a folder of its own."""
    for_model: bool = True
    """Whether the model is told of it and may load it."""
    for_user: bool = True
    """Whether a prompt may begin with its name."""

    @property
    def shown(self) -> str:
        """The name, and the other one behind it."""
        return f"{self.name} ({self.other_name})" if self.other_name else self.name

    def to_json(self) -> dict[str, Any]:
        """Give the form stored in the journal's private `facts` column."""
        return {
            "name": self.name,
            "description": self.description,
            "other_name": self.other_name,
            "is_command": self.is_command,
            "for_model": self.for_model,
            "for_user": self.for_user,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "SkillNote":
        """Read what `to_json` wrote."""
        return SkillNote(**value)


@dataclass(frozen=True, slots=True)
class UploadedSkill:
    """A skill that a tenant uploaded, as it is known before its files are."""

    note: SkillNote
    sha256: str
    """Of its files, as hex: names the content."""


@dataclass(frozen=True, slots=True)
class CommandText:
    """What stands behind a name that a prompt may begin with."""

    text: str
    """As it was written, with its places for arguments."""
    folder: str = ""
    """Where its files stand, in the agent's view."""
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that are approved from here on, by the skill that they come with."""
