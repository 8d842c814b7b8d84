"""What a host writes while it works holds no key, no prompt, no answer; and it stays small."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.stage import raw, scripted
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import KEY, HostProcess, environment, host_process

MB = 1_000_000
PROVIDER_KEY = "sk-provider-hush-hush"
SECRET = "zanzibar-prompt-text"
ANSWER = "quokka-answer-text"


def resident_bytes(pid: int, name: str) -> int:
    """Give a size of a process; `VmHWM` is the most that it ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    """Let `VmHWM` begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@pytest.fixture
async def process(make_settings: MakeSettings, scratch: Path) -> AsyncIterator[HostProcess]:
    """A host in a process of its own, with logs at the usual level."""
    settings = make_settings(model={"api_key": PROVIDER_KEY, "max_retries": 1})
    async with host_process(environment(settings), scratch / "secrets.log") as running:
        yield running


async def test_logs_of_good_and_bad_requests_hold_no_secret_and_no_prompt(
    process: HostProcess, messages_api: MessagesApi
) -> None:
    client = process.client
    for steps in (
        [{"tool": "Bash", "input": {"command": f"echo {SECRET}"}}, {"text": ANSWER}],
        [{"tool": "Read", "input": {"file_path": f"/{SECRET}"}}, {"text": ANSWER}],
        [{"http": 529, "message": f"{SECRET} is too much"}],
        [{"http": 400, "error": "invalid_request_error", "message": f"bad {SECRET}"}],
        [{"blocks": [{"text": ANSWER}], "cut": 3}],
    ):
        body = {
            "prompt": scripted(*steps, text=SECRET),
            "options": {"allowed_tools": ["Bash"], "system_prompt": SECRET},
            "session": {"title": SECRET, "metadata": {SECRET: SECRET}},
            "wait": 30,
        }
        answer = await client.post("/v1/runs", json=body)
        assert answer.status_code == 200, answer.text
    assert any(
        recorded.headers.get("x-api-key") == PROVIDER_KEY for recorded in messages_api.requests
    )
    for bad in (b"{" + SECRET.encode(), b'{"prompt": "\\u0000' + SECRET.encode() + b'"}'):
        assert (await client.post("/v1/runs", content=bad)).status_code == 400
    wrong = {"x-api-key": f"wrong-{SECRET}"}
    assert (await client.get(f"/v1/runs?key={KEY}", headers=wrong)).status_code == 401
    assert (await client.get(f"/v1/runs/{SECRET}")).status_code == 404
    assert await process.terminate() == 0

    written = process.log.read_text()
    for secret in (KEY, PROVIDER_KEY, SECRET, ANSWER):
        assert secret not in written
    records = [json.loads(line) for line in written.splitlines()]
    assert {"listening", "drain"} <= {record.get("action") for record in records}
    assert not [record for record in records if record["level"] == "ERROR"]


async def test_300_mb_are_refused_with_little_memory(process: HostProcess) -> None:
    pid = process.process.pid
    before = resident_bytes(pid, "VmRSS")
    forget_peak(pid)
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(300):
            sent += MB
            yield b" " * MB

    chunked = await process.client.post("/v1/runs", content=chunks())
    assert chunked.status_code == 413
    assert sent > 10 * MB
    claim = b"POST /v1/runs HTTP/1.1\r\nhost: x\r\nx-api-key: %s\r\ncontent-length: %d\r\n\r\n"
    status, _ = await raw(process.base_url, claim % (KEY.encode(), 300 * MB))
    assert status == 413
    assert resident_bytes(pid, "VmHWM") - before < 20 * MB
