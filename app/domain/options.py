"""Options of a run, under the names of the Python SDK's `ClaudeAgentOptions`."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.domain.actions import ActionRules
from app.domain.agents import AgentDefinition, AgentName
from app.domain.client_tools import ClientTool, shown_tools, stored_tools, taken_schema
from app.domain.hook_options import HttpHook
from app.domain.mcp_options import McpServers, shown_servers, unmasked
from app.domain.option_names import own_name, sdk_names, unsupported
from app.domain.permissions import PermissionMode
from app.domain.skills import SkillName
from app.domain.thinking import LEAST_BUDGET_TOKENS, Effort, TaskBudget, Thinking

SettingSource = Literal["user", "project", "local"]


UNSUPPORTED_DEFAULTS: Mapping[str, Any] = {
    "add_dirs": [],
    "can_use_tool": None,
    "cli_path": None,
    "client_app": None,
    "continue_conversation": False,
    "cwd": None,
    "debug_stderr": None,
    "enable_file_checkpointing": False,
    "env": {},
    "extra_args": {},
    "fork_session": False,
    "load_timeout_ms": 60000,
    "max_buffer_size": None,
    "permission_prompt_tool_name": None,
    "plugins": [],
    "resume": None,
    "resume_drops_turn": None,
    "resume_session_at": None,
    "sandbox": None,
    "session_id": None,
    "session_store": None,
    "session_store_flush": "batched",
    "settings": None,
    "stderr": None,
    "user": None,
}
"""Options of the SDK that this version does not take, with the value that means "not set".

So a caller can send a dump of its whole options object; anything else is refused by name.
"""

MAX_HOOKS = 50


def _distinct(tools: list[ClientTool]) -> list[ClientTool]:
    if len({tool.name for tool in tools}) < len(tools):
        raise ValueError("each tool needs a name of its own")
    return tools


Beta = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
ToolRules = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=1000)]
"""Rules such as `Read`, `Bash(npm *)`, `Edit(/src/**)`; whether they are well formed is checked
where a run is accepted."""


def _thinking_within(tokens: object) -> dict[str, object]:
    is_budget = isinstance(tokens, int) and tokens >= LEAST_BUDGET_TOKENS
    is_none = tokens == 0 and not isinstance(tokens, bool)
    if not is_budget and not is_none:
        raise PydanticCustomError(
            "thinking_tokens",
            "max_thinking_tokens must be 0, or at least {least}",
            {"least": LEAST_BUDGET_TOKENS, "option": "max_thinking_tokens"},
        )
    return {"type": "enabled", "budget_tokens": tokens} if tokens else {"type": "disabled"}


def _http_hooks(given: object) -> object:
    """Take the SDK's empty mapping as no hooks; callbacks cannot be called over HTTP."""
    if isinstance(given, dict):
        if given:
            raise unsupported(
                "callbacks are not supported in the option 'hooks': give a list of HTTP hooks",
                "hooks",
            )
        return []
    return given


class SystemPromptPreset(BaseModel):
    """Our own default system prompt, with something added."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    type: Literal["preset"]
    preset: Literal["claude_code"] = "claude_code"
    """Accepted under the SDK's name; it stands for Treadle's own default prompt."""
    append: str | None = None
    exclude_dynamic_sections: bool = False
    """Taken, and changes nothing: what differs by place or day never stands in our system prompt."""


class OutputFormat(BaseModel):
    """The form of a run's output."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    """JSON Schema of an object: draft 2020-12, or what `$schema` names (2019-09, 7)."""

    @field_validator("json_schema", mode="before")
    @classmethod
    def _take_stored_form(cls, value: object) -> object:
        return taken_schema(value)


