"""The controller's records: remote workers, and exchanges with them that are under way."""

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
    """Why an exchange is made: what its answer means depends on it."""

    BOOT = "is its socket there?"
    TASK = "hand out a job"
    FETCH = "get the result"
    LEASE = "does it still live?"
    MISMATCH = "which task does it really have?"
    STUCK = "does it work, or has it hung?"
    MISSING = "has it still the task whose result is not there?"
    ENDED = "does somebody answer though its process has ended?"
    LEAVE = "it must go"


KIND_OF: Final = {
    Purpose.TASK: ControlKind.SET_TASK,
    Purpose.FETCH: ControlKind.FETCH,
    Purpose.LEAVE: ControlKind.RESTART,
}


class Exchange:
    """One connection to a worker's socket: our message and its answer."""

    __slots__ = (
        "about",
        "alarm",
        "alarm_number",
        "attempt",
        "carrier",
        "is_given_up",
        "is_sent",
        "patience",
        "peer",
        "previous",
        "purpose",
        "remote",
        "since",
        "task",
    )

    def __init__(self, remote: RemoteWorker, purpose: Purpose, patience: float, now: float) -> None:
        self.remote = remote
        self.purpose = purpose
        self.peer: Connection | None = None
        self.attempt: Attempt | None = None  # whose job it hands out, or whose result it asks for
        self.task = remote.task
        self.previous = remote.previous  # which it still has if it does not take this one
        self.about: Exchange | None = None  # the one that is stuck
        self.carrier: Carrier | None = None
        self.is_sent = False  # the connection stood, and our message went into it
        self.is_given_up = False  # nobody waits for its answer, which is read all the same
        self.since = now
        self.patience = patience  # for so long
        self.alarm = inf
        self.alarm_number = 0

    @property
    def kind(self) -> ControlKind:
        return KIND_OF.get(self.purpose, ControlKind.GET_STATUS)

    def wait(self, patience: float, now: float) -> None:
        """From now on, for so long."""
        self.since, self.patience = now, patience


class IdleConnection:
    """A connection on which nothing is under way but a pulse to come, or its end."""

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
        self.process = registrar.process  # that sends all its pulses; 0: not known, or more than one does
        self.stop_watch: Callable[[], None] | None = None  # of the end of that process
        self.next_pulse = next_pulse  # how long it may be silent
        self.start_until = start_until  # while it boots: how long its socket is tried
        self.is_released = False  # nobody waits any more for what it was given last
        self.task = 0  # what that is called on the wire
        self.previous = 0  # and the one before
        self.is_set = False  # SET_TASK has been dialled for it
        self.is_taken = False  # and answered with OK
        self.wants_fetch = False  # it has said FETCH_ME, or we have a reason of our own to ask
        self.fetches_again = False  # the last FETCH broke in the middle
        self.has_leftover = False  # it said FETCH_ME for the task before while it was being given the next one
        self.no_fetches = 0  # NO_FETCH in a row
        self.idle_pulses = 0  # pulses in a row that do not name the task it has taken
        self.exchange: Exchange | None = None  # SET_TASK or FETCH, one at a time
        self.probe: Exchange | None = None  # GET_STATUS, beside it
        self.last_exchange = -inf  # when one last ended: a pulse from before that is no news of its task (R91)
        self.retry_delay = 0.0  # how long it is offered nothing, because it was BUSY (R98)
        self.retry_at = inf
        self.alarm = inf
        self.alarm_number = 0

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that it was given and has not answered, unless it is released from it. The core knows."""
        return None if self.is_released else self.worker.held()

    def is_served_by(self, process: int) -> bool:
        """Whether this process both sends its pulses and listens on its socket: then it is the worker.

        Where other programs speak for a worker, the end of one of them says nothing about the worker.
        """
        return process != 0 and process == self.process

    def note_pulse_from(self, process: int) -> None:
        if process != self.process:
            self.end_watch()

    def end_watch(self) -> None:
        """For good: its process is not known any more."""
        self.process = 0
        if self.stop_watch is not None:
            self.stop_watch()
            self.stop_watch = None
