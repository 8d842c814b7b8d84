"""All errors of the program. Classes differ by what the caller does next.

TreadleError
├─ RequestError (code, status, title)   → problem+json; see `app/api/problems.py`
├─ ModelError                           → the loop retries or ends the run
├─ ToolFailed                           → text for the model; never leaves the loop
├─ EgressError                          → a request to a place that a stranger named: say so, send nothing
├─ Parked, Interrupted, NobodyAnswered  → a run waits, or ends, for what a client did not do, or did
├─ LeaseLost                            → stop at once, write nothing more
└─ ConfigError                          → at start: message, exit status 2
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from app.domain.notices import RateLimitInfo
    from app.domain.usage import Usage


class TreadleError(Exception):
    """Root of our errors."""


# -- requests ---------------------------------------------------------------------------------


class RequestError(TreadleError):
    """A request that cannot be served. `detail` is shown to the client: no secrets, no paths."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str,
        *,
        errors: list[dict[str, str]] | None = None,
        context: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or []
        """Field errors: `{"pointer": "/options/max_turns", "code": …, "message": …}`."""
        self.context = context or {}
        self.retry_after_s = retry_after_s


class InvalidRequest(RequestError):
    code, status, title = "invalid_request", 400, "The request is malformed"


class CursorInvalid(RequestError):
    code, status, title = "cursor_invalid", 400, "The cursor is not valid here"


class Unauthenticated(RequestError):
    code, status, title = "unauthenticated", 401, "A valid API key is required"


class NotFound(RequestError):
    code, status, title = "not_found", 404, "No such resource"


class MethodNotAllowed(RequestError):
    code, status, title = "method_not_allowed", 405, "The resource does not know this method"


class Conflict(RequestError):
    code, status, title = "conflict", 409, "The state of the resource forbids this"


class IdTaken(Conflict):
    code, title = "id_taken", "The id is taken"


class RunUnfinished(Conflict):
    code, title = "run_unfinished", "The run is not finished"


class PayloadTooLarge(RequestError):
    code, status, title = "payload_too_large", 413, "The body is too large"


class UnsupportedMediaType(RequestError):
    code, status, title = "unsupported_media_type", 415, "The body must be JSON"


class ValidationFailed(RequestError):
    code, status, title = "validation_failed", 422, "Some fields are not valid"


class UnsupportedOption(RequestError):
    code, status, title = "unsupported_option", 422, "An option is not supported"


class NoProvider(RequestError):
    code, status, title = "no_provider", 422, "No model provider is configured"


class UnpricedBudget(RequestError):
    code, status, title = "unpriced_model", 422, "A budget needs a model with a known price"


class IdempotencyMismatch(RequestError):
    code, status, title = "idempotency_mismatch", 422, "The key was used for another request"


class IdempotencyInProgress(Conflict):
    code, title = "idempotency_in_progress", "A request with this key is being served"
    retryable = True


class TooManySkills(Conflict):
    code, title = "too_many_skills", "The tenant has as many skills as it may"


class SessionBusy(Conflict):
    code, title = "session_busy", "The session is busy"


class SessionArchived(Conflict):
    code, title = "session_archived", "The session is archived"


class VersionConflict(Conflict):
    code, title = "version_conflict", "The resource was changed meanwhile"


class RunAlreadyStarted(Conflict):
    code, title = "run_already_started", "The run is not queued any more"


class RunNotRetryable(Conflict):
    code, title = "run_not_retryable", "The run cannot be tried again"


class ActionResolved(Conflict):
    code, title = "action_already_resolved", "The action is answered already"


class ActionExpired(RequestError):
    code, status, title = "action_expired", 410, "The action expired"


class ActionWithdrawn(RequestError):
    code, status, title = "action_withdrawn", 410, "The action was withdrawn"


class NotRunning(Conflict):
    code, title = "not_running", "Nothing of the kind is under way"


