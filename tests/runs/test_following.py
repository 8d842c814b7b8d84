"""What a run begins with that follows another by itself: as clients have changed it meanwhile."""

from typing import Any

from app.runs.background import Background
from app.store.append import append
from app.store.beside import take_orphans
from app.store.engine import Database
from app.store.leases import Lease
from app.store.session_edits import edit_next_options, followed_runs
from app.store.waiting import Edit, edit_run
from app.tools.shells import Shells
from tests.runs.test_crew import Parts, crew_of, kept_by_b, launched
from tests.store.seeds import B, begun, enqueue, last_batch, rows, until
from tests.store.test_queue import finish_unstarted


async def followed(database: Database, lease: Lease) -> list[tuple[str, bool]]:
    async with database.begin() as connection:
        found = await followed_runs(connection, *lease.session)
    return [(run.id, run.is_finished) for run in found]


async def test_a_run_is_followed_by_itself_where_something_goes_on_in_its_background(
    database: Database,
) -> None:
    plain = await begun(database)
    assert await followed(database, plain.lease) == [(plain.lease.run_id, False)]
    await append(database, plain.lease, last_batch(plain))
    assert await followed(database, plain.lease) == []
    claim = await launched(database)
    await append(database, claim.lease, last_batch(claim))
    assert await followed(database, claim.lease) == [(claim.lease.run_id, True)]


async def test_a_run_that_was_cancelled_unstarted_is_followed_by_none_also_after_a_takeover(
    database: Database,
) -> None:
    claim = await launched(database)
    waiting, _ = await enqueue(database, claim.lease.session_id)
    assert await followed(database, claim.lease) == [(claim.lease.run_id, False), (waiting, False)]
    await append(database, claim.lease, last_batch(claim))
    assert await finish_unstarted(database, claim.lease.session_id, waiting) is not None
    assert await followed(database, claim.lease) == [(claim.lease.run_id, True)]
    found = await take_orphans(database, B)
    assert found is not None
    assert found.lease.run_id == claim.lease.run_id


async def test_what_is_changed_after_a_takeover_counts_for_the_run_that_follows(
    database: Database,
) -> None:
    claim = await launched(database)
    run_id = claim.lease.run_id
    await database.raw.execute(
        """UPDATE runs SET options = '{"max_budget_usd": "1"}' WHERE id = $1""", run_id
    )
    await append(database, claim.lease, last_batch(claim))
    async with kept_by_b(database) as keeper:
        found = await take_orphans(database, B)
        assert found is not None
        async with database.begin() as connection:
            changed = {"permission_mode": "plan", "max_budget_usd": "9"}
            await edit_next_options(connection, claim.lease.tenant_id, run_id, changed)
        await keeper.adopt(found, Background(Shells(), crew_of(database, found.lease, Parts())))

        async def follows() -> list[dict[str, Any]]:
            return await rows(
                database,
                "SELECT options, parent_run_id FROM runs WHERE origin = $1",
                "task-notification",
            )

        await until(follows, within_s=5)
        (run,) = await follows()
    assert run["parent_run_id"] == run_id
    assert '"permission_mode": "plan"' in run["options"]
    assert '"max_budget_usd": "1.0' in run["options"]  # what is left of the one before


async def test_what_a_waiting_run_is_changed_to_counts_for_its_follower_too(
    database: Database,
) -> None:
    claim = await begun(database)
    waiting, _ = await enqueue(database, claim.lease.session_id)
    tenant_id, session_id = claim.lease.session
    edit = Edit({"max_turns": 3, "model": "m"}, {"max_turns": 3}, {}, 0)
    async with database.begin() as connection:
        await edit_run(connection, tenant_id, session_id, waiting, edit)
        (_, before) = await followed_runs(connection, tenant_id, session_id)
        await edit_next_options(connection, tenant_id, waiting, {"model": "n", "max_turns": 5})
        await edit_run(connection, tenant_id, session_id, waiting, edit)
        (_, after) = await followed_runs(connection, tenant_id, session_id)
    assert (before.are_own, before.options) == (False, {"max_turns": 3, "model": "m"})
    assert (after.are_own, after.options) == (True, {"max_turns": 3, "model": "n"})
