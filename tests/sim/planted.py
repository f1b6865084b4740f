"""Three likely bugs of a PingPong broker, planted on purpose: a simulator that misses them is too weak.

Each is a subclass that replaces the real class for one run (`Kinds`); nothing in `src` is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop
from math import inf
from typing import Any

from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.expiry import Expiry
from dragoman.core.model import Job, Worker
from dragoman.core.states import JobState, Outcome, WorkerState
from dragoman.dialects.pingpong.messages import Ping
from dragoman.dialects.pingpong.remote_workers import RemoteWorker, RemoteWorkers
from sim.broker_setup import Kinds
from sim.oracle import WatchedSession


class LiteralPing(WatchedSession):
    """The first text to the letter: "If worker_id is not in the ready queue, worker_id is added to the ready queue".

    A busy worker is not in that queue, so its PING gets it a second job (against R32).
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.remote_workers.__class__ = WorkersByLiteralPing


class WorkersByLiteralPing(RemoteWorkers):
    def _ping(self, remote: RemoteWorker, ping: Ping, now: float) -> None:
        if remote.worker is not None and remote.worker.state is WorkerState.BUSY:
            self._join(remote, now, held_back_until=0.0)
        super()._ping(remote, ping, now)


class ReadyIsRestart(WatchedSession):
    """READY from a busy worker is always taken for a new life of it, even if it crossed the job (against R34)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.remote_workers.__class__ = WorkersRestartedByReady


class WorkersRestartedByReady(RemoteWorkers):
    def _ready(self, remote: RemoteWorker, now: float) -> None:
        if remote.attempt is not None:
            self.leave(remote, "its worker was restarted", now)
        super()._ready(remote, now)


class TimersWithoutGeneration(Broker):
    """A timer stays set, and when it fires the job is checked by its state at that time (against R5).

    So the queue time-out ends a run, and the time-out of the first attempt ends the second.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadlines.__class__ = Ungenerational
        self._expiry.__class__ = ExpiryByState


class ExpiryByState(Expiry):
    """Checks by the state alone, whatever the timer was for."""

    __slots__ = ()

    def _check_job(self, job: Job, now: float) -> None:
        if job.state is JobState.WAITING:
            self._attempts.end_early(job, Outcome.TIMED_OUT, "no worker was free", now)
        elif job.state is JobState.DELAYED:
            self._delays.wake(job, now)
        elif job.attempt is not None:
            self._attempts.time_out(job.attempt, now)

    def _check_worker(self, worker: Worker, now: float) -> None:
        if worker.state is not WorkerState.GONE:
            super()._check_worker(worker, now)


class Ungenerational(Deadlines[Any]):
    __slots__ = ()

    def due(self, now: float) -> Iterator[Any]:
        while self._heap and self._heap[0][0] <= now:
            _, number, subject = heappop(self._heap)
            if subject.alarm_number == number:
                self.disarm(subject)
            yield subject

    def next(self) -> float:
        return self._heap[0][0] if self._heap else inf


# Name, what is put in, and the letter by which the oracle should find it.
BUGS = (
    ("the document's literal PING rule", Kinds(session=LiteralPing), "I7"),
    ("READY taken for a restart", Kinds(session=ReadyIsRestart), "I7"),
    ("timers without generation", Kinds(broker=TimersWithoutGeneration), "R6"),
)
