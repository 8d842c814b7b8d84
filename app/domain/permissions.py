"""Words of permissions that more than one room uses: modes, hooks' verdicts, updates on offer."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from app.domain.value import value

Behavior = Literal["allow", "deny", "ask"]
PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions"]
_STRICTEST_FIRST: tuple[PermissionMode, ...] = (
    *("plan", "dontAsk", "default"),
    *("acceptEdits", "auto", "bypassPermissions"),
)


def stricter(one: PermissionMode, other: PermissionMode | None) -> PermissionMode:
    """Give the mode that allows less."""
    return min(one, other or one, key=_STRICTEST_FIRST.index)


@dataclass(frozen=True, slots=True)
class HookVerdict:
    """What the `PreToolUse` hooks of a call say about it, merged: deny beats ask beats allow."""

    decision: Behavior
    reason: str | None
    """The hook's words; None when it gave none."""
    hook: str
    """Which hook it was, for the audit."""


@value
class Scene:
    """What there is to know of a call besides itself."""

    cwd: str | None = None
    """Where the shell stands, in the agent's view; None: at the workspace's root."""
    hook: HookVerdict | None = None
    may_have_run: bool = False
    """Whether an attempt that was lost may have begun it."""
    mode: PermissionMode | None = None
    """A subagent's own mode: it counts where it is stricter than the run's."""
    granted: tuple[str, ...] = ()
    """Allow rules that came with the tenant's skills, since they were loaded."""
    also_named: frozenset[str] = frozenset()
    """Other names of the skill that it names: rules that forbid or ask mean it by each."""


class _Update(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    destination: Literal["userSettings", "projectSettings", "localSettings", "session"] = "session"
    """Where the update is kept. A service has the session alone."""


class RuleValue(BaseModel):
    """A rule in two parts: `Bash(npm *)` is `Bash` and `npm *`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    toolName: Annotated[  # noqa: N815 - the wire's name
        str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z][A-Za-z0-9_.*-]*$")
    ]
    ruleContent: Annotated[str, Field(max_length=2000)] | None = None  # noqa: N815
    """What the rule covers of the tool; null: all."""

    def __str__(self) -> str:
        return self.toolName if self.ruleContent is None else f"{self.toolName}({self.ruleContent})"


class RulesUpdate(_Update):
    """Rules that are added, taken away, or put in the place of those of the same behaviour."""

    type: Literal["addRules", "replaceRules", "removeRules"]
    rules: Annotated[list[RuleValue], Field(max_length=100)]
    behavior: Behavior


class ModeUpdate(_Update):
    """Another permission mode."""

    type: Literal["setMode"]
    mode: PermissionMode


class DirectoriesUpdate(_Update):
    """Folders beyond the workspace. Nothing outside is reachable here, so it changes nothing."""

    type: Literal["addDirectories", "removeDirectories"]
    directories: Annotated[list[str], Field(max_length=100)]


PermissionUpdate: TypeAlias = Annotated[
    RulesUpdate | ModeUpdate | DirectoriesUpdate, Field(discriminator="type")
]
"""A change of permissions in the SDK's form: on offer with a question, and in its answer."""
