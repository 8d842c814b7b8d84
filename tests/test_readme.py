"""The README is true: its commands run, its tables are complete, its links lead somewhere."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from app.api.schemas.run_bodies import PromptBody
from app.main import openapi_document
from tests.hosts import Host

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text()
PAGES = {
    path.relative_to(CHECKOUT).as_posix(): path.read_text()
    for path in (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md")))
}
ENV_EXAMPLE = (CHECKOUT / ".env.example").read_text()
JSON_BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_THE_PROGRAM = {"TREADLE_URL", "TREADLE_KEY"}


def section(title: str) -> str:
    _, _, rest = README.partition(f"\n## {title}\n")
    assert rest, f"there is no section {title!r}"
    return "\n".join(takewhile(lambda line: not line.startswith("## "), rest.splitlines())) + "\n"


async def test_the_quickstart_does_what_it_says(service: Host, database_url: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("this machine has no curl, which the quickstart uses")
    lines = "".join(BLOCK.findall(section("Quickstart"))).splitlines()
    assert "treadle serve" in lines
    left_out = ("make ", "treadle serve")  # checked below; the server is the fixture
    script = "\n".join(line for line in lines if not line.startswith(left_out))
    script = script.replace("http://127.0.0.1:8700", service.base_url)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=CHECKOUT,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "DATABASE_URL": database_url,
            "TREADLE_URL": service.base_url,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode() + out.decode()
    assert b"event: end" in out
    assert b'"subtype":"success"' in out
    runs = (await service.client.get("/v1/runs", params={"order": "asc"})).json()["data"]
    assert [run["result_subtype"] for run in runs] == ["success"] * 4
    texts = [run["result"]["text"] for run in runs]
    assert "hello.txt" in texts[0]
    assert "hello.txt" in texts[1]
    assert texts[3] == "hello.txt has 1 word."


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make (\w+)$", README, re.MULTILINE))))
def test_every_make_target_exists(target: str) -> None:
    command = ["make", "--dry-run", target]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_in_a_shell_block_is_one_that_a_test_runs() -> None:
    outside = README.replace(section("Quickstart"), "")
    lines = "".join(BLOCK.findall(outside)).splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("make ")] == []


def test_the_table_of_endpoints_is_the_contract() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| `([^`]+)` \|", section("Endpoints"), re.MULTILINE)
    paths = openapi_document()["paths"]
    there = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert sorted(rows) == sorted(there)


@pytest.mark.parametrize("page", PAGES)
def test_every_variable_is_one_that_is_read(page: str) -> None:
    pattern = r"`((?:TREADLE|ANTHROPIC|DATABASE)_[A-Z_]+)`"
    names = set(re.findall(pattern, PAGES[page])) - OF_THE_PROGRAM
    assert [name for name in sorted(names) if f"#{name}=" not in ENV_EXAMPLE] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page: str) -> None:
    folder = (CHECKOUT / page).parent
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[page])
    assert [target for target in targets if not (folder / target).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_body_in_an_example_is_one_that_is_taken(page: str) -> None:
    for block in JSON_BLOCK.findall(PAGES[page]):
        body = json.loads(block)
        if "prompt" in body:
            PromptBody.model_validate(body)


def test_the_quickstart_sets_a_mode_and_names_the_tools() -> None:
    (body,) = re.findall(r"-d '(\{\n  \"prompt\": \"Write.*?\n\})'", README, re.DOTALL)
    options = json.loads(body)["options"]
    assert options["permission_mode"] == "acceptEdits"
    assert options["allowed_tools"]
