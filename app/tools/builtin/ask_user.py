"""AskUserQuestion: put questions to a person. The answers come as part of the input (tools 16.1)."""

from typing import Annotated, Any

from pydantic import Field

from app.domain.tools import ToolResult
from app.tools.tool import ToolContext, ToolInput, tool

NOBODY_ANSWERED = "The user did not answer. Go on as you think best, and say what you assumed."


class Option(ToolInput):
    label: str
    """A few words that the user picks it by."""
    description: str
    """What picking it means."""
    preview: str | None = None
    """Text that shows what would come of it."""


class Question(ToolInput):
    question: str
    """The whole question."""
    header: str
    """One or two words that stand above it."""
    multiSelect: bool  # noqa: N815 - the contract's name
    """Whether several options may be picked."""
    options: Annotated[list[Option], Field(min_length=2, max_length=4)]
    """What can be picked. The user may always answer in other words."""


class AskUserInput(ToolInput):
    questions: Annotated[list[Question], Field(min_length=1, max_length=4)]
    """What to ask, together."""
    answers: dict[str, str] | None = None
    """Filled in for you: leave it out."""
    annotations: dict[str, dict[str, Any]] | None = None
    """Filled in for you: leave it out."""
    metadata: dict[str, Any] | None = None
    """Leave it out."""


@tool(
    name="AskUserQuestion",
    description="Asks the user one to four questions, each with options to pick from, and waits for the "
    "answers. Use it where the task can be meant in different ways and the difference matters; decide "
    "small things yourself.",
    input_model=AskUserInput,
    read_only=True,
    needs_person=True,
)
async def ask_user_tool(given: AskUserInput, _context: ToolContext) -> ToolResult:
    """Give the answers; they were filled in when the call was allowed."""
    answers = given.answers or {}
    told = [
        _told(question, answers[question.question])
        for question in given.questions
        if question.question in answers
    ]
    asked = [question.model_dump(exclude_none=True) for question in given.questions]
    return ToolResult(
        "\n".join(told) or NOBODY_ANSWERED, structured={"questions": asked, "answers": answers}
    )


def _told(question: Question, answer: str) -> str:
    labels = {option.label for option in question.options}
    picked = answer.split(", ") if question.multiSelect else [answer]
    pair = f'"{question.question}"="{answer}"'
    if answer in labels or labels.issuperset(picked):
        return pair
    return f"{pair} (in the user's own words: read them closely)"
