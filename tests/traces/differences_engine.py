"""Differences of the engine: crashes, late prompts, interrupts, prompts on the wire."""

import copy
import re
from collections.abc import Iterator, Mapping

from tests.traces.normal import Form, Json, Like
from tests.traces.order import answered, uses
from tests.traces.scenario import Scenario
from tests.traces.spending import add_spend, total
from tests.traces.turns import (
    USAGE,
    index_of,
    is_aborted,
    is_init,
    rename_responses,
    responses_of,
    result_message,
    turns_of,
    user_message,
)

FILLER: Json = {
    "role": "assistant",
    "content": [{"type": "text", "text": "No response requested."}],
}
"""What the reference says between a session that ended badly and the next prompt."""
LOST = Like(r"Error: .*\blost\b.*", "Error: The host was lost.")


# -- B17: a crash ends no run -----------------------------------------------------------------


def crashed_runs_go_on(form: Form, scenario: Scenario) -> None:
    """Put in what follows a crash: the lost call's result, the next answer, the run's result."""
    for at in reversed(form.crashes):
        number = sum(message.get("subtype") == "init" for message in form.messages[:at]) - 1
        turn = list(turns_of(form.messages[:at]))[number]
        answers = len(list(responses_of(turn)))
        text = scenario.turns[number].steps[answers].blocks[0]["text"]
        following = next(turns_of(form.messages[at:]))
        _go_on_in_requests(form, text, following)
        _go_on_in_messages(form, turn, text, at, following[-1])


def _go_on_in_requests(form: Form, text: str, following: list[Json]) -> None:
    at = len(form.requests) - len(list(responses_of(following)))
    resumed = form.requests[at]
    if resumed["messages"][-2] != FILLER:
        raise ValueError("a session is resumed in another way")
    form.requests.insert(at, {**resumed, "messages": resumed["messages"][:-2]})
    answer = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    resumed["messages"] = [*resumed["messages"][:-2], answer, resumed["messages"][-1]]


def _go_on_in_messages(form: Form, turn: list[Json], text: str, at: int, result: Json) -> None:
    told = {answered(message) for message in turn}
    lost = [call["id"] for message in turn for call in uses(message) if call["id"] not in told]
    blocks = [
        copy.deepcopy(block)
        for request in form.requests
        for message in request["messages"]
        for block in message["content"]
        if block.get("tool_use_id") in lost
    ]
    newest = next(message for message in reversed(turn) if message["type"] == "assistant")
    answer = copy.deepcopy(newest)
    answer["message"]["content"] = [{"type": "text", "text": text}]
    number = int(newest["message"]["id"].removeprefix("msg-"))
    answer["message"]["id"] = f"msg-{number + 1}"
    rename_responses(form.messages, at, after=newest["message"]["id"])
    results = [result_message(turn[0]["session_id"], block, LOST) for block in blocks[: len(lost)]]
    ended = _ended(result, [*turn, answer], text)
    (model,) = result["modelUsage"]
    form.messages[at:at] = [*results, answer, ended]
    rounds = ended["num_turns"]
    spent = total([result["usage"]] * rounds)
    add_spend(form.messages, at + len(results) + 2, model, spent, result["total_cost_usd"] * rounds)


def _ended(like: Json, turn: list[Json], text: str) -> Json:
    """Give the result of a run of the same session, whose responses cost what that one's did."""
    rounds = len(list(responses_of(turn)))
    ended = copy.deepcopy(like)
    ended |= {"result": text, "num_turns": rounds, "usage": total([like["usage"]] * rounds)}
    ended["total_cost_usd"] = 0.0
    for spend in ended["modelUsage"].values():
        spend |= {"costUSD": 0.0, "inputTokens": 0, "outputTokens": 0}
    (model,) = ended["modelUsage"]
    add_spend([ended], 0, model, ended["usage"], like["total_cost_usd"] * rounds)
    return ended


# -- B29: what HTTP changes -------------------------------------------------------------------


