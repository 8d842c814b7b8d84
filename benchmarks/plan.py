"""What the scripted model is to do in one run, carried inside the prompt.

So the model needs no table of workloads, and both servers under test only pass a text on.
"""

import re
import uuid
from dataclasses import dataclass, field, replace

FILES = 200
"""Files in the benchmark's workspace; the longest workload reads each of them once."""
FILE_BYTES = 3_000
SMALL_FILE_BYTES = 200
"""Of as many others, for a session that is long in turns."""
START = b"[[bench "
"""Where a plan begins in a request body; the newest one counts."""

_TEXT = re.compile(
    rb"\[\[bench turns=(\d+) parallel=(\d+) deltas=(\d+) delay_ms=(\d+) hold=(\d) long=(\d) agent=(\d) id=(\w+)\]\]"
)


def file_name(number: int, *, is_small: bool = False) -> str:
    return f"{'s' if is_small else 'f'}{number % FILES:03}.txt"


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True, slots=True)
class Plan:
    """`turns` answers that call Read, then one text."""

    turns: int = 0
    parallel: int = 1
    """Reads in each of those answers."""
    deltas: int = 3
    """Pieces of the final text."""
    previews: bool = False
    """Whether the reader is sent those pieces as they come; the client's business, not the model's."""
    delay_ms: int = 0
    """How long the model waits before each answer."""
    hold: bool = False
    """The final answer stops after its first event until the run is released by its id."""
    long: bool = False
    """Small files are read, and the model counts what it was sent: so a session is compacted."""
    agent: bool = False
    """A subagent does all of it, and the run itself nothing but ask for that."""
    id: str = field(default_factory=_new_id)

    @property
    def of_agent(self) -> "Plan":
        """What the subagent is asked."""
        return replace(self, agent=False, id=f"{self.id}a")

    def again(self) -> "Plan":
        """The same work under a new id: a plan counts the requests of one run."""
        return replace(self, id=_new_id())

    @property
    def prompt(self) -> str:
        return (
            "Read the files you are told to, then say that you are done."
            f" [[bench turns={self.turns} parallel={self.parallel} deltas={self.deltas}"
            f" delay_ms={self.delay_ms} hold={int(self.hold)}"
            f" long={int(self.long)} agent={int(self.agent)} id={self.id}]]"
        )

    @property
    def requests(self) -> int:
        """Model requests that a correct run makes."""
        return self.turns + 1


def newest_plan(body: bytes) -> Plan | None:
    """The plan of the newest prompt in a request body. The body is not decoded: it is large."""
    match = _TEXT.match(body, max(body.rfind(START), 0))
    if match is None:
        return None
    numbers = (int(match[group]) for group in range(1, 8))
    turns, parallel, deltas, delay_ms, hold, long, agent = numbers
    return Plan(
        turns,
        parallel,
        deltas,
        delay_ms=delay_ms,
        hold=bool(hold),
        long=bool(long),
        agent=bool(agent),
        id=match[8].decode(),
    )
