"""What a cancel stopped, as far as it is known when the client has waited long enough."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.runs.cancelling import Cancelled
from app.runs.queries import Queries
from app.store.runs import RunRow, finished_event


@dataclass(frozen=True, slots=True)
class Settled:
    """A cancelled run after the wait."""

    run: RunRow
    is_already_finished: bool
    stopped: Mapping[str, Any] = field(default_factory=dict)
    """`tools`, `tasks`, `processes`, `model_request`; empty when nothing was under way."""


async def settle(
    queries: Queries, tenant_id: str, cancelled: Sequence[Cancelled], *, wait_s: float
) -> list[Settled]:
    """Wait until all of them have ended, `wait_s` in all; give what each one stopped.

    Without a wait they are as the cancel itself left them.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    settled: list[Settled] = []
    for one in cancelled:
        run = one.run
        if run.status != "finished" and wait_s:
            run = await queries.finished_run(tenant_id, run.id, max(0.0, until - loop.time()))
        stopped = await _stopped(queries, tenant_id, run)
        settled.append(Settled(run, one.is_already_finished, stopped))
    return settled


async def _stopped(queries: Queries, tenant_id: str, run: RunRow) -> Mapping[str, Any]:
    if run.status != "finished":
        return {}
    body = await finished_event(queries.database, tenant_id, run)
    stopped: Mapping[str, Any] = orjson.loads(body).get("stopped", {}) if body else {}
    return stopped
