"""The script form: a prompt that says what the model shall answer.

A script stands in the text of a user prompt, as `<<script [step, …] >>`. Step i answers the
request in which i assistant messages follow the newest message that carries a script. A step is
a block, a list of blocks, or an object with `blocks` and controls (the fields of `Step`). The
demo model and the scripted Messages API of the tests read it; nothing else does.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

_OPEN = "<<script"
_BLOCK_KEYS = frozenset({"text", "thinking", "signature", "tool", "input", "id", "block"})
_MAX_TRACKED_TRIES = 4_096


class ScriptError(ValueError):
    """A script that cannot be read. The text says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One scripted answer, and how it misbehaves."""

    blocks: tuple[Mapping[str, Any], ...] = ()
    """`{"text"}`, `{"thinking"}`, `{"tool", "input"}`, or `{"block"}`: any block verbatim."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Merged over 100 input and 10 output tokens."""
    stop_reason: str | None = None
    chunk: int = 0
    """Characters a delta; 0 means one delta a block."""
    deltas: int = 0
    """So many text deltas are added as one more block."""
    delta_chars: int = 6
    """The size of each of them."""
    delay: float = 0
    """Seconds before the answer begins."""
    chunk_delay: float = 0
    """Seconds before each delta."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to the answer."""
    crlf: bool = False
    """Lines end with CR LF."""

    http: int | None = None
    """Answer with this status instead."""
    error: str = "api_error"
    message: str = "scripted error"
    retry_after: float | str | None = None
    x_should_retry: bool | None = None
    cut: int | None = None
    """The connection dies after so many events."""
    reset: bool = False
    """… by a reset (RST) and not by an end (FIN)."""
    stall: int | None = None
    """Nothing comes after so many events; the connection stays open."""
    error_after: int | None = None
    """An `error` event, made of `error` and `message`, comes after so many events."""
    raw: str | None = None
    """A body sent instead of a stream, with status 200 unless `http` says otherwise."""
    content_type: str = "text/event-stream"
    garbage: bool = False
    """Tool input JSON is broken off."""
    times: int | None = None
    """Only so many tries of the step misbehave."""
    only_model: str | None = None
    """Misbehave only for this model."""

    @property
    def faults(self) -> bool:
        """Whether the step misbehaves at all."""
        cuts = (self.cut, self.stall, self.error_after)
        return self.http is not None or self.raw is not None or self.garbage or cuts != (None,) * 3

    def sound(self) -> "Step":
        """Give the step without its misbehaviour."""
        return Step(
            blocks=self.blocks or ({"text": "ok"},),
            usage=self.usage,
            stop_reason=self.stop_reason,
            chunk=self.chunk,
            deltas=self.deltas,
            delta_chars=self.delta_chars,
            delay=self.delay,
            chunk_delay=self.chunk_delay,
            headers=self.headers,
        )


END_OF_SCRIPT = Step(blocks=({"text": "end of script"},))
_CONTROLS = frozenset(f.name for f in fields(Step)) - {"blocks"}


class Tries:
    """Counts the tries of steps that misbehave a limited number of times. Bounded."""

    def __init__(self) -> None:
        self._counts: OrderedDict[int, int] = OrderedDict()

    def settle(self, step: Step, body: Mapping[str, Any]) -> Step:
        """Give the step as it is to be played for this request: misbehaving, or sound."""
        if not step.faults:
            return step
        if step.only_model is not None and body.get("model") != step.only_model:
            return step.sound()
        if step.times is None:
            return step
        # A retry sends the same messages for the same session.
        key = hash(json.dumps([body.get("metadata"), body["messages"]]))
        tries = self._counts.pop(key, 0) + 1
        self._counts[key] = tries
        if len(self._counts) > _MAX_TRACKED_TRIES:
            self._counts.popitem(last=False)
        return step if tries <= step.times else step.sound()


def scripted_step(messages: Sequence[Mapping[str, Any]]) -> Step | None:
    """Give the step that answers a request; None when no user prompt carries a script.

    Tool results are never searched. Raises `ScriptError`.
    """
    answers = 0
    for message in reversed(messages):
        if message.get("role") == "assistant":
            answers += 1
            continue
        for text in reversed(list(prompt_texts(message))):
            steps = parse_script(text) if _OPEN in text else None
            if steps is not None:
                return steps[answers] if answers < len(steps) else END_OF_SCRIPT
    return None


def prompt_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that a user message holds beside tool results and reminders."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
        return
    for block in content or ():
        text = block.get("text") if block.get("type") == "text" else None
        if isinstance(text, str) and not text.startswith("<system-reminder>"):
            yield text


@lru_cache(maxsize=256)
def parse_script(text: str) -> tuple[Step, ...] | None:
    """Give the steps of the last script in `text`, or None. Raises `ScriptError`."""
    steps = None
    at = text.find(_OPEN)
    while at >= 0:
        begin = text.find("[", at)
        if begin < 0 or text[at + len(_OPEN) : begin].strip():
            raise ScriptError("a script is a JSON list of steps")
        try:
            # Scripts of subagents stand inside strings of this one, and are read over with it.
            steps, end = json.JSONDecoder().raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            raise ScriptError(f"the script is no JSON: {error}") from error
        at = text.find(_OPEN, end)
    return None if steps is None else tuple(_step(step) for step in steps)


def _step(value: object) -> Step:
    if isinstance(value, list):
        return Step(blocks=tuple(_block(block) for block in value))
    if not isinstance(value, dict):
        raise ScriptError("a step is a block, a list of blocks, or an object with blocks")
    block = {key: item for key, item in value.items() if key in _BLOCK_KEYS}
    controls = {key: item for key, item in value.items() if key not in _BLOCK_KEYS}
    blocks = [_block(item) for item in controls.pop("blocks", [])]
    if unknown := set(controls) - _CONTROLS:
        raise ScriptError(f"unknown control {min(unknown)!r}")
    return Step(blocks=tuple([_block(block)] if block else blocks), **controls)


def _block(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not value.keys() & {"text", "thinking", "tool", "block"}:
        raise ScriptError("a block has text, thinking, tool, or block")
    return value
