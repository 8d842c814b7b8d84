"""The forms that a session can be exported in."""

from typing import Literal

Format = Literal["stream-json", "claude-jsonl", "markdown"]
