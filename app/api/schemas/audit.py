"""What the audit shows."""

from typing import Literal

from app.api.schemas.common import Out, Page
from app.domain.messages import wire_time
from app.runs.queries import AuditRow


class DecidedBy(Out):
    kind: str
    """`rule`, `mode`, `hook`, `person`, `classifier`, `expiry`, or `default`: nothing but that the
    tool only reads, or that no rule covered the call."""
    name: str
    """Which one: the rule with its source, the mode, the hook, the key of a person."""


class AuditEntry(Out):
    """One decision about a call, stored with the call's result."""

    object: Literal["audit_entry"] = "audit_entry"
    type: Literal["tool_decision"] = "tool_decision"
    at: str
    session_id: str
    run_id: str
    seq: int
    """Of the call's result in the session's log."""
    tool_use_id: str
    tool_name: str
    decision: Literal["allow", "deny"]
    decided_by: DecidedBy
    reason: str | None
    """What the model was told, or the wire's `reason_type`."""
    input_sha256: str
    """Of the input that ran or was refused: its JSON with sorted names, without blanks."""

    @staticmethod
    def of(row: AuditRow) -> "AuditEntry":
        """Show a decision."""
        return AuditEntry(
            at=wire_time(row.at),
            session_id=row.session_id,
            run_id=row.run_id,
            seq=row.seq,
            **row.body,
        )


class AuditPage(Page):
    data: list[AuditEntry]
