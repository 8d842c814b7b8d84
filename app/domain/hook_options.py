"""HTTP hooks as a client's options name them."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from app.domain.hooks import EVENTS

LONGEST_TIMEOUT_S = 600


def _hookable(name: str) -> str:
    if name not in EVENTS:
        raise ValueError(f"there is no event {name!r}; there are: {', '.join(EVENTS)}")
    return name


def _plain_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user name or a password")
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise ValueError("must be written in printable ASCII, without spaces")
    return url


class HttpHook(BaseModel):
    """A server that is asked when something happens in a run."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    event: Annotated[str, AfterValidator(_hookable)]
    """`PreToolUse`, `PostToolUse`, `PostToolUseFailure`, `PostToolBatch`, `PermissionRequest`,
    `UserPromptSubmit`, `Stop`, `StopFailure`, `SubagentStart`, `SubagentStop`, `PreCompact`,
    `PostCompact`, `SessionStart`, `SessionEnd`, `Notification` or `Setup`."""
    matcher: Annotated[str, Field(max_length=500)] | None = None
    """What the event must be about: a name (`Bash`), several (`Edit|Write`), or a regular
    expression. Of tool events it is the tool. Default: everything."""
    url: Annotated[str, Field(max_length=2000), AfterValidator(_plain_url)]
    """Gets a POST with the event as JSON, signed as Standard Webhooks are; its answer is the hook's
    output as JSON, or nothing."""
    timeout: Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT_S)] | None = None
    """Seconds until the hook is given up. Default: 60."""
    on_failure: Annotated[
        Literal["block", "continue"],
        Field(validation_alias=AliasChoices("on_failure", "onFailure")),
    ] = "continue"
    """Whether what the hook was asked about (a call, a prompt, the end of the run) goes on when no
    proper answer came. A call never does when the hook was too slow."""
