"""Commands that are carried out at once: `/clear`, `/context` and `/cost`. One batch is the run."""

from dataclasses import replace

from app.agent.active import CLEARED
from app.agent.command import CLEAR, CONTEXT
from app.agent.context_usage import context_usage
from app.agent.effects import Effects
from app.agent.result_batch import plain_usd, result_batch
from app.agent.results import synthetic_entry
from app.agent.start_step import opening
from app.agent.state import CARRIED, Advance, LoopState
from app.agent.task_notes import tasks_changed
from app.domain.briefing import Briefing
from app.domain.journal import Batch, Entry
from app.domain.messages import ConversationReset, Prompt, wire_time


def clear(prompt: Prompt, briefing: Briefing, state: LoopState, effects: Effects) -> Advance:
    """Begin a new conversation in the session.

    Its costs, its tasks, its list of work and the shell's directory go on; what the model was told
    and what it saw of files does not.
    """
    reset = ConversationReset(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        new_conversation_id=effects.clock.uuid(),
        user_message_uuid=prompt.uuid,
        timestamp=wire_time(effects.clock.now()),
    )
    before = (Entry.of(reset, {CLEARED: CARRIED.dump(state)}), tasks_changed(state, effects))
    opened = _opened(prompt, briefing, state.apply(Batch(before)), effects, before)
    ended = result_batch(opened.state, effects, local_command=CLEAR)
    return opened.then(opened.state.after(ended))


def answer(
    name: str, prompt: Prompt, briefing: Briefing, state: LoopState, effects: Effects
) -> Advance:
    """Tell a user what a command asks for. No model sees the question or the answer."""
    opened = _opened(prompt, briefing, state, effects)
    text = context_text(opened.state, effects) if name == CONTEXT else cost_text(opened.state)
    told = synthetic_entry(text, "end_turn", opened.state, effects)
    said = replace(opened.state, last_text=text)
    ended = result_batch(said, effects, local_command=name, before=(told,))
    return opened.then(opened.state.after(ended))


def _opened(
    prompt: Prompt,
    briefing: Briefing,
    state: LoopState,
    effects: Effects,
    before: tuple[Entry, ...] = (),
) -> Advance:
    """Open the run. `state` holds what comes `before` in the batch already."""
    tools, servers = effects.tools.specs(), effects.servers.readiness()
    batch = opening((prompt,), state, tools, effects, briefing, servers=servers)
    return Advance(replace(batch, entries=(*before, *batch.entries)), state.apply(batch))


def cost_text(state: LoopState) -> str:
    """Say what the session cost so far, by model."""
    total = state.spent_before.merged(state.spend)
    lines = [f"This session cost ${plain_usd(total.cost_usd)} so far."]
    for model, part in total.by_model.items():
        used = part.usage
        price = "no known price" if part.unpriced else f"${plain_usd(part.cost_usd)}"
        lines.append(
            f"- {model}: {price}; {used.input_tokens:,} tokens in, "
            f"{used.cache_read_tokens:,} from the cache, {used.cache_write_tokens:,} into it, "
            f"{used.output_tokens:,} out"
        )
    return "\n".join(lines)


def context_text(state: LoopState, effects: Effects) -> str:
    """Say what fills the conversation's window, by source."""
    has_search = effects.models.abilities(state.model).tool_search
    usage = context_usage(state, effects.tools.specs(), state.spent_before, has_search=has_search)
    head = f"{usage.model}: {usage.totalTokens:,} of {usage.rawMaxTokens:,} tokens"
    lines = [f"{head} ({usage.percentage}%)"]
    lines += [f"- {part.name}: {part.tokens:,}" for part in usage.categories]
    return "\n".join(lines)
