"""Hosts, clients and chance over the store's twin.

A host claims, folds the journal, drives the loop and stores each batch, as `app.runs.execute` does;
between any two of its moves others do theirs, and it can be lost, frozen for longer than its lease,
asked to let go, or told of a cancel. A seed repeats its schedule.
"""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from app.agent.broken_off import abandoned, interrupted
from app.agent.effects import Effects
from app.agent.fold import fold
from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.agent.retries import RetryRules
from app.agent.state import Advance, LoopState, RunInfo
from app.domain.briefing import Briefing, News
from app.domain.journal import Batch, Entry, ServiceEvent
from app.domain.messages import Prompt, WorkerShuttingDownMessage, parse_message
from app.domain.model import Hear, ModelRequest, ModelResponse, unheard
from app.domain.skills import CommandText
from app.errors import LeaseLost, ModelOverloaded
from app.runs.activity import Activity, watched
from app.runs.ownership import Ownership
from app.store.claims import Claim
from app.store.leases import Host, Lease
from tests.agent.test_resume import assert_valid
from tests.contracts.engine_seam import Pen
from tests.fakes.effects import (
    AllowAll,
    FakeAgents,
    FakeTasks,
    NoSideModel,
    ReadingErrands,
    RecordingPreviews,
    ScriptedHooks,
    ScriptedToolbox,
    SmallModels,
    call,
    response,
    run_info,
    text,
)
from tests.fakes.memory_store import MemoryStore

TENANT = "default"
HOSTS = (Host("host_a", 30.0), Host("host_b", 30.0), Host("host_c", 30.0))
MAX_ATTEMPTS = 3
MOST_RUNS = 8

MOVES = (
    *("move",) * 16,
    *("claim",) * 4,
    *("enqueue", "steer", "steer", "heartbeat", "lose", "freeze", "drain", "cancel"),
)


def sent(request: ModelRequest) -> list[bytes]:
    """Give what the provider caches, piece by piece, in the order in which it stands there."""
    system = [words.encode() for words in request.system]
    blocks = [
        message.role.encode() + block for message in request.messages for block in message.blocks
    ]
    return [*request.tools, *system, *blocks]


@dataclass(slots=True)
class DiceModel:
    """Says what chance says; refuses a request that the API would refuse."""

    chance: random.Random
    asked: int = 0
    before: dict[str, list[bytes]] = field(default_factory=dict)
    """The newest request of each session."""

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        del hear
        assert_valid(request)
        self._assert_grown(request)
        self.asked += 1
        number = self.asked
        if self.chance.random() < 0.1:
            raise ModelOverloaded("busy", category="overloaded", status=529)
        names = [
            self.chance.choice(("Look", "Look", "Change"))
            for _ in range(self.chance.choice((0, 0, 1, 2, 3)))
        ]
        calls = [call(f"call-{number}-{place}", name) for place, name in enumerate(names)]
        return response(text(f"answer {number}"), *calls, message_id=f"msg-{number}")

    def _assert_grown(self, request: ModelRequest) -> None:
        """Whatever happened, the provider's cache still holds all that was sent before."""
        session = request.metadata_user_id or ""
        before, now = self.before.get(session, []), sent(request)
        assert now[: len(before)] == before, "what was sent before was changed"
        self.before[session] = now


@dataclass(slots=True)
class DicePlace:
    """Changes whenever chance says so; parallel calls may come by the same instructions."""

    chance: random.Random

    async def look(self, known: Briefing, cwd: str) -> Briefing:
        files = {f"/workspace/{name}": str(self.chance.random()) for name in ("a", "b")}
        some = {path: text for path, text in files.items() if self.chance.random() < 0.2}
        kept = {path: text for path, text in known.files.items() if self.chance.random() < 0.9}
        return Briefing(f"{cwd}, day {self.chance.randint(1, 3)}", {**kept, **some})

    async def near(self, paths: Iterable[str], known: Briefing) -> News:
        assert not [*paths]  # the scripted tools touch no file
        name = self.chance.choice(("/workspace/sub/a", "/workspace/sub/b", ""))
        return News() if not name or name in known.files else News(files={name: "of the folder"})

    async def command(self, name: str) -> CommandText | None:
        return CommandText(f"{name}: $ARGUMENTS") if self.chance.random() < 0.5 else None


@dataclass(slots=True)
class TwinInbox:
    """What waits for one attempt of a run."""

    store: MemoryStore
    lease: Lease
    _taken: set[str] = field(default_factory=set)

    async def take(self, *, steers: bool) -> Sequence[Prompt]:
        waiting = await self.store.waiting_prompts(self.lease)
        taken = [p for p in waiting if p.is_steer == steers and p.id not in self._taken]
        self._taken.update(prompt.id for prompt in taken)
        return taken


