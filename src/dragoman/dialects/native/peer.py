"""Worker side and client side of the native dialect, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.core.names import is_name
from dragoman.dialects.native.client_side import ClientSide as ClientSide
from dragoman.dialects.native.worker_side import WorkerSide as WorkerSide

SOCKET: Final = "DEALER"


def check_services(services: Sequence[str]) -> str | None:
    """Return an error message if these services cannot be called or offered, else None."""
    for service in services:
        if not is_name(service, 128):
            return f"{service!r} is not a service name: 1 to 128 bytes of visible text"
    return None
