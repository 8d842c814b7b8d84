"""No container engine runs here: the image's own commands are run outside of one."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from app.settings.settings import PLAIN_NAMES
from tests.chaos.postgres import free_port

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(scratch: Path) -> Path:
    """What the image's build stage makes."""
    destination = scratch / "image"
    path = os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]])
    subprocess.run(
        ["sh", ROOT / "deploy/build.sh", ROOT, destination],
        check=True,
        env=os.environ | {"PATH": path},
    )
    return destination


@pytest.mark.timeout(300)
async def test_what_the_image_builds_serves_and_is_healthy(
    built: Path, scratch: Path, database_url: str
) -> None:
    environment = {
        "PATH": f"{built}/bin:/usr/bin:/bin",
        "DATABASE_URL": database_url,
        "TREADLE_DATA_DIR": str(scratch / "image-data"),
        "TREADLE_AUTH__BOOTSTRAP_KEY": "k" * 32,
    }
    port = free_port()  # the usual one may be a server's on this machine
    process = await asyncio.create_subprocess_exec(
        built / "bin/treadle", "serve", "--port", str(port), env=environment, cwd="/"
    )
    try:
        check = [word.replace(":8700/", f":{port}/") for word in _health_check()]
        async with asyncio.timeout(60):
            while True:
                tried = await asyncio.create_subprocess_exec(
                    *check, stderr=asyncio.subprocess.DEVNULL
                )
                if await tried.wait() == 0:
                    break
                assert process.returncode is None
                await asyncio.sleep(0.2)
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0


def test_the_image_runs_as_an_ordinary_user_with_a_command_that_exists(built: Path) -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert any(line.startswith("USER ") and "root" not in line for line in lines)
    entry = next(line for line in lines if line.startswith("ENTRYPOINT"))
    command = next(line for line in lines if line.startswith("CMD [") and "serve" in line)
    words = [*_words(entry), *_words(command)]
    shown = subprocess.run(
        [built / "bin" / words[0], words[1], "--help"], check=True, capture_output=True, text=True
    )
    assert all(option in shown.stdout for option in words if option.startswith("--"))


def test_the_compose_file_hands_on_a_provider_and_the_readme_names_what_it_needs() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    services = yaml.safe_load(text)["services"]
    for replica in ("replica-a", "replica-b"):
        given = services[replica]["environment"]
        provider = [name for name in PLAIN_NAMES if name.startswith("ANTHROPIC_")]
        assert [given[name] for name in provider] == [f"${{{name}:-}}" for name in provider]
    before, _, _ = (ROOT / "README.md").read_text().partition("make up\n")
    for needed in re.findall(r"\$\{(\w+):\?", text):
        assert f"`{needed}`" in before.rpartition("\n\n```sh\n")[0].rpartition("\n\n")[2]


def _health_check() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [sys.executable, *_words(next(ln for ln in lines if "urllib" in ln))[1:]]


def _words(line: str) -> list[str]:
    inside = line[line.index("[") + 1 : line.rindex("]")]
    return [word.strip(",") for word in shlex.split(inside)]
