"""A world with subagents: a model that answers each conversation by its own script."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import orjson

from app.agent.effects import AgentLimits, Effects
from app.agent.loop import run_agent
from app.agent.state import RunInfo
from app.agent.tool_effects import Gate
from app.domain.agents import AgentDefinition
from app.domain.blocks import ToolUseBlock
from app.domain.model import Hear, ModelRequest, ModelResponse, StreamPart, unheard
from app.errors import ModelError
from app.tools.agent_tool import AgentToolbox
from tests.fakes.effects import (
    Answer,
    FakeAgents,
    FakeClock,
    Journal,
    ScriptedToolbox,
    Stalled,
    call,
    effects,
    prompt,
    run_info,
)

HELPER = AgentDefinition(description="helps", prompt="You are HELPER.")


def agent(call_id: str, asked: str, kind: str = "helper", **given: Any) -> ToolUseBlock:
    """A call that begins a subagent."""
    return call(call_id, "Agent", description="a job", prompt=asked, subagent_type=kind, **given)


@dataclass(slots=True)
class ThreadModel:
    """Answers by the prompt of the conversation, and by how many answers it holds."""

    scripts: Mapping[str, Sequence[Answer]]
    requests: list[tuple[str, ModelRequest]] = field(default_factory=list)

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        texts = [orjson.loads(block).get("text") for block in request.messages[0].blocks]
        asked = next(text for text in texts if text in self.scripts)
        self.requests.append((asked, request))
        turn = sum(message.role == "assistant" for message in request.messages)
        answer = self.scripts[asked][turn]
        await asyncio.sleep(0)
        message_id = f"msg_{asked}_{turn}"
        if isinstance(answer, ModelError):
            raise answer
        hear(StreamPart({"type": "message_start"}, message_id, ttft_ms=7))
        if isinstance(answer, Stalled):
            answer.began.set()
            await asyncio.Event().wait()
        assert isinstance(answer, ModelResponse)
        return replace(answer, id=message_id)


def threads(
    scripts: Mapping[str, Sequence[Answer]],
    *,
    tools: ScriptedToolbox | None = None,
    definitions: Mapping[str, AgentDefinition] | None = None,
    limits: AgentLimits | None = None,
    gate: Gate | None = None,
    prefix: str = "id",
    **agents: Any,
) -> tuple[Effects, ThreadModel]:
    """A world whose main conversation is asked "main"."""
    kinds = definitions or {"helper": HELPER}
    box = AgentToolbox(tools or ScriptedToolbox(), kinds)
    model = ThreadModel(scripts)
    world = effects(prompts=[prompt("main")], gate=gate, clock=FakeClock(prefix=prefix))
    known = FakeAgents(box, kinds, limits or AgentLimits(), **agents)
    return replace(world, model=model, tools=box, agents=known), model


async def played(
    world: Effects, run: RunInfo | None = None, journal: Journal | None = None
) -> tuple[Journal, list[Journal]]:
    """Run to the end; give the journal, and what it was after each batch.

    After each batch the fold is what the loop holds, in all threads.
    """
    run = run or run_info()
    journal = journal or Journal()
    live, stops = journal.state(run), []
    async with asyncio.timeout(20), aclosing(run_agent(live, world)) as advances:
        async for advance in advances:
            journal.store(run, advance)
            assert settled(journal.state(run)) == settled(advance.state)
            stops.append(Journal(list(journal.rows), list(journal.ledger), list(journal.batches)))
    return journal, stops


def settled(state: Any) -> Any:
    """The state but for what a new attempt knows of open calls."""
    inner = {key: settled(thread) for key, thread in state.threads.items()}
    return replace(state, unsure=frozenset(), is_over=False, threads=inner, others_usd=Decimal(0))
