"""What a hook answers, in the SDK's form: read strictly, so that a mistake is told, not guessed at."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.domain.hooks import HookEvent, PermissionRequest, PreToolUse
from app.domain.permissions import Behavior
from app.domain.text import is_too_deep, printable_value

MAX_CHARS = 10_000
"""Of a text that the model or a person is told; what is longer is cut."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Request(_Model):
    """`decision` of a `PermissionRequest`."""

    behavior: Literal["allow", "deny"]
    message: str | None = None
    updatedInput: dict[str, Any] | None = None  # noqa: N815 - the wire's name, as are those below
    interrupt: bool = False


class _Specific(_Model):
    hookEventName: str | None = None  # noqa: N815
    permissionDecision: Literal["allow", "deny", "ask", "defer"] | None = None  # noqa: N815
    permissionDecisionReason: str | None = None  # noqa: N815
    updatedInput: dict[str, Any] | None = None  # noqa: N815
    additionalContext: str | None = None  # noqa: N815
    updatedToolOutput: Any = None  # noqa: N815
    updatedMCPToolOutput: Any = None  # noqa: N815 - the older name, for tools of MCP servers
    decision: _Request | None = None


class _Output(_Model):
    continue_: Annotated[bool, Field(alias="continue")] = True
    stopReason: str | None = None  # noqa: N815
    systemMessage: str | None = None  # noqa: N815
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    async_: Annotated[bool, Field(alias="async")] = False
    hookSpecificOutput: _Specific | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Effect:
    """What one hook wants."""

    decision: Behavior | None = None
    """Of a call."""
    defers: bool = False
    reason: str | None = None
    interrupts: bool = False
    updated_input: dict[str, Any] | None = None
    updated_output: Any = None
    context: str | None = None
    block: str | None = None
    stop: str | None = None
    says: str | None = None


def effect_of(output: object, event: HookEvent) -> Effect:
    """Read an answer. Raises `ValueError` that says what is wrong with it."""
    if not isinstance(output, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - a stranger's mistake
    if is_too_deep(output):
        raise ValueError("it nests too deep")
    try:
        given = _Output.model_validate(printable_value(output))
    except ValidationError as error:
        raise ValueError(_told(error)) from None
    if given.async_:
        return Effect()
    specific = given.hookSpecificOutput or _Specific()
    if specific.hookEventName not in {None, event.name}:
        raise ValueError(
            f"hookSpecificOutput is for the event {specific.hookEventName}, not for {event.name}"
        )
    decision, reason = _decision(given, specific, event)
    request = specific.decision
    updated_output = specific.updatedToolOutput
    is_of_call = isinstance(event, PreToolUse)
    defers = is_of_call and specific.permissionDecision == "defer" and decision is None
    return Effect(
        decision=decision,
        defers=defers,
        reason=_cut(reason),
        interrupts=request is not None and request.interrupt,
        updated_input=request.updatedInput if request else specific.updatedInput,
        updated_output=(
            specific.updatedMCPToolOutput if updated_output is None else updated_output
        ),
        context=_cut(specific.additionalContext),
        block=_cut(given.reason or "") if given.decision == "block" and not is_of_call else None,
        stop=None if given.continue_ else _cut(given.stopReason or ""),
        says=_cut(given.systemMessage),
    )


def _decision(
    given: _Output, specific: _Specific, event: HookEvent
) -> tuple[Behavior | None, str | None]:
    if isinstance(event, PermissionRequest) and specific.decision is not None:
        request = specific.decision
        return request.behavior, request.message
    if not isinstance(event, PreToolUse):
        return None, None
    decision = specific.permissionDecision
    if given.decision == "block" and decision != "deny":  # of two answers the stricter one counts
        return "deny", given.reason
    if decision is None:
        return ("allow" if given.decision == "approve" else None), given.reason
    return (None, None) if decision == "defer" else (decision, specific.permissionDecisionReason)


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS]} … ({len(text) - MAX_CHARS} more characters were left out)"


def _told(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "it"
    return f"{where}: {first['msg']}"
