"""The first step of a run: take its prompts in, or carry out the command that they are."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from app.agent.command import CLEAR, COMPACT, local_command
from app.agent.compact_command import Asked, compact_by_command
from app.agent.effects import Effects
from app.agent.expansion import expanded
from app.agent.local_commands import answer, clear
from app.agent.prompt_hooks import open_run
from app.agent.results import note_entry
from app.agent.start_step import opening, shell_cwd
from app.agent.state import Advance, LoopState
from app.agent.steps import cut_of
from app.domain.mcp import Readiness
from app.domain.messages import Prompt

GO_ON_TEXT = (
    "The run before this one was stopped before its task was done. Go on with it from there."
)


def goes_on_after_answer(prompts: Sequence[Prompt], state: LoopState) -> bool:
    """Say whether the run goes on with a conversation in which the model had the last word.

    A run that follows a background task has no prompt either, but something to tell of.
    """
    return not prompts and state.run.follows is None and not state.awaits_model


def _words_of(servers: Readiness, state: LoopState) -> Mapping[str, str]:
    """Give what servers say of their use: as first heard, or with tools that were accepted since."""
    known = state.briefing.servers
    return {
        name: text
        for name, text in servers.instructions.items()
        if name not in known or name in servers.pins
    }


async def begin(state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Journal `init`, the briefing and every prompt that waits for the run, in one batch.

    A command that can be carried out is the whole run.
    """
    prompts = await effects.inbox.take(steers=False)
    servers = effects.servers.readiness()
    briefing = await effects.place.look(state.briefing, shell_cwd(state))
    briefing = replace(briefing, servers=_words_of(servers, state))
    command = local_command(prompts)
    if command is None:
        is_asked = not goes_on_after_answer(prompts, state)
        go_on = () if is_asked else (note_entry(GO_ON_TEXT, state, effects, is_synthetic=True),)
        yield await open_run(prompts, briefing, state, effects, also=go_on)
    elif command.name == COMPACT and cut_of(state, is_asked=True) is None:
        texts = await expanded(prompts, briefing.skills, state, effects)
        specs = effects.tools.specs()
        yield state.after(opening(prompts, state, specs, effects, briefing, texts, servers))
    elif command.name == COMPACT:
        asked = Asked(prompts, command.arguments, briefing)
        async with aclosing(compact_by_command(asked, state, effects)) as advances:
            async for advance in advances:
                yield advance
    elif command.name == CLEAR:
        yield clear(prompts[0], briefing, state, effects)
    else:
        yield answer(command.name, prompts[0], briefing, state, effects)