def late_prompts_have_runs(form: Form, scenario: Scenario) -> None:
    """Part the turn that answers several late prompts into one for each of them."""
    for number, turn in enumerate(scenario.turns):
        if turn.is_merged:
            (first, _), (second, _) = turn.taken[0], scenario.turns[number + 1].taken[0]
            _part(form, number, turn.steps[0].blocks[0]["text"], (first, second))


def _part(form: Form, number: int, text: str, prompts: tuple[int, int]) -> None:
    before, merged = list(turns_of(form.messages))[number - 1 : number + 1]
    own = copy.deepcopy(merged)
    _, answer, ended = own
    answer["message"]["content"] = [{"type": "text", "text": text}]
    ended["result"] = text
    at = index_of(form.messages, merged[0])
    newest = next(m["message"]["id"] for m in reversed(before) if m["type"] == "assistant")
    rename_responses(form.messages, at, after=newest)
    (model,) = ended["modelUsage"]
    add_spend(
        form.messages,
        at,
        model,
        ended["usage"],
        ended["total_cost_usd"] - before[-1]["total_cost_usd"],
    )
    form.messages[at:at] = own
    _part_request(form, text, *(form.prompts[index] for index in prompts))


def _part_request(form: Form, text: str, first: str, second: str) -> None:
    (at,) = [
        n
        for n, request in enumerate(form.requests)
        if request["messages"][-1] == _says("user", f"{first}\n{second}")
    ]
    merged = form.requests[at]
    own = {**merged, "messages": [*merged["messages"][:-1], _says("user", first)]}
    later = [*own["messages"], _says("assistant", text), _says("user", second)]
    form.requests[at : at + 1] = [own, {**merged, "messages": later}]


def _says(role: str, text: str) -> Json:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def no_fillers(form: Form, _: Scenario) -> None:
    """Take the filler out: what stands on both sides of it is one user message then."""
    for request in form.requests:
        messages = request["messages"]
        while FILLER in messages:
            at = messages.index(FILLER)
            before, after = messages[at - 1], messages[at + 1]
            if (before["role"], after["role"]) != ("user", "user"):
                raise ValueError("a filler at another place")
            joined = {"role": "user", "content": [*before["content"], *after["content"]]}
            messages[at - 1 : at + 2] = [joined]


# -- B1, B23: a response that was cut ---------------------------------------------------------


def cut_responses_are_marked(form: Form, scenario: Scenario) -> None:
    """Mark whole blocks of a cut response too: they did not come with their response's end."""
    whole = [block.get("text") for turn in scenario.turns for block in turn.steps[0].blocks]
    for message in _cut(form):
        if message["message"]["content"][0]["text"] in whole:
            message["keys"] = sorted({*message["keys"], "aborted"})
            message["aborted"] = True


