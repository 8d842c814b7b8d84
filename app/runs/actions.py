"""What clients can do to actions: look at them, answer them.

An answer is one transaction; afterwards the run's owner is told, or a host with a free slot. The same
answer again changes nothing and is answered alike; another one is refused with the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.options import AgentOptions
from app.domain.permissions import ModeUpdate, PermissionUpdate
from app.errors import (
    ActionExpired,
    ActionResolved,
    ActionWithdrawn,
    NotFound,
    RequestError,
    ValidationFailed,
)
from app.permissions.updates import with_updates
from app.runs.changing import Change, change_options
from app.runs.gate import EXIT_PLAN
from app.runs.once import Once, guarded
from app.runs.policy import Policy
from app.runs.telling import Teller
from app.store.action_lists import ActionFilter as ActionFilter
from app.store.action_lists import ActionRow as ActionRow
from app.store.action_lists import find_action, list_actions
from app.store.engine import Database
from app.store.keys import Caller
from app.store.keyset import Keyset
from app.store.runs import find_run
from app.store.settling import resolve_action
from app.store.waiting import hold_sessions_of

CheckInput = Callable[[AgentOptions, str, Mapping[str, Any]], str | None]
"""Gives what is wrong with an input of a tool, None for one that is fine or a tool not known here."""


@dataclass(frozen=True, slots=True)
class AnswerWish:
    """A client's answer, checked as to its form."""

    kind: str
    """`allow`, `deny`, `answers`, `content`, `elicitation`."""
    body: dict[str, Any]
    """As it is stored."""
    updates: Sequence[PermissionUpdate] = ()
    """What it changes of the session's permissions."""