@dataclass(slots=True)
class Attempt:
    """A claimed run on a host, one move at a time."""

    world: "World"
    host: Host
    claim: Claim
    is_over: bool = False
    is_draining: bool = False
    _effects: Effects | None = None
    _state: LoopState | None = None
    _loop: AsyncGenerator[Advance] | None = None
    _pending: Advance | None = None
    """What the loop has done and nobody has stored yet."""
    _announced: bool = False

    async def move(self) -> None:
        """Load the run, do the loop's next piece of work, or store the one that was done."""
        try:
            if self._state is None:
                await self._begin()
            elif self._pending is not None:
                await self._store(self._pending)
            else:
                assert self._loop is not None
                self._pending = await anext(self._loop, None)
                if self._pending is None:  # another owner ended the run, and no fence kept it off
                    await self.die()
        except LeaseLost:
            self.world.counts["refused"] += 1
            await self.die()

    async def heartbeat(self) -> None:
        """Learn that the lease is lost, or that the run is cancelled."""
        store, lease = self.world.store, self.claim.lease
        renewed = await store.renew(self.host, [lease])
        if lease not in renewed:
            await self.die()
        elif renewed[lease] and self._state is not None:
            await self._cancel()  # it cannot lose its lease meanwhile: nobody else moves

    async def die(self) -> None:
        """Be gone, with all that was not stored."""
        self.is_over = True
        if self._loop is not None:
            await self._loop.aclose()

    async def _begin(self) -> None:
        lease, store = self.claim.lease, self.world.store
        rows = await store.history(lease.tenant_id, lease.session_id)
        before, mine = await store.spends(lease.tenant_id, lease.session_id, lease.run_id)
        messages = (
            (run_id, parse_message(body), orjson.loads(facts) if facts else None)
            for run_id, body, facts in rows
        )
        state = fold(messages, self.world.info(lease), spent_before=before, spend=mine)
        self._state = state
        self._effects = self._watched()
        if self.claim.stalled_attempts >= MAX_ATTEMPTS:
            why = "Too many hosts were lost."
            batch = abandoned(state, self._effects, end_reason="worker_lost", why=why)
            self.world.counts["given_up"] += 1
            await self._store(state.after(batch))
            return
        if self.claim.was_lost and (lost := lost_request(state, self._effects)):
            await self._store(state.after(lost))
        if self.claim.is_cancelled:
            await self._cancel()
        else:
            self._loop = run_agent(self._state, self._effects)

    def _watched(self) -> Effects:
        async def renew() -> bool:
            lease = self.claim.lease
            return lease in await self.world.store.renew(self.host, [lease])

        world = self.world
        effects = Effects(
            model=world.model,
            tools=world.tools,
            gate=AllowAll(),
            errands=ReadingErrands(world.tools),
            hooks=ScriptedHooks(),
            inbox=TwinInbox(world.store, self.claim.lease),
            place=world.place,
            tasks=FakeTasks(),
            previews=RecordingPreviews(),
            models=SmallModels(),
            clock=world.store.clock,
            side=NoSideModel(),
            agents=FakeAgents(world.tools),
        )
        # No heartbeat is ever fresh: before it starts anything, each attempt asks.
        return watched(effects, Ownership(0.0, renew), Activity())

    async def _store(self, advance: Advance) -> None:
        lease, batch = self.claim.lease, advance.batch
        kind = "run.started" if self.claim.attempt == 1 else "run.attempt"
        first = () if self._announced else (ServiceEvent(kind),)
        rows = await self.world.store.append(lease, batch, first=first)
        self.world.wrote[lease.session_id].append(lease.epoch)
        self._announced = True
        self._pending, self._state = None, advance.state
        if advance.state.result is not None:
            self.world.counts["own_run"] += rows[-1].type == "run.queued"
            await self.die()
        elif self.is_draining and not advance.state.open_calls:
            await self._let_go(advance.state)

    async def _let_go(self, state: LoopState) -> None:
        self.is_draining = False
        note = WorkerShuttingDownMessage(
            session_id=state.run.session_id, uuid=self.world.store.clock.uuid()
        )
        await self._store(state.after(Batch((Entry.of(note),))))
        await self.world.store.release(self.claim.lease)
        self.world.counts["released"] += 1
        await self.die()

    async def _cancel(self) -> None:
        assert self._state is not None
        assert self._effects is not None
        if self._loop is not None:
            await self._loop.aclose()
        self._pending = None
        asked = await self.world.store.cancel_asked(self.claim.lease)
        ended = interrupted(self._state, self._effects, end_reason=asked.end_reason)
        self.world.counts["cancelled"] += 1
        await self._store(self._state.after(ended))


