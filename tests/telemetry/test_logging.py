"""Logs: one JSON object a record, whatever is in it."""

import json
import logging
import subprocess
import sys

import pytest

from app.telemetry.logging import JsonFormatter, run_context


def line(message: str, *args: object, **extra: object) -> str:
    record = logging.getLogger("test").makeRecord(
        "test", logging.INFO, __file__, 1, message, args, None, extra=dict(extra)
    )
    return JsonFormatter().format(record)


def test_a_record_is_one_object_on_one_line_with_time_level_and_names() -> None:
    with run_context(session_id="s", run_id="r"), run_context(request_id="q"):
        said = line("Claimed %s\nand more", "it", action="claimed", attempt=2)
    assert "\n" not in said
    found = json.loads(said)
    assert found.pop("at").endswith("+00:00")
    assert found == {
        "level": "INFO",
        "logger": "test",
        "message": "Claimed it\nand more",
        "session_id": "s",
        "run_id": "r",
        "request_id": "q",
        "action": "claimed",
        "attempt": 2,
    }


def test_names_end_with_their_block() -> None:
    with run_context(run_id="r"):
        line("x")
    assert "run_id" not in json.loads(line("x"))


@pytest.mark.parametrize(
    "value",
    [
        "\ud800 lone",
        "nul \0",
        "\u2028",
        "\x1b[31m",
        2**80,
        float("nan"),
        {1: {2, 3}},
        b"\xff",
        object(),
    ],
)
def test_no_value_is_too_strange_to_be_logged(value: object) -> None:
    for said in (line("x %s", value), line("x", value=value)):
        assert "\n" not in said
        assert json.loads(said)["level"] == "INFO"


def test_an_exception_is_a_field_of_its_record() -> None:
    try:
        int("why")
    except ValueError:
        record = logging.getLogger("test").makeRecord(
            "test", logging.ERROR, __file__, 1, "failed", (), sys.exc_info()
        )
    said = JsonFormatter().format(record)
    assert "\n" not in said
    assert "ValueError: invalid literal" in json.loads(said)["exception"]


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("text", False)])
def test_all_loggers_write_to_standard_error_in_the_chosen_form(form: str, is_json: bool) -> None:
    program = f"""
import logging
from app.telemetry.logging import set_up_logging
set_up_logging("INFO", {form!r})
logging.getLogger("somebody.else").info("said %s", "so")
logging.getLogger("somebody.else").debug("whispered")
logging.getLogger("alembic.runtime.plugins").info("set up")
logging.getLogger("asyncpg.pool").warning("still away")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    (written,) = done.stderr.splitlines()
    assert "said so" in written
    assert written.startswith("{") is is_json
