"""The schema. `migrations/` builds it; a test holds the two against each other.

Every key starts with the tenant: sessions never join across, so the tables can be distributed.
"""

from app.store.tables import journal, runs, sessions, tenants
from app.store.tables.columns import metadata

__all__ = ["journal", "metadata", "runs", "sessions", "tenants"]
