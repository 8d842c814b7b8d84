import asyncio
import socket
import sys

import pytest

from tests.cli.conftest import Run

COMMANDS = [
    ["serve"],
    ["api"],
    ["worker"],
    ["migrate"],
    ["keys", "create"],
    ["run"],
    ["tail"],
    ["sessions"],
    ["sessions", "fork"],
    ["runs"],
    ["runs", "cancel"],
    ["runs", "result"],
    ["cost"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_help_teaches_by_example(bare: Run, command: list[str]) -> None:
    done = await bare(*command, "--help")
    assert done.status == 0
    assert "For example:" in done.out
    assert f"treadle {command[0]}" in done.out.split("For example:")[1]


async def test_help_lists_every_command(bare: Run) -> None:
    done = await bare("--help")
    names = "serve api worker migrate keys db run tail sessions runs cost"
    assert all(f" {name} " in done.out for name in names.split())


async def test_without_a_key_the_way_to_one_is_told(bare: Run) -> None:
    done = await bare("run", "hi")
    assert done.status == 2
    assert "treadle keys create" in done.err


async def test_without_a_server_the_way_to_one_is_told(bare: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    done = await bare("run", "hi", "--url", f"http://127.0.0.1:{port}", "--key", "k")
    assert done.status == 3
    assert f"127.0.0.1:{port}" in done.err
    assert "treadle serve" in done.err


async def test_another_program_at_the_address_is_recognised(bare: Run) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await bare("runs", "--url", f"http://127.0.0.1:{port}", "--key", "k")
    assert done.status == 2
    assert "not as a Treadle server" in done.err


@pytest.mark.parametrize("budget", ["NaN", "0", "-1", "much", "Infinity"])
async def test_a_budget_that_is_no_amount_is_a_usage_error(bare: Run, budget: str) -> None:
    done = await bare("run", "hi", f"--budget={budget}", "--key", "k")
    assert done.status == 2
    assert "amount" in done.err


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["keys", "list"], ["migrate"]])
async def test_settings_that_cannot_work_end_with_status_2_and_their_name(
    bare: Run, command: list[str]
) -> None:
    done = await bare(*command, environment={"TREADLE_ENGINE__LEASE_S": "soon"})
    assert done.status == 2
    assert "TREADLE_ENGINE__LEASE_S" in done.err


async def test_an_unreachable_database_ends_with_status_2_and_what_to_check(bare: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {
        "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{port}/none",
        "TREADLE_DATABASE__CONNECT_S": "0.2",
    }
    for command in (["keys", "create", "--name", "x"], ["migrate"]):
        done = await bare(*command, environment=environment)
        assert done.status == 2
        assert "DATABASE_URL" in done.err


async def test_commands_that_are_clients_start_without_the_server_s_parts() -> None:
    code = "import sys, app.cli.program; print('fastapi' in sys.modules or 'sqlalchemy' in sys.modules)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out == b"False\n"
