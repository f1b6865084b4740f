"""Message types of PingPong. Frames are shown without the routing id, which the carrier keeps."""

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

# From a worker these are always control messages, never results (R44).
NEVER_A_RESULT: Final = (READY, PING, PONG, EXIT)

# A worker of edition plain would not take these for a job, so such a job is never sent (R45).
RESERVED: Final = (PONG, EXIT)


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: connected and free."""


@dataclass(frozen=True, slots=True)
class Ping:
    """From a worker: heartbeat. It may carry a count, which PONG returns (second text)."""

    counts: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Pong:
    """From the broker: reply to PING. From a worker: a heartbeat, because the documents write PONG for PING."""


@dataclass(frozen=True, slots=True)
class Exit:
    """From the broker: leave."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """From a worker: leaving. In edition plain a busy worker's DISCONNECT is its result."""


class Result:
    """From a worker: the result of its job. `token` is the job's token in edition package, None in edition plain."""

    __slots__ = ("payload", "token")

    def __init__(self, payload: Frame, token: Frame | None = None) -> None:
        self.payload = payload
        self.token = token


@dataclass(frozen=True, slots=True)
class Job:
    """From the broker: a job. `token` as in Result."""

    payload: Frame
    token: Frame | None = None


WorkerMessage = Ready | Ping | Pong | Exit | Disconnect | Result
BrokerMessage = Pong | Exit | Job
