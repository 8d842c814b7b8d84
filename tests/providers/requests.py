"""Model requests for tests: one prompt, with a script inside when the answer matters."""

import json
from typing import Any

import orjson

from app.domain.model import ContextMessage, ModelRequest


def scripted(*steps: Any, model: str = "claude-sonnet-5") -> ModelRequest:  # Any: JSON
    """Ask for the first of the steps."""
    return asking(f"Do it. <<script {json.dumps(steps)} >>", model=model)


def asking(text: str, *, model: str = "claude-sonnet-5") -> ModelRequest:
    block = orjson.dumps({"type": "text", "text": text})
    message = ContextMessage("user", (block,))
    return ModelRequest(model, 1_000, ("Be brief.",), (), (message,))
