"""See an agent work: `make demo`, or `.venv/bin/python scripts/demo.py [--keep]`.

Everything is real and temporary: a server process on an embedded PostgreSQL, a key, a run over
HTTP, its event stream. Then that server stops, a second one takes the session up. The answers are
checked against the file that they are about. Without ANTHROPIC_API_KEY the demo model answers: a
handful of rules behind the same HTTP interface that real models have.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.text import Text
from service_process import DemoFailed, complaints, server, treadle

from app.cli.client import Client, JsonObject, address
from app.cli.failure import CliFailure, Status
from app.cli.follow import Printer, status_of
from app.cli.plain import shown
from app.cli.watching import Watch

ORDINARY_UID = 54898
"""Owns the workspace when this is root: the service takes no folder of root's."""
TOOLS = ["Glob", "Grep", "Read", "Write"]
SECOND_PROMPT = "How many was it again, and which file?"
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "kelp")

console = Console(highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Riddle:
    """A fresh file, and what is to be found out about it."""

    folder: Path
    name: str
    word: str
    count: int

    @property
    def prompt(self) -> str:
        return (
            f'Find the file {self.name}, read it, count the lines that contain "{self.word}", '
            "and write a one-paragraph summary with that count to summary.md."
        )


def make_riddle(folder: Path) -> Riddle:
    """Write a file of random lines; some hold the word."""
    word = f"{secrets.choice(WORDS)}{secrets.token_hex(2)}"
    name = f"{secrets.choice(WORDS)}-{secrets.token_hex(3)}.txt"
    count = 5 + secrets.randbelow(15)
    lines = [" ".join(secrets.choice(WORDS) for _ in range(6)) for _ in range(60)]
    for number in secrets.SystemRandom().sample(range(len(lines)), count):
        lines[number] += f" {word}"
    folder.mkdir()
    (folder / name).write_text("\n".join(lines) + "\n")
    if os.geteuid() == 0:
        for path in (folder, folder / name):
            os.chown(path, ORDINARY_UID, ORDINARY_UID)
    return Riddle(folder, name, word, count)


def tell(base: Path) -> None:
    """Do it all. Raises `DemoFailed`."""
    chapter("A server starts, with a PostgreSQL of its own")
    riddle = make_riddle(base / "files")
    with server(base, 1, step) as url:
        key = str(json.loads(treadle(base, "keys", "create", "--name", "demo", "--json"))["key"])
        step("A key is made: treadle keys create --name demo --json")
        chapter("A run, over HTTP, about a file that was just made")
        body = run_body(riddle)
        first, answer = ask(url, key, address("runs"), body)
        check_first(riddle, answer)
        step(f"Right: {riddle.count} lines of {riddle.name} contain {riddle.word!r}.")
        step(f"summary.md: {(riddle.folder / 'summary.md').read_text().strip()}")
    session_id = str(first["session_id"])
    chapter("That server is gone. A second one takes the session up")
    forget(riddle)
    with server(base, 2, step) as url:
        path = address("sessions", session_id, "runs")
        second, answer = ask(url, key, path, {"prompt": SECOND_PROMPT})
        check_second(riddle, answer)
        step("Right, and from the conversation alone.")
        report(url, key, first, second)
    chapter("The same by hand")
    console.print(Text(by_hand(body), "cyan"))


def run_body(riddle: Riddle) -> JsonObject:
    """Give the request that starts it; the default model answers when there is a key for it."""
    options = {"permission_mode": "acceptEdits", "allowed_tools": TOOLS, "max_turns": 20}
    if not (os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
        options["model"] = "demo"
    workspace = {"source": "directory", "path": str(riddle.folder)}
    return {"prompt": riddle.prompt, "options": options, "workspace": workspace}


def ask(url: str, key: str, path: str, body: JsonObject) -> tuple[JsonObject, str]:
    """Start a run and print it as it comes; give the run and its answer."""
    console.print(Text(f"» {body['prompt']}", "bold"))
    with Client(url, key) as client:
        run_id = client.post(path, body)["run"]["id"]
        printer = Printer(console)
        stream = address("runs", run_id, "stream")
        for frame in Watch(client, stream, step, previews="all").frames():
            printer.take(frame)
        if status_of(printer.result) is not Status.SUCCESS:
            raise DemoFailed("the run must end with success")
        run = client.get(address("runs", run_id))
    return run, str(run["result"]["text"])


def forget(riddle: Riddle) -> None:
    """Take the files away: what is answered now comes from the conversation."""
    for name in (riddle.name, "summary.md"):
        (riddle.folder / name).unlink()
    step(f"{riddle.name} and summary.md are deleted: the answer must come from the conversation.")


def check_first(riddle: Riddle, answer: str) -> None:
    """Compare answer and summary with the file."""
    says_count(riddle, "the answer", answer)
    summary = riddle.folder / "summary.md"
    if not summary.is_file():
        raise DemoFailed(f"the agent must have written {summary}")
    says_count(riddle, "summary.md", summary.read_text())


def check_second(riddle: Riddle, answer: str) -> None:
    """Compare what was remembered with the file that is gone."""
    says_count(riddle, "the second answer", answer)
    if riddle.name not in answer:
        raise DemoFailed(f"the second answer must name {riddle.name}; it is: {answer}")


def says_count(riddle: Riddle, what: str, text: str) -> None:
    """Raise `DemoFailed` unless a text holds the count, as a number of its own."""
    if not re.search(rf"\b{riddle.count}\b", text):
        raise DemoFailed(f"{what} must state the count {riddle.count}; it is: {text}")


def report(url: str, key: str, *runs: JsonObject) -> None:
    """Say what the runs took, by the service's own books."""
    with Client(url, key) as client:
        session = client.get(address("sessions", str(runs[0]["session_id"])))
    is_notional = all(run["options"]["model"] == "demo" for run in runs)
    for name, run in zip(("First run: ", "Second run:"), runs, strict=True):
        usage = run["usage"]
        tokens = usage["input_tokens"] + usage["cache_read_tokens"] + usage["cache_write_tokens"]
        step(
            f"{name} {run['result_subtype']}, {run['num_turns']} turns, {tokens:,} tokens in, "
            f"{usage['output_tokens']:,} out, ${run['cost']['run_usd']}"
        )
    notional = " (notional: the demo model costs nothing)" if is_notional else ""
    step(f"The session {session['id']}: ${session['cost']['session_usd']}{notional}")


def by_hand(body: JsonObject) -> str:
    """Give the commands that do the same, for a server that is started by hand."""
    shown = {name: value for name, value in body.items() if name != "workspace"}
    curl = 'curl -sS -H "Authorization: Bearer $KEY"'
    second = json.dumps({"prompt": SECOND_PROMPT})
    return f"""\
.venv/bin/treadle serve &
KEY=$(.venv/bin/treadle keys create --name me)
URL=http://127.0.0.1:8700
{curl} $URL/v1/runs -d '{json.dumps(shown)}'
{curl} -N $URL/v1/runs/RUN_ID/stream
{curl} $URL/v1/runs/RUN_ID/result
{curl} $URL/v1/sessions/SESSION_ID/runs -d '{second}'
# In a folder of yours: start the server with TREADLE_WORKSPACE__ALLOWED_ROOTS='["/srv"]', and
# add "workspace": {{"source": "directory", "path": "/srv/project"}} to the first request."""


def chapter(title: str) -> None:
    """Print what comes next."""
    console.print(Text(f"\n== {title}", "bold magenta"))


def step(text: str) -> None:
    """Print what was done."""
    console.print(shown(f"   {text}", "dim"))


@contextmanager
def workplace(*, keep: bool) -> Iterator[Path]:
    """Give a short-named temporary folder. The database in it is stopped, then it is removed."""
    parent = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108 - socket paths must be short
    base = Path(tempfile.mkdtemp(prefix="td-", dir=parent))
    base.chmod(0o711)  # the sandbox's user passes through
    try:
        yield base
    finally:
        treadle(base, "db", "stop")
        if keep:
            step(f"Kept: {base}")
        else:
            shutil.rmtree(base, ignore_errors=True)


def main() -> int:
    """Tell the story; give the exit status."""
    parser = argparse.ArgumentParser(description="See an agent work.")
    parser.add_argument("--keep", action="store_true", help="keep the data directory")
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    try:
        with workplace(keep=keep) as base:
            try:
                tell(base)
            except (DemoFailed, CliFailure):
                for complaint in complaints(base):
                    step(complaint)
                raise
    except (DemoFailed, CliFailure) as failure:
        console.print(Text(f"\nThe demo failed: {failure}", "bold red"))
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(Text(f"\nAll checks passed in {time.monotonic() - began:.0f} s.", "bold green"))
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
