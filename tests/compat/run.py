"""`make test-compat`: what our service says is parsed by the Claude Agent SDK itself.

    python tests/compat/run.py [JOURNALS]

Makes an environment of its own with the SDK's source distribution, lets the trace tests write
their journals, unless JOURNALS is where they have just written them, starts a host, and runs
`check.py` over both. Ends what it started.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

CHECKOUT = Path(__file__).resolve().parents[2]
ENVIRONMENT = CHECKOUT / ".venv-compat"
PYTHON = ENVIRONMENT / "bin" / "python"
BUILD = CHECKOUT / "requirements" / "compat-build.txt"
SDK = CHECKOUT / "requirements" / "compat.txt"
STARTS_WITHIN_S = 60


def main() -> int:
    make_environment()
    folder = Path(tempfile.mkdtemp(prefix="trc-"))
    folder.chmod(0o755)  # the sandbox's user passes through
    try:
        tested = 0
        if sys.argv[1:]:
            journals = Path(sys.argv[1])
        else:
            journals = folder / "journals"
            journals.mkdir()
            tested = write_journals(journals)
        with scripted_model() as model_url, host(folder, model_url) as (base_url, key):
            live = ["--live", base_url, "--key", key]
            checked = run([str(PYTHON), "tests/compat/check.py", str(journals), *live])
        return tested or checked
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_environment() -> None:
    """Install the SDK from its source, by hashes; keep what is there if nothing changed.

    The source is built with the build tools of the first file, not with newer ones.
    """
    wanted = hashlib.sha256(BUILD.read_bytes() + SDK.read_bytes()).hexdigest()
    stamp = ENVIRONMENT / ".ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"making {ENVIRONMENT.name} from the locked requirements")
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip.append("--require-hashes")
    for arguments in (["-r", str(BUILD)], ["--no-build-isolation", "-r", str(SDK)]):
        subprocess.run([*pip, *arguments], cwd=CHECKOUT, check=True)
    stamp.write_text(wanted)


def write_journals(journals: Path) -> int:
    """Run the trace tests; give their exit status."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "3", "tests/traces/test_traces.py"]
    return run(pytest, {"TREADLE_TRACE_JOURNALS": str(journals)})


@contextmanager
def scripted_model() -> Iterator[str]:
    """Run the scripted Messages API; give its base URL."""
    command = [sys.executable, "-m", "tests.fakes.messages_api", "--record", "false"]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(process.stdout.readline())["base_url"] if process.stdout else ""
        finally:
            process.terminate()


@contextmanager
def host(folder: Path, model_url: str) -> Iterator[tuple[str, str]]:
    """Run a host on a Postgres of its own; give its base URL and a key."""
    key = secrets.token_urlsafe(32)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in FOREIGN},
        "TREADLE_DATA_DIR": str(folder / "data"),
        "TREADLE_AUTH__BOOTSTRAP_KEY": key,
        "TREADLE_STREAM__TOOL_PROGRESS_S": "0.3",
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "any",
    }
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "app", "serve", "--port", str(port)]
    log = folder / "host.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=sink, stderr=subprocess.STDOUT
        )
    try:
        base_url = f"http://127.0.0.1:{port}"
        wait_until_ready(base_url, process, log)
        yield base_url, key
    finally:
        process.terminate()
        process.wait(STARTS_WITHIN_S)
        run([sys.executable, "-m", "app", "db", "stop"], environment)


FOREIGN = ("DATABASE_URL", "ANTHROPIC_AUTH_TOKEN")
"""Settings of the developer that would lead elsewhere."""


def wait_until_ready(base_url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(URLError):  # also what is not ready yet: it answers 503
            urlopen(f"{base_url}/readyz").close()  # noqa: S310 - our own address
            return
        time.sleep(0.1)
    raise SystemExit(f"the host did not start:\n{log.read_text()[-3000:]}")


def run(command: list[str], environment: Mapping[str, str] | None = None) -> int:
    merged = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=CHECKOUT, env=merged, check=False).returncode


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
