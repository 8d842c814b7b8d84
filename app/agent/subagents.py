"""Subagents: a call of the tool Agent is carried out by a conversation of its own.

Theory of operation (ADR 16). The subagent is another `run_agent` whose state is a thread of its
parent's. What it makes durable it hands to its parent's step, which yields it and says when it is
stored; only then the subagent goes on. Its last words, the end of its task and the result of
the call are one batch. A thread that is in the parent's state already is one that another
attempt began: it is driven on from there.

One that the main conversation begins in the background is only begun here: it is a run of its own
from then on (`agent/backgrounded.py`).
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeAlias

from app.agent.backgrounded import launch
from app.agent.effects import AgentLimits, Effects, NoServers, Purse, nothing_new
from app.agent.hook_memory import hook_facts
from app.agent.hook_points import contexts, fire, told
from app.agent.launch import BUDGET_TEXT, CannotLaunch, goes_on_alone, launch_facts, skills_of
from app.agent.narrowed import NarrowedToolbox
from app.agent.report import report_of
from app.agent.run_info import Thread
from app.agent.state import Advance, LoopState
from app.agent.thread_facts import LOADED
from app.agent.thread_rows import in_thread, thread_begins, thread_ends
from app.agent.tool_effects import Desk
from app.domain.hooks import SubagentStart
from app.domain.journal import Batch, Entry
from app.domain.messages import Prompt
from app.domain.options import AgentOptions
from app.domain.subagent_stats import Refusal
from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.tools import ToolCall, ToolResult
from app.domain.usage import LedgerRow
from app.domain.value import value

Drive: TypeAlias = Callable[
    [LoopState, Effects, Callable[[LoopState], LoopState]], AsyncGenerator[Advance]
]
"""`run_agent`, with what a state learns before each step."""
HandOver: TypeAlias = Callable[[Batch], Awaitable[None]]
"""Makes a batch durable; returns when it is stored."""
LOST = TaskEnd("killed", "is none of a subagent's")


@dataclass(slots=True)
class Tree:
    """What all subagents share that a step of the main conversation has begun."""

    drive: Drive
    desk: Desk
    """The run's: where calls of all threads wait for answers."""
    limits: AgentLimits
    budget_usd: Decimal | None
    spent_usd: Decimal
    """By all threads of the run."""
    spawned: int
    root: str
    """The thread whose step it is: the call that began it. "": the main conversation."""
    purse: Purse
    """Beside those threads: what goes on in the background."""
    beside_usd: Decimal
    """Of that, what `spent_usd` holds."""
    launched: list[BackgroundTask] = field(default_factory=list)
    """What the step has begun in the background."""
    slots: dict[int, asyncio.Semaphore] = field(default_factory=dict)
    """On each depth: a thread waits for those below it only, so none waits in a circle."""
    _moving: dict[str, int] = field(default_factory=dict)
    """What can move in each thread, by call: its open calls, or its next request."""
    _queued: int = 0
    """Subagents that wait for a place."""

    @staticmethod
    def of(state: LoopState, effects: Effects, drive: Drive) -> "Tree":
        """Make it for a step of a run's own conversation."""
        return Tree(
            drive,
            effects.desk,
            effects.agents.limits,
            state.run.options.max_budget_usd,
            state.spent_usd,
            state.spawned,
            state.run.thread.call_id if state.run.thread else "",
            effects.purse,
            state.others_usd,
        )

    def expects(self, state: LoopState, calls: int) -> None:
        """Say how many calls of a thread's step have no stored result.

        The run waits for answers when every call of every thread does; a call that a subagent
        carries out waits when all of the subagent's do.
        """
        key = state.run.thread.call_id if state.run.thread else ""
        self._moving[key] = calls if key == self.root else max(calls, 1)
        self._tell()

    def ended(self, call_id: str) -> None:
        """Say that a subagent has ended."""
        self._moving.pop(call_id, None)
        self._tell()

    def _tell(self) -> None:
        main = self._moving.get(self.root, 0)
        below = sum(n - 1 for key, n in self._moving.items() if key != self.root)
        self.desk.expects(main + below - self._queued)

    @property
    def is_over_budget(self) -> bool:
        return self.budget_usd is not None and self._all_usd >= self.budget_usd

    @property
    def _all_usd(self) -> Decimal:
        return self.spent_usd + self.purse.others_usd() - self.beside_usd

    @asynccontextmanager
    async def place(self, depth: int) -> AsyncIterator[None]:
        """Wait for a place on a depth, and hold it. Who waits here keeps no run from waiting."""
        slot = self.slots.setdefault(depth, asyncio.Semaphore(self.limits.at_once))
        self._queued += 1
        self._tell()
        try:
            await slot.acquire()
        finally:
            self._queued -= 1
            self._tell()
        try:
            yield
        finally:
            slot.release()

    def take(self, rows: Sequence[LedgerRow]) -> None:
        """Count what a subagent has spent."""
        self.spent_usd += sum((row.cost_usd or Decimal(0) for row in rows), Decimal(0))

    def told(self, state: LoopState) -> LoopState:
        """Give a subagent's state, which knows what the others have spent."""
        return replace(state, others_usd=self._all_usd - state.spend.cost_usd)


