"""Differences of hooks: what is not told when it is not set, and our own words."""

from tests.traces.normal import Form, Json, Like
from tests.traces.scenario import Scenario

_TELL_EFFORT = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop"})
_NOTIFIED = "stop hook problem · ctrl+o to see"
_FEEDBACK = "Stop hook feedback:\n"


def no_unset_effort(form: Form, _: Scenario) -> None:
    """Leave out the effort that the recorded process had though nobody set one."""
    for told in form.hooks:
        if told["hook_event_name"] in _TELL_EFFORT:
            told["keys"].remove("effort")


def blocked_prompts_are_not_told(form: Form, _: Scenario) -> None:
    """Leave out the replay of a prompt that did not enter the conversation."""
    outcomes = [m["prompt_submit_outcome"] for m in form.messages if "prompt_submit_outcome" in m]
    if any(not outcome["prompt_kept"] for outcome in outcomes):
        (replay,) = [message for message in form.messages if message.get("isReplay")]
        (told,) = [each["prompt"] for each in form.hooks if "prompt" in each]
        if [block["text"] for block in replay["message"]["content"]] != [told]:
            raise ValueError("another prompt was blocked")
        form.messages.remove(replay)


def notifications_are_in_our_words(form: Form, _: Scenario) -> None:
    for message in form.messages:
        if message.get("subtype") == "notification":
            if message["text"] != _NOTIFIED:
                raise ValueError("another notification")
            message["text"] = Like(r"A Stop hook .+", "A Stop hook has spoken.")


def feedback_is_sent_as_it_is_told(form: Form, _: Scenario) -> None:
    """Put the feedback where the recording has a reminder of its own around it."""
    told = [block for message in form.messages for block in feedback(message)]
    for request in form.requests:
        empty = [message for message in request["messages"] if not message["content"]]
        for message, block in zip(empty, told, strict=False):
            message["content"] = [dict(block)]


def feedback(message: Json) -> list[Json]:
    """Give the block of a note that a Stop hook brought about; nothing of another message."""
    content = message.get("message", {}).get("content", ()) if message.get("isSynthetic") else ()
    return [block for block in content if str(block.get("text", "")).startswith(_FEEDBACK)]
