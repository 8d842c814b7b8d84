"""Subagents: how a client or a project describes them, how a model asks for one."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.domain.mcp_options import ServerName
from app.domain.option_names import own_name, sdk_names, unsupported
from app.domain.permissions import PermissionMode
from app.domain.skills import SkillName
from app.domain.thinking import Effort

AGENT_TOOL = "Agent"
AGENT_ALIAS = "Task"
"""The tool's older name: `init` lists it, and calls may use it."""
GENERAL = "general-purpose"
"""The type of a subagent for which a call names none."""
INHERITED = "inherit"
"""The model of a definition that wants its parent's."""
TOOL_NAME = r"^(?:[A-Za-z0-9_-]{1,200}|mcp__[A-Za-z0-9_.-]{0,190}\*?)$"
"""A tool, or those of an MCP server: `mcp__server`, `mcp__server__*`, `mcp__*`."""
_LATER = ("memory", "initial_prompt")
"""Parts of a definition that this version does not carry out: taken when they say nothing."""

AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")]
ToolName = Annotated[str, Field(pattern=TOOL_NAME)]


class AgentDefinition(BaseModel):
    """A kind of subagent, under the names of the SDK's `AgentDefinition`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    description: Annotated[str, Field(min_length=1, max_length=4000)]
    """When to use it; the model reads this."""
    prompt: Annotated[str, Field(min_length=1, max_length=200_000)]
    """Its system prompt."""
    tools: Annotated[list[ToolName], Field(max_length=200)] | None = None
    """Exactly these of its parent's tools. Default: all of them. `mcp__server` and `mcp__server__*` are
    all tools of a server."""
    disallowed_tools: Annotated[list[ToolName], Field(max_length=200)] = []
    """Tools that it has not, under the same names."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A model id, an alias, or `inherit`. Default: its parent's."""
    effort: Effort | None = None
    """Default: its parent's."""
    max_turns: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Rounds of tool use after which it ends."""
    permission_mode: PermissionMode | None = None
    """Counts where it is stricter than its parent's."""
    background: Annotated[bool, Field(strict=True)] = False
    """Whether it is not waited for, unless a call says otherwise."""
    skills: Annotated[list[SkillName], Field(max_length=20)] = []
    """Skills whose texts it begins with. The run must have the tool Skill, and them."""
    mcp_servers: Annotated[list[ServerName], Field(max_length=100)] | None = None
    """Of MCP servers it has the tools of these alone, and those that `tools` names. They are names of
    the run's `mcp_servers`. Default: as `tools` says."""

    @model_validator(mode="before")
    @classmethod
    def _take_sdk_names(cls, value: object) -> object:
        """Translate camelCase names; drop what is not set; refuse by name what is not built."""
        if not isinstance(value, dict):
            return value
        kept: dict[str, object] = {}
        for key, given in value.items():
            name = own_name(key, _OWN_NAMES, kept)
            if name in _LATER:
                if given:
                    raise unsupported(f"{key!r} of an agent is not supported")
            elif name == "mcp_servers" and _has_servers(given):
                raise unsupported(
                    f"{key!r} of an agent names servers of the run's mcp_servers alone"
                )
            elif given is not None or name not in cls.model_fields:
                kept[name] = given
        return kept


def _has_servers(given: object) -> bool:
    """Whether a definition brings servers of its own, as the SDK lets it."""
    if isinstance(given, list):
        return any(isinstance(each, dict) for each in given)
    return isinstance(given, dict)


_OWN_NAMES = sdk_names((*AgentDefinition.model_fields, *_LATER))


class AgentInput(BaseModel):
    """A call of the tool Agent."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    description: str
    """What it is to do, in three to five words: people see it."""
    prompt: str
    """The whole task. The subagent sees nothing of this conversation."""
    subagent_type: str | None = None
    """Which kind of subagent; without it, general-purpose."""
    model: str | None = None
    """Another model than the kind's own, by id or alias."""
    effort: Effort | None = None
    """Another depth of work than the kind's own."""
    run_in_background: bool | None = None
    """True: it is not waited for; its report comes in a notice when it has ended."""
