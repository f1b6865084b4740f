"""Records of Powerhose workers: their endpoints, and the connections on which they register."""

from __future__ import annotations

from enum import Enum

from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Worker
from dragoman.core.owners import Owner
from dragoman.core.recipients import RemoteWorker
from dragoman.dialects.interface import Connection


class WorkerStage(Enum):
    """Progress of the broker's dialogue with a worker."""

    AWAY = "away"  # off the list until its next PING
    DIALLING = "dialling"
    IDLE = "idle"
    WAKING = "waking"  # WAKE was sent
    WORKING = "working"


class RemotePowerhoseWorker(RemoteWorker):
    """A worker's endpoint, and the state of the broker's connection to it."""

    __slots__ = (
        "address",
        "alarm",
        "alarm_number",
        "dial_until",
        "due",
        "endpoint",
        "has_ids",
        "job_name",
        "owner",
        "peer",
        "place",
        "retry_at",
        "retry_delay",
        "stage",
        "worker",
    )

    def __init__(self, endpoint: str, owner: Owner) -> None:
        self.endpoint = endpoint
        self.owner = owner  # of the connection that registered it
        self.address = ""  # of the client that registered it
        self.place = ""  # the address that was dialled: an endpoint has several spellings
        self.peer: Connection | None = None  # the broker's connection to it
        self.worker: Worker | None = None
        self.job_name = b""  # id of its job on the wire
        self.stage = WorkerStage.AWAY
        self.has_ids = False  # it has returned a job's id in its results (R56)
        self.retry_delay = 0.0  # seconds without WAKE, because it did not reply to the last one (R57)
        self.retry_at = -inf  # end of this delay
        self.dial_until = -inf
        self.due = inf  # time of the next dial, or of the time-out of WAKE
        self.alarm = inf
        self.alarm_number = 0

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that was sent and has no result yet, current or not."""
        return self.worker.held() if self.worker is not None else None


class RegistrationConnection:
    """A worker's own connection to the broker, on which it registers."""

    __slots__ = ("endpoint",)

    def __init__(self) -> None:
        self.endpoint: str | None = None
