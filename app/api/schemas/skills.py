"""Skills of a tenant, as they come and go."""

from typing import Any, Literal

from app.api.schemas.common import In, Out, example
from app.domain.messages import wire_time
from app.runs.skills import SkillRow


class SkillBody(In):
    """A skill as texts."""

    model_config = example(
        name="review",
        files={"SKILL.md": "---\ndescription: Review a change\n---\nRead the diff, then say …"},
    )
    name: str
    """What it is called by: letters, digits, `_`, `-`, `.`; at most 64 characters."""
    files: dict[str, str]
    """Texts by their path in the skill's folder; `SKILL.md` is one of them."""


class SkillFile(Out):
    path: str
    size_bytes: int
    is_executable: bool


class SkillSummary(Out):
    object: Literal["skill"] = "skill"
    name: str
    description: str
    """The line by which the model knows it."""
    version: str
    """A hash of its files: another content is another version."""
    allowed_tools: list[str]
    """Rules that count as approved in a session once it has loaded the skill."""
    for_model: bool
    """Whether the model may load it."""
    for_user: bool
    """Whether a prompt may begin with `/name`."""
    created_at: str
    updated_at: str

    @staticmethod
    def of(row: SkillRow) -> "SkillSummary":
        """Show a skill in a list."""
        return SkillSummary(**_fields(row))


class SkillObject(SkillSummary):
    """A skill that the tenant uploaded."""

    files: list[SkillFile]

    @staticmethod
    def of(row: SkillRow) -> "SkillObject":
        """Show a skill."""
        return SkillObject(**_fields(row), files=[SkillFile(**file) for file in row.files])


class SkillList(Out):
    data: list[SkillSummary]


def _fields(row: SkillRow) -> dict[str, Any]:
    note = row.note["note"]
    return {
        "name": row.name,
        "description": note["description"],
        "version": row.sha256,
        "allowed_tools": row.note["allowed_tools"],
        "for_model": note["for_model"],
        "for_user": note["for_user"],
        "created_at": wire_time(row.created_at),
        "updated_at": wire_time(row.updated_at),
    }
