"""The words of Powerhose. A message is one frame, behind the empty one of REQ and REP; fields are joined by `:::`."""

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
    """worker: I am here, at this endpoint; register me, or note that I live. None: the endpoint I named before."""

    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Remove:
    """worker: forget me."""

    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Wake:
    """master: will you take a job?"""


@dataclass(frozen=True, slots=True)
class Job:
    """master: do this."""

    id: bytes
    data: Frame


Registration = Ping | Remove
Order = Wake | Job
