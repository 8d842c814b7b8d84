"""ExitPlanMode: put a plan to a person, who ends the permission mode `plan` by allowing it (B13)."""

from app.domain.tools import ToolResult
from app.tools.tool import ToolContext, ToolInput, tool


class ExitPlanInput(ToolInput):
    plan: str
    """The plan, in Markdown: what you are going to do, step by step."""


@tool(
    name="ExitPlanMode",
    description="Shows the user your plan and asks to begin. Use it in the permission mode plan, once you "
    "know what to do and before you change anything. It is of no use for questions, or where nothing is to "
    "be changed.",
    input_model=ExitPlanInput,
    read_only=True,
    needs_person=True,
)
async def exit_plan_mode_tool(given: ExitPlanInput, _context: ToolContext) -> ToolResult:
    """Say that the plan was approved: only then does this run."""
    return ToolResult(
        "The user approved the plan. You are not in the mode plan any more: carry it out now.",
        structured={"plan": given.plan},
    )
