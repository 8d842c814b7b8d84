"""Our service, driven over HTTP: what a scenario needs of it."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.messages_api import MessagesApi
from tests.traces.normal import Json, Record
from tests.traces.scenario import FILES, Scenario, Start
from tests.traces.stand_ins import StandIns

FINISHED_WITHIN_S = 30


@dataclass(frozen=True, slots=True)
class HttpDriver:
    client: httpx.AsyncClient
    """With the base URL and a key."""
    messages_api: MessagesApi
    """The model of the host, used by nothing else."""
    stand_ins: StandIns
    workspaces: Path
    """A folder beneath an allowed root, which the sandbox's user can enter."""
    owner_uid: int | None
    """Who must own workspaces, when the host runs as root."""

    async def play(self, scenario: Scenario) -> Record:
        """Send each prompt to the session that its start names; give what came of it all."""
        sessions: dict[str, str] = {}
        session_of_start: dict[int, str] = {}
        messages: list[Json] = []
        for prompt in scenario.prompts:
            start = scenario.starts[prompt.start]
            if prompt.start not in session_of_start:
                session_of_start[prompt.start] = await self._session(start, sessions)
            session_id = session_of_start[prompt.start]
            messages += await self._run(session_id, prompt.text, start.options)
        return Record(messages, self.messages_api.bodies(), self.stand_ins.events)

    async def _session(self, start: Start, sessions: dict[str, str]) -> str:
        """Give the session that a start works in; note a new one under its symbolic name."""
        if start.resume and not start.is_fork:
            return sessions[start.resume]
        if start.resume:
            made = await self._post(f"/v1/sessions/{sessions[start.resume]}/fork", {})
        else:
            workspace = {"source": "directory", "path": str(self._folder())}
            made = await self._post("/v1/sessions", {"workspace": workspace})
        return sessions.setdefault(f"session-{len(sessions) + 1}", str(made["id"]))

    async def _run(self, session_id: str, prompt: str, options: Mapping[str, Any]) -> list[Json]:
        """Run a prompt to its result; give the messages of that run, in journal order."""
        body = {"prompt": prompt, "options": dict(options)}
        run_id = (await self._post(f"/v1/sessions/{session_id}/runs", body))["run"]["id"]
        run = await self._get(f"/v1/runs/{run_id}", wait=FINISHED_WITHIN_S)
        assert run["status"] == "finished", run
        page = await self._get(f"/v1/sessions/{session_id}/events", run_id=run_id, limit=1000)
        assert not page["has_more"]
        return [entry["data"] for entry in page["data"] if entry["kind"] == "message"]

    def _folder(self) -> Path:
        folder = self.workspaces / secrets.token_hex(8)
        folder.mkdir()
        for name, content in FILES.items():
            (folder / name).write_text(content)
        for path in (folder, *folder.iterdir()):
            if self.owner_uid is not None:
                os.chown(path, self.owner_uid, self.owner_uid)
        return folder

    async def _post(self, path: str, body: Json) -> Json:
        answer = await self.client.post(path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())

    async def _get(self, path: str, **query: int | str) -> Json:
        answer = await self.client.get(path, params=query, timeout=2 * FINISHED_WITHIN_S)
        assert answer.is_success, answer.text
        return dict(answer.json())
