"""What the audit says of a decision about a call."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from app.domain.tools import ToolCall
from app.permissions.decision import Allow, Deny


def input_sha256(given: Mapping[str, Any]) -> bytes:
    """Give the hash of an input in canonical form, to which decisions and answers are bound."""
    return hashlib.sha256(orjson.dumps(given, option=orjson.OPT_SORT_KEYS)).digest()


def audit_note(call: ToolCall, decision: Allow | Deny) -> Mapping[str, Any]:
    """Give who decided a call, how, why, and over which input. `call` has the input that counts."""
    return {
        "tool_use_id": call.id,
        "tool_name": call.name,
        "decision": "allow" if isinstance(decision, Allow) else "deny",
        "decided_by": {"kind": decision.by.kind, "name": decision.by.name},
        "reason": decision.message if isinstance(decision, Deny) else decision.reason,
        "input_sha256": input_sha256(call.input).hex(),
    }
