"""The end of a run on the wire: a success, or one of four errors.

Source: loop 1.5 and decisions B4 to B8, B17, B23.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field

from app.domain.subagent_stats import SubagentStats
from app.domain.wire import ABSENT, WireMessage
from app.domain.wire_usage import WireModelUsage, WireUsage

ErrorSubtype: TypeAlias = Literal[
    "error_max_turns",
    "error_max_budget_usd",
    "error_during_execution",
    "error_max_structured_output_retries",
]
ResultSubtype: TypeAlias = Literal["success"] | ErrorSubtype
TerminalReason: TypeAlias = Literal[
    "completed",
    "max_turns",
    "budget_exhausted",
    "structured_output_retry_exhausted",
    "aborted_streaming",
    "aborted_tools",
    "api_error",
    "prompt_too_long",
    "blocking_limit",
    "image_error",
    "hook_stopped",
    "stop_hook_prevented",
    "tool_deferred",
]
"""What ended the loop: an answer, a limit, the client, the model API, or a hook."""
NO_STATUS = 0
"""Stands for "no such field" where a null has a meaning of its own."""


def _is_no_status(value: object) -> bool:
    return value == NO_STATUS


class ResultMessage(WireMessage):
    """The end of a run: why it stopped and what it cost. Exactly one a finished run."""

    type: Literal["result"] = "result"
    subtype: ResultSubtype
    is_error: bool
    """False on `success`, true on every other subtype (decisions B5)."""
    duration_ms: int
    """Since the run was first claimed; later attempts on other hosts included."""
    duration_api_ms: int
    """Time in model requests, cumulative over the session."""
    num_turns: int
    """Completed main-thread responses of the run (decisions B4)."""
    stop_reason: str | None
    """Of the run's last finished response; null where none finished, and on a run that lost its
    hosts (decisions B17)."""
    terminal_reason: TerminalReason | None = ABSENT
    """Left out where the loop itself did not end: a deadline, a lost host, a failed service."""
    total_cost_usd: float
    """Cumulative over the session, inherited cost of a fork included (decisions B23)."""
    usage: WireUsage
    """This run, main thread only."""
    modelUsage: dict[str, WireModelUsage]  # noqa: N815 - the wire's name
    """Cumulative over the session, all threads, by model."""
    model_usage_since_last_result: dict[str, WireModelUsage]
    """This run, all threads, by model."""
    permission_denials: list[dict[str, Any]] = Field(default_factory=list)
    """Calls of this run that were refused: `{tool_name, tool_use_id, tool_input}` each."""
    subagent_stats: SubagentStats = SubagentStats()
    """What became of subagents, cumulative over the session."""
    safety_stops: int = 0
    """Responses of this run that were refusals."""
    origin: dict[str, str] | None = ABSENT
    """Of a run that no prompt began: `kind` is `task-notification`."""
    user_message_uuid: str | None = ABSENT
    """The first of `user_message_uuids`."""
    user_message_uuids: list[str] | None = ABSENT
    """Prompts of this run that came with an id of their own."""
    local_command: str | None = ABSENT
    """Set when the prompt was a command of the service (`compact`), not one for the model."""


class SuccessResult(ResultMessage):
    """The model came to an end.

    A refusal and the output limit are successes that say so in `stop_reason` (decisions B6, B7).
    """

    subtype: Literal["success"] = "success"
    is_error: Literal[False] = False
    result: str
    """The last text block of the last response; empty if it had none."""
    structured_output: Any = ABSENT
    """The object that was asked for with `output_format`."""
    api_error_status: Literal[0] | None = Field(default=0, exclude_if=_is_no_status)
    """Always null. Left out with `local_command`, of a prompt that a hook blocked, and of a call
    that a hook deferred."""
    deferred_tool_use: dict[str, Any] | None = ABSENT
    """The call that a hook left for a later run: `id`, `name`, `input`."""
    ttft_ms: int | None = ABSENT
    """From the run's first model request to the first event of its answer."""


class ErrorResult(ResultMessage):
    """The run stopped before the model came to an end."""

    subtype: ErrorSubtype
    is_error: Literal[True] = True
    errors: list[str]
    """What went wrong, in sentences. At least one."""
    api_error_status: int | None = Field(default=NO_STATUS, exclude_if=_is_no_status)
    """HTTP status of the model request that failed for good; null when no answer came. Left out
    on other errors."""
    api_error_type: str | None = ABSENT
    """The provider's word for that failure."""
    api_error: str | None = ABSENT
    """`connection_failed` when no answer came."""


Result: TypeAlias = Annotated[SuccessResult | ErrorResult, Discriminator("subtype")]
"""The `result` message, discriminated by `subtype`."""
