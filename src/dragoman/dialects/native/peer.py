"""The other sides of the native dialect: `client_side.py` and `worker_side.py`, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.dialects.native.client_side import ClientSide as ClientSide
from dragoman.dialects.native.worker_side import WorkerSide as WorkerSide

SOCKET: Final = "DEALER"


def check_services(services: Sequence[str]) -> str | None:
    """Why these names cannot be asked for or offered."""
    for service in services:
        if not 0 < len(service.encode()) <= 128 or not service.isprintable():
            return f"{service!r} is not a service name: 1 to 128 bytes of printable text"
    return None
