"""The parts of a form: runs, responses, and the messages that we put in."""

from collections.abc import Iterator, Mapping, Sequence

from tests.traces.fields import KEYS, OF_SUBAGENTS
from tests.traces.normal import Json

USAGE: Mapping[str, int] = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
"""Of a scripted response that says nothing else."""


def turns_of(messages: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield the messages of each run: up to its result, or, after a crash, to the next `init`.

    What is told of background tasks between two runs is of neither, nor what subagents say there.
    """
    turn: list[Json] = []
    for message in messages:
        is_over = bool(turn) and turn[-1]["type"] == "result"
        if is_over and (is_of_task(message) or message.get("parent_tool_use_id")):
            continue
        is_next = message.get("subtype") == "init" and any(map(is_init, turn))
        if is_over or is_next:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def is_init(message: Json) -> bool:
    return message.get("subtype") == "init"


def is_of_task(message: Json) -> bool:
    """Whether a message tells of background tasks."""
    subtype = str(message.get("subtype"))
    return subtype.startswith("task_") or subtype == "background_tasks_changed"


def responses_of(turn: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield the assistant messages of each response of the main conversation that came to its end."""
    by_id: dict[str, list[Json]] = {}
    for message in turn:
        is_cut = message["type"] == "assistant" and is_aborted(message)
        if message["type"] != "assistant" or message["parent_tool_use_id"] is not None:
            continue
        if not is_cut and not is_synthetic(message):
            by_id.setdefault(message["message"]["id"], []).append(message)
    yield from by_id.values()


def is_synthetic(message: Json) -> bool:
    """Whether the loop made this message: it is no response."""
    return bool(message.get("message", {}).get("model") == "<synthetic>")


def is_aborted(message: Json) -> bool:
    return "aborted" in message["keys"]


def index_of(messages: Sequence[Json], message: Json) -> int:
    """Give where this very object stands: equal ones may stand elsewhere."""
    return next(index for index, other in enumerate(messages) if other is message)


def user_message(session_id: str, content: list[Json]) -> Json:
    return {
        "type": "user",
        "session_id": session_id,
        "keys": sorted(
            KEYS["user"] - OF_SUBAGENTS - {"isSynthetic", "tool_result_meta", "tool_use_result"}
        ),
        "parent_tool_use_id": None,
        "message": {"keys": ["content", "role"], "content": content},
    }


def result_message(session_id: str, block: Json, structured: object) -> Json:
    """Give the message of a call that did not run."""
    return {
        **user_message(session_id, [block]),
        "keys": sorted(KEYS["user"] - OF_SUBAGENTS - {"isSynthetic", "tool_result_meta"}),
        "tool_use_result": structured,
    }


def rename_responses(messages: Sequence[Json], start: int, *, after: str) -> None:
    """Count the ids of responses on by one, from a place on."""
    newest = int(after.removeprefix("msg-"))
    for message in messages[start:]:
        if message["type"] == "assistant":
            number = int(message["message"]["id"].removeprefix("msg-"))
            if number > newest:
                message["message"]["id"] = f"msg-{number + 1}"
