"""Secrets that requests to a tenant's servers are signed with: one a tenant, all from one setting."""

import base64
import hashlib
import hmac


def tenant_secret(secret: str, tenant_id: str) -> str:
    """Give a tenant's secret in the form that verifiers take: `whsec_…`.

    No tenant can tell another's from its own.
    """
    told = hmac.new(secret.encode(), f"treadle/hooks/{tenant_id}".encode(), hashlib.sha256)
    return f"whsec_{base64.b64encode(told.digest()).decode()}"
