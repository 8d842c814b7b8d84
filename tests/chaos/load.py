"""What clients do meanwhile: prompts of all kinds, cancels, forks, several prompts at once."""

import asyncio
import contextlib
import json
import random
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.chaos.fleet import Fleet
from tests.chaos.readers import Reader
from tests.hosts import KEY

TRACE = "trace.txt"
"""Each execution of a state-changing tool leaves a line in this file of its workspace."""
ON_BUSY = ("queue", "queue", "steer", "interrupt", "reject")
_CONFLICT = 409
_TRY_AGAIN = frozenset({429, 503})
_TRIES = 12
_ASKED = 0.3
"""Share of sessions whose commands have to be approved."""
_HEARS_ALL = 0.3
"""Share of sessions whose runs end when their subagents in the background have."""
_ANSWER_EVERY_S = 0.3
_FOLLOW_S = 30


@dataclass(slots=True)
class Scripts:
    """Makes prompts. Each token names one execution of one call, and is in no other prompt."""

    dice: random.Random
    prefix: str
    sleep_mark: str
    """Fraction of a second by which our sleeping commands are told from anybody else's."""
    _tokens: int = 0

    def prompt(self) -> str:
        """Give a prompt of some kind."""
        often = [self._writes, self._mixed]
        once = [
            self._text,
            self._reads,
            self._slow_bash,
            self._slow_model,
            self._broken,
            self._agents,
            self._beside,
        ]
        make = self.dice.choice([*often, *often, *once])
        return f"Go on. <<script {json.dumps([self._paced(step) for step in make()])} >>"

    def _paced(self, step: Any) -> dict[str, Any]:
        blocks = step if isinstance(step, list) else [step]
        controls = {} if isinstance(step, list) or "blocks" not in step else step
        pace = {"delay": round(self.dice.uniform(0, 0.5), 2)}
        return {**pace, **controls} if controls else {**pace, "blocks": blocks}

    def _token(self) -> str:
        self._tokens += 1
        return f"{self.prefix}.{self._tokens}"

    def _write(self, *, sleeps: bool = False) -> dict[str, Any]:
        command = f"echo {self._token()} >> {TRACE}"
        if sleeps:
            seconds = self.dice.randint(1, 3)
            command += f" && sleep {seconds}.{self.sleep_mark} && echo {self._token()} >> {TRACE}"
        return {"tool": "Bash", "input": {"command": command}}

    def _read(self) -> dict[str, Any]:
        if self.dice.random() < 0.5:
            return {"tool": "Read", "input": {"file_path": f"/workspace/{TRACE}"}}
        return {"tool": "Glob", "input": {"pattern": "*.txt"}}

    def _text(self) -> list[Any]:
        return [{"text": "done"}]

    def _reads(self) -> list[Any]:
        return [[self._read() for _ in range(self.dice.randint(1, 3))] for _ in range(3)] + [
            {"text": "read"}
        ]

    def _writes(self) -> list[Any]:
        steps = self.dice.randint(2, 4)
        return [[self._write() for _ in range(self.dice.randint(1, 2))] for _ in range(steps)] + [
            {"text": "written"}
        ]

    def _slow_bash(self) -> list[Any]:
        return [self._write(sleeps=True), self._write(), {"text": "slept"}]

    def _slow_model(self) -> list[Any]:
        slow = {"blocks": [{"text": "thinking it over"}], "delay": self.dice.uniform(1, 3)}
        trickle = {"blocks": [self._write()], "deltas": 15, "chunk_delay": 0.1}
        return [self._write(), slow if self.dice.random() < 0.5 else trickle, {"text": "slow"}]

    def _mixed(self) -> list[Any]:
        return [self._write(), [self._read(), self._write(), self._read()], {"text": "mixed"}]

    def _agents(self) -> list[Any]:
        leaf = self._agent(self._write())
        deep = self._agent([self._agent(self._agent(self._write()), self._write()), leaf])
        both = [self._agent(self._write()), self._agent(self._write(), self._read())]
        return [[*both, deep], self._write(), {"text": "delegated"}]

    def _beside(self) -> list[Any]:
        """Begin subagents in the background; some outlive the run, some have one of their own."""
        kinds = [
            [],
            [self._write()],
            [self._write(sleeps=True), self._write()],
            [self._agent(self._write()), self._write()],
        ]
        chosen = self.dice.sample(kinds, self.dice.randint(1, 2))
        begun = [self._agent(*steps, run_in_background=True) for steps in chosen]
        between = [self._write(sleeps=self.dice.random() < 0.3)] if self.dice.random() < 0.6 else []
        return [begun, *between, *({"text": "heard"} for _ in range(4))]

    def _agent(self, *steps: Any, **given: Any) -> dict[str, Any]:
        asked = f"A part. <<script {json.dumps([*steps, {'text': 'done'}])} >>"
        return {"tool": "Agent", "input": {"description": "a part", "prompt": asked, **given}}

    def _broken(self) -> list[Any]:
        fault = self.dice.choice([{"http": 529}, {"http": 500}, {"cut": 3}, {"cut": 1}])
        step = {"blocks": [{"text": "a long answer"}, self._write()], "times": 1, **fault}
        return [self._write(), step, {"text": "recovered"}]


