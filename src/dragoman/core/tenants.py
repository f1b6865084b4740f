"""Names of tenants: customers or accounts that jobs are for (R185)."""

from __future__ import annotations

from typing import Final

from dragoman.core.names import is_name

MOST_TENANT: Final = 128  # bytes


def tenant_problem(tenant: str) -> str | None:
    """Return the reason why a text cannot be a tenant, or None."""
    if is_name(tenant, MOST_TENANT):
        return None
    return f"tenant {tenant!r} is not a name; 1 to {MOST_TENANT} bytes of visible text are allowed"