class AgentOptions(BaseModel):
    """What a client may say about a run. Run options override those of the session."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A model id or an alias of the operator's. Default: the service's default model."""
    fallback_model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The model that takes over for the rest of a run when its own fails: found overloaded several
    times, failing, unknown to the provider, or refusing what was asked."""
    system_prompt: str | SystemPromptPreset | None = None
    """The system prompt, whole, or the default one with an addition."""
    setting_sources: list[SettingSource] | None = None
    """Whose instruction files the model is given. Default: all; an empty list: none.

    `project`: `CLAUDE.md` and `.claude/CLAUDE.md` of the workspace, and of the folders of files
    that calls touch. `local`: `CLAUDE.local.md` beside them. `user` names nothing in a service.
    Of their settings (`.claude/settings.json`, `settings.local.json`) deny and ask rules apply, which only
    take away; allow rules, hooks and servers in a workspace's files are never applied.
    """
    skills: Literal["all"] | list[SkillName] | None = None
    """Skills of the workspace that may be used, by their folders' names. Default: all. They belong
    to the setting source `project`; the tool `Skill` loads them."""
    tools: list[str] | None = None
    """Exactly these tools are offered. Default: all."""
    allowed_tools: ToolRules = []
    """What runs without approval: `Tool`, or `Tool(specifier)` such as `Bash(npm *)`, `Bash(git log:*)`,
    `Edit(/src/**)`, `Read(//abs/**)`, `WebFetch(domain:example.com)`, `mcp__server__*`."""
    disallowed_tools: ToolRules = []
    """What never runs, whatever else is set. A tool that is named whole is not offered. Rules of the
    service, and those under `permissions.deny` in a project's settings files, come on top."""
    ask_tools: ToolRules = []
    """What is put to a person each time, in every permission mode; denied where nobody is asked."""
    mcp_servers: McpServers = {}
    """MCP servers of the run, by name. Their tools are offered as `mcp__SERVER__TOOL`."""
    strict_mcp_config: bool = False
    """Taken, and changes nothing: servers come from these options alone, never from a workspace."""
    permission_mode: PermissionMode = "default"
    """How calls are decided that no rule covers. `plan`: what changes something needs an approval.
    `auto`: a small model answers in a person's place, where the service has one."""
    max_turns: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Rounds of tool use after which the run stops with `error_max_turns`."""
    max_budget_usd: (
        Annotated[Decimal, Field(gt=0, le=1_000_000), PlainSerializer("{:f}".format, str, "json")]
        | None
    ) = None
    """Spend of this run at which it stops with `error_max_budget_usd`."""
    effort: Effort | None = None
    """Depth of the model's work, thinking or not; not sent when unset."""
    thinking: Thinking | None = None
    """How the model thinks; not sent when unset: then the model's own default holds.
    `max_thinking_tokens`, the SDK's older option, is read as `enabled` with that budget, or as
    `disabled` when it is 0; where both are given, `thinking` counts."""
    task_budget: TaskBudget | None = None
    """Tokens that the model is told it has for the whole task."""
    betas: Annotated[list[Beta], Field(max_length=20)] = []
    """Beta features of the provider, by the names that its `anthropic-beta` header takes."""
    output_format: OutputFormat | None = None
    """The run ends with an object of this schema in `structured_output`, or as an error."""
    prompt_suggestions: bool = False
    """Whether the next prompt is suggested after a success: one small model request more, whose
    `prompt_suggestion` follows the `result`. Read on to the stream's `end`."""
    client_tools: Annotated[list[ClientTool], Field(max_length=64), AfterValidator(_distinct)] = []
    """Tools that the client carries out itself; one of the service's own options."""
    actions: ActionRules = ActionRules()
    """Whether the run asks somebody for approvals and answers; one of the service's own options."""
    verbatim_prompts: bool = False
    """Whether prompts are given to the model just as they are: `/NAME` of the workspace's commands and
    `@path` mean nothing then. The service's own commands do all the same."""
    agents: Annotated[dict[AgentName, AgentDefinition], Field(max_length=100)] = {}
    """Kinds of subagents that the run may begin, by name. They win over those of `.claude/agents`."""
    forward_subagent_text: bool = False
    """Whether readers see what subagents say and think, not their calls alone."""
    wait_for_subagents: bool = False
    """Whether the run ends only when those of its session in the background have, and the model
    has heard of them; one of the service's own options. Otherwise runs that follow tell it."""
    include_partial_messages: bool = False
    """Whether readers get previews unless they say otherwise."""
    hooks: Annotated[list[HttpHook], Field(max_length=MAX_HOOKS), BeforeValidator(_http_hooks)] = []
    """Servers that are asked at fixed points of the run, in this order."""
    include_hook_events: bool = False
    """Whether the log tells of each hook that was asked (`hook_started`, `hook_response`). Those
    of the operator's `SessionStart` commands are told in any case."""

    @model_validator(mode="before")
    @classmethod
    def _take_sdk_options(cls, value: object) -> object:
        """Translate camelCase names; drop what is not set (null, an unsupported default)."""
        if not isinstance(value, dict):
            return value
        kept: dict[str, object] = {}
        for key, given in value.items():
            name = own_name(key, _OWN_NAMES, kept)
            if name in UNSUPPORTED_DEFAULTS:
                if given is not None and given != UNSUPPORTED_DEFAULTS[name]:
                    raise unsupported(f"the option {key!r} is not supported", str(key))
            elif given is not None or name not in cls.model_fields:
                kept[name] = given
        if (tokens := kept.pop("max_thinking_tokens", None)) is not None:
            kept.setdefault("thinking", _thinking_within(tokens))
        return kept

    def over(self, base: "AgentOptions") -> "AgentOptions":
        """Give these options laid over `base`: what was set here wins.

        Values of servers that come back masked are those of `base`.
        """
        own = self.with_secrets_of(base)
        if own is base:  # a run that begins a session with its own options
            return base
        return base.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})

    def with_secrets_of(self, base: "AgentOptions") -> "AgentOptions":
        """Put in the values of `base` for those of servers that come back masked."""
        if not self.mcp_servers:
            return self
        servers = unmasked(self.mcp_servers, base.mcp_servers)
        return self.model_copy(update={"mcp_servers": servers})

    def stored(self) -> dict[str, Any]:
        """Give the JSON form with only what was set: `model_validate` reads it back.

        A schema is a text in it: the store would change the order of its names, and so the
        prefix of model requests, and the order in which a model fills them in.
        """
        stored = self.model_dump(mode="json", exclude_unset=True, by_alias=True)
        if output_format := stored.get("output_format"):
            output_format["schema"] = orjson.dumps(output_format["schema"]).decode()
        if client_tools := stored.get("client_tools"):
            stored["client_tools"] = stored_tools(client_tools)
        return stored


def shown_options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Give stored options as clients see them."""
    shown = dict(stored)
    if output_format := stored.get("output_format"):
        schema = orjson.loads(output_format["schema"])
        shown["output_format"] = {**output_format, "schema": schema}
    if client_tools := stored.get("client_tools"):
        shown["client_tools"] = shown_tools(client_tools)
    if servers := stored.get("mcp_servers"):
        shown["mcp_servers"] = shown_servers(servers)
    return shown


_OWN_NAMES = sdk_names((*AgentOptions.model_fields, *UNSUPPORTED_DEFAULTS, "max_thinking_tokens"))


def stored_budget(value: object) -> Decimal | None:
    """Give a run's budget in USD, of what its stored options hold; None: it has none.

    Of one that cannot be read nothing may be spent.
    """
    if value is None:
        return None
    try:
        budget = Decimal(str(value))
    except InvalidOperation:
        return Decimal(0)
    return budget if budget.is_finite() else Decimal(0)