@dataclass(slots=True)
class Load:
    """The clients of a chaos run, and what they were told."""

    fleet: Fleet
    http: aiohttp.ClientSession
    seed: int
    sleep_mark: str
    readers: list[Reader] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Runs that a host said were stored, with their session."""
    done: Counter[str] = field(default_factory=Counter)
    flaws: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, clients: int) -> None:
        """Work until told to stop; ends when every reader has read all it waits for."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                dice = random.Random(f"{self.seed} client {number}")  # noqa: S311 - repeatable
                scripts = Scripts(dice, f"T{number}", self.sleep_mark)
                tasks.create_task(Client(self, tasks, dice, scripts).work())

    async def answer_forever(self) -> None:
        """Approve what is asked, now and then deny it, on whatever host; until cancelled."""
        dice = random.Random(f"{self.seed} answers")  # noqa: S311 - repeatable
        headers = {"x-api-key": KEY}
        limit = aiohttp.ClientTimeout(total=6, sock_connect=2)
        while True:
            await asyncio.sleep(_ANSWER_EVERY_S)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                if (url := self.fleet.url()) is None:
                    continue
                path = f"{url}/v1/actions?status=pending&limit=200"
                async with self.http.get(path, headers=headers, timeout=limit) as page:
                    asked = (await page.json())["data"] if page.status == 200 else []
                for action in asked:
                    is_denied = dice.random() < 0.1
                    body = {"behavior": "deny"} if is_denied else {"behavior": "allow"}
                    path = f"{url}/v1/actions/{action['id']}/resolve"
                    async with self.http.post(
                        path, json=body, headers=headers, timeout=limit
                    ) as said:
                        self.done["approvals answered"] += said.status == 200


