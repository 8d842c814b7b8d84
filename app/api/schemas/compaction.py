"""What a client says about a compaction."""

from typing import Annotated

from pydantic import Field, StringConstraints

from app.api.schemas.common import LONGEST_WAIT_S, In, example
from app.api.schemas.run_bodies import RunBody


class CompactBody(In):
    """A compaction that is asked for by hand."""

    model_config = example(instructions="Keep the names of all tables.")

    instructions: Annotated[str, StringConstraints(max_length=10_000)] = ""
    """What the summary has to keep, beside what it keeps anyway."""
    stream: bool = False
    """Answer with the run's event stream instead of a 202."""
    wait: Annotated[int, Field(ge=0, le=LONGEST_WAIT_S)] = 0
    """Answer with 200 when the run ends within so many seconds, else with 202."""

    def run(self) -> RunBody:
        """Give the prompt that it stands for."""
        words = f"/compact {self.instructions}".strip()
        return RunBody(prompt=words, stream=self.stream, wait=self.wait)
