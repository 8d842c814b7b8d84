"""Our service, driven over HTTP: what a scenario needs of it."""

import asyncio
import json
import os
import secrets
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from app.compaction.summary import TASK
from tests.fakes.hook_server import HookServer
from tests.fakes.messages_api import MessagesApi
from tests.traces.hook_script import told_here
from tests.traces.normal import Json, Record
from tests.traces.scenario import CWD, FILES, Prompt, Scenario, Start, summary_of
from tests.traces.stand_ins import StandIns
from tests.traces.story import Act, Seen
from tests.traces.turns import turns_of
from tests.traces.watch import Watch

SHOWN_WITHIN_S = 30
POLL_S = 0.03


class Serving(Protocol):
    """Who serves."""

    @property
    def client(self) -> httpx.AsyncClient:
        """With the base URL of the host that serves now, and a key."""
        ...

    async def crash(self) -> None:
        """Kill the host; another one serves afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class OneHost:
    """A host that lives as long as its test."""

    client: httpx.AsyncClient

    async def crash(self) -> None:
        raise NotImplementedError("a host that crashes needs a process of its own")


@dataclass(frozen=True, slots=True)
class HttpDriver:
    serving: Serving
    messages_api: MessagesApi
    """The model of the hosts, used by nothing else."""
    stand_ins: StandIns
    hooks: HookServer
    workspaces: Path
    """A folder beneath an allowed root, which the sandbox's user can enter."""
    owner_uid: int | None
    """Who must own workspaces, when the host runs as root."""
    subfolder: str | None = None
    """An empty folder in each workspace, where the recording had one with programs."""

    async def play(self, scenario: Scenario) -> Record:
        """Do to the service what was done in the recording; give what came of it all."""
        if not scenario.prompts:
            await self._is_refused(scenario.starts[0])
        self.hooks.script = dict(scenario.hooks.said)
        self.messages_api.summaries = [(TASK[:60], summary_of(scenario))]
        async with AsyncExitStack() as stack:
            play = _Play(self, scenario, stack)
            for act in scenario.acts:
                await play.do(act)
            messages = await play.shown()
        told = told_here(self.hooks.told, CWD)
        return Record(messages, self.messages_api.bodies(), self.stand_ins.events, told)

    async def _is_refused(self, start: Start) -> None:
        """Go on with a session that nobody knows."""
        path = f"/v1/sessions/{uuid.uuid4()}/runs"
        body = {"prompt": "Is anybody there?", "options": dict(start.options)}
        answer = await self.serving.client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), answer.text

    def folder(self) -> Path:
        """Make a workspace with the files that every trace has."""
        folder = self.workspaces / secrets.token_hex(8)
        folder.mkdir()
        for name, content in FILES.items():
            (folder / name).write_text(content)
        if self.subfolder is not None:
            (folder / self.subfolder).mkdir()
        for path in (folder, *folder.iterdir()):
            if self.owner_uid is not None:
                os.chown(path, self.owner_uid, self.owner_uid)
        return folder

    async def post(self, path: str, body: Json) -> Json:
        answer = await self.serving.client.post(path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())

    async def get(self, path: str, **query: int | str) -> Json:
        answer = await self.serving.client.get(path, params={"limit": 1000, **query})
        assert answer.is_success, answer.text
        page = dict(answer.json())
        assert not page["has_more"]
        return page


