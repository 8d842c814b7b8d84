import io
import json
from typing import Any

import pytest
from rich.console import Console

from app.cli.client import Frame
from app.cli.failure import Status
from app.cli.follow import JsonLines, Printer, result_line, status_of, telling_argument

RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 2,
    "session_id": "s-1",
    "total_cost_usd": 9.0,
    "usage": {"input_tokens": 1000, "cache_read_input_tokens": 200, "output_tokens": 34},
    "model_usage_since_last_result": {
        "m": {"costUSD": 0.5, "costBasis": "list", "canonicalModel": "m"}
    },
}


def message(body: dict[str, Any]) -> Frame:
    return Frame("message", json.dumps(body), 1)


def assistant(*blocks: dict[str, Any], message_id: str = "msg_1", **more: Any) -> Frame:
    inner = {"id": message_id, "content": list(blocks)}
    return message({"type": "assistant", "message": inner, **more})


def use(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result_of(call_id: str, content: object, *, is_error: bool = False) -> Frame:
    block = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": content,
        "is_error": is_error,
    }
    return message({"type": "user", "message": {"role": "user", "content": [block]}})


def preview(event: dict[str, Any], message_id: str = "msg_1") -> Frame:
    body = {"type": "stream_event", "api_message_id": message_id, "event": event}
    return Frame("preview", json.dumps(body), None)


def begins(message_id: str = "msg_1") -> Frame:
    return preview({"type": "message_start"}, message_id)


def piece(text: str, index: int = 0, message_id: str = "msg_1") -> Frame:
    delta = {"type": "text_delta", "text": text}
    return preview({"type": "content_block_delta", "index": index, "delta": delta}, message_id)


def ends(index: int = 0) -> Frame:
    return preview({"type": "content_block_stop", "index": index})


def printed(*frames: Frame, shows_prompts: bool = False) -> str:
    target = io.StringIO()
    printer = Printer(Console(file=target, width=80, soft_wrap=True), shows_prompts=shows_prompts)
    for frame in frames:
        printer.take(frame)
    return target.getvalue()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_call_is_one_line_with_its_telling_argument_and_its_result_is_short() -> None:
    long = "\n".join(f"line {number}" for number in range(10))
    shown = printed(assistant(use("Bash", "t1", command="make\n test")), result_of("t1", long))
    assert shown == (
        "● Bash make test\n  └ line 0\n    line 1\n    line 2\n    line 3\n    … 6 more lines\n"
    )


@pytest.mark.parametrize(
    ("arguments", "telling"),
    [
        ({"content": "long", "file_path": "a.txt"}, "a.txt"),
        ({"pattern": "*.py", "path": "src"}, "*.py"),
        ({"number": 7}, "7"),
        ({}, ""),
        ("no object", ""),
    ],
)
def test_the_argument_that_says_most_is_chosen(arguments: object, telling: str) -> None:
    assert telling_argument(arguments) == telling


def test_results_of_calls_that_run_together_name_their_call() -> None:
    calls = [
        assistant(use("Read", "t1", file_path="a")),
        assistant(use("Read", "t2", file_path="b")),
    ]
    shown = printed(*calls, result_of("t1", "A"), result_of("t2", "B", is_error=True))
    assert shown == "● Read a\n● Read b\n  of Read a:\n  └ A\n  ✗ B\n"


def test_a_denial_is_told_once() -> None:
    denial = {
        "type": "system",
        "subtype": "permission_denied",
        "tool_use_id": "t1",
        "message": "not allowed",
    }
    shown = printed(
        assistant(use("Bash", "t1", command="ls")),
        message(denial),
        result_of("t1", "not allowed", is_error=True),
    )
    assert shown == "● Bash ls\n  ✗ denied: not allowed\n"


def test_a_retry_says_why_and_how_long() -> None:
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 1,
        "max_retries": 10,
        "retry_delay_ms": 1250,
        "error_status": 529,
        "error": "overloaded",
    }
    assert "(overloaded 529): retry 1 of 10 in 1.2 s" in printed(message(retry))


def test_a_fallback_is_told() -> None:
    fallback = {"type": "system", "subtype": "model_fallback", "content": "m1 failed: m2 answers."}
    assert "m1 failed: m2 answers." in printed(message(fallback))