@dataclass(slots=True)
class Client:
    """One client: a session at a time, from its first prompt to the end of its last run."""

    load: Load
    tasks: asyncio.TaskGroup
    dice: random.Random
    scripts: Scripts

    async def work(self) -> None:
        """Use one session after the other until told to stop."""
        while not self.load.stopping.is_set():
            session = self._new_id()
            if reader := await self._begin(session):
                await self._use(reader)
                if not self.load.stopping.is_set() and self.dice.random() < 0.2:
                    await self._fork(session)
                self._leave(reader)
            else:
                await asyncio.sleep(0.5)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.dice.getrandbits(128), version=4))

    def _reader(self, session: str) -> Reader:
        dice = random.Random(f"{self.load.seed} reader {session}")  # noqa: S311 - repeatable
        reader = Reader(session, self.load.http, self.load.fleet.url, dice)
        self.load.readers.append(reader)
        self.tasks.create_task(reader.read())
        return reader

    def _leave(self, reader: Reader) -> None:
        reader.is_last = True
        reader.changed.set()

    async def _begin(self, session: str) -> Reader | None:
        body: dict[str, Any] = {"prompt": self.scripts.prompt(), "session": {"id": session}}
        options: dict[str, Any] = {"allowed_tools": ["Bash"]}
        if self.dice.random() < _ASKED:
            rules = {"permissions": "ask", "hold_seconds": self.dice.choice((0, 0, 1, 60))}
            options = {"actions": rules}
        if self.dice.random() < _HEARS_ALL:
            options["wait_for_subagents"] = True
        body["options"] = options
        answer = await self._post("/v1/runs", body)
        if answer is None:
            return None
        reader = self._reader(session)
        self._take(answer, reader)
        self.load.done["sessions"] += 1
        return reader

    async def _use(self, reader: Reader) -> None:
        for _ in range(self.dice.randint(0, 3)):
            if self.load.stopping.is_set():
                return
            if self.dice.random() < 0.6:
                await self._wait(reader)
            await self._prompt(reader)
            if self.dice.random() < 0.25:
                await asyncio.sleep(self.dice.uniform(0, 1.5))
                await self._cancel(reader)
        await self._wait(reader)

    async def _wait(self, reader: Reader) -> None:
        for run in list(reader.waits_for):
            if not self.load.stopping.is_set():
                await reader.until_finished(run, within_s=_FOLLOW_S)

    async def _prompt(self, reader: Reader) -> None:
        """Send one message. Its uuid is the client's, so that a repeat cannot double it."""
        message = {"role": "user", "content": self.scripts.prompt()}
        body: dict[str, Any] = {
            "messages": [{"type": "user", "message": message, "uuid": self._new_id()}],
            "on_busy": self.dice.choice(ON_BUSY),
        }
        if answer := await self._post(f"/v1/sessions/{reader.session_id}/runs", body):
            self._take(answer, reader)
            self.load.done[f"prompts to {body['on_busy']}"] += 1

    async def _cancel(self, reader: Reader) -> None:
        open_runs = sorted(reader.waits_for - reader.finished)
        if open_runs:
            run = self.dice.choice(open_runs)
            if await self._post(f"/v1/runs/{run}/cancel", {}):
                self.load.done["cancels"] += 1

    async def _fork(self, session: str) -> None:
        own = self._new_id()
        answer = await self._post(f"/v1/sessions/{session}/fork", {"id": own})
        if answer is None:
            return
        self.load.done["forks"] += 1
        reader = self._reader(own)
        await self._prompt(reader)
        await self._wait(reader)
        self._leave(reader)

    def _take(self, answer: Mapping[str, Any], reader: Reader) -> None:
        run = answer.get("run")
        if run:  # not of an answer that was lost
            self.load.acknowledged[run["id"]] = reader.session_id
            reader.waits_for.add(run["id"])

    async def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Send it until a host has it, mostly with a key; `{}` when a prompt was refused for good reason.

        Some hosts are frozen, cut off or gone, and some clients hang up too early: an answer may
        be lost, and what it answered may be stored.
        """
        headers = {"x-api-key": KEY}
        if self.dice.random() < 0.6:
            headers["idempotency-key"] = self._new_id()
        for number in range(_TRIES):
            if url := self.load.fleet.url():
                try:
                    status, replayed, said = await self._send(url + path, body, headers)
                except (aiohttp.ClientError, TimeoutError, OSError):
                    self.load.done["posts lost"] += 1
                else:
                    if status in {200, 201, 202}:
                        self.load.done["repeats answered"] += replayed
                        return dict(json.loads(said))
                    if status not in _TRY_AGAIN and "idempotency_in_progress" not in said:
                        return self._refused(path, status, said, is_repeat=number > 0)
            await asyncio.sleep(0.3)
        return None

    async def _send(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, bool, str]:
        patience_s = self.dice.uniform(0.005, 0.05) if self.dice.random() < 0.1 else 6
        limit = aiohttp.ClientTimeout(total=patience_s, sock_connect=2)
        async with self.load.http.post(url, json=body, headers=headers, timeout=limit) as answer:
            return answer.status, "idempotency-replayed" in answer.headers, await answer.text()

    def _refused(
        self, path: str, status: int, said: str, *, is_repeat: bool
    ) -> Mapping[str, Any] | None:
        """An id that is taken says that an earlier try had worked."""
        if status == _CONFLICT and is_repeat and "taken" in said:
            self.load.done["repeats refused"] += 1
            return {}
        if status == _CONFLICT and "session_busy" in said:
            self.load.done["busy refused"] += 1
            return None if path.endswith("/fork") else {}
        self.load.flaws.append(f"POST {path}: {status} {said[:500]}")
        return None
