"""What a small model said, for tools that ask it."""

from app.domain.blocks import TextBlock
from app.domain.model import ModelResponse
from app.errors import ToolFailed


def answer_of(response: ModelResponse) -> str:
    """Join the texts of an answer. Raises `ToolFailed` for one without any."""
    texts = [block.text for block in response.blocks if isinstance(block, TextBlock)]
    answer = "\n\n".join(text for text in texts if text.strip())
    if not answer:
        why = f" (it ended with {response.stop_reason})" if response.stop_reason else ""
        raise ToolFailed(f"The model that was asked gave no answer{why}.")
    return answer
