"""Differences of commands: a `/clear` keeps the session, and with it the costs."""

from app.agent.command import CLEAR
from tests.traces.normal import Form, Json
from tests.traces.scenario import Scenario
from tests.traces.spending import add_spend, total

_FIRST, _NEXT = "session-1", "session-2"
_TOLD = ("<command-name>/clear</command-name>", "<local-command-stdout></local-command-stdout>")


def a_clear_keeps_the_session(form: Form, _: Scenario) -> None:
    """Put the session's id on all that follows, and its costs; leave the context empty."""
    at = next((n for n, m in enumerate(form.messages) if m["type"] == "conversation_reset"), None)
    if at is None:
        return
    before = [m for m in form.messages[:at] if m["type"] == "result"]
    for message in form.messages[at:]:
        if message["session_id"] not in {_FIRST, _NEXT}:
            raise ValueError("another session")
        message["session_id"] = _FIRST
        if "local_command" in message:
            message["local_command"] = CLEAR
    (model,) = before[-1]["modelUsage"]
    usage, cost_usd = total([m["usage"] for m in before]), before[-1]["total_cost_usd"]
    for message in form.messages[at:]:
        if message["type"] == "result" and model not in message["modelUsage"]:
            message["modelUsage"][model] = _none_yet(before[-1]["modelUsage"][model])
    add_spend(form.messages, at, model, usage, cost_usd)
    for request in form.requests:
        content = request["messages"][0]["content"]
        texts = [str(block["text"]) if block["type"] == "text" else "" for block in content]
        if any(text.startswith(_TOLD) for text in texts):
            at = next(n for n, text in enumerate(texts) if text.startswith(_TOLD)) - 1
            caveat, *told = texts[at : at + 3]
            if caveat != "<long:30+ words>" or not all(map(str.startswith, told, _TOLD)):
                raise ValueError("something else was told of the command")
            del content[at : at + 3]


def _none_yet(spend: Json) -> Json:
    """Give what a model has cost before it was asked: nothing, under the same names."""
    sizes = {"contextWindow", "maxOutputTokens", "canonicalModel", "costBasis"}
    return {name: value if name in sizes else 0 for name, value in spend.items()}
