"""What a chaos run is asked to do."""

from dataclasses import dataclass

KINDS = ("kill", "stop", "term", "pg_restart", "pg_freeze", "net", "clock", "disk")
MUST = ("kill", "stop", "term")
"""Kinds that come first, so that even a short run has them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. The seed decides the schedule of faults and the load, not the machine's timing."""

    seed: int
    seconds: float
    kinds: tuple[str, ...] = KINDS
    must: tuple[str, ...] = MUST
    """Kinds that have to happen, or the run fails."""
    has_fence: bool = True
    hosts: int = 3
    clients: int = 6
    lease_s: float = 2.5
    heartbeat_s: float = 0.5
    drain_s: float = 2.0
    quiet_s: float = 45.0
    """How long everything may take to end when the faults are over."""