FITTING: Mapping[str, Sequence[str]] = {
    "permission": ("allow", "deny"),
    "question": ("answers", "deny"),
    "client_tool": ("content",),
    "elicitation": ("elicitation",),
}
"""Which answers fit which type of action."""
_HOW: Mapping[str, str] = {
    "permission": '{"behavior": "allow"} or {"behavior": "deny", "message": …}',
    "question": '{"answers": {question: answer}} or {"behavior": "deny", "message": …}',
    "client_tool": '{"content": [{"type": "text", "text": …}]}',
    "elicitation": '{"action": "accept", "content": {…}}, "decline" or "cancel"',
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of one answer of several."""

    action_id: str
    action: ActionRow | None
    refusal: RequestError | None = None


@dataclass(frozen=True, slots=True)
class Actions:
    """All that the API does with actions."""

    database: Database
    teller: Teller
    policy: Policy
    check_input: CheckInput

    async def get(self, tenant_id: str, action_id: str) -> ActionRow:
        """Give an action. Raises `NotFound`."""
        async with self.database.connect() as connection:
            return await _action(connection, tenant_id, action_id)

    async def page(
        self, tenant_id: str, keyset: Keyset, wanted: ActionFilter
    ) -> Sequence[ActionRow]:
        """Give actions by creation time."""
        return await list_actions(self.database, tenant_id, keyset, wanted)

    async def resolve(
        self, caller: Caller, action_id: str, answer: AnswerWish, *, once: Once | None = None
    ) -> ActionRow:
        """Answer an action. Raises `NotFound`, `ActionResolved`, `ActionExpired`, `ValidationFailed`."""

        async def write(connection: AsyncConnection) -> ActionRow:
            row = await _action(connection, caller.tenant_id, action_id)
            await hold_sessions_of(connection, caller.tenant_id, [row.run_id])
            return await self._resolve(connection, caller, action_id, answer)

        action = await guarded(self.database, once, write)
        self._tell(caller.tenant_id, action)
        return action

    async def resolve_many(
        self,
        caller: Caller,
        answers: Sequence[tuple[str, AnswerWish]],
        *,
        once: Once | None = None,
    ) -> list[Resolved]:
        """Answer several actions; one that is refused does not hold up the others."""

        async def write(connection: AsyncConnection) -> list[Resolved]:
            runs = [
                row.run_id
                for action_id, _ in answers
                if (row := await find_action(connection, caller.tenant_id, action_id))
            ]
            await hold_sessions_of(connection, caller.tenant_id, runs)
            return [await self._one(connection, caller, *each) for each in answers]

        done = await guarded(self.database, once, write)
        for resolved in done:
            if resolved.action is not None:
                self._tell(caller.tenant_id, resolved.action)
        return done

    async def _one(
        self, connection: AsyncConnection, caller: Caller, action_id: str, answer: AnswerWish
    ) -> Resolved:
        try:
            async with connection.begin_nested():  # what a refused one wrote is taken back
                action = await self._resolve(connection, caller, action_id, answer)
        except RequestError as refusal:
            return Resolved(action_id, None, refusal)
        return Resolved(action_id, action)

    async def _resolve(
        self, connection: AsyncConnection, caller: Caller, action_id: str, answer: AnswerWish
    ) -> ActionRow:
        """Answer an action whose session's row is locked."""
        row = await _action(connection, caller.tenant_id, action_id)
        if row.status == "resolved":
            if row.answer == answer.body:
                return row
            raise ActionResolved(
                "The action is answered already, otherwise. The first answer counts.",
                context={"resolution": row.answer, "answered_by": row.answered_by},
            )
        if row.status == "expired" or row.is_overdue:
            raise ActionExpired("The action's time is over: nobody answered it.")
        if row.status == "withdrawn":
            raise ActionWithdrawn("The run does not ask this any more.")
        await self._check(connection, caller, row, answer)
        await self._update(connection, caller, row, answer)
        await resolve_action(
            connection,
            caller.tenant_id,
            row.session_id,
            row.run_id,
            row.id,
            answer=answer.body,
            by=caller.key_id,
        )
        return await _action(connection, caller.tenant_id, action_id)

    async def _check(
        self, connection: AsyncConnection, caller: Caller, row: ActionRow, answer: AnswerWish
    ) -> None:
        if answer.kind not in FITTING[row.type]:
            raise _unfit("", f"A {row.type} is answered by {_HOW[row.type]}.")
        if "answers" in answer.body:
            _check_answers(row, answer.body["answers"])
        if (updated := answer.body.get("updated_input")) is not None:
            run = await find_run(connection, caller.tenant_id, row.run_id)
            options = AgentOptions.model_validate(dict(run.options if run else {}))
            if problem := self.check_input(options, row.tool_name, updated):
                raise _unfit("/updated_input", problem)

    async def _update(
        self, connection: AsyncConnection, caller: Caller, row: ActionRow, answer: AnswerWish
    ) -> None:
        """Let the session's permissions be as the answer says."""
        is_plan_over = row.tool_name == EXIT_PLAN and answer.kind == "allow"
        over = (ModeUpdate(type="setMode", mode="default"),) if is_plan_over else ()
        updates = (*over, *answer.updates)
        if updates:
            change = Change(
                caller,
                self.policy,
                row.session_id,
                lambda options: with_updates(options, updates),
                "/updated_permissions",
            )
            await change_options(connection, change)

    def _tell(self, tenant_id: str, action: ActionRow) -> None:
        self.teller.hub.grew(tenant_id, action.session_id, action.last_seq)
        self.teller.answered(action.run_id)


def _check_answers(row: ActionRow, answers: Mapping[str, Any]) -> None:
    asked = {str(question.get("question")) for question in row.request.get("questions") or ()}
    for question in answers:
        if question not in asked:
            raise _unfit("/answers", f"{question[:200]!r} was not asked.")


def _unfit(pointer: str, message: str) -> ValidationFailed:
    error = {"pointer": pointer, "code": "unfit_answer", "message": message}
    return ValidationFailed(f"The answer does not fit: {message}", errors=[error])


async def _action(connection: AsyncConnection, tenant_id: str, action_id: str) -> ActionRow:
    row = await find_action(connection, tenant_id, action_id)
    if row is None:
        raise NotFound("There is no such action.")
    return row
