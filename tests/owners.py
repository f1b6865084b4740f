"""Owners of jobs and workers in tests that have no connections."""

from __future__ import annotations

from dragoman.core.owners import Owner
from dragoman.core.rights import ALL_RIGHTS, LOCAL, Principal

# May do everything, without the limits of a caller.
LOCAL_OWNER = Owner(Principal(LOCAL, ALL_RIGHTS), is_limited=False)
