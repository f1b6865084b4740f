"""States and outcomes of jobs, states of workers, and reasons of refusals and removals.

Only `lifecycle.py` assigns states.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    WAITING = "waiting"
    DELAYED = "delayed"
    DEPENDENT = "dependent"  # waits for other jobs
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class RefusalReason(StrEnum):
    """Reason for which a submit was refused. Each dialect maps these to its own messages in one table."""

    NO_SUCH_SERVICE = "no such service"
    BUSY = "busy"
    DRAINING = "draining"
    KEY_REUSED = "key reused"
    STORE_UNAVAILABLE = "store unavailable"
    INVALID = "invalid"
    FORBIDDEN = "forbidden"  # the principal lacks a right
    PARTITIONED = "partitioned"  # its workers are at brokers that are not heard
    TOO_LARGE = "too large"  # the payload is over the principal's limit


class Unique(StrEnum):
    """The time for which a job holds its idempotency key: a submit with a held key returns the job that holds it."""

    WAITING = "waiting"  # until it starts
    UNFINISHED = "unfinished"  # until it ends
    KEPT = "kept"  # until its outcome is deleted


class WorkerState(StrEnum):
    STARTING = "starting"  # joined, and has not reported that it is ready
    IDLE = "idle"  # has a free slot
    BUSY = "busy"  # every slot is taken
    STUCK = "stuck"  # every slot is taken by an attempt that ended without a result (D11)
    BACKING_OFF = "backing off"  # holds nothing, declined a job, and gets none for a short time (R98)
    DETACHED = "detached"  # not reachable, or requests no job (R131): gets no job while its lease runs (R64)
    DRAINING = "draining"  # finishes the jobs it holds and gets no more
    GONE = "gone"


# Members by name: in Python 3.11 a lookup on the enum class costs ten times a global, and states are compared often.
WAITING: Final = JobState.WAITING
DELAYED: Final = JobState.DELAYED
DEPENDENT: Final = JobState.DEPENDENT
RUNNING: Final = JobState.RUNNING
ENDED: Final = JobState.ENDED
DONE: Final = Outcome.DONE
FAILED: Final = Outcome.FAILED
TIMED_OUT: Final = Outcome.TIMED_OUT
LOST: Final = Outcome.LOST
CANCELLED: Final = Outcome.CANCELLED
REFUSED: Final = Outcome.REFUSED
STARTING: Final = WorkerState.STARTING
IDLE: Final = WorkerState.IDLE
BUSY: Final = WorkerState.BUSY
STUCK: Final = WorkerState.STUCK
BACKING_OFF: Final = WorkerState.BACKING_OFF
DETACHED: Final = WorkerState.DETACHED
DRAINING: Final = WorkerState.DRAINING
GONE: Final = WorkerState.GONE


class RemovalReason(StrEnum):
    """Reason for which the broker removed a worker."""

    EXPIRED = "expired"  # its lease ran out
    DRAINED = "drained"  # it was drained and holds no job
    KILLED = "killed"  # an operator removed it at once
    STOPPED = "stopped"  # the broker stops, and may start again

    @property
    def is_final(self) -> bool:
        """True if the worker must not reconnect."""
        return self in (RemovalReason.DRAINED, RemovalReason.KILLED)


class AttemptRecord:
    """The end of one attempt, in a job's history. Not a dataclass, because every job creates one.

    The times are None in a record that was stored before times were stored; `dialect` and `worker_id` are empty and
    None in one that was stored before these were.
    """

    __slots__ = ("dialect", "ended", "number", "outcome", "reason", "started", "worker", "worker_id")

    def __init__(
        self,
        number: int,
        worker: str,
        outcome: Outcome,
        reason: str,
        started: float | None = None,
        ended: float | None = None,
        dialect: str = "",
        worker_id: int | None = None,
    ) -> None:
        self.number = number
        self.worker = worker
        self.outcome = outcome
        self.reason = reason
        self.started = started
        self.ended = ended
        self.dialect = dialect  # of the worker
        self.worker_id = worker_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttemptRecord) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AttemptRecord{self._facts()}"

    def _facts(self) -> tuple[int, str, Outcome, str, float | None, float | None]:
        return self.number, self.worker, self.outcome, self.reason, self.started, self.ended
