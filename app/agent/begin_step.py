"""The first step of a run: take its prompts in, or carry out the command that they are."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.agent.command import compact_instructions
from app.agent.compact_command import Asked, compact_by_command
from app.agent.effects import Effects
from app.agent.start_step import opening, shell_cwd
from app.agent.state import Advance, LoopState
from app.agent.steps import cut_of


async def begin(state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Journal `init`, the briefing and every prompt that waits for the run, in one batch.

    A `/compact` that can be carried out is the whole run.
    """
    prompts = await effects.inbox.take(steers=False)
    briefing = await effects.place.look(state.briefing, shell_cwd(state))
    instructions = compact_instructions(prompts)
    if instructions is None or cut_of(state, is_asked=True) is None:
        yield state.after(opening(prompts, state, effects.tools.specs(), effects, briefing))
        return
    asked = Asked(prompts, instructions, briefing)
    async with aclosing(compact_by_command(asked, state, effects)) as advances:
        async for advance in advances:
            yield advance
