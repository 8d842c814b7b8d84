"""Notes of the loop on the user's side: tool results and markers."""

from typing import Any, Literal

from app.agent.effects import Stamps
from app.agent.state import LoopState
from app.domain.blocks import TextBlock, ToolResultBlock
from app.domain.journal import Entry
from app.domain.messages import UserContent, UserMessage, wire_time
from app.domain.tools import JsonValue, ToolResult
from app.permissions.decide import Allow, Deny

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
    if result.facts:
        facts = {**(facts or {}), "tool": result.facts.to_json()}
    return Entry.of(message, facts)


def note_entry(text: str, state: LoopState, effects: Stamps) -> Entry:
    """Make the `user` message that carries a marker of the loop."""
    message = UserMessage(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        message=UserContent(content=[TextBlock(text=text)]),
        timestamp=wire_time(effects.clock.now()),
    )
    return Entry.of(message)


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
    if isinstance(decision, Allow):
        accepted = {"decision": "accept", "source": "config"}
        if decision.reason is not None:
            accepted["reason_type"] = decision.reason
        return [{"id": call_id, "permission_decision": accepted}]
    verdict = {"decision": "reject", "source": "config", "reason_type": decision.reason}
    kind = "permission-rule"
    return [{"id": call_id, "permission_decision": verdict, "non_execution_kind": kind}]
