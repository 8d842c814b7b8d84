"""What a client says about a run."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from app.api.schemas.common import LONGEST_WAIT_S, In, Metadata, MetadataChange, Uuid, example
from app.api.schemas.prompts import Messages, PromptText, wishes
from app.domain.actions import ActionRules
from app.domain.options import AgentOptions
from app.runs.wishes import OnBusy, RetryWish, RunChange, RunWish

Deadline = Annotated[int, Field(ge=1, le=604_800)]
Priority = Annotated[int, Field(ge=-100, le=100)]


class RecoveryBody(In):
    """What happens when a host is lost with the run."""

    policy: Literal["resume", "fail"] = "resume"
    """Another host goes on, or the run ends."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] | None = None
    """Attempts in a row that end without progress. Default: the operator's."""


class RunBody(In):
    """A prompt for a session."""

    model_config = example(
        prompt="List the files here and say what they are.",
        options={"allowed_tools": ["Read", "Glob"], "max_turns": 10},
    )

    prompt: PromptText = None
    """The user's text. Exactly one of `prompt` and `messages`."""
    messages: Messages = None
    """User messages in the SDK's streaming-input form, each with another uuid. The first begins the
    run, the others are sent into it."""
    options: AgentOptions = AgentOptions()
    """Laid over the session's options, for this run."""
    on_busy: OnBusy = "queue"
    """What happens when the session has an unfinished run. `queue`: this one waits its turn.
    `reject`: 409, nothing is stored. `interrupt`: the one that goes on is cancelled, this one is
    next. `steer`: the prompt goes into the one that goes on, whose options and limits stay."""
    priority: Priority = 0
    """Among the session's waiting runs, the highest comes first."""
    deadline_seconds: Deadline | None = None
    """From now, waiting included, until the run is ended as `deadline`."""
    recovery: RecoveryBody = RecoveryBody()
    on_disconnect: Literal["continue", "cancel"] = "continue"
    """With `cancel` the run is cancelled when you hang up on the stream that answers this."""
    stream: bool = False
    """Answer with the run's event stream instead of a 202."""
    wait: Annotated[int, Field(ge=0, le=LONGEST_WAIT_S)] = 0
    """Answer with 200 when the run ends within so many seconds, else with 202."""
    include_partial_messages: bool | None = None
    """Same as the option of this name."""
    actions: ActionRules | None = None
    """Same as the option of this name."""
    metadata: Metadata = {}

    @model_validator(mode="after")
    def _one_input(self) -> "RunBody":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of `prompt` and `messages` is needed")
        return self

    def wish(self) -> RunWish:
        """Give the command's form."""
        beside = {
            name: given
            for name in ("include_partial_messages", "actions")
            if (given := getattr(self, name)) is not None
        }
        options = AgentOptions(**beside).over(self.options) if beside else self.options
        return RunWish(
            wishes(self.prompt, self.messages),
            options,
            self.metadata,
            self.on_busy,
            self.priority,
            self.deadline_seconds,
            self.recovery.policy,
            self.recovery.max_attempts,
            self.on_disconnect,
        )


class PromptBody(RunBody):
    """A prompt for a session that is there."""

    model_config = example(
        prompt="Now do the same for the tests.", options={"max_budget_usd": "0.50"}
    )

    resume_at: Uuid | None = None
    """The last message that stays in the conversation: the session is rewound to it first. Refused
    while the session has unfinished runs, whatever `on_busy` says."""

    def wish(self) -> RunWish:
        """Give the command's form."""
        return replace(super().wish(), resume_at=self.resume_at)


class RetryBody(In):
    """How a failed run is tried again. What is left out is as the run had it."""

    model_config = example(resume=True, options={"max_turns": 50})

    resume: bool = False
    """Go on where the run stopped, under new limits and without a new prompt. Else its prompts are
    sent again."""
    options: AgentOptions = AgentOptions()
    """Laid over the run's options. Turns and budget are counted anew in any case."""
    deadline_seconds: Deadline | None = None
    """From now, until the new run is ended as `deadline`. Default: none."""
    on_disconnect: Literal["continue", "cancel"] = "continue"
    stream: bool = False
    wait: Annotated[int, Field(ge=0, le=LONGEST_WAIT_S)] = 0
    """These three as for a new run."""
    metadata: Metadata | None = None

    def wish(self) -> RetryWish:
        """Give the command's form."""
        return RetryWish(
            self.resume, self.options, self.metadata, self.deadline_seconds, self.on_disconnect
        )


class RunChangeBody(In):
    """What is to change about a run that waits. What is left out stays."""

    model_config = example(prompt="List the files here, newest first.", priority=10)

    prompt: PromptText = None
    messages: Messages = None
    """At most one of `prompt` and `messages`."""
    options: AgentOptions = AgentOptions()
    """Laid over the run's options."""
    priority: Priority | None = None
    metadata: MetadataChange | None = None
    """Merged; a null takes a name away."""

    @model_validator(mode="after")
    def _one_input(self) -> "RunChangeBody":
        if self.prompt is not None and self.messages is not None:
            raise ValueError("at most one of `prompt` and `messages` is allowed")
        return self

    def change(self) -> RunChange:
        """Give the command's form."""
        prompts = wishes(self.prompt, self.messages)
        return RunChange(prompts or None, self.options, self.metadata, self.priority)
