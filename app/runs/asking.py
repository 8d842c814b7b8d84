"""Questions to people become actions, and answers become verdicts."""

from dataclasses import dataclass

from app.agent.audit import input_sha256
from app.agent.tool_effects import Fire
from app.domain.actions import ActionRules, Answer, Request
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decision import Allow, Ask, Author, Deny, Lost, Verdict, unanswered
from app.runs.desk import Desk

ASK_USER = "AskUserQuestion"


@dataclass(frozen=True, slots=True)
class PersonAsker:
    """Asks as the run's options say; whom nobody is to be asked about is denied."""

    desk: Desk
    rules: ActionRules

    async def ask(
        self, call: ToolCall, spec: ToolSpec, question: Ask, scene: Scene, fire: Fire
    ) -> Verdict:
        del fire
        if not self.asks(spec):
            return unanswered(question)
        is_question = spec.name == ASK_USER
        request = self._question(call) if is_question else self._permission(call, question)
        answer = await self.desk.answer(
            request, may_have_run=scene.may_have_run, can_repeat=spec.can_repeat
        )
        return Lost() if answer is None else self._verdict(call, spec, answer)

    def asks(self, spec: ToolSpec) -> bool:
        """Whether somebody is asked about calls of this tool."""
        rule = self.rules.questions if spec.name == ASK_USER else self.rules.permissions
        return rule == "ask"

    async def answered(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Verdict | None:
        if spec.is_kept:  # what its client posts is a result, not an approval
            return None
        answer = await self.desk.earlier(call, may_have_run=scene.may_have_run)
        return None if answer is None else self._verdict(call, spec, answer)

    def _permission(self, call: ToolCall, question: Ask) -> Request:
        shown = {
            "tool_name": call.name,
            "input": dict(call.input),
            "title": question.message,
            "decision_reason": None if question.reason is None else question.message,
            "decision_reason_type": question.reason,
            "blocked_path": question.blocked_path,
            "suggestions": [update.model_dump(mode="json") for update in question.suggestions],
        }
        return Request(
            "permission",
            call.id,
            call.name,
            input_sha256(call.input),
            shown,
            self.rules.permission_timeout_seconds,
            self.rules.on_timeout,
            call.parent_tool_use_id,
            call.agent_id,
        )

    def _question(self, call: ToolCall) -> Request:
        return Request(
            "question",
            call.id,
            call.name,
            input_sha256(call.input),
            {"questions": call.input.get("questions")},
            self.rules.question_timeout_seconds,
            self.rules.on_timeout,
            call.parent_tool_use_id,
            call.agent_id,
        )

    def _verdict(self, call: ToolCall, spec: ToolSpec, answer: Answer) -> Verdict:
        is_question = spec.name == ASK_USER
        if answer.is_expired:
            rules = self.rules
            limit_s = (
                rules.question_timeout_seconds if is_question else rules.permission_timeout_seconds
            )
            message = f"Nobody answered within {limit_s} seconds, so {call.name} was not run."
            return Deny(None, message, Author("expiry", answer.action_id))
        by = Author("person", answer.by)
        body = answer.body
        if body.get("behavior") == "deny":
            return Deny(
                None,
                body["message"],
                by,
                source="user_reject",
                interrupts=body.get("interrupt", False),
                is_announced=False,
            )
        updated = {**call.input, **body} if is_question else body.get("updated_input")
        return Allow(None, by, source="user_temporary", updated_input=updated, is_first=True)
