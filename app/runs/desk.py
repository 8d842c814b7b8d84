"""Where the calls of one run wait for answers.

Theory of operation. A call that has to ask stores an action, then waits for it to be settled, woken
by a word or by a look now and then. The desk knows how many calls of the step are on their way, and
how many of them wait here. When all do, nothing else of the run moves: the log says so, and the run
shows `requires_action`. If that lasts for `hold_s`, every call that waits raises `Parked`, and the run
is let go. Whoever claims it later comes to the same calls, and each finds its own action again.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ulid import ULID

from app.agent.audit import input_sha256
from app.domain.actions import Answer, Request
from app.domain.options import AgentOptions
from app.domain.tools import ToolCall
from app.errors import NobodyAnswered, Parked
from app.runs.live import Hub
from app.runs.turns import Turns
from app.store import actions
from app.store.engine import Database
from app.store.leases import Lease
from app.store.runs import options_of
from app.store.settling import answer_call

T = TypeVar("T")


class Outlast(Protocol):
    """Asks the database until it answers."""

    def __call__(self, ask: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class WaitingRules:
    """The operator's rules for runs that wait for an answer."""

    hold_s: float = 60.0
    """How long one keeps its place on its host, at the most."""
    poll_s: float = 1.0
    """How often an answer is looked for when no word came."""


