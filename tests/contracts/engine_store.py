"""What the engine's store promises about sessions, runs and their journal, whoever keeps them.

`tests/store/test_engine_store_contract.py` runs it on the real store and on its twin in memory
(`tests/fakes/memory_store.py`).
"""

from dataclasses import replace
from decimal import Decimal

import pytest

from app.domain.journal import Batch, ServiceEvent
from app.domain.usage import Usage
from app.errors import IdTaken, LeaseLost, NotFound, QueueFull
from app.store.cancels import CancelAsked
from app.store.claims import Claim
from app.store.leases import Lease
from tests.contracts.engine_seam import A, B, Pen, RunView, SessionView, spent


class EngineStoreContract:
    """Subclasses give the fixture `pen`, over an empty store that has the `TENANTS`."""

    # -- in -------------------------------------------------------------------------------

    async def test_a_session_and_its_first_run_become_durable_together(self, pen: Pen) -> None:
        session, run = pen.new_session(), pen.new_run()
        started = await pen.store.start_session("default", session, run, host=None)
        assert (started.epoch, started.lease_expires_at, started.started_at) == (None, None, None)
        assert await pen.kinds(session.id) == [(1, "session.created"), (2, "run.queued")]
        assert (await pen.store.run("default", run.id)).status == "queued"
        claim = await pen.store.claim(A)
        assert claim is not None
        assert (claim.lease.run_id, claim.attempt, claim.was_lost) == (run.id, 1, False)
        assert await pen.store.waiting_prompts(claim.lease) == list(run.prompts)

    async def test_a_host_that_starts_a_session_owns_it_when_nothing_older_waits(
        self, pen: Pen
    ) -> None:
        session, run = pen.new_session(), pen.new_run()
        started = await pen.store.start_session("default", session, run, host=A)
        lease = Lease("default", session.id, run.id, 1)
        assert started.epoch == 1
        assert await pen.store.renew(A, [lease]) == {lease: False}
        waits, _ = await pen.enqueued(await pen.session())
        session, run = pen.new_session(), pen.new_run()
        started = await pen.store.start_session("default", session, run, host=A)
        assert started.epoch is None
        claim = await pen.store.claim(A)
        assert claim is not None
        assert claim.lease.run_id == waits

    async def test_a_session_id_is_taken_once_a_tenant(self, pen: Pen) -> None:
        session = pen.new_session()
        await pen.store.create_session("default", session)
        await pen.store.create_session("quiet", session)
        before = await pen.store.dump()
        with pytest.raises(IdTaken):
            await pen.store.create_session("default", session)
        with pytest.raises(IdTaken):
            await pen.store.start_session("default", session, pen.new_run(), host=A)
        assert await pen.store.dump() == before

    async def test_a_new_run_is_claimed_on_the_spot_when_nothing_older_waits(
        self, pen: Pen
    ) -> None:
        claim = await pen.begun()
        assert (claim.attempt, claim.is_new_session, claim.last_seq) == (1, True, 2)
        assert (await pen.store.run("default", claim.lease.run_id)).status == "running"
        _, behind = await pen.enqueued(claim.lease.session_id, B)
        assert (behind.claim, behind.ahead) == (None, 1)
        _, elsewhere = await pen.enqueued(await pen.session(), B)
        assert elsewhere.claim is not None  # what waits behind a live host is not claimable
        await pen.store.append(claim.lease, pen.last(claim.lease))
        _, late = await pen.enqueued(await pen.session(), B)
        assert late.claim is None  # now it is

    async def test_what_is_refused_leaves_no_trace(self, pen: Pen) -> None:
        claim = await pen.begun(first := pen.prompt())
        session_id = claim.lease.session_id
        for _ in range(3):
            await pen.enqueued(session_id)
        before = await pen.store.dump()
        with pytest.raises(QueueFull):
            await pen.enqueued(session_id, B)
        again = replace(first, id="in-again")
        with pytest.raises(IdTaken):
            await pen.enqueued(session_id, None, again)
        with pytest.raises(IdTaken):
            await pen.store.steer("default", session_id, [replace(again, is_steer=True)])
        with pytest.raises(NotFound):
            await pen.enqueued(session_id, tenant_id="quiet")
        assert await pen.store.dump() == before

    # -- order ----------------------------------------------------------------------------

    async def test_runs_of_a_session_are_begun_one_at_a_time_urgent_ones_first(
        self, pen: Pen
    ) -> None:
        session_id = await pen.session()
        first, _ = await pen.enqueued(session_id)
        second, _ = await pen.enqueued(session_id)
        urgent, _ = await pen.enqueued(session_id, priority=5)
        jumps, _ = await pen.enqueued(session_id, is_next=True)
        order: list[str] = []
        while claim := await pen.store.claim(A):
            assert await pen.store.claim(B) is None
            order.append(claim.lease.run_id)
            await pen.store.append(claim.lease, pen.last(claim.lease))
        assert order == [jumps, urgent, first, second]

    async def test_a_run_that_was_begun_comes_before_a_more_urgent_one(self, pen: Pen) -> None:
        claim = await pen.begun()
        await pen.enqueued(claim.lease.session_id, priority=9)
        await pen.store.release(claim.lease)
        taken = await pen.store.claim(B)
        assert taken is not None
        assert taken.lease.run_id == claim.lease.run_id

    async def test_the_tenant_with_the_fewest_live_leases_is_next_then_priority_then_age(
        self, pen: Pen
    ) -> None:
        older, _ = await pen.enqueued(await pen.session())
        urgent, _ = await pen.enqueued(await pen.session(), priority=1)
        quiet = await pen.session("quiet")
        only, _ = await pen.enqueued(quiet, tenant_id="quiet")
        claims = [await pen.store.claim(A) for _ in range(4)]
        assert [claim and claim.lease.run_id for claim in claims] == [urgent, only, older, None]

    async def test_many_are_claimed_at_once_in_the_order_in_which_one_by_one_would_be(
        self, pen: Pen
    ) -> None:
        older, _ = await pen.enqueued(first := await pen.session())
        await pen.enqueued(first)  # waits behind the other, whoever claims how many
        urgent, _ = await pen.enqueued(await pen.session(), priority=1)
        newer, _ = await pen.enqueued(await pen.session())
        quiet = [await pen.session("quiet") for _ in range(3)]
        mild, _ = await pen.enqueued(quiet[0], tenant_id="quiet")
        pressing, _ = await pen.enqueued(quiet[1], tenant_id="quiet", priority=2)
        late, _ = await pen.enqueued(quiet[2], tenant_id="quiet")
        claims = await pen.store.claim_many(A, 4)
        assert [claim.lease.run_id for claim in claims] == [pressing, urgent, older, mild]
        assert await pen.store.renew(A, [claim.lease for claim in claims]) == {
            claim.lease: False for claim in claims
        }
        rest = await pen.store.claim_many(B, 9)
        assert [claim.lease.run_id for claim in rest] == [newer, late]
        assert all((claim.attempt, claim.was_lost) == (1, False) for claim in (*claims, *rest))
        assert await pen.store.claim_many(A, 9) == []

    async def test_lost_and_released_runs_are_among_the_many_and_told_apart(self, pen: Pen) -> None:
        lost, let_go = await pen.begun(), await pen.begun()
        await pen.store.pass_time(A.lease_s + 1)
        await pen.store.release(let_go.lease)
        waits, _ = await pen.enqueued(await pen.session())
        claims = {claim.lease.run_id: claim for claim in await pen.store.claim_many(B, 9)}
        assert set(claims) == {lost.lease.run_id, let_go.lease.run_id, waits}
        assert claims[lost.lease.run_id].was_lost
        assert claims[lost.lease.run_id].lease.epoch == lost.lease.epoch + 1
        assert (claims[let_go.lease.run_id].was_lost, claims[waits].was_lost) == (False, False)
        assert [claims[each].attempt for each in (lost.lease.run_id, waits)] == [2, 1]

    # -- leases ---------------------------------------------------------------------------

    async def test_a_live_lease_keeps_others_out_and_one_that_ran_out_does_not(
        self, pen: Pen
    ) -> None:
        claim = await pen.begun()
        await pen.store.pass_time(A.lease_s - 10)
        assert await pen.store.claim(B) is None
        assert await pen.store.renew(A, [claim.lease]) == {claim.lease: False}
        await pen.store.pass_time(A.lease_s - 10)
        assert await pen.store.claim(B) is None
        await pen.store.pass_time(20)
        assert not (await pen.store.session("default", claim.lease.session_id)).is_live
        taken = await pen.store.claim(B)
        assert taken is not None
        lease = replace(claim.lease, epoch=claim.lease.epoch + 1)
        assert (taken.lease, taken.attempt, taken.was_lost) == (lease, 2, True)

    async def test_renewing_tells_what_is_lost_and_what_is_to_be_cancelled(self, pen: Pen) -> None:
        old = await pen.begun()
        taken = await pen.lost(old)
        kept, unwanted, let_go = [await pen.begun() for _ in range(3)]
        await pen.store.request_cancel("default", unwanted.lease.run_id, None)
        await pen.store.release(let_go.lease)
        leases = [claim.lease for claim in (old, kept, unwanted, let_go, taken)]
        assert await pen.store.renew(A, leases) == {kept.lease: False, unwanted.lease: True}
        assert await pen.store.renew(B, leases) == {taken.lease: False}

    async def test_a_released_run_is_queued_again_and_not_counted_as_lost(self, pen: Pen) -> None:
        claim = await pen.begun()
        await pen.store.release(claim.lease)
        assert (await pen.store.run("default", claim.lease.run_id)).status == "queued"
        assert await pen.cancelled_unstarted(claim.lease.session_id, claim.lease.run_id) is None
        taken = await pen.store.claim(B)
        assert taken is not None
        assert (taken.attempt, taken.stalled_attempts, taken.was_lost) == (2, 0, False)
        before = await pen.store.dump()
        await pen.store.release(claim.lease)  # of the old owner: it has nothing to let go
        assert await pen.store.dump() == before

    async def test_hosts_lost_without_a_new_message_are_counted(self, pen: Pen) -> None:
        claim = await pen.begun()
        for lost in (1, 2):
            claim = await pen.lost(claim)
            assert claim.stalled_attempts == lost
        await pen.store.append(claim.lease, Batch((pen.note(claim.lease),)))
        assert (await pen.lost(claim)).stalled_attempts == 0

    async def test_what_an_attempt_says_of_itself_is_no_progress(self, pen: Pen) -> None:
        claim = await pen.begun()
        for lost in (1, 2, 3):
            announced = (ServiceEvent("run.attempt"),)
            await pen.store.append(claim.lease, Batch(ledger=(spent("0.1"),)), first=announced)
            claim = await pen.lost(claim)
            assert claim.stalled_attempts == lost

    # -- the journal ----------------------------------------------------------------------

    async def test_an_append_is_dense_and_in_order_with_its_events_around_it(
        self, pen: Pen
    ) -> None:
        claim = await pen.begun()
        entries = (pen.note(claim.lease), pen.note(claim.lease, {"tool": {"cwd": "/secret"}}))
        batch = Batch(entries, events=(ServiceEvent("last"),))
        written = await pen.store.append(claim.lease, batch, first=(ServiceEvent("run.started"),))
        assert [(row.seq, row.kind, row.type) for row in written] == [
            (3, "service", "run.started"),
            (4, "message", "user"),
            (5, "message", "user"),
            (6, "service", "last"),
        ]
        stored = (await pen.store.read("default", claim.lease.session_id))[2:]
        assert [replace(r, at=None) for r in stored] == [replace(r, at=None) for r in written]
        assert [
            (body.encode(), bool(facts))
            for _, body, facts in await pen.store.history("default", claim.lease.session_id)
        ] == [(entries[0].body, False), (entries[1].body, True)]

    async def test_an_owner_of_the_past_writes_nothing_at_all(self, pen: Pen) -> None:
        old = await pen.begun()
        await pen.lost(old)
        ended = await pen.begun()
        await pen.store.append(ended.lease, pen.last(ended.lease))
        let_go = await pen.begun()
        await pen.store.release(let_go.lease)
        before = await pen.store.dump()
        for lease in (old.lease, ended.lease, let_go.lease):
            (*waiting,) = await pen.store.waiting_prompts(lease)
            for batch in (Batch((pen.note(lease),), (spent("1"),)), pen.last(lease)):
                consumes = replace(batch, consumed=tuple(prompt.id for prompt in waiting))
                with pytest.raises(LeaseLost):
                    await pen.store.append(lease, consumes, first=(ServiceEvent("run.started"),))
        assert await pen.store.dump() == before

    async def test_the_end_of_a_run_frees_its_session(self, pen: Pen) -> None:
        claim = await pen.begun()
        session_id = claim.lease.session_id
        await pen.store.append(claim.lease, pen.last(claim.lease, (spent("0.5"),)))
        run = await pen.store.run("default", claim.lease.run_id)
        assert run == RunView("finished", 1, 0, "completed", 4, Decimal("0.5"), is_cancelled=False)
        session = await pen.store.session("default", session_id)
        assert session == SessionView(
            1,
            None,
            is_live=False,
            last_seq=4,
            num_runs=1,
            pending_steers=0,
            cost_usd=Decimal("0.5"),
        )
        assert (await pen.kinds(session_id))[2:] == [(3, "result"), (4, "run.finished")]
        assert await pen.store.claim(A) is None

    async def test_money_is_the_sum_of_the_ledger(self, pen: Pen) -> None:
        claim = await pen.begun()
        session_id = claim.lease.session_id
        await pen.store.append(claim.lease, pen.last(claim.lease, (spent("0.1"), spent("0.2"))))
        run_id, enqueued = await pen.enqueued(session_id, A)
        assert enqueued.claim is not None
        lease = enqueued.claim.lease
        await pen.store.append(lease, Batch((pen.note(lease),), (spent("0.000000001", 7),)))
        before, mine = await pen.store.spends("default", session_id, run_id)
        assert (before.cost_usd, mine.cost_usd) == (Decimal("0.3"), Decimal("0.000000001"))
        assert mine.main_thread == Usage(7)
        assert (await pen.store.run("default", run_id)).cost_usd == mine.cost_usd
        total = (await pen.store.session("default", session_id)).cost_usd
        assert total == before.cost_usd + mine.cost_usd

    # -- prompts --------------------------------------------------------------------------

    async def test_prompts_wait_in_order_until_a_batch_consumes_them(self, pen: Pen) -> None:
        first, second = pen.prompt("one"), pen.prompt("two", is_steer=True)
        claim = await pen.begun(first, second)
        assert await pen.store.waiting_prompts(claim.lease) == [first, second]
        batch = Batch((pen.note(claim.lease),), consumed=(first.id,))
        await pen.store.append(claim.lease, batch)
        assert await pen.store.waiting_prompts(claim.lease) == [second]
        taken = await pen.lost(claim)
        assert await pen.store.waiting_prompts(taken.lease) == [second]
        session = await pen.store.session("default", claim.lease.session_id)
        assert session.pending_steers == 1
        batch = Batch((pen.note(taken.lease),), consumed=(second.id,), steered=1)
        await pen.store.append(taken.lease, batch)
        assert (await pen.store.append(taken.lease, pen.last(taken.lease)))[-1].seq == 6
        assert await pen.store.claim(A) is None

    async def test_each_prompt_sent_into_a_run_too_late_gets_a_run_of_its_own(
        self, pen: Pen
    ) -> None:
        claim = await pen.begun(first := pen.prompt())
        session_id = claim.lease.session_id
        steers = [pen.prompt("too", is_steer=True), pen.prompt("late", is_steer=True)]
        assert await pen.store.steer("default", session_id, steers) == claim.lease.run_id
        batch = Batch((pen.note(claim.lease),), consumed=(first.id,))
        await pen.store.append(claim.lease, batch)
        written = await pen.store.append(claim.lease, pen.last(claim.lease))
        assert [(row.seq, row.type) for row in written] == [
            (4, "result"),
            (5, "run.finished"),
            (6, "run.queued"),
            (7, "run.queued"),
        ]
        assert await pen.store.waiting_prompts(claim.lease) == []
        for row, prompt in zip(written[2:], steers, strict=True):
            taken = await pen.store.claim(B)
            assert taken is not None
            assert taken.lease.run_id == row.run_id != claim.lease.run_id
            waiting = await pen.store.waiting_prompts(taken.lease)
            assert waiting == [replace(prompt, is_steer=False)]
            await pen.store.append(taken.lease, pen.last(taken.lease))
        assert await pen.store.claim(B) is None

    async def test_prompts_that_came_with_a_queued_run_count_when_it_is_claimed(
        self, pen: Pen
    ) -> None:
        session_id = await pen.session()
        words = [pen.prompt("one"), pen.prompt("two", is_steer=True)]
        await pen.enqueued(session_id, None, *words)
        assert (await pen.store.session("default", session_id)).pending_steers == 0
        claim = await pen.store.claim(A)
        assert claim is not None
        assert (await pen.store.session("default", session_id)).pending_steers == 1
        assert await pen.store.waiting_prompts(claim.lease) == words

    async def test_what_began_a_run_that_never_took_it_in_is_not_begun_again(
        self, pen: Pen
    ) -> None:
        first, second = pen.prompt("one"), pen.prompt("two", is_steer=True)
        claim = await pen.begun(first, second)
        await pen.store.append(
            claim.lease, pen.last(claim.lease)
        )  # cancelled before its first step
        taken = await pen.store.claim(B)
        assert taken is not None
        own = [replace(second, is_steer=False)]
        assert await pen.store.waiting_prompts(taken.lease) == own
        assert await pen.store.waiting_prompts(claim.lease) == [first]

    async def test_only_a_run_in_a_live_hosts_hands_can_be_steered(self, pen: Pen) -> None:
        async def steered(claim: Claim) -> str | None:
            words = [pen.prompt(is_steer=True)]
            return await pen.store.steer("default", claim.lease.session_id, words)

        unwanted = await pen.begun()
        await pen.store.request_cancel("default", unwanted.lease.run_id, None)
        ended = await pen.begun()
        await pen.store.append(ended.lease, pen.last(ended.lease))
        await pen.enqueued(ended.lease.session_id)  # waits
        assert [await steered(claim) for claim in (unwanted, ended)] == [None, None]
        waits = await pen.store.claim(A)
        assert waits is not None
        assert await steered(waits) == waits.lease.run_id
        await pen.store.pass_time(A.lease_s + 1)
        assert await steered(waits) is None

    async def test_a_late_end_by_who_let_the_run_go_loses_no_prompt(self, pen: Pen) -> None:
        claim = await pen.begun()
        words = [pen.prompt(is_steer=True)]
        await pen.store.steer("default", claim.lease.session_id, words)
        await pen.store.release(claim.lease)
        before = await pen.store.dump()
        with pytest.raises(LeaseLost):
            await pen.store.append(claim.lease, pen.last(claim.lease))
        assert await pen.store.dump() == before

    # -- cancelling -----------------------------------------------------------------------

    async def test_a_run_that_no_host_has_begun_ends_in_one_step_and_once(self, pen: Pen) -> None:
        claim = await pen.begun()
        session_id = claim.lease.session_id
        run_id, _ = await pen.enqueued(session_id)
        assert await pen.cancelled_unstarted(session_id, claim.lease.run_id) is None
        assert await pen.cancelled_unstarted(session_id, run_id) == 5
        assert await pen.cancelled_unstarted(session_id, run_id) is None
        assert (await pen.kinds(session_id))[2:] == [
            (3, "run.queued"),
            (4, "result"),
            (5, "run.finished"),
        ]
        run = await pen.store.run("default", run_id)
        assert run == RunView("finished", 0, 0, "cancelled", 5, Decimal(0), is_cancelled=False)
        (row,) = await pen.store.append(claim.lease, Batch((pen.note(claim.lease),)))
        assert row.seq == 6  # the owner of the session's other run goes on behind it

    async def test_the_first_cancel_is_remembered_and_told_to_each_owner(self, pen: Pen) -> None:
        claim = await pen.begun()
        run_id = claim.lease.run_id
        seq = await pen.store.request_cancel(
            "default", run_id, "first", end_reason="superseded", spares_tasks=True
        )
        assert (await pen.kinds(claim.lease.session_id))[-1] == (seq, "run.cancel_requested")
        before = await pen.store.dump()
        assert await pen.store.request_cancel("default", run_id, "second") is None
        assert await pen.store.dump() == before
        assert await pen.store.cancel_asked(claim.lease) == CancelAsked(
            "superseded", spares_tasks=True
        )
        taken = await pen.lost(claim)
        assert taken.is_cancelled
        await pen.store.append(taken.lease, pen.last(taken.lease))
        before = await pen.store.dump()
        await pen.store.request_cancel("default", run_id, "third")
        assert await pen.store.dump() == before

    # -- keeping a session without a run --------------------------------------------------

    async def test_a_kept_session_is_claimed_by_its_host_alone_and_its_old_lease_is_dead(
        self, pen: Pen
    ) -> None:
        claim = await pen.begun()
        session_id = claim.lease.session_id
        kept = await pen.kept(claim)
        assert (await pen.store.session("default", session_id)).owner == A.id
        assert await pen.store.renew(A, [claim.lease, kept]) == {kept: False}
        before = await pen.store.dump()
        with pytest.raises(LeaseLost):
            await pen.store.append(claim.lease, Batch((pen.note(claim.lease),)))
        assert await pen.store.dump() == before
        waits, elsewhere = await pen.enqueued(session_id, B)
        assert elsewhere.claim is None
        assert await pen.store.claim(B) is None
        taken = await pen.store.claim(A)
        assert taken is not None
        assert (taken.lease.run_id, taken.lease.epoch) == (waits, kept.epoch + 1)
        assert (taken.attempt, taken.was_lost) == (1, False)
        assert await pen.store.claim(A) is None
        assert await pen.store.renew(A, [kept]) == {}

    async def test_a_prompt_on_the_host_that_keeps_its_session_is_claimed_on_the_spot(
        self, pen: Pen
    ) -> None:
        claim = await pen.begun()
        kept = await pen.kept(claim)
        _, enqueued = await pen.enqueued(kept.session_id, A)
        assert enqueued.claim is not None
        assert enqueued.claim.lease.epoch == kept.epoch + 1

    async def test_a_kept_session_is_free_once_it_is_let_go_or_its_lease_ran_out(
        self, pen: Pen
    ) -> None:
        first, second = await pen.kept(await pen.begun()), await pen.kept(await pen.begun())
        await pen.enqueued(first.session_id)
        await pen.enqueued(second.session_id)
        await pen.store.release(first)
        taken = await pen.store.claim(B)
        assert taken is not None
        assert (taken.lease.session_id, taken.was_lost) == (first.session_id, False)
        await pen.store.append(taken.lease, pen.last(taken.lease))
        await pen.store.pass_time(A.lease_s + 1)
        taken = await pen.store.claim(B)
        assert taken is not None
        assert (taken.lease.session_id, taken.was_lost) == (second.session_id, False)

    async def test_a_run_follows_in_a_kept_session_unless_another_one_is_there(
        self, pen: Pen
    ) -> None:
        kept = await pen.kept(await pen.begun())
        assert await pen.store.follow_up(B, kept, may_claim=True) is None
        made = await pen.store.follow_up(A, kept, may_claim=True)
        assert made is not None
        assert made.claim is not None
        assert made.claim.lease == replace(kept, run_id=made.run_id, epoch=kept.epoch + 1)
        assert (await pen.store.run("default", made.run_id)).status == "running"
        assert (await pen.store.work_of("default", made.run_id)).follows == kept.run_id
        assert (await pen.kinds(kept.session_id))[-1] == (made.last_seq, "run.queued")
        assert await pen.store.follow_up(A, kept, may_claim=True) is None
        again = await pen.kept(made.claim)
        await pen.enqueued(kept.session_id)
        assert await pen.store.follow_up(A, again, may_claim=True) is None

    async def test_a_run_that_follows_may_wait_for_a_slot_of_its_host(self, pen: Pen) -> None:
        kept = await pen.kept(await pen.begun())
        made = await pen.store.follow_up(A, kept, may_claim=False)
        assert made is not None
        assert made.claim is None
        assert await pen.store.claim(B) is None
        taken = await pen.store.claim(A)
        assert taken is not None
        assert (taken.lease.run_id, taken.last_seq) == (made.run_id, made.last_seq)

    # -- work -----------------------------------------------------------------------------

    async def test_a_deadline_and_the_time_spent_run_on_from_host_to_host(self, pen: Pen) -> None:
        _, enqueued = await pen.enqueued(
            await pen.session(), A, deadline_s=150, recovery_policy="fail", max_attempts=2
        )
        assert enqueued.claim is not None
        taken = await pen.lost(enqueued.claim)
        work = await pen.store.work_of("default", taken.lease.run_id)
        assert (work.recovery_policy, work.max_attempts) == ("fail", 2)
        assert work.deadline_left_s == pytest.approx(150 - 102, abs=10)
        assert work.elapsed_ms == pytest.approx(102_000, abs=10_000)
