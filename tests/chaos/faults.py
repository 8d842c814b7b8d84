"""The faults, and the schedule that the seed makes of them."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.chaos.fleet import ChaosHost, Fleet
from tests.chaos.ground import Ground, limit_files
from tests.chaos.plan import Plan

Say = Callable[[str], None]
_ALONE = frozenset({"pg_restart", "pg_freeze"})
"""Never two of these at once."""
_TURNS = 3


@dataclass(slots=True)
class Faults:
    """Does harm, and counts it."""

    plan: Plan
    fleet: Fleet
    ground: Ground
    dice: random.Random
    say: Say
    counts: Counter[str] = field(default_factory=Counter)
    full_s: list[tuple[float, float]] = field(default_factory=list)
    """When the disk was full (wall time)."""
    _database: asyncio.Lock = field(default_factory=asyncio.Lock)
    _mount: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def do_harm(self, until_s: float) -> None:
        """Deal faults from shuffled decks until the (monotonic) time; then heal everything.

        A kind that has to happen, and found nobody whom it could befall, has its turns afterwards.
        """
        deck = [k for k in self.plan.must if k in self.plan.kinds]
        self.dice.shuffle(deck)
        rest = [k for k in self.plan.kinds if k not in deck]
        self.dice.shuffle(rest)
        deck = (deck + rest)[::-1]
        async with asyncio.TaskGroup() as under_way:
            while time.monotonic() < until_s:
                if not deck:
                    deck = self.dice.sample(self.plan.kinds, len(self.plan.kinds))
                kind = deck.pop()
                task = under_way.create_task(self._one(kind))
                if self.dice.random() < 0.7 or kind in _ALONE:
                    await asyncio.wait([task])
                await asyncio.sleep(self.dice.uniform(0.2, 1.2))
        for kind in self.plan.must:
            for _ in range(_TURNS):
                if not self.counts[kind]:
                    await self.fleet.until_up(1)
                    await self._one(kind)
        await self._heal()

    async def _one(self, kind: str) -> None:
        acts: dict[str, Callable[[], Awaitable[str]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "term": self._term,
            "pg_restart": self._pg_restart,
            "pg_freeze": self._pg_freeze,
            "net": self._net,
            "clock": self._clock,
            "disk": self._disk,
        }
        told = await acts[kind]()
        if told:
            self.counts[kind] += 1
            self.say(f"{kind}: {told}")

    def _victim(self, kind: str) -> ChaosHost | None:
        hosts = self.fleet.up()
        if not hosts:
            return None
        host = self.dice.choice(hosts)
        host.hurts.append((time.time(), kind))
        return host

    async def _kill(self) -> str:
        victims = self.fleet.up()
        if self.dice.random() < 0.85 or len(victims) < self.plan.hosts:
            one = self._victim("kill")
            victims = [one] if one else []
        for host in victims:
            host.is_going = True
            if host.hurts[-1:] == [] or host.hurts[-1][1] != "kill":
                host.hurts.append((time.time(), "kill"))
            host.signal(signal.SIGKILL)
        await asyncio.sleep(self.plan.lease_s)
        return " ".join(host.name for host in victims)

    async def _stop(self) -> str:
        if (host := self._victim("stop")) is None:
            return ""
        share = 0.5 if self.dice.random() < 0.15 else self.dice.uniform(1.2, 2.0)
        host.is_frozen = True
        host.signal(signal.SIGSTOP)
        await asyncio.sleep(self.plan.lease_s * share)
        host.signal(signal.SIGCONT)
        host.is_frozen = False
        return f"{host.name} for {self.plan.lease_s * share:.1f} s"

    async def _term(self) -> str:
        if (host := self._victim("term")) is None:
            return ""
        host.is_going = True
        host.signal(signal.SIGTERM)
        is_twice = self.dice.random() < 0.2
        if is_twice:
            await asyncio.sleep(0.4)
            host.signal(signal.SIGTERM)
        await self.fleet.stopped(host)
        return f"{host.name}{' twice' if is_twice else ''}"

    async def _pg_restart(self) -> str:
        how = self.dice.choice([signal.SIGINT, signal.SIGQUIT])
        away_s = self.dice.uniform(0, 1.5)
        async with self._database:
            self.fleet.troubles["pg"] += 1
            try:
                await self.fleet.postgres.stop(how)
                await asyncio.sleep(away_s)
            finally:
                await self.fleet.postgres.start()
                self._over("pg")
        return f"{'fast' if how == signal.SIGINT else 'crash'}, away {away_s:.1f} s"

    async def _pg_freeze(self) -> str:
        for_s = self.plan.lease_s * self.dice.uniform(1.1, 1.6)
        async with self._database:
            self.fleet.troubles["pg"] += 1
            try:
                self.fleet.postgres.freeze()
                await asyncio.sleep(for_s)
            finally:
                self.fleet.postgres.thaw()
                self._over("pg")
        return f"{for_s:.1f} s"

    async def _net(self) -> str:
        if (host := self._victim("net")) is None:
            return ""
        is_hole = self.dice.random() < 0.6
        for_s = self.plan.lease_s * self.dice.uniform(1.2, 1.8)
        self.fleet.troubles["pg"] += 1
        await host.cut("hole" if is_hole else "drop")
        await asyncio.sleep(for_s)
        await host.cut("open")
        self._over("pg")
        return f"{host.name} {'silent' if is_hole else 'unreachable'} for {for_s:.1f} s"

    async def _clock(self) -> str:
        if (host := self._victim("clock")) is None:
            return ""
        shift_s = self.dice.choice([-86_400, -3600, -60, 60, 3600, 86_400])
        host.shift_clock(shift_s)
        await asyncio.sleep(self.dice.uniform(0.5, 1.5))
        if self.dice.random() < 0.5:
            host.shift_clock(0)
        return f"{host.name} by {shift_s:+d} s"

    async def _disk(self) -> str:
        for_s = self.dice.uniform(1.0, 2.5)
        async with self._mount:
            began_s = time.time()
            self.fleet.troubles["disk"] += 1
            try:
                return await self._full(for_s)
            finally:
                await asyncio.to_thread(self.ground.free)
                self.full_s.append((began_s, time.time()))
                self._over("disk")

    async def _full(self, for_s: float) -> str:
        if self.ground.means == "mount":
            await asyncio.to_thread(self.ground.fill)
            await asyncio.sleep(for_s)
            return f"full for {for_s:.1f} s (a small mount of our own)"
        if (host := self._victim("disk")) is None:
            return ""
        limit_files(host.process.pid, 0)
        await asyncio.sleep(for_s)
        if host.process.poll() is None:
            limit_files(host.process.pid, None)
        return f"{host.name} for {for_s:.1f} s (by a limit on file sizes)"

    def _over(self, trouble: str) -> None:
        self.fleet.troubles[trouble] -= 1
        self.fleet.trouble_ended_s = time.monotonic()

    async def _heal(self) -> None:
        for host in list(self.fleet.hosts):
            host.shift_clock(0)
            await host.cut("open")
