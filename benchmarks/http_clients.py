"""Which HTTP client under the model client? CPU of our process, streams at once, TLS, cancels.

    python -m benchmarks.http_clients [--quick] [--plain]

The scripted Messages API runs as a process of its own, so that only the client's CPU counts.
Every contender carries the whole `AnthropicModel`: encoding, parsing, and the response.
Figures of docs/adr/0007-the-model-client.md come from here.
"""

import argparse
import asyncio
import json
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, process_time

import httpx
import orjson
import uvloop

from app.domain.model import ContextMessage, ModelRequest, StreamPart
from app.errors import ModelError
from app.providers.anthropic import AnthropicModel, Timeouts
from app.providers.pool import model_transport

BODY_CHARS = 20_000
EVENTS = 2_000
ANSWER = {"deltas": 10, "delay": 0.3}
CASE_LIMIT_S = 25.0
"""A contender that takes longer for one case is stopped there, and for larger ones not asked."""


@dataclass
class Contender:
    """One way to do HTTP. `transports` are made on demand and closed at the end."""

    name: str
    ca_file: str | None
    transports: list[httpx.AsyncBaseTransport] = field(default_factory=list)
    free: list[httpx.AsyncBaseTransport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = ssl.create_default_context(cafile=self.ca_file)

    def _new(self) -> httpx.AsyncBaseTransport:
        if self.name == "httpx over aiohttp":
            return model_transport(ca_file=self.ca_file)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncHTTPTransport(verify=self.context, trust_env=False, limits=limits)

    @contextmanager
    def transport(self) -> Iterator[httpx.AsyncBaseTransport]:
        """Lend one: the shared one, or one of the free list."""
        if self.name == "httpx, free list":
            transport = self.free.pop() if self.free else self._made()
            try:
                yield transport
            finally:
                self.free.append(transport)
        else:
            yield self.transports[0] if self.transports else self._made()

    def _made(self) -> httpx.AsyncBaseTransport:
        transport = self._new()
        self.transports.append(transport)
        return transport

    async def aclose(self) -> None:
        for transport in self.transports:
            await transport.aclose()


CONTENDERS = ("httpx, one client", "httpx, free list", "httpx over aiohttp")


def request(step: Mapping[str, object]) -> ModelRequest:
    texts = ("x" * BODY_CHARS, f"<<script {json.dumps([step])} >>")
    blocks = tuple(orjson.dumps({"type": "text", "text": text}) for text in texts)
    return ModelRequest("bench", 1_000, ("s",), (), (ContextMessage("user", blocks),))


async def ask(
    contender: Contender,
    base_url: str,
    step: Mapping[str, object],
    streaming: asyncio.Event | None = None,
) -> int:
    """Run one request to its end; give the number of its events. `streaming`: set at the first."""
    events = 0

    def hear(_: StreamPart) -> None:
        nonlocal events
        events += 1
        if streaming is not None:
            streaming.set()

    with contender.transport() as transport:
        model = AnthropicModel(
            transport=transport, base_url=base_url, timeouts=Timeouts(30, 60, 60)
        )
        await model.respond(request(step), hear)
    return events


async def at_once(contender: Contender, base_url: str, streams: int) -> float | None:
    """Give CPU ms a request with so many streams at once, connections being warm."""
    rounds = 40 if streams == 1 else 3
    step = dict(ANSWER, delay=0) if streams == 1 else ANSWER
    started = 0.0
    try:
        async with asyncio.timeout(CASE_LIMIT_S):
            for n in range(rounds + 1):
                if n == 1:  # the first round opened the connections
                    started = process_time()
                async with asyncio.TaskGroup() as group:
                    for _ in range(streams):
                        group.create_task(ask(contender, base_url, step))
    except (TimeoutError, ExceptionGroup) as error:
        print(f"  {contender.name}, {streams} at once: stopped ({error!r:.60})", file=sys.stderr)
        return None
    return (process_time() - started) / (rounds * streams) * 1e3


async def an_event(contender: Contender, base_url: str) -> float:
    """Give CPU us an event of one long answer."""
    await ask(contender, base_url, {"text": "warm"})
    started, events = process_time(), 0
    for _ in range(10):
        events += await ask(contender, base_url, {"deltas": EVENTS})
    return (process_time() - started) / events * 1e6


async def cancelled(contender: Contender, base_url: str, streams: int) -> tuple[float, float]:
    """Cancel streams in the middle; give CPU ms each, and ms until the server saw them go.

    Each pays for its own connection: a cancelled one cannot be used again.
    """
    async with httpx.AsyncClient(base_url=base_url, verify=contender.context) as control:
        before = await _disconnected(control)
        started = process_time()
        flags = [asyncio.Event() for _ in range(streams)]
        step = {"deltas": 100, "stall": 50}
        tasks = [asyncio.create_task(ask(contender, base_url, step, flag)) for flag in flags]
        async with asyncio.timeout(CASE_LIMIT_S):
            await asyncio.gather(*(flag.wait() for flag in flags))
        spent = process_time() - started
        began, started = monotonic(), process_time()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        spent += process_time() - started
        while await _disconnected(control) - before < streams:
            if monotonic() - began > 10:
                raise ModelError(f"{contender.name}: connections stayed open", category="unknown")
            await asyncio.sleep(0.005)
        return spent / streams * 1e3, (monotonic() - began) * 1e3


async def _disconnected(control: httpx.AsyncClient) -> int:
    answer = await control.get("/_disconnected")
    return int(answer.text)


async def measure(name: str, base_url: str, ca: str | None, sizes: list[int]) -> list[str]:
    cells: list[str] = []
    async with aclosing(Contender(name, ca)) as contender:
        for streams in sizes:
            # What collapsed at one size is not asked at a larger one.
            gone = bool(cells) and cells[-1] == "-"
            ms = None if gone else await at_once(contender, base_url, streams)
            cells.append("-" if ms is None else f"{ms:.2f}")
    async with aclosing(Contender(name, ca)) as contender:
        cells.append(f"{await an_event(contender, base_url):.1f}")
        cpu_ms, gone_ms = await cancelled(contender, base_url, 50)
    return [*cells, f"{cpu_ms:.2f}", f"{gone_ms:.0f}"]


@asynccontextmanager
async def server(cert: Path | None, key: Path | None) -> AsyncGenerator[str]:
    command = [sys.executable, "-m", "tests.fakes.messages_api", "--record", "false"]
    if cert is not None:
        command += ["--cert", str(cert), "--key", str(key)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())["base_url"]
    finally:
        process.terminate()
        await process.wait()


def certificate(folder: Path) -> tuple[Path, Path] | None:
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def with_ratio(value: str, base: str) -> str:
    if "-" in (value, base):
        return value
    return f"{value} ({float(value) / float(base):.1f}x)"


def table(rows: dict[str, list[str]], sizes: list[int]) -> str:
    head = ["client", *(f"{n} at once" for n in sizes), "us an event"]
    head += ["cancelled: CPU ms", "server sees it, ms"]
    base = rows["httpx over aiohttp"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, cells in rows.items():
        shown = [with_ratio(value, ref) for value, ref in zip(cells, base, strict=True)]
        lines.append(f"| {name} | {' | '.join([*shown[:-1], cells[-1]])} |")
    return "\n".join(lines)


async def run(*, quick: bool, tls: bool) -> None:
    sizes = [1, 50, 200] if quick else [1, 50, 200, 500]
    with tempfile.TemporaryDirectory() as folder:
        pair = certificate(Path(folder)) if tls else None
        if tls and pair is None:
            print("no openssl here: plain HTTP")
        cert, key = pair or (None, None)
        ca = str(cert) if cert else None
        rows = {}
        async with server(cert, key) as base_url:
            for name in CONTENDERS:
                rows[name] = await measure(name, base_url, ca, sizes)
        kind = "TLS" if cert else "plain"
        print(f"CPU ms a request ({kind}; {BODY_CHARS // 1000} kB body, 10 deltas after 0.3 s):\n")
        print(table(rows, sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare HTTP clients for model calls.")
    parser.add_argument("--quick", action="store_true", help="no 500 streams; under 40 s")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    arguments = parser.parse_args()
    uvloop.run(run(quick=arguments.quick, tls=not arguments.plain))


if __name__ == "__main__":
    main()
