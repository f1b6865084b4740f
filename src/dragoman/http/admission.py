"""Admission: the principal of a connection or of a request, and its place in the scope of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dragoman.core.rights import Principal

# Keys in `extensions` of a request's scope.
CONNECTED: Final = "dragoman.connected"  # the admission of its connection, or None
ADMITTED: Final = "dragoman.admitted"  # its own admission, or None
ORIGIN: Final = "dragoman.origin"  # the user of its connection, `uid N`, if the kernel names it


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Admission:
    """A principal that is proved. `is_current` tells if the proof still holds."""

    principal: Principal
    proof: str = ""  # for the log: the kind of the identity, and its first digits
    is_current: Callable[[], bool] = _always


def admission_of(scope: Mapping[str, Any]) -> Admission | None:
    """Return the admission of a request; None if its principal is not known."""
    found: Admission | None = scope.get("extensions", {}).get(ADMITTED)
    return found


def origin_of(scope: Mapping[str, Any]) -> str:
    """Return where a request comes from: the user of this machine whose connection it is, if the kernel names it, else
    the address of the client."""
    user: str = scope.get("extensions", {}).get(ORIGIN, "")
    client = scope.get("client")
    return user or (str(client[0]) if client is not None else "")


def is_revoked(scope: Mapping[str, Any]) -> bool:
    """Tell if the principal of a request has lost its access since the request began."""
    admission = admission_of(scope)
    return admission is not None and not admission.is_current()
