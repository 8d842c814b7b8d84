"""The life of a run is the table in `app.domain.runs`, whatever is done to the real store.

A trigger, here in the test alone, notes every change of a run's status inside the database: what
no reader sees, and what hosts do at the same time, included.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias, get_args

import pytest

from app.domain.runs import TRANSITIONS, RunEvent, RunStatus, after
from app.errors import LeaseLost
from tests.contracts.engine_seam import A, B, Pen
from tests.contracts.engine_walk import Walk
from tests.store.real_store import RealStore, real_store
from tests.store.seeds import dice, rows

STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
EVENTS: tuple[RunEvent, ...] = get_args(RunEvent)

ALLOWED = {(old, new) for (old, _), new in TRANSITIONS.items() if old != new}

NOTE_CHANGES = """
CREATE TABLE noted (n bigserial, run_id text, old_status text, new_status text);
CREATE FUNCTION note_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO noted (run_id, new_status) VALUES (NEW.id, NEW.status);
  ELSIF NEW.status <> OLD.status THEN
    INSERT INTO noted (run_id, old_status, new_status) VALUES (NEW.id, OLD.status, NEW.status);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER note_status AFTER INSERT OR UPDATE ON runs
  FOR EACH ROW EXECUTE FUNCTION note_status();
"""


Change: TypeAlias = tuple[str | None, str]


async def noted(store: RealStore) -> dict[str, list[Change]]:
    """Give every change of each run's status, oldest first."""
    changes: dict[str, list[Change]] = {}
    for row in await rows(store.database, "SELECT * FROM noted ORDER BY n"):
        change = (row["old_status"], row["new_status"])
        # A run that is claimed in the statement that inserts it was queued for no time.
        is_on_the_spot = change == (None, "running")
        seen = [(None, "queued"), ("queued", "running")] if is_on_the_spot else [change]
        changes.setdefault(row["run_id"], []).extend(seen)
    return changes


def expected(events: Sequence[RunEvent]) -> list[Change]:
    """Give the changes of status that a life leads to."""
    statuses = [after(None, *events[: n + 1]) for n in range(len(events))]
    return [(old, new) for old, new in zip([None, *statuses], statuses, strict=False) if old != new]


# -- the table --------------------------------------------------------------------------------


def test_nothing_leaves_finished() -> None:
    for event in EVENTS:
        with pytest.raises(ValueError, match="a run that is finished cannot be"):
            after("finished", event)


def test_what_the_table_does_not_have_cannot_happen() -> None:
    for status in (None, *STATUSES):
        for event in EVENTS:
            if (status, event) in TRANSITIONS:
                assert after(status, event) == TRANSITIONS[status, event]
            else:
                with pytest.raises(ValueError, match=f"cannot be {event}"):
                    after(status, event)
    with pytest.raises(ValueError, match="nothing happened"):
        after(None)


def test_every_status_is_reached_and_from_each_the_run_can_finish() -> None:
    assert set(TRANSITIONS.values()) == set(STATUSES)
    assert {event for _, event in TRANSITIONS} == set(EVENTS)
    can_finish: set[RunStatus | None] = {"finished"}
    for _ in STATUSES:
        can_finish |= {old for (old, _), new in TRANSITIONS.items() if new in can_finish}
    assert can_finish == {None, *STATUSES}


# -- the store --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100, 104))
async def test_the_store_changes_a_status_as_the_table_says_and_not_otherwise(
    database_url: str, seed: int
) -> None:
    async with real_store(database_url) as store:
        await store.database.raw.execute(NOTE_CHANGES)
        walk = Walk(store, dice(seed))
        await walk.go(150)
        changes = await noted(store)
        assert set(changes) == set(walk.lives)
        for tenant_id, _, run_id in walk.runs:
            life = walk.lives[run_id]
            claims = sum(event in {"claimed", "taken_over"} for event in life)
            run = await store.run(tenant_id, run_id)
            assert (run.status, run.attempt) == (after(None, *life), claims), life
            assert changes[run_id] == expected(life), life


async def test_hosts_that_do_everything_at_once_make_no_other_change(database_url: str) -> None:
    async with real_store(database_url) as store:
        await store.database.raw.execute(NOTE_CHANGES)
        pen = Pen(store)
        sessions = [await pen.session() for _ in range(3)]
        await asyncio.gather(*(_bustle(pen, sessions, dice(seed)) for seed in range(4)))
        changes = await noted(store)
        found = Counter(change for life in changes.values() for change in life)
        assert set(found) <= ALLOWED
        assert {("running", "queued"), ("queued", "finished"), ("running", "finished")} <= set(
            found
        )  # else little happened
        for life in changes.values():
            assert [old for old, _ in life] == [None, *(new for _, new in life)][:-1]
            assert all(new != "finished" for _, new in life[:-1])


async def _bustle(pen: Pen, sessions: list[str], chance: random.Random) -> None:
    """Do things to runs that others do things to."""
    for _ in range(60):
        session_id = chance.choice(sessions)
        if chance.random() < 0.5:
            await _removed_soon(pen, session_id)
        claim = await pen.store.claim(chance.choice((A, B)))
        if chance.random() < 0.2:
            await pen.store.pass_time(110)
        if claim is None:
            continue
        if chance.random() < 0.3:
            await pen.store.release(claim.lease)
        try:
            await pen.store.append(claim.lease, pen.last(claim.lease))
        except LeaseLost:
            continue


async def _removed_soon(pen: Pen, session_id: str) -> None:
    run = pen.new_run()
    await pen.store.enqueue("default", session_id, run, queue_limit=1000, host=None)
    await pen.cancelled_unstarted(session_id, run.id)


async def test_a_change_that_the_table_does_not_have_is_noticed(database_url: str) -> None:
    async with real_store(database_url) as store:
        await store.database.raw.execute(NOTE_CHANGES)
        pen = Pen(store)
        claim = await pen.begun()
        await store.append(claim.lease, pen.last(claim.lease))
        await store.database.raw.execute("UPDATE runs SET status = 'running'")
        (life,) = (await noted(store)).values()
        assert set(life) - ALLOWED == {("finished", "running")}