@dataclass(slots=True)
class _Play:
    """One scenario, as far as it has come."""

    driver: HttpDriver
    scenario: Scenario
    stack: AsyncExitStack
    sessions: list[str] = field(default_factory=list)
    """In the order of their symbolic names."""
    by_start: dict[int, str] = field(default_factory=dict)
    workspace: Json = field(default_factory=dict)
    """Of the newest session."""
    newest_run: str = ""
    controlled: set[str] = field(default_factory=set)
    """Options that were changed meanwhile: they are the session's from then on."""
    watch: Watch | None = None

    async def do(self, act: Act) -> None:
        """Wait for the moment, then act."""
        await self._until(act.after)
        if act.kind == "crash":
            await self.driver.serving.crash()
        elif act.kind == "answer":
            await self._answer(act)
        elif act.kind == "control":
            path = f"/v1/sessions/{self.sessions[-1]}/control"
            await self.driver.post(path, dict(act.body))
            self.controlled |= {"model", "permission_mode"}
        elif act.kind == "stop":
            (task_id,) = {m["task_id"] for m in await self._journal() if "task_id" in m}
            path = f"/v1/sessions/{self.sessions[-1]}/control"
            await self.driver.post(path, {**act.body, "task_id": task_id})
        elif act.kind == "interrupt":
            if self.watch is not None:
                await self.watch.previewed(self.scenario.held_chars)
            body = {"scope": "turn"}
            await self.driver.post(f"/v1/runs/{self.newest_run}/cancel?wait=10", body)
        else:
            await self._send(act)

    async def _answer(self, act: Act) -> None:
        page = await self.driver.get("/v1/actions", status="pending", limit=200)
        mine = [action for action in page["data"] if action["session_id"] in self.sessions]
        (asked,) = mine
        text = json.dumps(act.body).replace("<cwd>", CWD)
        await self.driver.post(f"/v1/actions/{asked['id']}/resolve", json.loads(text))

    async def shown(self) -> list[Json]:
        """Wait for all results; give the messages that clients were shown."""
        await self._until(Seen(results=len(self.scenario.turns)))
        journal = await self._journal()
        if self.watch is None or not self._includes_previews:
            return journal
        await self.watch.has_all(journal)
        return self.watch.messages

    # -- sending --------------------------------------------------------------------------

    async def _send(self, act: Act) -> None:
        prompts = [self.scenario.prompts[index] for index in act.prompts]
        start = self.scenario.starts[prompts[0].start]
        body: Json = {
            "messages": [_input_message(prompt) for prompt in prompts],
            "options": {
                **{k: v for k, v in start.options.items() if k not in self.controlled},
                "hooks": self._hooks(),
            },
        }
        if start.is_continued and prompts[0].start not in self.by_start:
            body |= {"continue_conversation": True, "workspace": self.workspace}
            sent = await self.driver.post("/v1/runs", body)
            self.by_start[prompts[0].start] = sent["session"]["id"]
            return
        if prompts[0].start not in self.by_start:
            self.by_start[prompts[0].start] = await self._session(start)
        session_id = self.by_start[prompts[0].start]
        await self._look_on(session_id)
        if prompts[0].sending == "steer":
            body["on_busy"] = "steer"
        sent = await self.driver.post(f"/v1/sessions/{session_id}/runs", body)
        is_steered = sent["steered_into"] is not None
        assert is_steered == (prompts[0].sending == "steer"), sent
        self.newest_run = sent["run"]["id"]

    def _hooks(self) -> list[Json]:
        """Give the hooks of the recording; its callbacks never saw a session start."""
        of_event = {"SessionStart": {"matcher": "compact"}}
        return [
            self.driver.hooks.hook(
                event, **of_event.get(event, {}), **({"timeout": timeout} if timeout else {})
            )
            for event, timeout in self.scenario.hooks.registered
        ]

    async def _session(self, start: Start) -> str:
        """Give the session that a start works in."""
        if start.resume:
            known = self.sessions[int(start.resume.removeprefix("session-")) - 1]
            if not start.is_fork:
                return known
            at = {"at_message": await self._first_answer()} if start.is_cut else {}
            made = await self.driver.post(f"/v1/sessions/{known}/fork", at)
        else:
            self.workspace = {"source": "directory", "path": str(self.driver.folder())}
            made = await self.driver.post("/v1/sessions", {"workspace": self.workspace})
        self.sessions.append(str(made["id"]))
        return self.sessions[-1]

    async def _first_answer(self) -> str:
        """Give the uuid of the last answer of the first turn."""
        (first, *_) = turns_of(await self._journal())
        return str(next(m["uuid"] for m in reversed(first) if m["type"] == "assistant"))

    # -- looking on -----------------------------------------------------------------------

    @property
    def _includes_previews(self) -> bool:
        return any(s.options.get("include_partial_messages") for s in self.scenario.starts)

    async def _look_on(self, session_id: str) -> None:
        """Read previews, where the scenario needs them."""
        if self.watch is None and (self._includes_previews or self.scenario.held_chars):
            self.watch = Watch(self.driver.serving.client, session_id)
            reading = asyncio.create_task(self.watch.read())
            self.stack.push_async_callback(_ended, reading)
            await asyncio.wait_for(self.watch.is_open.wait(), SHOWN_WITHIN_S)

    async def _until(self, moment: Seen) -> None:
        """Wait until as much can be seen of us as could be of the recording."""
        async with asyncio.timeout(SHOWN_WITHIN_S):
            while not await self._has_come(moment):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)  # the service tells no event of it all

    async def _has_come(self, moment: Seen) -> bool:
        if not self._has_come_to(moment, await self._journal()):
            return False
        return moment.asked == 0 or moment.asked <= await self._asked()

    async def _asked(self) -> int:
        """Give how many approvals were asked for."""
        page = await self.driver.get("/v1/actions", limit=200)
        return sum(action["session_id"] in self.sessions for action in page["data"])

    def _has_come_to(self, moment: Seen, journal: list[Json]) -> bool:
        kinds = [
            block["type"]
            for message in journal
            if message["type"] in {"assistant", "user"}
            and isinstance(message["message"]["content"], list)
            for block in message["message"]["content"]
        ]
        results = sum(message["type"] == "result" for message in journal)
        return (
            kinds.count("tool_use") >= moment.calls
            and kinds.count("tool_result") >= moment.answers
            and results >= moment.results
            and len(self.driver.messages_api.requests) >= moment.requests
        )

    async def _journal(self) -> list[Json]:
        """Give the messages of every run so far, in the order of the runs."""
        runs: list[Json] = []
        messages: list[Json] = []
        for session_id in self.sessions:
            page = await self.driver.get("/v1/runs", session_id=session_id, order="asc", limit=100)
            if any(run["origin"] == "subagent" for run in page["data"]):
                messages += await self._said(session_id)  # their messages stand among the others
            else:
                runs += page["data"]
        for run in sorted(runs, key=lambda run: (run["created_at"], run["first_seq"])):
            messages += await self._said(run["session_id"], run_id=run["id"])
        return messages

    async def _said(self, session_id: str, **of: str) -> list[Json]:
        page = await self.driver.get(f"/v1/sessions/{session_id}/events", **of)
        return [entry["data"] for entry in page["data"] if entry["kind"] == "message"]


def _input_message(prompt: Prompt) -> dict[str, Any]:
    message = {"type": "user", "message": {"role": "user", "content": prompt.text}}
    return {**message, "uuid": str(uuid.uuid4())} if prompt.has_uuid else message


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
