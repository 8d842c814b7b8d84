"""What a run has in its session's background: taken up as it begins, parted from as it ends."""

from dataclasses import dataclass, field, replace

from app.agent.state import LoopState
from app.domain.runs import EndReason, Outcome
from app.domain.usage import Spend
from app.runs.background import Background
from app.runs.keeping import Keeper, Kept, end_of_tasks
from app.runs.purse import Share, options_left
from app.runs.writing import Writer
from app.store.beside import tell_no_more
from app.store.claims import Claim
from app.store.runs import Work


@dataclass(slots=True)
class RunTasks:
    """The background of one claimed run."""

    claim: Claim
    background: Background
    keeper: Keeper | None
    writer: Writer
    are_spared: bool = False
    """Whether a cancel lets them go on."""
    is_kept: bool = False
    """Whether the session is kept for their sake: they are the keeper's then."""
    share: Share = field(init=False)
    _spent_before: Spend = field(default_factory=Spend)
    """As the session's spend was when the run was loaded."""

    async def take_up(self, state: LoopState, work: Work) -> None:
        """Take over what the session has in its background, as its journal tells."""
        crew, run_id, options = self.background.crew, state.run.run_id, state.run.options
        self._spent_before = state.spent_before
        self.share = crew.purses.share(run_id, options, follows=work.follows)
        agents = {task.id: task.own_run_id for task in state.tasks.values() if task.own_run_id}
        if not all(map(crew.knows, agents)):
            await self.writer.outlast(crew.take_up)
        if self.claim.attempt > 1 and options.max_budget_usd is not None:
            # What those have spent that are told of already is in no state.
            await self.writer.outlast(lambda: crew.know_family(run_id))
        if work.follows is not None:
            database, shown = self.writer.database, list(agents.values())
            await self.writer.outlast(lambda: tell_no_more(database, self.claim.lease, shown))
        crew.drawn(run_id, state.spend.cost_usd)

    def learn(self, state: LoopState) -> LoopState:
        """Give the state that knows what has been spent beside it."""
        spent = self._spent_before.merged(self.background.crew.meter)
        others_usd = self.share.others_usd()
        if (others_usd, spent) == (state.others_usd, state.spent_before):
            return state  # as mostly: a state has many fields to copy
        return replace(state, others_usd=others_usd, spent_before=spent)

    async def all_told(
        self, end_reason: EndReason, state: LoopState, *, is_stopped: bool
    ) -> LoopState:
        """Give the state for a result that is not the loop's: what subagents cost is part of it.

        Those that end with the run end first, so that what they had asked for is counted too.
        """
        spares = self.are_spared or not is_stopped
        if end_of_tasks(end_reason, spares_tasks=spares, is_over_budget=False) is not None:
            await self.background.crew.stop_all()
        return self.learn(state)

    async def part(
        self,
        outcome: Outcome,
        ended: LoopState,
        *,
        is_stopped: bool,
        is_draining: bool,
        renewed_s: float,
    ) -> Kept | None:
        """Keep the session while tasks of it run on; or end them: the caller tells of it then.

        Before the commit that ends the run, since another host may begin right after it.
        """
        shells, crew, keeper = self.background.shells, self.background.crew, self.keeper
        why = end_of_tasks(
            outcome.end_reason,
            spares_tasks=self.are_spared or not is_stopped,
            is_over_budget=ended.is_over_budget,
        )
        if why is not None:
            await crew.stop_all("budget" if ended.is_over_budget else "cancel")
        elif is_draining or keeper is None or keeper.is_closed:
            await crew.leave()
        elif ended.tasks:
            await shells.keep_only(ended.tasks)
            lease = replace(self.claim.lease, epoch=self.claim.lease.epoch + 1)
            kept = Kept(lease, options_left(ended), self.background, tuple(ended.tasks), renewed_s)
            keeper.keep(kept)
            self.is_kept = True
            return kept
        await shells.close(why or "was ended, since its host stopped")
        return None

    def keeps(self, kept: Kept | None, *, is_stored: bool) -> None:
        """Hear whether the commit has happened that leaves the session with this host."""
        if kept is None or self.keeper is None:
            return
        if is_stored:
            self.background.crew.hold(kept.lease)
            self.keeper.watch(kept)
        else:
            self.keeper.forget(kept)
            self.is_kept = False
