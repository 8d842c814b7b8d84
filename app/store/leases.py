"""Leases: the right to write to a session, taken with a claim, renewed, let go."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a session: valid while nobody has a higher epoch."""

    tenant_id: str
    session_id: str
    run_id: str
    epoch: int

    @property
    def session(self) -> tuple[str, str]:
        """Tenant and session."""
        return self.tenant_id, self.session_id
