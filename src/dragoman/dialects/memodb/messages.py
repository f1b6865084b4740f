"""The words of MemoDB. On the wire each is a header, one array of CBOR, and whatever follows it is the payload."""

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
    """worker: I am here and free, and offer these services. The id is normally empty, for there is none yet."""

    services: tuple[str, ...]
    id: bytes = b""


@dataclass(slots=True)
class Job:
    """client to broker, with an empty id; broker to worker, with the worker's. `timeout` as on the wire: in ms, -1 for
    no limit."""

    id: bytes
    service: str
    timeout: int
    payload: Frame


@dataclass(slots=True)
class Result:
    """worker to broker, with the worker's id; broker to client, with an empty one."""

    id: bytes
    is_leaving: bool  # the worker says goodbye with it
    payload: Frame


@dataclass(slots=True)
class Heartbeat:
    """broker: there is no job yet. worker: I live, and go on waiting."""

    id: bytes


@dataclass(slots=True)
class Disconnect:
    """broker: nobody is known by this id any more."""

    id: bytes


ParsedMessage = Ready | Job | Result | Heartbeat | Disconnect
