"""The words of PingPong. Frames are written here without the routing id, which the carrier keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import Frame

READY: Final = b"READY"
PING: Final = b"PING"
PONG: Final = b"PONG"
EXIT: Final = b"EXIT"
DISCONNECT: Final = b"DISCONNECT"
JOB_COMPLETE: Final = b"JOB COMPLETE"

# From a worker these are control words whatever it meant (R44).
NEVER_A_RESULT: Final = (READY, PING, PONG, EXIT)

# A job of these words would be taken for something else by a worker of edition plain: it is never sent (R45).
RESERVED: Final = (PONG, EXIT)


@dataclass(frozen=True, slots=True)
class Ready:
    """worker: I am here and free."""


@dataclass(frozen=True, slots=True)
class Ping:
    """worker: I live. It may bring a count along, which goes back behind PONG (second text)."""

    counts: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Pong:
    """broker: so do I. From a worker, where the documents write PONG for PING: a life sign."""


@dataclass(frozen=True, slots=True)
class Exit:
    """broker: leave."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """worker: I leave. In edition plain a busy worker's DISCONNECT is its result."""


class Result:
    """worker: what became of the job. `token` is what edition package brings back, and None in edition plain."""

    __slots__ = ("payload", "token")

    def __init__(self, payload: Frame, token: Frame | None = None) -> None:
        self.payload = payload
        self.token = token


@dataclass(frozen=True, slots=True)
class Job:
    """broker to worker: a job. `token` as above."""

    payload: Frame
    token: Frame | None = None


WorkerMessage = Ready | Ping | Pong | Exit | Disconnect | Result
BrokerMessage = Pong | Exit | Job
