"""Notes of the loop on the user's side: tool results and markers."""

from collections.abc import Mapping
from typing import Any, Literal

from app.agent.effects import Stamps
from app.agent.state import LoopState
from app.domain.blocks import TextBlock, ToolResultBlock
from app.domain.journal import Entry
from app.domain.messages import (
    SYNTHETIC,
    ApiMessage,
    AssistantMessage,
    UserContent,
    UserMessage,
    WireUsage,
    wire_time,
)
from app.domain.notices import StatusMessage
from app.domain.tools import STORED, JsonValue, ToolResult
from app.domain.usage import Usage
from app.permissions.decision import Allow, Deny

LOST_TEXT = "The worker was lost while this tool was running; its effect is unknown."


def result_entry(
    call_id: str,
    result: ToolResult,
    state: LoopState,
    effects: Stamps,
    *,
    decision: Allow | Deny | None = None,
    rejected_by: Literal["user"] | None = None,
    facts: dict[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
) -> Entry:
    """Make the `user` message that carries one result."""
    block = ToolResultBlock(tool_use_id=call_id, content=result.content, is_error=result.is_error)
    message = UserMessage(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        message=UserContent(content=[block]),
        timestamp=wire_time(effects.clock.now()),
        tool_use_result=_structured(result),
        tool_result_meta=_meta(call_id, decision, rejected_by),
    )
    if result.stored:
        facts = {**(facts or {}), STORED: result.stored.to_json()}
    if result.facts:
        facts = {**(facts or {}), "tool": result.facts.to_json()}
    return Entry.of(message, facts, audit)


def note_entry(
    text: str,
    state: LoopState,
    effects: Stamps,
    *,
    is_synthetic: bool = False,
    facts: dict[str, Any] | None = None,
) -> Entry:
    """Make the `user` message that carries a marker of the loop, or a note for the model."""
    message = UserMessage(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        message=UserContent(content=[TextBlock(text=text)]),
        timestamp=wire_time(effects.clock.now()),
        isSynthetic=is_synthetic or None,
    )
    return Entry.of(message, facts)


def synthetic_entry(
    text: str,
    stop_reason: str,
    state: LoopState,
    effects: Stamps,
    **told: Any,  # noqa: ANN401 - fields of the message
) -> Entry:
    """Make an assistant message of the loop's own: it is shown, and never sent to a model."""
    return Entry.of(
        AssistantMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            message=ApiMessage(
                id=effects.clock.uuid(),
                model=SYNTHETIC,
                content=[TextBlock(text=text)],
                stop_reason=stop_reason,
                stop_sequence="" if stop_reason == "stop_sequence" else None,
                usage=WireUsage.of(Usage()),
            ),
            timestamp=wire_time(effects.clock.now()),
            **told,
        )
    )


def status_entry(
    status: Literal["compacting"] | None,
    state: LoopState,
    effects: Stamps,
    *,
    result: Literal["success", "failed"] | None = None,
    error: str | None = None,
    chars: int | None = None,
) -> Entry:
    """Make the message that says that a compaction begins, or (None) how it ended."""
    return Entry.of(
        StatusMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            status=status,
            compact_result=result,
            compact_error=error,
            compact_output_chars=chars,
        )
    )


def _structured(result: ToolResult) -> JsonValue:
    if not result.is_error:
        return result.structured
    text = _text(result)
    bare = text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    return bare if bare.startswith(("Error: ", "InputValidationError: ")) else f"Error: {bare}"


def _text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(block["text"] for block in result.content if block.get("type") == "text")


def _meta(
    call_id: str, decision: Allow | Deny | None, rejected_by: Literal["user"] | None
) -> list[dict[str, Any]] | None:
    if decision is None:
        return [{"id": call_id, "non_execution_kind": "user-rejected"}] if rejected_by else None
    verdict = "accept" if isinstance(decision, Allow) else "reject"
    told: dict[str, Any] = {"decision": verdict, "source": decision.source}
    if decision.reason is not None:
        told["reason_type"] = decision.reason
    meta: dict[str, Any] = {"id": call_id, "permission_decision": told}
    if isinstance(decision, Deny):
        kind = "user-rejected" if decision.is_unanswered else "permission-rule"
        meta["non_execution_kind"] = kind
    return [meta]
