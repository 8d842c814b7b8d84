"""Chaos: real hosts, a real Postgres, real faults, and a checker that reads what is left.

    python -m tests.chaos --minutes 2 [--seed N] [--faults kill,stop,...] [--no-fence]

Exit status: 0 all is well, 1 violations, 3 a kind of fault never happened.
"""

import argparse
import secrets
import sys

import uvloop

from tests.chaos.arena import run
from tests.chaos.namespaces import move_into_own_namespaces
from tests.chaos.plan import KINDS, MUST, Plan


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=2, help="how long faults are made")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", default=",".join(KINDS), help=f"of {','.join(KINDS)}")
    parser.add_argument("--must", default=None, help="kinds that have to happen; default: all")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--no-fence", action="store_true", help="the test build without a fence")
    given = parser.parse_args()
    kinds = tuple(given.faults.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown faults {sorted(unknown)}")
    move_into_own_namespaces()
    must = kinds if given.must is None else tuple(k for k in given.must.split(",") if k)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    plan = Plan(
        seed=seed,
        seconds=given.minutes * 60,
        kinds=kinds,
        must=tuple(k for k in (*MUST, *must) if k in must and k in kinds),
        has_fence=not given.no_fence,
        hosts=given.hosts,
        clients=given.clients,
    )
    return uvloop.run(run(plan, say))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
