"""Print a stream as it comes, for people (`Printer`) or for programs (`JsonLines`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from rich.console import Console

from app.cli.client import Frame, decode
from app.cli.failure import Status
from app.cli.live_text import LiveText
from app.cli.plain import few_lines, json_line, one_line, shown
from app.cli.screen import print_line

_RESULT_LINES = 4
_MOST_COLUMNS = 110
_TELLING = ("file_path", "command", "pattern", "path", "url", "query", "description")
"""The arguments that say most about a call, the best first."""


class Follower(Protocol):
    """Takes the frames of a stream in order."""

    result: Mapping[str, Any] | None
    """The newest `result` message."""

    def take(self, frame: Frame) -> None:
        """Print a frame."""
        ...


def status_of(result: Mapping[str, Any] | None) -> Status:
    """Give the exit status for a run's result."""
    if result is None:
        return Status.UNFINISHED
    is_good = result.get("subtype") == "success" and not result.get("is_error")
    return Status.SUCCESS if is_good else Status.FAILED


@dataclass(slots=True)
class JsonLines:
    """Prints each SDK message as one line of JSON, and nothing else."""

    result: Mapping[str, Any] | None = None

    def take(self, frame: Frame) -> None:
        """Print a message; leave the service's own events out."""
        if frame.event != "message":
            return
        body = decode(frame)
        if body.get("type") == "result":
            self.result = body
        print_line(json_line(frame.data))


@dataclass(slots=True)
class Printer:
    """Prints a stream readably. Whatever came from a model or a tool is made harmless first."""

    console: Console
    shows_prompts: bool = False
    """Whether prompts are printed: a reader of a whole session has not typed them."""
    result: Mapping[str, Any] | None = None
    _live: LiveText = field(init=False)
    _open_calls: dict[str, str] = field(default_factory=dict)
    """Calls without a result yet, and how they were printed; the newest last."""
    _denied: set[str] = field(default_factory=set)
    _failure: str = ""
    """What a notice said of a model request that failed: the result says it again."""

    def __post_init__(self) -> None:
        self._live = LiveText(lambda text: self.console.print(shown(text), end=""))

    @property
    def _width(self) -> int:
        return min(self.console.width, _MOST_COLUMNS) - 4

    def take(self, frame: Frame) -> None:
        """Print a frame."""
        body = decode(frame)
        match frame.event:
            case "message":
                self._message(body)
            case "preview":
                self._live.preview(body)
            case "service":
                self._service(body)
            case _:
                return

    def _message(self, body: Mapping[str, Any]) -> None:
        match body.get("type"):
            case "system":
                self._system(body)
            case "assistant":
                self._assistant(body)
            case "user":
                self._user(body)
            case "result":
                self._result(body)
            case "prompt_suggestion":
                self._note(f"Next, perhaps: {one_line(str(body.get('suggestion')), 400)}")
            case "rate_limit_event":
                self._note(limit_text(body.get("rate_limit_info") or {}), "yellow")
            case _:
                return

    def _note(self, text: str, style: str = "dim") -> None:
        self._live.close_line()
        self.console.print(shown(text, style))

    # -- what the loop says ---------------------------------------------------------------

    def _system(self, body: Mapping[str, Any]) -> None:
        match body.get("subtype"):
            case "init":
                mode = body.get("permissionMode")
                self._note(f"session {body.get('session_id')} · {body.get('model')} · {mode}")
            case "api_retry":
                self._live.drop()
                self._note(retry_text(body), "yellow")
            case "model_fallback":
                self._live.drop()
                self._note(one_line(str(body.get("content")), 400), "yellow")
            case "permission_denied":
                self._denied.add(str(body.get("tool_use_id")))
                self._note(f"  ✗ denied: {one_line(str(body.get('message')), 400)}", "red")
            case "informational":
                style = "yellow" if body.get("level") == "warning" else "dim"
                self._note(one_line(str(body.get("content")), 400), style)
            case "worker_shutting_down":
                self._note("the host is going; another one goes on")
            case _:
                return

    def _service(self, body: Mapping[str, Any]) -> None:
        match body.get("type"):
            case "run.started" if self.shows_prompts:
                self._note(f"── {body.get('run_id')} ──", "bold")
            case "run.attempt":
                self._live.drop()
                self._note(f"another host goes on with the run (attempt {body.get('attempt')})")
            case _:
                return

    # -- what the model says --------------------------------------------------------------

    def _assistant(self, body: Mapping[str, Any]) -> None:
        message = body.get("message") or {}
        for block in message.get("content") or ():
            match block.get("type"):
                case "text":
                    text = self._live.whole(str(message.get("id")), str(block.get("text", "")))
                    if body.get("error"):
                        self._failure = str(block.get("text"))
                    if text:
                        self._note(text, "red" if body.get("error") else "")
                case "tool_use":
                    self._call(block)
                case "thinking" if block.get("thinking"):
                    self._note(f"({one_line(str(block['thinking']), self._width)})", "dim italic")
                case _:
                    continue

    def _call(self, block: Mapping[str, Any]) -> None:
        name = str(block.get("name"))
        label = one_line(f"{name} {telling_argument(block.get('input'))}", self._width)
        self._open_calls[str(block.get("id"))] = label
        self._note(f"● {label}", "cyan")

    # -- what comes back ------------------------------------------------------------------

    def _user(self, body: Mapping[str, Any]) -> None:
        content = (body.get("message") or {}).get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks or ():
            if block.get("type") == "tool_result":
                self._tool_result(block)
            elif block.get("type") == "text":
                self._user_text(body, str(block.get("text")))

    def _user_text(self, body: Mapping[str, Any], text: str) -> None:
        if body.get("isSynthetic"):
            self._note(f"(note to the model: {one_line(text, self._width)})")
        elif self.shows_prompts:
            self._note(f"» {text}", "bold")

    def _tool_result(self, block: Mapping[str, Any]) -> None:
        call_id = str(block.get("tool_use_id"))
        newest = next(reversed(self._open_calls), None)
        label = self._open_calls.pop(call_id, None)
        if call_id in self._denied:
            return  # the denial said it already
        if label is not None and call_id != newest:
            self._note(f"  of {label}:")  # calls that run together end in any order
        is_error = bool(block.get("is_error"))
        lines = few_lines(result_text(block.get("content")), _RESULT_LINES, self._width)
        for number, line in enumerate(lines):
            mark = ("✗" if is_error else "└") if number == 0 else " "
            self._note(f"  {mark} {line}", "red" if is_error else "dim")

    def _result(self, body: Mapping[str, Any]) -> None:
        self._live.drop()
        self.result = body
        for error in map(str, body.get("errors") or ()):
            if error != self._failure:
                self._note(error, "red")
        style = "green" if status_of(body) is Status.SUCCESS else "red"
        self._note(result_line(body), f"bold {style}")


