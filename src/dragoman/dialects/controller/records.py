"""Records of the broker side: remote workers, and the exchanges with them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from dragoman.carriers.carrier import Carrier
from dragoman.core import recipients
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Worker
from dragoman.dialects.controller.editions import Edition
from dragoman.dialects.controller.messages import ControlKind
from dragoman.dialects.interface import Connection


class Purpose(Enum):
    """Purpose of an exchange. It decides the meaning of the response."""

    START = "check if its socket is open"
    TASK = "assign a job"
    FETCH = "get the result"
    LEASE = "check if it is alive"
    MISMATCH = "check which task it has"
    STUCK = "check if it is working or has hung"
    MISSING = "check if it still has the task without a result"
    ENDED = "check if a process listens although its own has ended"
    LEAVE = "make it leave"


KIND_OF: Final = {
    Purpose.TASK: ControlKind.SET_TASK,
    Purpose.FETCH: ControlKind.FETCH,
    Purpose.LEAVE: ControlKind.RESTART,
}


class Exchange:
    """One connection to a worker's socket: a message and its response."""

    __slots__ = (
        "about",
        "alarm",
        "alarm_number",
        "attempt",
        "carrier",
        "is_abandoned",
        "is_sent",
        "peer",
        "previous",
        "purpose",
        "remote",
        "since",
        "task",
        "timeout",
    )

    def __init__(self, remote: RemoteWorker, purpose: Purpose, timeout: float, now: float) -> None:
        self.remote = remote
        self.purpose = purpose
        self.peer: Connection | None = None
        self.attempt: Attempt | None = None  # the attempt that it assigns, or whose result it requests
        self.task = remote.task
        self.previous = remote.previous  # the worker's task if it declines this one
        self.about: Exchange | None = None  # the exchange that is stuck
        self.carrier: Carrier | None = None
        self.is_sent = False  # the connection was open, and the message was written
        self.is_abandoned = False  # the response is read, but ignored
        self.since = now
        self.timeout = timeout  # seconds from `since`
        self.alarm = inf
        self.alarm_number = 0

    @property
    def kind(self) -> ControlKind:
        return KIND_OF.get(self.purpose, ControlKind.GET_STATUS)

    def wait(self, timeout: float, now: float) -> None:
        """Start a new time-out."""
        self.since, self.timeout = now, timeout


class IdleConnection:
    """A connection on which a pulse is expected, or the remote side's closing."""

    __slots__ = ("alarm", "alarm_number", "is_over", "peer")

    def __init__(self, peer: Connection) -> None:
        self.peer = peer
        self.is_over = False
        self.alarm = inf
        self.alarm_number = 0


class RemoteWorker(recipients.RemoteWorker):
    """A registered worker."""

    __slots__ = (
        "alarm",
        "alarm_number",
        "edition",
        "exchange",
        "fetches_again",
        "has_leftover",
        "id",
        "idle_pulses",
        "is_released",
        "is_set",
        "is_taken",
        "last_exchange",
        "next_pulse",
        "no_fetches",
        "previous",
        "probe",
        "process",
        "retry_at",
        "retry_delay",
        "start_until",
        "stop_watch",
        "task",
        "uid",
        "wants_fetch",
        "worker",
    )

    worker: Worker

    def __init__(self, id: int, edition: Edition, registrar: Connection, next_pulse: float, start_until: float) -> None:
        self.id = id
        self.edition = edition
        self.uid = registrar.address
        self.process = registrar.process  # of all its pulses; 0: unknown, or several
        self.stop_watch: Callable[[], None] | None = None  # stops watching that process
        self.next_pulse = next_pulse  # seconds that it may be silent
        self.start_until = start_until  # while it starts: end of the tries to reach its socket
        self.is_released = False  # the result of its last task is not needed any more
        self.task = 0  # id of that task on the wire
        self.previous = 0  # id of the task before
        self.is_set = False  # SET_TASK has been dialled
        self.is_taken = False  # its response was OK
        self.wants_fetch = False  # it sent FETCH_ME, or the broker has a reason of its own
        self.fetches_again = False  # the last FETCH was interrupted
        self.has_leftover = False  # it sent FETCH_ME for the previous task while it was given the next one
        self.no_fetches = 0  # NO_FETCH in a row
        self.idle_pulses = 0  # pulses in a row without the task that it has accepted
        self.exchange: Exchange | None = None  # SET_TASK or FETCH, one at a time
        self.probe: Exchange | None = None  # GET_STATUS, beside it
        self.last_exchange = -inf  # end of the last exchange: an earlier pulse does not count for its task (R91)
        self.retry_delay = 0.0  # seconds without a new task, because it was BUSY (R98)
        self.retry_at = inf
        self.alarm = inf
        self.alarm_number = 0

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that was sent and has no result yet, unless it is released from it."""
        return None if self.is_released else self.worker.held()

    def is_served_by(self, process: int) -> bool:
        """Tell if this process both sends its pulses and listens on its socket: then it is the worker.

        If other programs act for a worker, the end of one of them does not mean the end of the worker.
        """
        return process != 0 and process == self.process

    def check_process(self, process: int) -> None:
        """Stop watching the process if the pulse came from another one."""
        if process != self.process:
            self.end_watch()

    def end_watch(self) -> None:
        """Stop watching for good: its process is unknown."""
        self.process = 0
        if self.stop_watch is not None:
            self.stop_watch()
            self.stop_watch = None
