"""Message types of Powerhose. A message is one frame after the empty frame of REQ and REP; `:::` joins fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import Frame

SEPARATOR: Final = b":::"
PING: Final = b"PING"
PONG: Final = b"PONG"
REMOVE: Final = b"REMOVE"
REMOVED: Final = b"REMOVED"
ERROR: Final = b"ERROR"
WAKE: Final = b"WAKE"
GIVE: Final = b"GIVE"
JOB: Final = b"JOB"
JOBRES: Final = b"JOBRES"


@dataclass(frozen=True, slots=True)
class Ping:
    """From a worker: registers its endpoint, or renews its lease. None: the endpoint of its previous message."""

    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Remove:
    """From a worker: removes it from the list."""

    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Wake:
    """From a master: asks if the worker accepts a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """From a master: a job."""

    id: bytes
    data: Frame


Registration = Ping | Remove
Order = Wake | Job
