"""What a run remembers of its hooks: folded from facts on messages.

Theory of operation. What hooks bring about is journalled as facts, so that no host asks again for
what was answered. Some of it comes with no message of its own: what a Stop hook adds for the model,
that the hooks of a batch were asked. Then the state remembers it at once, and the facts wait
(`Pending`) for the next message of the run, whichever it is, and are stored with that. A host that
is lost in between has stored nothing, and the next one asks the hooks once more, under the same id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from app.domain.journal import Batch

HOOK = "hook"
"""Fact: a list of what hooks brought about, each a JSON object of `hook_facts`."""

EndByHook: TypeAlias = Literal["hook_stopped", "stop_hook_prevented", "stop_hook_limit"]
MAX_STOP_BLOCKS = 9
"""Stop hooks that keep a run going in a row; with the last of them it ends anyway."""

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Pending(Generic[State]):
    """Facts that no message carries yet."""

    facts: Sequence[Mapping[str, Any]]
    before: State
    """Where the run stands without them."""

    def on(self, batch: Batch) -> Batch:
        """Give the batch with the facts on its first message."""
        first, *rest = batch.entries
        facts = dict(first.facts or {})
        facts[HOOK] = [*self.facts, *facts.get(HOOK, ())]
        return replace(batch, entries=(replace(first, facts=facts), *rest))


@dataclass(frozen=True, slots=True)
class HookMemory:
    """Of the run, but for the last."""

    ends: EndByHook | None = None
    """A hook ends the run, once all calls have their results."""
    blocks: int = 0
    """Stop hooks in a row that did not let the run end."""
    is_active: bool = False
    """Whether the run goes on because of a Stop hook."""
    goes_on: bool = False
    """Whether a Stop hook asked for another response, and none came yet."""
    stop_of: str | None = None
    """Id of the response whose Stop hooks were asked."""
    batch_of: str | None = None
    """Id of the response whose PostToolBatch hooks were asked."""
    deferred: frozenset[str] = frozenset()
    """Calls that hooks left for a later run: certainly not started."""

    def plus(self, facts: Mapping[str, Any]) -> "HookMemory":
        """Give the memory after what one element of the fact says."""
        stop = facts.get("stop")
        return HookMemory(
            ends=facts.get("ends") or self.ends,
            blocks=self.blocks + 1 if stop == "blocked" else 0 if stop else self.blocks,
            is_active=self.is_active or stop in {"blocked", "context"},
            goes_on=stop in {"blocked", "context"} if stop else self.goes_on,
            stop_of=facts["of"] if stop else self.stop_of,
            batch_of=facts.get("batch") or self.batch_of,
            deferred=self.deferred | set(facts.get("deferred", ())),
        )

    def answered(self) -> "HookMemory":
        """Give the memory after another response."""
        return replace(self, goes_on=False) if self.goes_on else self

    def entered(self) -> "HookMemory":
        """Give the memory with which the next run begins."""
        return HookMemory(deferred=self.deferred)

    def begun(self) -> "HookMemory":
        """Give the memory of a run that has begun: from now on deferred calls may start."""
        return replace(self, deferred=frozenset()) if self.deferred else self


def hook_facts(
    *,
    contexts: Sequence[str] = (),
    ends: EndByHook | None = None,
    batch: str | None = None,
    stop: Literal["passed", "blocked", "context", "prevented"] | None = None,
    of: str | None = None,
    deferred: Sequence[str] = (),
) -> dict[str, Any]:
    """Give the JSON of what hooks brought about; empty where that is nothing.

    `contexts`: texts for the model. `batch`: the response whose batch was asked about. `stop`: what
    the Stop hooks asked about the response `of` came to.
    """
    given: dict[str, Any] = {
        "context": list(contexts),
        "ends": ends,
        "batch": batch,
        "stop": stop,
        "of": of,
        "deferred": list(deferred),
    }
    return {name: value for name, value in given.items() if value}