def cut_responses_count(form: Form, scenario: Scenario) -> None:
    """Put our estimate in, in place of theirs, and count it in the run's usage too."""
    estimate = {**USAGE, "output_tokens": scenario.held_chars // CHARACTERS_PER_TOKEN}
    for message in _cut(form):
        if message["message"]["usage"] == {**USAGE, "output_tokens": 1}:
            message["message"]["usage"] = estimate
            turn = next(t for t in turns_of(form.messages) if any(m is message for m in t))
            _count(form, turn[-1], message["message"]["model"], estimate)


CHARACTERS_PER_TOKEN = 4
OUTPUT_TOKEN_USD = 0.00001
"""Of the model that the traces use."""


def _count(form: Form, result: Json, model: str, estimate: Mapping[str, int]) -> None:
    if result["usage"] != dict.fromkeys(USAGE, 0):
        raise ValueError("the reference counts a cut response")
    result["usage"] = dict(estimate)
    theirs = result["modelUsage"][model]["outputTokens"]
    more = estimate["output_tokens"] - theirs
    change = {**dict.fromkeys(USAGE, 0), "output_tokens": more}
    at = index_of(form.messages, result)
    add_spend(form.messages, at, model, change, more * OUTPUT_TOKEN_USD)


def _cut(form: Form) -> Iterator[Json]:
    for turn in turns_of(form.messages):
        if turn[-1].get("terminal_reason") == "aborted_streaming":
            yield from (message for message in turn if message["type"] == "assistant")


def cut_previews_are_closed(form: Form, _: Scenario) -> None:
    """Put our word that a preview is void in place of the end that the reference makes up."""
    for turn in list(turns_of(form.messages)):
        cut = next((m for m in turn if m["type"] == "assistant" and is_aborted(m)), None)
        events = [message for message in turn if "event" in message]
        if cut is None or not events:
            continue
        stop, delta, end = events[-3:]
        kinds = [event["event"]["type"] for event in (stop, delta, end)]
        at = index_of(form.messages, stop)
        made_up = form.messages[at : at + 3]
        if kinds != ["content_block_stop", "message_delta", "message_stop"] or not (
            made_up == [stop, delta, end]
            and stop["event"]["index"] == 0
            and delta["event"]["delta"] == {"stop_reason": None}
            and delta["event"]["usage"] == cut["message"]["usage"]
            and {event["session_id"] for event in made_up} == {cut["session_id"]}
            and all(event == {**event, **_PREVIEW} for event in made_up)
            and {event["api_message_id"] for event in made_up} == {cut["message"]["id"]}
        ):
            raise ValueError("the reference ends a preview in another way")
        del form.messages[at : at + 3]
        form.messages.insert(index_of(form.messages, cut), _void(cut))


_PREVIEW: Json = {
    "type": "stream_event",
    "keys": ["api_message_id", "event", "parent_tool_use_id", "session_id", "type", "uuid"],
    "parent_tool_use_id": None,
}


def _void(cut: Json) -> Json:
    return {
        "type": "service_preview_aborted",
        "session_id": cut["session_id"],
        "keys": ["message_id", "reason", "session_id", "type"],
        "message_id": cut["message"]["id"],
        "reason": "cancelled",
    }


def printed(message: Json) -> bool:
    """Whether a message is what a command of the service printed."""
    (block,) = message["message"]["content"]
    return str(block.get("text", "")).startswith("<local-command-stdout>")


# -- B25: prompts on the wire -----------------------------------------------------------------


def prompts_are_replayed(form: Form, scenario: Scenario) -> None:
    """Show each prompt where the loop takes it in, unless the recording does."""
    for told, turn in zip(scenario.turns, list(turns_of(form.messages)), strict=True):
        replays = [message for message in turn if message.get("isReplay") and not printed(message)]
        if replays:
            texts = [message["message"]["content"][0]["text"] for message in replays]
            if texts != [form.prompts[index] for index, _ in told.taken]:
                raise ValueError("the recording replays other prompts")
            continue
        heads = [next(filter(is_init, turn)), *(response[0] for response in responses_of(turn))]
        for index, after in told.taken:
            block = {"type": "text", "text": form.prompts[index]}
            replay = {**user_message(turn[0]["session_id"], [block]), "isReplay": True}
            at = index_of(form.messages, heads[after + 1 if after else 0])
            if after:
                form.messages.insert(at, replay)
            else:
                form.messages.insert(at + 1, replay)


# -- 2: contract strings and our own words ----------------------------------------------------


def steered_prompts_have_our_notice(form: Form, scenario: Scenario) -> None:
    """Put our words around the prompts that were sent into a run."""
    before = 0
    for told, turn in zip(scenario.turns, list(turns_of(form.messages)), strict=True):
        late = [(index, after) for index, after in told.taken if after]
        for place, (index, after) in enumerate(late):
            block = form.requests[before + after]["messages"][-1]["content"][place - len(late)]
            if block != {"type": "text", "text": "<long:50+ words>"}:
                raise ValueError("the reference takes a prompt in in another way")
            said = form.prompts[index]
            block["text"] = Like(rf".+\n\n{re.escape(said)}", f"A notice:\n\n{said}")
        before += len(list(responses_of(turn)))


def markers_end_without_a_line(form: Form, _: Scenario) -> None:
    """Take off the end of line that the reference adds to its markers, in requests alone."""
    for request in form.requests:
        for message in request["messages"]:
            for block in message["content"]:
                if str(block.get("text", "")).startswith("[Request interrupted by user"):
                    block["text"] = block["text"].removesuffix("\n")
