"""The opening of a run: `init`, then its prompts (decisions B25)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.agent.command import COMMAND, EXPANDED, LOCAL_COMMANDS, LocalCommand, local_command
from app.agent.draft import BRIEFING, MISSING_SERVERS
from app.agent.effects import Stamps
from app.agent.expansion import Expansion, Expansions
from app.agent.hook_points import with_hook
from app.agent.notices import opening_notices
from app.agent.offer import deferred_names, on_offer
from app.agent.state import LoopState
from app.domain.agents import AGENT_ALIAS
from app.domain.briefing import Briefing
from app.domain.journal import Batch, Entry
from app.domain.mcp import Readiness
from app.domain.messages import InitMessage, Prompt, UserContent, UserMessage, wire_time
from app.domain.skills import SkillNote
from app.domain.tools import ToolFacts, ToolSpec

NO_SERVERS = Readiness()

NOTHING: Expansions = {}


@dataclass(frozen=True, slots=True)
class Heard:
    """What hooks said of a run's opening, or of prompts."""

    before: tuple[Entry, ...] = ()
    """Told before `init`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the session: they go with `init`."""
    after: tuple[Entry, ...] = ()
    """Told before the prompts."""
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Facts that go with prompts, by inbox row."""
    refused: tuple[Prompt, ...] = ()
    """Prompts that do not enter the conversation: they are used up all the same."""


NOTHING_HEARD = Heard()


def opening(
    prompts: Sequence[Prompt],
    state: LoopState,
    tools: Sequence[ToolSpec],
    effects: Stamps,
    briefing: Briefing,
    expansions: Expansions = NOTHING,
    servers: Readiness = NO_SERVERS,
    heard: Heard = NOTHING_HEARD,
) -> Batch:
    """Give the first batch of a run: `init`, what a person should know, then its prompts.

    What the briefing and the servers have of new becomes known with `init`.
    """
    has_search = effects.models.abilities(state.model).tool_search
    tools = on_offer(tools, has_search=has_search)
    briefing = replace(briefing, tools=deferred_names(tools, has_search=has_search))
    facts: dict[str, Any] = {}
    if news := briefing.since(state.briefing):
        facts[BRIEFING] = news.to_json()
    if servers.pins:
        facts["tool"] = ToolFacts(servers=servers.pins).to_json()
    if servers.missing:
        facts[MISSING_SERVERS] = list(servers.missing.values())
    init = Entry.of(_init(state, tools, effects, prompts, briefing.skills, servers), facts or None)
    notices = opening_notices(state, effects, briefing.warnings)
    before = (*heard.before, with_hook(init, heard.facts), *notices)
    return take_in(prompts, state, effects, expansions, before=before, heard=heard)


def shell_cwd(state: LoopState) -> str:
    """Give the directory in which the run's next command starts."""
    return state.memory.cwd or state.run.cwd


def take_in(
    prompts: Sequence[Prompt],
    state: LoopState,
    effects: Stamps,
    expansions: Expansions = NOTHING,
    before: tuple[Entry, ...] = (),
    heard: Heard = NOTHING_HEARD,
) -> Batch:
    """Give the batch in which prompts enter the conversation."""
    command = None if state.has_started else local_command(prompts)
    replays = (
        with_hook(
            _replay(prompt, state, effects, command, expansions.get(prompt.id)),
            heard.prompts.get(prompt.id, {}),
        )
        for prompt in prompts
    )
    used = (*prompts, *heard.refused)
    return Batch(
        (*before, *heard.after, *replays),
        consumed=tuple(prompt.id for prompt in used),
        steered=sum(prompt.is_steer for prompt in used),
    )


def _init(
    state: LoopState,
    tools: Sequence[ToolSpec],
    effects: Stamps,
    prompts: Sequence[Prompt],
    skills: Sequence[SkillNote],
    servers: Readiness,
) -> InitMessage:
    run = state.run
    return InitMessage(
        session_id=run.session_id,
        uuid=effects.clock.uuid(),
        cwd=shell_cwd(state),
        tools=[AGENT_ALIAS if spec.agents else spec.name for spec in tools],
        agents=[name for spec in tools for name in spec.agents],
        mcp_servers=[
            {"name": status.name, "status": status.state, "source": "options"}
            for status in servers.statuses
        ],
        model=run.options.model or "",
        slash_commands=[
            *LOCAL_COMMANDS,
            *(note.name for note in skills if note.for_user),
            *(name for status in servers.statuses for name in status.prompts),
        ],
        skills=[note.name for note in skills if not note.is_command],
        permissionMode=run.options.permission_mode,
        apiKeySource=run.api_key_source,
        claude_code_version=run.version,
        betas=list(run.options.betas) or None,
        sandbox=run.sandbox,
        user_message_uuids=[p.uuid for p in prompts if p.has_client_uuid] or None,
    )


def _replay(
    prompt: Prompt,
    state: LoopState,
    effects: Stamps,
    command: LocalCommand | None,
    expansion: Expansion | None,
) -> Entry:
    facts: dict[str, Any] = {"inbox": prompt.id}
    if command:
        facts[COMMAND] = command.name
    if expansion:
        facts |= _facts(expansion)
    if prompt.has_client_uuid:
        facts["client_uuid"] = prompt.uuid
    if prompt.is_steer:
        facts["steered"] = True
    message = UserMessage(
        session_id=state.run.session_id,
        uuid=prompt.uuid,
        message=UserContent.model_validate({"role": "user", "content": prompt.content}),
        timestamp=wire_time(effects.clock.now()),
        isReplay=True,
    )
    return Entry.of(message, facts)


def _facts(expansion: Expansion) -> dict[str, Any]:
    facts: dict[str, Any] = {EXPANDED: expansion.blocks}
    files = {path: seen for read in expansion.read for path, seen in read.facts.files.items()}
    if learned := ToolFacts(files=files, granted=expansion.granted):
        facts["tool"] = learned.to_json()
    if expansion.news:
        facts[BRIEFING] = expansion.news.to_json()
    return facts
