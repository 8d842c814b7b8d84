"""What the audit says of a decision about a call."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from app.domain.blocks import ToolResultBlock
from app.domain.journal import Entry
from app.domain.messages import Message, UserMessage
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


def with_audit(entries: Sequence[Entry], note: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Put a decision with the entry that answers its call; where none does, with the first free one."""
    free = [number for number, entry in enumerate(entries) if entry.audit is None]
    if not free:
        return tuple(entries)
    at = next((n for n in free if _answers(entries[n].message, note["tool_use_id"])), free[0])
    return (*entries[:at], replace(entries[at], audit=note), *entries[at + 1 :])


def _answers(message: Message, call_id: str) -> bool:
    content = message.message.content if isinstance(message, UserMessage) else ()
    results = (block for block in content if isinstance(block, ToolResultBlock))
    return any(block.tool_use_id == call_id for block in results)
