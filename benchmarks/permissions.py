"""What a decision costs: `python -m benchmarks.permissions`.

A compound command, 200 rules of all kinds beside it. Every bound is checked, and a breach is told.
"""

import sys
import time
from statistics import median

from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import decide
from app.permissions.permissions import Permissions

_ROUNDS = 2_000
_MAX_MS = 1.0
_RULES = 200
_COMMANDS = {
    "compound, allowed": "cd src && NODE_ENV=test timeout 60 npm run t7 2>&1 | tail -n 20; git status",
    "compound, denied at its end": "cd src && npm run t7 | tee log.txt; bash -c 'git push x7 --force'",
    "compound, asked": "for f in *.py; do python3 $f; done && npm run t7 > out.txt",
    "ten commands": " && ".join(f"npm run t{n} --flag 'a b'" for n in range(10)),
}
_BASH = ToolSpec("Bash", "", {}, starts_process=True)


def permissions() -> Permissions:
    """Give 200 rules: for commands and paths, that allow, deny and ask."""
    share = _RULES // 5
    return Permissions.of(
        AgentOptions(
            allowed_tools=[f"Bash(npm run t{n} *)" for n in range(share)]
            + [f"Edit(/out{n}/**)" for n in range(share)],
            disallowed_tools=[f"Bash(git push x{n} *)" for n in range(share)]
            + [f"Read(./secret{n}/**)" for n in range(share)],
            ask_tools=[f"Bash(docker * y{n})" for n in range(share)],
        )
    )


def main() -> int:
    """Time each command; exit with 1 when a median is over its bound."""
    rules, breach = permissions(), False
    for name, command in _COMMANDS.items():
        times: list[float] = []
        call = ToolCall("a", "Bash", {"command": command})
        decision: object = None
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            decision = decide(call, _BASH, rules, Scene())
            times.append((time.perf_counter() - started) * 1000)
        times.sort()
        p99 = times[int(len(times) * 0.99)]
        print(f"{name:30} {type(decision).__name__:6} {median(times):.3f} ms, p99 {p99:.3f} ms")
        breach = breach or median(times) > _MAX_MS
    return int(breach)


if __name__ == "__main__":
    sys.exit(main())
