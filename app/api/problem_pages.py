"""What each problem means and what to do: the pages that `type` points to, and `docs/errors.md`."""

from collections.abc import Mapping

from app.errors import RequestError

MEANINGS: Mapping[str, str] = {
    "invalid_request": "The request is malformed: no JSON, a broken header. Correct it.",
    "cursor_invalid": (
        "The cursor is not one of ours, belongs to another list, or lies beyond the end of the "
        "log. Begin without one."
    ),
    "unauthenticated": "No valid key came along. Make one with `treadle keys create`.",
    "not_found": "There is no such path, or no such resource under this key's tenant.",
    "method_not_allowed": "The path does not know this method.",
    "conflict": "The state of the resource forbids it. Read the resource.",
    "id_taken": (
        "A client chose an id that is taken: the session, or the message, was sent before."
    ),
    "too_many_skills": (
        "The tenant has 100 skills already. Delete one: `DELETE /v1/skills/{name}`."
    ),
    "session_archived": (
        "The session is archived: it can be read, forked and exported, nothing else. `POST "
        "…/unarchive` first."
    ),
    "session_busy": (
        "The session has an unfinished run, `context.active_run_id`, and nothing was stored: "
        "`on_busy` is `reject`; or it was to be rewound, or archived; or it was to be forked in"
        " the middle of a run, which needs `at_message`. Wait for the run's end, or cancel it."
    ),
    "version_conflict": (
        "`If-Match` names a version that somebody has edited since: `context.version` is the "
        "newest. Read the resource again."
    ),
    "idempotency_in_progress": (
        "A request with this `Idempotency-Key` is being served right now. Ask again after "
        "`Retry-After`: you get its answer."
    ),
    "run_already_started": (
        "Only a queued run can be changed or removed; this one has begun, or is over. Cancel it."
    ),
    "run_not_retryable": (
        "Only the newest run of a session can be tried again, and only when it failed: this one"
        " succeeded, or another run came after it, or it was to go on (`resume`) where a rewind"
        " has cut it off. Send a prompt instead."
    ),
    "not_running": (
        "What was to be stopped is not under way, on any host. Its session's log tells what is."
    ),
    "action_already_resolved": (
        "Somebody has answered the action otherwise: `context.resolution` is what counts."
    ),
    "run_unfinished": "The run is not finished yet. Wait for its end.",
    "action_expired": ("Nobody answered the action in time; its run went on by its `on_timeout`."),
    "action_withdrawn": (
        "The run does not ask this any more: it has ended, or it asks something else. List what"
        " is pending."
    ),
    "payload_too_large": "The body is larger than `TREADLE_LIMITS__MAX_BODY_BYTES`.",
    "unsupported_media_type": "The body must be JSON.",
    "validation_failed": "Some fields are not valid: `errors` names them.",
    "unsupported_option": (
        "The option, or its value, is not supported by this version. Leave it out."
    ),
    "no_provider": (
        "No provider serves the model. Set `ANTHROPIC_API_KEY` for the service, or name the "
        "model `demo`."
    ),
    "unpriced_model": (
        "A budget needs a model whose price is known. Leave the budget out, or set "
        "`TREADLE_MODEL__PRICES`."
    ),
    "idempotency_mismatch": (
        "The `Idempotency-Key` was used within a day for another method, address or body. Use a"
        " new key."
    ),
    "queue_full": (
        "Too many runs wait in the session, or too many prompts for its run. Wait for some, or "
        "cancel some."
    ),
    "rate_limited": (
        "Too many streams are open for the session, or the key. Close some, or wait as "
        "`Retry-After` says."
    ),
    "headers_too_large": "The headers are too many or too large.",
    "internal": "The service failed. Its log has the details under the `request_id`.",
    "unavailable": "The database is away. Runs go on when it is back; ask again.",
}
"""By code, in Markdown. A test holds the document's table to it."""


def page(kind: type[RequestError]) -> str:
    """Give the page of a problem, as plain text."""
    again = "yes" if kind.retryable else "no"
    facts = f"code: {kind.code}\nstatus: {kind.status}\nretryable: {again}\n"
    return f"{kind.title}\n\n{MEANINGS[kind.code]}\n\n{facts}"
