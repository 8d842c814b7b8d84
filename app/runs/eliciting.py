"""What an MCP server asks in the middle of a call becomes an action, and the answer goes back to it.

The server waits, with its connection and its state, so the run keeps its place here for as long as a
run may (`hold_seconds`); then the server is told that nobody answered. When its host goes away a call
that only reads is made again elsewhere, and comes to the same question; any other ends there.
"""

import math
from dataclasses import dataclass

from app.agent.audit import input_sha256
from app.domain.actions import ActionRules, Request
from app.domain.mcp import NOBODY, Elicitation, Elicited
from app.domain.tools import ToolCall
from app.runs.desk import Desk


@dataclass(frozen=True, slots=True)
class Elicitor:
    """Asks as the run's options say."""

    desk: Desk
    rules: ActionRules

    @property
    def is_asking(self) -> bool:
        """Whether somebody is to be asked at all: else servers are not told that they can ask."""
        return self.rules.elicitations == "ask"

    async def ask(self, call: ToolCall, asked: Elicited) -> Elicitation:
        """Put a server's question to a client, and wait."""
        shown = asked.to_json()
        request = Request(
            "elicitation",
            call.id,
            call.name,
            input_sha256(shown),
            shown,
            max(1, math.ceil(self.desk.hold_s)),
            "deny",
            call.parent_tool_use_id,
            call.agent_id,
        )
        answer = await self.desk.answer_here(request, can_repeat=asked.can_repeat)
        if answer is None or answer.is_expired:
            return NOBODY
        return Elicitation(answer.body["action"], answer.body.get("content"))
