"""Runs as a client starts and awaits them."""

import json
from typing import Any

import httpx


def scripted(*steps: object, text: str = "Do it.") -> str:
    """A prompt that says what the scripted Messages API answers."""
    return f"{text} <<script {json.dumps(steps)} >>"


def bash(command: str, **given: object) -> dict[str, Any]:
    """A step of a script: the model runs a command."""
    return {"tool": "Bash", "input": {"command": command, **given}}


async def start(
    client: httpx.AsyncClient, prompt: str, *, session_id: str | None = None, **options: Any
) -> dict[str, Any]:
    """Start a run, in a new session or in a given one."""
    path = "/v1/runs" if session_id is None else f"/v1/sessions/{session_id}/runs"
    answer = await client.post(path, json={"prompt": prompt, "options": options})
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()["run"]
    return run


async def finished(client: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    """Wait for a run's end; give the run."""
    answer = await client.get(f"/v1/runs/{run_id}", params={"wait": 30})
    run: dict[str, Any] = answer.json()
    assert run["status"] == "finished", answer.text
    return run


async def messages(client: httpx.AsyncClient, session_id: str) -> list[dict[str, Any]]:
    """Give a session's transcript."""
    answer = await client.get(f"/v1/sessions/{session_id}/messages", params={"limit": 1000})
    found: list[dict[str, Any]] = answer.json()["data"]
    return found