@dataclass(slots=True)
class Desk:
    """The desk of one run on this host: fits `agent.effects.Desk`."""

    database: Database
    lease: Lease
    hub: Hub
    rules: WaitingRules
    outlast: Outlast
    is_held: Callable[[], bool] = lambda: False
    """Whether something else keeps the run here: it waits with its place then."""
    on_options: Callable[[AgentOptions], None] = lambda _: None
    """Takes what calls are decided by from now on."""
    open_calls: frozenset[str] = frozenset()
    """Calls that an earlier attempt may have asked about."""
    notes_begun: bool = False
    """Whether it is noted which call begins, so that one that did not is not taken for lost."""
    has_asked: bool = False
    may_have_asked: bool = False
    """Whether earlier attempts may have."""
    hold_s: float = field(init=False)
    """How long the run keeps its place here while it waits."""
    parked_for: list[str] = field(default_factory=list)
    """Ids of the actions for whose sake the run is let go."""
    _expected: int = 1
    _waiting: set[str] = field(default_factory=set)
    """Ids of actions that calls wait for."""
    _bell: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet_since_s: float | None = None
    """Monotonic; None while something moves."""
    _is_told: bool = False
    """Whether the log says that the run waits."""
    _telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_leaving: bool = False
    _has_news: bool = False
    _stored: dict[str, Any] | None = None
    _options: AgentOptions | None = None
    """The newest that were looked up."""
    _is_parking: bool = False
    _held: int = 0
    """How many wait who cannot wait elsewhere."""
    _turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        self.hold_s = self.rules.hold_s
        self._turns = Turns(self._look)

    def hold_for(self, seconds: float | None) -> None:
        """Keep the run here for so long while it waits; not for longer than the operator says."""
        if seconds is not None:
            self.hold_s = min(self.hold_s, seconds)

    def expects(self, calls: int) -> None:
        self._expected = calls
        self._look()

    def ring(self) -> None:
        """Say that something may have been answered, or changed."""
        self._has_news = True
        self._wake()

    def _wake(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    def leave(self) -> None:
        """Let the run go as soon as nothing moves: its host stops."""
        self._is_leaving = True
        self._wake()

    async def options(self) -> AgentOptions | None:
        if self._has_news:
            self._has_news = False
            stored = await self.outlast(lambda: options_of(self.database, self.lease))
            if stored != self._stored:
                self._stored = stored
                self._options = AgentOptions.model_validate(stored)
        return self._options

    def adopt(self, options: AgentOptions) -> None:
        self.on_options(options)

    async def begins(self, call_id: str) -> None:
        if self.notes_begun:
            await self.outlast(lambda: actions.note_begun(self.database, self.lease, call_id))

    async def may_have_begun(self, call_id: str) -> bool:
        await self._ask_no_more(call_id)  # the server that asked in it is gone
        if not self.notes_begun:
            return True
        return await self.outlast(
            lambda: actions.may_have_begun(self.database, self.lease, call_id)
        )

    async def begun_among(self, calls: Collection[str]) -> frozenset[str]:
        """Give those calls of the run's own that may have begun, as far as it is stored."""
        if not calls:
            return frozenset()
        return await self.outlast(
            lambda: actions.begun_among(self.database, self.lease, calls, is_noted=self.notes_begun)
        )

    async def answer(
        self, request: Request, *, may_have_run: bool, can_repeat: bool
    ) -> Answer | None:
        """Ask, and wait for the answer; it is taken when this returns.

        None for a call that may have run before its host was lost: its answer was taken, or nothing
        says that it was asked at all. One that `can_repeat`, or has certainly not run, finds the
        same answer again.
        Raises `Parked`, `NobodyAnswered`, `LeaseLost`.
        """
        async with self._turns.of(request.tool_use_id):
            found = await self.outlast(
                lambda: actions.newest_of_call(self.database, self.lease, request.tool_use_id)
            )
            is_of_call = found is not None and found.is_about(request.tool_name, request.sha256)
            if found is None or found.status == "withdrawn" or not is_of_call:
                if may_have_run and not can_repeat:
                    return None
                found = None
            elif found.is_used and may_have_run and not can_repeat:
                return None
            elif found.is_used and not can_repeat and request.tool_use_id not in self.open_calls:
                found = None  # an answer is good for one call, and this is another of the same id
            self.has_asked = True
            answer = found.answer if found else None
            if answer is None:
                answer = await self._answered(request, found)
            self.open_calls -= {request.tool_use_id}
            return await self._taken(answer)

    async def answer_here(self, request: Request, *, can_repeat: bool) -> Answer | None:
        """Ask for somebody who waits on this host: the run is not let go meanwhile.

        None when the host stops: nothing is asked any more then. For a call that `can_repeat` the question
        stands instead, and this waits to be ended: the next host makes the call again, and comes to the
        same question. Raises `LeaseLost`.
        """
        self.has_asked = True
        self._held += 1
        try:
            async with self._turns.of(request.tool_use_id):
                found = await self._same(request) if can_repeat else None
                answer = found.answer if found else None
                if answer is None:
                    answer = await self._answered(request, found)
        except Parked:
            if can_repeat:
                await asyncio.Event().wait()
            await self._ask_no_more(request.tool_use_id)
            return None
        finally:
            self._held -= 1
        return await self._taken(answer)

    async def _same(self, request: Request) -> actions.Open | None:
        """Give the same question of an earlier attempt at a call, if its answer was not taken."""
        found = await self.outlast(
            lambda: actions.newest_of_call(self.database, self.lease, request.tool_use_id)
        )
        if found is None or found.sha256 != request.sha256:
            return None
        return None if found.is_used or found.status == "withdrawn" else found

    async def _ask_no_more(self, tool_use_id: str) -> None:
        seq = await self.outlast(
            lambda: actions.withdraw_elicitation(self.database, self.lease, tool_use_id)
        )
        if seq is not None:
            self.hub.grew(self.lease.tenant_id, self.lease.session_id, seq)

    async def withdraw(self) -> Collection[str]:
        """Take back what the run still asks, before it ends; give the calls that it asked for."""
        if not self.has_asked and not self.may_have_asked:
            return ()
        withdrawn = await self.outlast(lambda: actions.withdraw_pending(self.database, self.lease))
        if withdrawn.seq is not None:
            self.hub.grew(self.lease.tenant_id, self.lease.session_id, withdrawn.seq)
        return withdrawn.approvals

    async def settle(self, tool_use_id: str, answer: dict[str, Any], by: str) -> None:
        """Answer a call's action in a person's place, as soon as it is there. Raises `LeaseLost`."""
        while True:
            bell = self._bell
            if await self.outlast(
                lambda: answer_call(self.database, self.lease, tool_use_id, answer=answer, by=by)
            ):
                self.ring()
                return
            await bell.wait()

    async def earlier(self, call: ToolCall, *, may_have_run: bool) -> Answer | None:
        """Take the answer of a call that was open when this host took the run, if there is one."""
        if call.id not in self.open_calls:
            return None
        found = await self.outlast(
            lambda: actions.newest_of_call(self.database, self.lease, call.id)
        )
        sha256 = input_sha256(call.input)
        if found is None or not found.is_about(call.name, sha256) or found.answer is None:
            return None
        if found.is_used and may_have_run:
            return None
        self.open_calls -= {call.id}
        return await self._taken(found.answer)

    async def _taken(self, answer: Answer) -> Answer:
        action_id = answer.action_id
        await self.outlast(lambda: actions.use_answer(self.database, self.lease, action_id))
        if answer.ends_run:
            raise NobodyAnswered(f"Nobody answered action {action_id} in time.")
        return answer

    async def _open(self, request: Request) -> str:
        action_id = f"act_{ULID()}"

        async def store() -> None:
            known = await actions.newest_of_call(self.database, self.lease, request.tool_use_id)
            if known is None or known.id != action_id:  # else it was stored after all
                seq = await actions.open_action(self.database, self.lease, action_id, request)
                self.hub.grew(self.lease.tenant_id, self.lease.session_id, seq)

        await self.outlast(store)
        return action_id

    async def _answered(self, request: Request, found: actions.Open | None) -> Answer:
        """Wait for an answer; what is withdrawn meanwhile is asked again. Raises `Parked`."""
        if self._is_parking:
            raise Parked
        answer = await self._wait(found.id) if found else None
        while answer is None:
            answer = await self._wait(await self._open(request))
        return answer

    async def _wait(self, action_id: str) -> Answer | None:
        self._waiting.add(action_id)
        self._look()
        try:
            answer = await self._settled(action_id)
        finally:
            self._waiting.discard(action_id)
            self._look()
        await self._tell()
        return answer

    async def _settled(self, action_id: str) -> Answer | None:
        """Wait until an action is settled: give its answer, or None when it was withdrawn."""
        while True:
            bell = self._bell
            found = await self.outlast(
                lambda: actions.find_open(self.database, self.lease, action_id)
            )
            if found.answer is not None:
                self._has_news = True  # it may have changed the run's permissions
                return found.answer
            if found.status == "withdrawn":
                return None
            await self._tell()
            if self._is_time_to_go():
                raise Parked
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), self._next_look_s())

    def _look(self) -> None:
        """Note whether everything waits, and let those who wait see it."""
        if self._waiting and len(self._waiting) + self._turns.behind >= self._expected:
            self._quiet_since_s = self._quiet_since_s or time.monotonic()
        else:
            self._quiet_since_s = None
        self._wake()

    async def _tell(self) -> None:
        """Bring what the log says of the run up to date."""
        async with self._telling:
            waits = self._quiet_since_s is not None
            if waits == self._is_told:
                return
            self._is_told = waits
            ids = sorted(self._waiting)
            seq = await self.outlast(
                lambda: actions.tell_waits(self.database, self.lease, waits=waits, action_ids=ids)
            )
            self.hub.grew(self.lease.tenant_id, self.lease.session_id, seq)

    def _is_time_to_go(self) -> bool:
        if self._is_parking:  # some come only now: calls that had to wait for a place
            self.parked_for = sorted({*self.parked_for, *self._waiting})
            return True
        if self._quiet_since_s is None:
            return False
        left_s = self._quiet_since_s + self.hold_s - time.monotonic()
        is_held = self._held > 0 or self.is_held()
        if self._is_leaving or (left_s <= 0 and not is_held):
            self._is_parking = True
            self.parked_for = sorted(self._waiting)
            self._wake()
        return self._is_parking

    def _next_look_s(self) -> float:
        if self._quiet_since_s is None:
            return self.rules.poll_s
        left_s = self._quiet_since_s + self.hold_s - time.monotonic()
        return min(self.rules.poll_s, left_s) if left_s > 0 else self.rules.poll_s
