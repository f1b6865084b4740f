"""Message types of MemoDB. On the wire each is a header, one CBOR array, followed by the payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import Frame

VERSION: Final = "memo01"

READY: Final = 1
JOB: Final = 2
RESULT: Final = 3
HEARTBEAT: Final = 4
DISCONNECT: Final = 5


@dataclass(slots=True)
class Ready:
    """From a worker: connected, free, and offers these services. The id is normally empty: it has none yet."""

    services: tuple[str, ...]
    id: bytes = b""


@dataclass(slots=True)
class Job:
    """From a client to the broker, with an empty id; from the broker to a worker, with the worker's. `timeout` is in
    ms, -1 for no limit."""

    id: bytes
    service: str
    timeout: int
    payload: Frame


@dataclass(slots=True)
class Result:
    """From a worker to the broker, with the worker's id; from the broker to a client, with an empty one."""

    id: bytes
    is_leaving: bool  # the worker leaves after this result
    payload: Frame


@dataclass(slots=True)
class Heartbeat:
    """From the broker: no job yet. From a worker: heartbeat; it is still waiting."""

    id: bytes


@dataclass(slots=True)
class Disconnect:
    """From the broker: this id is unknown."""

    id: bytes


ParsedMessage = Ready | Job | Result | Heartbeat | Disconnect
