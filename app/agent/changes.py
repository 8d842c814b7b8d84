"""What clients change of a run while it goes on: its permission mode, its rules, its model.

The run's row holds its options as they are now, so a host that takes over has them from the start. The
log holds what readers were told of them; what is still to be told follows from the difference.
"""

from dataclasses import replace

from app.agent.draft import BRIEFING, MODEL_SET
from app.agent.effects import Effects, Stamps
from app.agent.offer import deferred_names
from app.agent.state import LoopState
from app.domain.journal import Entry
from app.domain.messages import UserContent, UserMessage, wire_time
from app.domain.notices import InformationalMessage, StatusMessage


async def with_current_options(state: LoopState, effects: Effects) -> LoopState:
    """Give the state with the run's options as they are now; gates decide by them from here on."""
    options = await effects.desk.options()
    if options is None or options == state.run.options:
        return state
    effects.desk.adopt(options)
    window = state.run.window
    if options.model != state.run.options.model:
        tokens = effects.models.limits(options.model or "").context_window
        window = replace(window, tokens=tokens)
    return replace(state, run=replace(state.run, options=options, window=window))


def tools_changed(state: LoopState, effects: Effects) -> tuple[Entry, ...]:
    """Tell of tools that can be loaded since a moment ago, or no longer: servers come and go."""
    has_search = effects.models.abilities(state.model).tool_search
    names = deferred_names(effects.tools.specs(), has_search=has_search)
    if set(names) == set(state.briefing.tools):
        return ()
    news = replace(state.briefing, tools=names).since(state.briefing)
    parts = (("New", news.tools), ("Gone", news.tools_gone))
    said = InformationalMessage(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        content=" ".join(f"{word}: {', '.join(some)}." for word, some in parts if some),
        level="notice",
        tag="deferred_tools",
    )
    return (Entry.of(said, {BRIEFING: news.to_json()}),)


def untold(state: LoopState, effects: Stamps) -> tuple[Entry, ...]:
    """Give the messages that readers are still to be told of the run's mode and model."""
    options = state.run.options
    entries: list[Entry] = []
    if not state.has_started:
        return ()
    if state.told_model not in {None, options.model}:
        said = f"Set model to `{options.model}`"
        message = UserMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            message=UserContent(content=f"<local-command-stdout>{said}</local-command-stdout>"),
            timestamp=wire_time(effects.clock.now()),
            isReplay=True,
        )
        entries.append(Entry.of(message, {MODEL_SET: options.model}))
    if state.told_mode not in {None, options.permission_mode}:
        status = StatusMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            status=None,
            permissionMode=options.permission_mode,
        )
        entries.append(Entry.of(status))
    return tuple(entries)
