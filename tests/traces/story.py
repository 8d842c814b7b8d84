"""What was done in a recording and when: prompts sent, interrupts, crashes, and the turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

Line = Mapping[str, Any]
"""One line of a trace file, decoded."""

Sending = Literal["alone", "together", "steer"]
"""How a prompt was sent: while nothing ran, right behind another one, or while a turn ran."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a recording had shown, all in all, before something was done to it."""

    calls: int = 0
    """Tool uses."""
    answers: int = 0
    """Their results."""
    results: int = 0
    """Ends of turns; a crash is one, since ours goes on (B17)."""
    requests: int = 0
    """Of the model."""
    asked: int = 0
    """Approvals that were asked for."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that is done to the service."""

    kind: Literal["send", "interrupt", "crash", "answer", "control", "stop"]
    after: Seen
    prompts: tuple[int, ...] = ()
    """What is sent, in one go."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The answer to what is asked, or the control request."""


@dataclass(slots=True)
class Sent:
    """A prompt as it was sent."""

    start: int
    sending: Sending
    has_uuid: bool


@dataclass(slots=True)
class ToldTurn:
    """A turn of ours, as the recording lets us know it."""

    taken: list[tuple[int, int]]
    """Each prompt's index, and how many responses of the turn came before it. Empty: the end of a
    background task began it."""
    is_merged: bool = False
    """Whether the recording has it in one turn with the next one (B29)."""
    responses: list[str] = field(default_factory=list)
    """Ids of its responses."""


@dataclass(slots=True)
class Story:
    """Reads a recording line by line."""

    sent: list[Sent] = field(default_factory=list)
    turns: list[ToldTurn] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    _starts: int = 0
    _is_first_noted: bool = True
    """A session that stays open leaves no `query_start`."""
    _seen: Seen = Seen()
    _callbacks: set[str] = field(default_factory=set)
    """Ids of requests for an approval."""
    _waiting: list[int] = field(default_factory=list)
    """Prompts that no turn has taken in."""
    _is_running: bool = False
    """Whether a turn has begun and not ended."""
    _has_news: bool = False
    """Whether a background task has ended, of which the model has not heard."""

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Self:
        """Raises `ValueError` when the lines make no sense."""
        story = cls()
        for number, line in enumerate(lines[1:], 2):
            try:
                story._take(line)
                if line.get("subtype") == "task_notification" and line["output_file"]:
                    story._has_news = True
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"line {number} of the trace is malformed") from error
        return story

    def _take(self, line: Line) -> None:
        match line:
            case {"event": "query_start"}:
                self._starts += 1
            case {"event": "home_wiped"}:
                # What one host had is gone: another one goes on.
                self.acts.append(Act("crash", self._seen))
                self._starts += 1
            case {"dir": "send", "type": "user"}:
                self._send(has_uuid="uuid" in line["keys"])
            case {"request": _} | {"type": "control_response"}:
                self._controlled(line)
            case {"event": "process_exit", "code": -9}:
                self.acts.append(Act("crash", self._seen))
                self._end()
            case {"subtype": "init"}:
                self._begin()
            case {"type": "assistant"}:
                self._answer(line)
            case {"type": "user", "message": {"content": [{"type": "tool_result"}, *_]}}:
                self._seen = replace(self._seen, answers=self._seen.answers + 1)
            case {"type": "result"}:
                self._end(was_local="local_command" in line["keys"])

    def _controlled(self, line: Line) -> None:
        match line:
            case {"dir": "send", "request": {"subtype": "interrupt"}}:
                self.acts.append(Act("interrupt", self._seen))
            case {"dir": "send", "request": {"subtype": "stop_task"}}:
                self.acts.append(Act("stop", self._seen, body=line["request"]))
            case {"dir": "send", "request": {"subtype": "set_model" | "set_permission_mode"}}:
                self.acts.append(Act("control", self._seen, body=line["request"]))
            case {"dir": "recv", "request": {"subtype": "can_use_tool"}}:
                self._seen = replace(self._seen, asked=self._seen.asked + 1)
                self._callbacks.add(line["request_id"])
            case {"dir": "send", "request_id": answered} if answered in self._callbacks:
                self.acts.append(Act("answer", self._seen, body=_answer_of(line)))

    def _send(self, *, has_uuid: bool) -> None:
        index, sending = len(self.sent), self._sending()
        if index == 0:
            self._is_first_noted = self._starts > 0
        self.sent.append(Sent(self._starts - self._is_first_noted, sending, has_uuid))
        self._waiting.append(index)
        if sending == "together":
            first = self.acts.pop()
            self.acts.append(replace(first, prompts=(*first.prompts, index)))
        else:
            self.acts.append(Act("send", self._seen, (index,)))

    def _sending(self) -> Sending:
        if self._is_running:
            return "steer"
        return "together" if self._waiting else "alone"

    def _begin(self) -> None:
        if not self._waiting:
            if not self._has_news:
                raise ValueError("a turn without a prompt")
            self.turns.append(ToldTurn([]))
            self._has_news = False
            return
        self._is_running = True
        # The recording has one request on the way from here on.
        self._seen = replace(self._seen, requests=self._seen.requests + 1)
        late = [index for index in self._waiting if self.sent[index].sending == "steer"]
        begun = late or self._waiting[:1]
        self.turns += [ToldTurn([(index, 0)], is_merged=True) for index in begun]
        self.turns[-1].is_merged = False
        self._waiting = [index for index in self._waiting if index not in begun]

    def _answer(self, line: Line) -> None:
        if not self.turns:
            raise ValueError("an answer before the first turn")
        turn, body = self.turns[-1], line["message"]
        is_of_subagent = line.get("parent_tool_use_id") is not None
        if body["id"] not in turn.responses and not is_of_subagent:
            if turn.responses:
                turn.taken += [(index, len(turn.responses)) for index in self._waiting]
                self._waiting = []
                self._seen = replace(self._seen, requests=self._seen.requests + 1)
            turn.responses.append(body["id"])
        calls = sum(block["type"] == "tool_use" for block in body["content"])
        self._seen = replace(self._seen, calls=self._seen.calls + calls)

    def _end(self, *, was_local: bool = False) -> None:
        self._is_running = False
        if was_local and not self.turns[-1].responses:
            # No model was asked; a summary, if one was made, came before this.
            self._seen = replace(self._seen, requests=self._seen.requests - 1)
        self._seen = replace(self._seen, results=self._seen.results + 1)


def _answer_of(line: Line) -> dict[str, Any]:
    """Give a callback's answer in the form that our actions take."""
    if line["subtype"] == "error":
        message = f"Tool permission request failed: Error: {line['error']}"
        return {"behavior": "deny", "message": message}
    given = dict(line["response"])
    names = {"updatedInput": "updated_input", "updatedPermissions": "updated_permissions"}
    return {names.get(name, name): value for name, value in given.items()}
