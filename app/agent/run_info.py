"""What a run, or one of its subagents, is given for its whole life."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from app.agent.retries import RetryRules
from app.agent.thread_facts import LOADED
from app.compaction.window import Window
from app.domain.blocks import TextBlock, encode_block
from app.domain.options import AgentOptions
from app.domain.tools import ToolFacts, ToolMemory

OF_THE_RUN = frozenset(
    {"Setup", "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure"}
)
"""Hooks of the main conversation: nobody is asked them of a subagent."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A subagent's conversation beside the main one."""

    call_id: str
    """The call that began it: its messages carry it as `parent_tool_use_id`."""
    agent_id: str
    agent_type: str
    description: str
    """What the call said that it is to do."""
    depth: int
    """1 for what the main conversation began."""
    tools: tuple[str, ...]
    """What it is offered, of its parent's tools."""
    parent_agent_id: str | None = None
    """The subagent that began it; None for the main conversation."""
    skill: str | None = None
    """The skill that it carries out, where a call of Skill began it."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a run is given: fixed for its whole life."""

    session_id: str
    run_id: str
    options: AgentOptions
    """Effective: model resolved, limits filled in."""
    cwd: str = "/workspace"
    api_key_source: str = "none"
    version: str = ""
    sandbox: str = "bubblewrap"
    retries: RetryRules = field(default_factory=RetryRules)
    max_output_attempts: int = 5
    """Failed attempts at structured output after which the run ends."""
    window: Window = Window(200_000)
    """Of the run's model."""
    elapsed_ms: int = 0
    """Of earlier attempts of the run, since its first claim."""
    began_s: float = 0.0
    """Monotonic time at which this attempt began."""
    follows: str | None = None
    """The run whose background task ended, where that began this one; else None."""
    hooks: frozenset[str] = frozenset()
    """Names of the events for which somebody has registered a hook."""
    withheld: tuple[str, ...] = ()
    """Deny rules that are not of the options: tools that they name are not on offer."""
    thread: Thread | None = None
    """Set for a subagent."""

    def of_thread(self, launched: Mapping[str, Any]) -> "RunInfo":
        """Give what a subagent is given, by the facts of its start."""
        options = AgentOptions.model_validate({**self.options.stored(), **launched["options"]})
        return replace(
            self,
            options=options,
            window=replace(self.window, tokens=launched["window"]),
            elapsed_ms=0,
            follows=None,
            hooks=self.hooks - OF_THE_RUN,
            thread=thread_of(launched),
        )


def loaded_skill(text: str, facts: ToolFacts) -> dict[str, Any]:
    """Give a skill as the facts of a start hold it; its text is blank where the task itself has it."""
    return {"text": text, "tool": facts.to_json()}


def memory_of(launched: Mapping[str, Any], cwd: str | None) -> ToolMemory:
    """Give what a subagent's tools know as it begins, by the facts of its start."""
    memory = ToolMemory(cwd)
    for skill in launched.get(LOADED, ()):
        memory = memory.plus(ToolFacts.from_json(skill["tool"]))
    return memory


def told_first(launched: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Give the encoded blocks that a subagent reads before its prompt: the texts of its skills."""
    texts = (skill["text"] for skill in launched.get(LOADED, ()))
    return tuple(encode_block(TextBlock(text=text)) for text in texts if text)


def thread_of(launched: Mapping[str, Any]) -> Thread:
    """Give a subagent's thread, by the facts of its start."""
    names = {field.name for field in fields(Thread)}
    given = {name: value for name, value in launched.items() if name in names}
    return Thread(**{**given, "tools": tuple(given["tools"])})


def thread_to_end(launched: Mapping[str, Any]) -> Thread:
    """Give what is known of a subagent's thread, whatever its facts lack: enough to end it.

    What is unknown is empty. Another version of the program may have written them.
    """

    def known(name: str) -> str:
        value = launched.get(name)
        return value if isinstance(value, str) else ""

    call_id, agent_id = known("call_id"), known("agent_id")
    return Thread(call_id, agent_id, known("agent_type"), known("description"), 1, ())
