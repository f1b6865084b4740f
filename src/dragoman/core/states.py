"""States of jobs and workers, and how both end: the closed sets of values that the core knows.

States are assigned in `lifecycle.py` and nowhere else.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    WAITING = "waiting"
    DELAYED = "delayed"
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
    """The reason for which a submit was refused. Each dialect maps these to its own words in one table."""

    NO_SUCH_SERVICE = "no such service"
    BUSY = "busy"
    DRAINING = "draining"
    KEY_REUSED = "key reused"
    STORE_UNAVAILABLE = "store unavailable"
    INVALID = "invalid"


class WorkerState(StrEnum):
    STARTING = "starting"  # joined, has not yet said that it is free
    IDLE = "idle"  # has a free slot
    BUSY = "busy"  # every slot is taken
    STUCK = "stuck"  # every slot is taken by attempts that ended without their result (D11)
    BACKING_OFF = "backing off"  # holds nothing, would not take a job, and is offered none for a moment (R98)
    DETACHED = "detached"  # out of reach, or does not ask (R131): gets nothing, and its lease runs on (R64)
    DRAINING = "draining"  # finishes what it holds and gets nothing more
    GONE = "gone"


# Members by name: in Python 3.11 looking one up on its class costs ten times a global, and states are asked for often.
WAITING: Final = JobState.WAITING
DELAYED: Final = JobState.DELAYED
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
    """The reason for which the broker removed a worker."""

    EXPIRED = "expired"  # its lease ran out
    DRAINED = "drained"  # it was drained and holds nothing any more
    KILLED = "killed"  # an operator wanted it gone at once
    STOPPED = "stopped"  # the broker ends, and may be started again

    @property
    def is_final(self) -> bool:
        """Whether the worker shall not come back."""
        return self in (RemovalReason.DRAINED, RemovalReason.KILLED)


class AttemptRecord:
    """The end of one attempt: an entry of a job's history. No dataclass, because every job makes one."""

    __slots__ = ("number", "outcome", "reason", "worker")

    def __init__(self, number: int, worker: str, outcome: Outcome, reason: str) -> None:
        self.number = number
        self.worker = worker
        self.outcome = outcome
        self.reason = reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttemptRecord) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ending{self._facts()}"

    def _facts(self) -> tuple[int, str, Outcome, str]:
        return self.number, self.worker, self.outcome, self.reason