@dataclass(slots=True)
class World:
    """Hosts, clients and chance."""

    chance: random.Random
    store: MemoryStore = field(default_factory=MemoryStore)
    tools: ScriptedToolbox = field(default_factory=ScriptedToolbox)
    counts: Counter[str] = field(default_factory=Counter)
    """How often each thing happened."""
    wrote: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The epoch of each append to a session."""
    model: DiceModel = field(init=False)
    place: DicePlace = field(init=False)
    pen: Pen = field(init=False)
    sessions: list[str] = field(default_factory=list)
    sent: dict[str, str] = field(default_factory=dict)
    """Session of each prompt that was taken."""
    attempts: list[Attempt] = field(default_factory=list)
    _accepted: int = 0

    def __post_init__(self) -> None:
        self.model = DiceModel(self.chance)
        self.place = DicePlace(self.chance)
        self.pen = Pen(self.store)

    def info(self, lease: Lease) -> RunInfo:
        options = run_info(max_turns=3).options
        return RunInfo(lease.session_id, lease.run_id, options, retries=RetryRules(max_retries=2))

    async def play(self, moves: int) -> None:
        """Make so many random moves, then let every run come to its end."""
        self.sessions = [await self.pen.session() for _ in range(2)]
        for _ in range(moves):
            await getattr(self, f"_{self.chance.choice(MOVES)}")()
        for _ in range(1000):
            await self._claim()
            living = [attempt for attempt in self.attempts if not attempt.is_over]
            if not living:
                return
            for attempt in living:
                await attempt.move()
            await self.store.pass_time(1)
            for attempt in living:
                if not attempt.is_over:
                    await attempt.heartbeat()
        raise AssertionError("the runs do not come to an end")

    async def close(self) -> None:
        """Lose every host that is left."""
        for attempt in self.attempts:
            await attempt.die()

    # -- moves ----------------------------------------------------------------------------

    async def _enqueue(self) -> None:
        if self._accepted == MOST_RUNS:
            return
        self._accepted += 1
        session_id = self.chance.choice(self.sessions)
        prompts = [
            self.pen.prompt(is_steer=place > 0) for place in range(self.chance.choice((1, 1, 2)))
        ]
        host = self.chance.choice((None, *HOSTS))
        run = self.pen.new_run(*prompts)
        enqueued = await self.store.enqueue(TENANT, session_id, run, queue_limit=99, host=host)
        self.sent |= dict.fromkeys((prompt.id for prompt in prompts), session_id)
        if enqueued.claim is not None and host is not None:
            self.attempts.append(Attempt(self, host, enqueued.claim))

    async def _claim(self) -> None:
        host = self.chance.choice(HOSTS)
        if claim := await self.store.claim(host):
            self.counts["taken_over"] += claim.was_lost
            self.attempts.append(Attempt(self, host, claim))

    async def _move(self) -> None:
        if attempt := self._one():
            await attempt.move()

    async def _heartbeat(self) -> None:
        if attempt := self._one():
            await attempt.heartbeat()

    async def _lose(self) -> None:
        if attempt := self._one():
            self.counts["lost"] += 1
            await attempt.die()
            await self._freeze()

    async def _freeze(self) -> None:
        """Nobody renews for longer than a lease; who still lives believes that it owns its run."""
        await self.store.pass_time(31)

    async def _drain(self) -> None:
        if attempt := self._one():
            attempt.is_draining = True

    async def _steer(self) -> None:
        prompt = self.pen.prompt(is_steer=True)
        session_id = self.chance.choice(self.sessions)
        if await self.store.steer(TENANT, session_id, [prompt]) is not None:
            self.counts["steered"] += 1
            self.sent[prompt.id] = session_id

    async def _cancel(self) -> None:
        session_id = self.chance.choice(self.sessions)
        rows = await self.store.read(TENANT, session_id)
        runs = sorted({row.run_id for row in rows if row.run_id is not None})
        if not runs or self.chance.random() < 0.5:
            return
        run_id = self.chance.choice(runs)
        await self.store.request_cancel(TENANT, run_id, None)
        if await self.pen.cancelled_unstarted(session_id, run_id) is not None:
            self.counts["removed"] += 1

    def _one(self) -> Attempt | None:
        living = [attempt for attempt in self.attempts if not attempt.is_over]
        return self.chance.choice(living) if living else None