def test_text_of_models_and_tools_cannot_steer_the_terminal_or_pose_as_markup() -> None:
    evil = "\x1b[2J\x1b]0;title\x07[bold red]hi[/bold red]\x1b[1A"
    shown = printed(
        assistant(text(evil)),
        assistant(use(evil, "t1", command=evil)),
        result_of("t1", [{"type": "text", "text": evil}, {"type": "image"}]),
        begins("msg_2"),
        piece(evil, message_id="msg_2"),
        message({**RESULT, "session_id": evil, "errors": [evil]}),
    )
    assert "\x1b" not in shown
    assert "title" not in shown
    assert shown.count("[bold red]hi[/bold red]") == 7
    assert "[image]" in shown


def test_text_grows_piece_by_piece_and_is_not_printed_again_when_it_is_whole() -> None:
    frames = [begins(), piece("Hel"), piece("lo"), ends(), assistant(text("Hello"))]
    assert printed(*frames[:2]) == "Hel"
    assert printed(*frames) == "Hello\n"


def test_pieces_that_are_missing_at_the_end_are_added() -> None:
    assert printed(begins(), piece("Hel"), assistant(text("Hello"))) == "Hello\n"


def test_text_with_a_gap_in_its_pieces_is_printed_whole() -> None:
    assert printed(begins(), piece("Hlo"), ends(), assistant(text("Hello"))) == "Hlo\nHello\n"


def test_pieces_of_a_response_that_was_joined_late_wait_for_the_whole() -> None:
    assert printed(piece("llo"), assistant(text("Hello"))) == "Hello\n"


def test_each_text_of_a_response_is_matched_with_its_own_pieces() -> None:
    shown = printed(
        begins(),
        piece("one", 0),
        ends(0),
        piece("two", 2),
        ends(2),
        assistant(text("one")),
        assistant(use("Glob", "t1", pattern="*")),
        assistant(text("two")),
    )
    assert shown == "one\ntwo\n● Glob *\n"


def test_a_response_that_is_given_up_is_marked_and_the_next_one_starts_anew() -> None:
    gone = Frame("preview", json.dumps({"type": "service_preview_aborted"}), None)
    shown = printed(
        begins(),
        piece("Hel"),
        gone,
        begins("msg_2"),
        piece("Hi", message_id="msg_2"),
        assistant(text("Hi"), message_id="msg_2"),
    )
    assert shown == "Hel …\nHi\n"


def test_prompts_are_shown_to_those_who_did_not_type_them() -> None:
    prompt = message({"type": "user", "message": {"role": "user", "content": "Do it."}})
    assert printed(prompt) == ""
    assert printed(prompt, shows_prompts=True) == "» Do it.\n"


def test_another_host_that_takes_over_is_told_of() -> None:
    event = Frame("service", json.dumps({"type": "run.attempt", "attempt": 2}), 9)
    assert printed(event) == "another host goes on with the run (attempt 2)\n"


def test_the_last_line_says_how_it_ended_what_it_took_and_how_to_go_on() -> None:
    assert result_line(RESULT) == (
        "success: 2 turns, 1,200 tokens in (200 from the cache), 34 out, $0.500000. "
        'Go on: treadle run --session s-1 "…"'
    )


@pytest.mark.parametrize(
    ("spend", "says"),
    [
        ({"costUSD": 0.5, "costBasis": "list", "canonicalModel": "demo"}, "$0.500000 (notional)"),
        ({"costUSD": 0.0, "costBasis": "unknown", "canonicalModel": "x"}, "a price is not known"),
    ],
)
def test_the_cost_of_the_demo_and_an_unknown_price_are_named(
    spend: dict[str, Any], says: str
) -> None:
    assert says in result_line({**RESULT, "model_usage_since_last_result": {"m": spend}})


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (RESULT, Status.SUCCESS),
        ({**RESULT, "is_error": True}, Status.FAILED),
        ({**RESULT, "subtype": "error_max_turns", "is_error": True}, Status.FAILED),
        (None, Status.UNFINISHED),
    ],
)
def test_the_exit_status_follows_the_result(result: dict[str, Any] | None, status: Status) -> None:
    assert status_of(result) is status


def test_programs_get_messages_alone_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    follower = JsonLines()
    for frame in (begins(), Frame("service", "{}", 1), message(RESULT)):
        follower.take(frame)
    assert json.loads(capsys.readouterr().out) == RESULT == follower.result


def test_a_failure_is_told_once() -> None:
    said = "API error: The model's server cannot be reached."
    output = io.StringIO()
    printer = Printer(Console(file=output, width=80))
    printer.take(assistant({"type": "text", "text": said}, error="unknown"))
    failed = {"subtype": "error_during_execution", "is_error": True, "errors": [said, "Another."]}
    printer.take(message({**RESULT, **failed}))
    assert output.getvalue().count(said) == 1
    assert "Another." in output.getvalue()