@value
class Spawned:
    """What came of a subagent."""

    batch: Batch | None = None
    """Its last words, and that it has ended: to be stored with the result."""
    result: ToolResult = ToolResult("")
    """Of the call."""
    limit: Refusal | None = None
    """The limit that is the reason where there is no subagent."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """A call that is carried out by a subagent."""

    call: ToolCall
    state: LoopState
    """Its parent's."""
    effects: Effects
    """Its parent's."""
    tree: Tree
    hand_over: HandOver
    forked: Mapping[str, Any] = field(default_factory=dict)
    """Facts of its start that a fork adds."""

    async def run(self) -> Spawned:
        """Begin the subagent, or go on with it; give what came of it."""
        if (child := self.state.threads.get(self.call.id)) is not None:
            async with self.tree.place(_thread(child).depth):
                return await self._drive(child)
        try:
            return await self._begin()
        except CannotLaunch as why:
            return Spawned(result=ToolResult(str(why), is_error=True), limit=why.limit)

    async def _begin(self) -> Spawned:
        facts = await self._facts()
        prompt = str(self.call.input["prompt"])
        if not self.forked and goes_on_alone(self.call, self.state, self.effects):
            self._count()
            notes, added = await self._start_hooks(facts)
            batch, task, result = launch(
                prompt, facts, self.state, self.effects, added, self.tree.launched
            )
            self.tree.launched.append(task)
            return Spawned(replace(batch, entries=(*notes, *batch.entries)), result)
        async with self.tree.place(facts["depth"]):
            self._count()
            notes, added = await self._start_hooks(facts)
            begun = thread_begins(prompt, facts, self.state, self.effects, added)
            begun = replace(begun, entries=(*notes, *begun.entries))
            await self.hand_over(begun)
            return await self._drive(self.state.apply(begun).threads[self.call.id])

    async def _facts(self) -> dict[str, Any]:
        """Give all that it is launched with. Raises `CannotLaunch`."""
        facts = {**launch_facts(self.call, self.state, self.effects), **self.forked}
        skills = await skills_of(facts["agent_type"], self.state, self.effects)
        return {**facts, LOADED: [*facts.get(LOADED, ()), *skills]}

    def _count(self) -> None:
        """Count one more subagent. Raises `CannotLaunch` when there may be none."""
        if self.tree.is_over_budget:
            raise CannotLaunch(BUDGET_TEXT, "budget")
        if self.tree.spawned >= self.tree.limits.a_run:
            raise CannotLaunch(
                f"This run has begun {self.tree.limits.a_run} subagents already.",
                "concurrency_limit",
            )
        self.tree.spawned += 1

    async def _start_hooks(
        self, facts: Mapping[str, Any]
    ) -> tuple[tuple[Entry, ...], dict[str, Any]]:
        """Ask `SubagentStart`; give what readers are told, and facts for the subagent's prompt."""
        event = SubagentStart(self.call.id, facts["agent_id"], facts["agent_type"])
        outcome = await fire(event, self.state, self.effects)
        notes = told(outcome, event, self.state, self.effects)
        return notes, hook_facts(contexts=contexts(outcome, event))

    async def _drive(self, child: LoopState) -> Spawned:
        clock = self.effects.clock
        started_s = clock.monotonic()
        world = child_effects(child, self.effects)
        last = Batch()
        world = replace(world, tree=self.tree, desk=_ChildDesk(self.tree.desk))
        driven = self.tree.drive(child, world, self.tree.told)
        async with aclosing(driven) as advances:
            async for advance in advances:
                child = advance.state
                self.tree.take(advance.batch.ledger)
                took_ms = round((clock.monotonic() - started_s) * 1000)
                last = in_thread(advance.batch, child, self.effects, took_ms)
                if child.result is None:
                    await self.hand_over(last)
        self.tree.ended(self.call.id)
        took_ms = round((clock.monotonic() - started_s) * 1000)
        report = report_of(child, str(self.call.input["prompt"]), took_ms)
        ended = thread_ends(
            child,
            report.status,
            report.summary,
            self.effects,
            duration_ms=took_ms if report.status == "completed" else None,
        )
        return Spawned(replace(last, entries=(*last.entries, *ended)), report.result)


def child_effects(child: LoopState, effects: Effects) -> Effects:
    """Give what a subagent can touch: less than its parent."""
    thread = _thread(child)
    aside = effects.agents.aside(thread.call_id)
    return replace(
        effects,
        tools=NarrowedToolbox(effects.agents.tools, frozenset(thread.tools)),
        inbox=NoInbox(),
        tasks=_NoTasks(),
        place=aside.place,
        previews=aside.previews,
        servers=NoServers(),
        learn=nothing_new,
    )


def _thread(child: LoopState) -> Thread:
    if child.run.thread is None:
        raise ValueError("the main conversation is no subagent")
    return child.run.thread


@dataclass(frozen=True, slots=True)
class _ChildDesk:
    """Takes what a client changes of the run to its gate; a subagent's own options stay."""

    desk: Desk

    def expects(self, calls: int) -> None:
        raise RuntimeError(f"the tree counts {calls} calls")

    async def options(self) -> AgentOptions | None:
        if (options := await self.desk.options()) is not None:
            self.desk.adopt(options)
        return None

    def adopt(self, options: AgentOptions) -> None:
        raise RuntimeError(f"a subagent adopts no {options!r}")

    async def begins(self, call_id: str) -> None:
        pass  # several subagents' calls may be under way: what was begun is not known

    async def may_have_begun(self, call_id: str) -> bool:
        del call_id
        return True


class NoInbox:
    """Of a subagent: nobody prompts it but once."""

    async def take(self, *, steers: bool) -> Sequence[Prompt]:  # noqa: ARG002 - the seam's signature
        return ()


class _NoTasks:
    def end_of(self, task_id: str) -> TaskEnd | None:  # noqa: ARG002 - the seam's signature
        return LOST

    async def someone_ended(self, among: Collection[str]) -> None:
        """Have nothing to wait for."""
