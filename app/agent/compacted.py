"""What a compaction leaves in the journal: the boundary, then the summary with its facts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.agent.active import COMPACTED
from app.agent.briefing import opening_blocks
from app.agent.effects import Effects
from app.agent.model_step import build_request
from app.agent.state import CARRIED, LoopState
from app.compaction.sizes import blocks_tokens, message_tokens, text_tokens
from app.compaction.summary import summary_text
from app.domain.blocks import Block, TextBlock
from app.domain.briefing import Briefing
from app.domain.compaction import (
    CompactBoundaryMessage,
    CompactMetadata,
    CompactTrigger,
    PreservedMessages,
    PreservedSegment,
)
from app.domain.journal import Entry
from app.domain.messages import UserContent, UserMessage, wire_time
from app.domain.model import ContextMessage


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction whose summary is written."""

    trigger: CompactTrigger
    notes: str
    kept: Sequence[ContextMessage]
    """What stays: the end of the context, from an assistant message on."""
    started_s: float
    """Monotonic time at which it began on this host."""

    def entries(self, state: LoopState, effects: Effects) -> tuple[Entry, Entry]:
        """Give its rows. `state` is where the run stands right before them."""
        text = summary_text(self.notes, is_asked=self.trigger == "manual")
        summary_uuid = effects.clock.uuid()
        used_tokens = self._used_tokens(text, state, effects)
        post_tokens = used_tokens + state.tokens - state.used_tokens
        dropped_tokens = state.dropped_tokens + max(0, state.tokens - post_tokens)
        left = {
            "kept": len(self.kept),
            "head": self.kept[0].uuids[0],
            "known": self.kept[0].known.since(Briefing()).to_json(),
            "used_tokens": used_tokens,
            "used_tokens_before": state.used_tokens,
            "dropped_tokens": dropped_tokens,
            "compactions": state.compactions,
            "carried": CARRIED.dump(state),
        }
        uuids = [*(uuid for message in self.kept for uuid in message.uuids), *state.newer]
        boundary = CompactBoundaryMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            compact_metadata=CompactMetadata(
                trigger=self.trigger,
                pre_tokens=state.tokens,
                post_tokens=post_tokens,
                cumulative_dropped_tokens=dropped_tokens,
                duration_ms=round((effects.clock.monotonic() - self.started_s) * 1000),
                preserved_segment=PreservedSegment(
                    head_uuid=uuids[0], anchor_uuid=summary_uuid, tail_uuid=uuids[-1]
                ),
                preserved_messages=PreservedMessages(
                    anchor_uuid=summary_uuid, uuids=uuids, all_uuids=uuids
                ),
            ),
            logical_parent_uuid=uuids[-1],
        )
        is_manual = self.trigger == "manual"
        content: str | list[Block] = text if is_manual else [TextBlock(text=text)]
        summary = UserMessage(
            session_id=state.run.session_id,
            uuid=summary_uuid,
            message=UserContent(content=content),
            timestamp=wire_time(effects.clock.now()),
            isSynthetic=True,
            isReplay=False if is_manual else None,
        )
        return Entry.of(boundary), Entry.of(summary, {COMPACTED: left})

    def _used_tokens(self, text: str, state: LoopState, effects: Effects) -> int:
        """Estimate what a request holds now, but for what is newer than the newest response."""
        after = replace(state, memory=state.memory.compacted())
        request = build_request(after, effects)
        first = self.kept[0]
        counted = state.used_tokens - first.tokens_before if first.tokens_before else 0
        stays = max(counted, sum(message_tokens(message) for message in self.kept))
        opening = blocks_tokens(opening_blocks(state.briefing))
        overhead = text_tokens(request.system) + blocks_tokens(request.tools) + opening
        return overhead + text_tokens((text,)) + stays