class QueueFull(RequestError):
    code, status, title = "queue_full", 429, "The session's queue is full"
    retryable = True


class RateLimited(RequestError):
    code, status, title = "rate_limited", 429, "Too much at once"
    retryable = True


class Unavailable(RequestError):
    code, status, title = "unavailable", 503, "The service cannot answer now"
    retryable = True


class HeadersTooLarge(RequestError):
    code, status, title = "headers_too_large", 431, "The request's headers are too large"


# -- models -----------------------------------------------------------------------------------


class ModelError(TreadleError):
    """A model request that failed as a whole. Nothing of its response is kept.

    `category` is the word of the wire's `assistant.error` and `api_retry.error`:
    authentication_failed, billing_error, rate_limit, invalid_request, model_not_found,
    server_error, overloaded, unknown.
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        category: str,
        status: int | None = None,
        error_type: str | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
        usage: "Usage | None" = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.category = category
        self.status = status
        """The HTTP status; None when no answer came (refused, reset, cut, timed out)."""
        self.error_type = error_type
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry
        """The provider's own word (`x-should-retry`); overrides the class."""
        self.usage = usage
        """Tokens known to be billed although the response was lost; None if none."""
        self.rate_limit: RateLimitInfo | None = None
        """Where the provider's limit stands, if it said."""

    @property
    def can_retry(self) -> bool:
        return self.retryable if self.should_retry is None else self.should_retry


class ModelOverloaded(ModelError):
    """5xx, 529: wait and try again."""

    retryable = True


class ModelThrottled(ModelError):
    """429: wait as told and try again."""

    retryable = True


class ModelUnreachable(ModelError):
    """Refused, reset, cut in mid-stream, timed out, or an answer that is no event stream."""

    retryable = True


class ModelRejected(ModelError):
    """400, 404, 413 …: the same request cannot work later."""


class ModelUnauthorized(ModelError):
    """401 (a key may be rotating: retried), 403."""

    @property
    def can_retry(self) -> bool:
        return self.status == 401 if self.should_retry is None else self.should_retry


class BudgetSpent(ModelRejected):
    """The run's budget is spent: the request was not made."""

    def __init__(self) -> None:
        super().__init__("The run's budget is spent, so no model is asked.", category="unknown")


class ContextTooLong(ModelRejected):
    """The prompt exceeds the model's window."""


# -- the loop ---------------------------------------------------------------------------------


class ToolFailed(TreadleError):
    """A tool's own failure: its text becomes an error result.

    `wrapped` marks errors found before running (validation): the model sees them inside
    `<tool_use_error>…</tool_use_error>`.
    """

    def __init__(self, message: str, *, wrapped: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.wrapped = wrapped


class EgressError(TreadleError):
    """A request to a place that a stranger named. The text may be shown: no addresses."""


class EgressRefused(EgressError):
    """The rules do not let us reach the place; nothing was sent there."""


class AnswerTooLarge(EgressError):
    """The answer, or what it unpacks to, is larger than the caller takes."""


class LeaseLost(TreadleError):
    """Another host owns the session now. Stop at once; write nothing more."""


class Parked(TreadleError):
    """Nothing of a run moves but calls that wait for an answer, and for long: it is to be let go."""


class Interrupted(TreadleError):
    """Who denied a call wants the run to end."""

    def __init__(self, denial: dict[str, Any], audit: Mapping[str, Any]) -> None:
        super().__init__("a person ended the run with a denial")
        self.denial = denial
        """The entry of `permission_denials`."""
        self.audit = audit
        """The decision, for the audit."""


class NobodyAnswered(TreadleError):
    """An action expired, and its run is to end then. The text is for clients."""


class WorkspaceUnavailable(TreadleError):
    """A session's workspace or sandbox cannot be opened on this host. The text is for clients."""


class ConfigError(TreadleError):
    """The program cannot start like this. The text says what to do."""