def result_line(body: Mapping[str, Any]) -> str:
    """Give a run's end in one line: how, what it took, and how to go on."""
    usage = body.get("usage") or {}
    written = usage.get("cache_creation_input_tokens", 0)
    read = usage.get("cache_read_input_tokens", 0)
    total_in = usage.get("input_tokens", 0) + written + read
    cached = f" ({read:,} from the cache)" if read else ""
    turns = body.get("num_turns")
    return (
        f"{body.get('subtype')}: {turns} turn{'' if turns == 1 else 's'}, "
        f"{total_in:,} tokens in{cached}, {usage.get('output_tokens', 0):,} out, "
        f"{cost_text(body.get('model_usage_since_last_result') or {})}. "
        f'Go on: treadle run --session {body.get("session_id")} "…"'
    )


def cost_text(by_model: Mapping[str, Mapping[str, Any]]) -> str:
    """Give what a run cost, from its `model_usage_since_last_result`."""
    spends = by_model.values()
    total = sum((Decimal(str(spend.get("costUSD", 0))) for spend in spends), Decimal(0))
    if any(spend.get("costBasis") == "unknown" for spend in spends):
        return f"${total:.6f} and more: a price is not known"
    is_demo = bool(by_model) and all(s.get("canonicalModel") == "demo" for s in spends)
    return f"${total:.6f}{' (notional)' if is_demo else ''}"


def retry_text(body: Mapping[str, Any]) -> str:
    """Say that a model request failed and is made again."""
    status = body.get("error_status")
    wait_s = int(body.get("retry_delay_ms") or 0) / 1000
    return (
        f"the model did not answer ({body.get('error')}{f' {status}' if status else ''}): "
        f"retry {body.get('attempt')} of {body.get('max_retries')} in {wait_s:.1f} s"
    )


def limit_text(info: Mapping[str, Any]) -> str:
    """Say where the provider's rate limit stands."""
    what = str(info.get("rateLimitType") or info.get("resource") or "requests").replace("_", " ")
    used = info.get("utilization")
    share = f" ({used:.0%} used)" if isinstance(used, int | float) else ""
    match info.get("status"):
        case "rejected":
            return f"the provider's rate limit is hit: {what}{share}"
        case "allowed_warning":
            return f"the provider's rate limit is near: {what}{share}"
        case _:
            return f"the provider's rate limit is far again: {what}{share}"


def telling_argument(arguments: object) -> str:
    """Give the argument of a call that says most about it."""
    if not isinstance(arguments, Mapping):
        return ""
    for name in _TELLING:
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    return next((str(value) for value in arguments.values()), "")


def result_text(content: object) -> str:
    """Give a tool result's text; what is no text is named in brackets."""
    if not isinstance(content, list):
        text = str(content or "(nothing)")
        return text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    parts = [
        str(block.get("text")) if block.get("type") == "text" else f"[{block.get('type')}]"
        for block in content
    ]
    return "\n".join(parts) or "(nothing)"
