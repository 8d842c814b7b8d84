"""Our service plays the scenarios of the golden traces and does what they say.

`TREADLE_TRACE_JOURNALS` may name a folder, into which the journal of each scenario is written.
"""

import json
import os
from pathlib import Path

import pytest

from tests.traces.compare import disagreements
from tests.traces.http_driver import HttpDriver
from tests.traces.normal import Record
from tests.traces.scenario import read_trace, scenario_of, trace_names
from tests.wire_schemas import schemas_of

# Read here, since tests themselves run without the developer's environment.
JOURNALS = os.environ.get("TREADLE_TRACE_JOURNALS")


CRASHES = [name for name in trace_names() if name.startswith("crash_") or name == "store_basic"]


@pytest.mark.requirement("engine:traces")
@pytest.mark.requirement("stream:previews")
@pytest.mark.parametrize("name", [name for name in trace_names() if name not in CRASHES])
async def test_our_journal_and_our_requests_agree_with_the_trace(
    name: str, driver: HttpDriver
) -> None:
    await compare(name, driver)


@pytest.mark.requirement("engine:crash-traces")
@pytest.mark.parametrize("name", CRASHES)
async def test_what_another_host_makes_of_a_killed_ones_run_agrees_with_the_trace(
    name: str, mortal_driver: HttpDriver
) -> None:
    await compare(name, mortal_driver)


async def compare(name: str, driver: HttpDriver) -> None:
    lines = read_trace(name)
    record = await driver.play(scenario_of(lines))
    if JOURNALS:
        keep(Path(JOURNALS) / f"{name}.jsonl", record)
    for message in record.messages:
        fitting = schemas_of(message)
        assert len(fitting) == 1, (fitting, message)
    if departures := disagreements(lines, record):
        pytest.fail("\n  ".join((f"{name} departs from its trace:", *departures)), pytrace=False)


def keep(path: Path, record: Record) -> None:
    path.write_text("".join(f"{json.dumps(message)}\n" for message in record.messages))
