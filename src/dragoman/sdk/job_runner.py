"""A job in a worker's hands: who gave it, who does it, and when it has to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import Protocol

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import NOTHING_SAID, Failure, JobInfo, Outcome

log = logging.getLogger("dragoman.worker")


class JobOwner(Protocol):
    """Who gave the job; it is told once what became of it, in the loop's own thread."""

    def finished(self, job: RunningJob, result: Frame) -> None: ...

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        """`reason` is the failure in one line."""

    def returned(self, job: RunningJob) -> None:
        """It was recalled, and has stopped."""

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        """What it says of itself while it runs, or a part of its result."""


class Pool(Protocol):
    """Those who do jobs of one kind: child processes, threads, coroutines, programs."""

    async def start(self) -> None:
        """Raises CannotLoad."""

    def begin(self, job: RunningJob) -> None:
        """Do it now, or as soon as somebody is free for it."""

    def cancel(self, job: RunningJob) -> None:
        """`job.is_cancelled`: let the handler know that nobody waits any more."""

    def kill(self, job: RunningJob) -> None:
        """Stop it by force, as far as that can be done; `job.lost` follows."""

    async def close(self) -> None:
        """Drop what is under way, at once, and leave nothing behind."""


class RunningJob:
    """One job, from the moment it was given to us until we have said what became of it."""

    __slots__ = (
        "assignment",
        "due",
        "is_cancelled",
        "is_over",
        "is_recalled",
        "job_owner",
        "job_ref",
        "job_runner",
        "payload",
        "performer",
        "pool",
        "service",
    )

    def __init__(
        self, job_owner: JobOwner, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID
    ) -> None:
        self.job_owner = job_owner
        self.job_ref = job_ref  # what the employer calls it
        self.payload = payload
        self.assignment = assignment
        self.service = assignment.service
        self.job_runner: JobRunner | None = None
        self.pool: Pool | None = None
        self.performer: object = None  # the child, thread or task that is at it
        self.due = inf  # when to look after it
        self.is_cancelled = False  # nobody waits any more: by recall, or because its time is over
        self.is_recalled = False
        self.is_over = False

    def finish(self, result: Frame) -> None:
        if self._end():
            self.job_owner.finished(self, result)

    def fail(self, failure: Failure, outcome: Outcome = Outcome.FAILED) -> None:
        if self._end():
            reason = one_line(failure)
            if not self.is_recalled:
                log.error("job failed: %s%s", reason, f"\n{failure.traceback}" if failure.traceback else "")
            self.job_owner.failed(self, outcome, reason, failure)

    def lost(self, reason: str) -> None:
        """Whoever did it is no more: as we wanted, or not."""
        if self.is_recalled:
            if self._end():
                self.job_owner.returned(self)
        elif self.is_cancelled:
            self.fail(Failure("TimeoutError", f"stopped when its time of {self.assignment.timeout:g} s was over"))
        else:
            self.fail(Failure("", reason), Outcome.LOST)

    def report(self, report: tuple[Frame, bool]) -> None:
        """A payload, and whether it is a part of the result."""
        if not self.is_over:
            self.job_owner.reported(self, *report)

    def _end(self) -> bool:
        if self.is_over:
            return False
        self.is_over = True
        if self.job_runner is not None:
            self.job_runner.forget(self)
        return True


class JobRunner:
    """Gives each job to the hands that do its service, and sees to it that it ends in time."""

    def __init__(self, pool: Mapping[str, Pool], grace: float) -> None:
        """`hands` by service. `grace`: so long a cancelled job may go on before it is stopped by force."""
        self._pool = pool
        self._only = next(iter(pool)) if len(pool) == 1 else ""  # for wires without names
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._jobs: set[RunningJob] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf

    async def start(self) -> None:
        """Raises CannotLoad."""
        for each in self._everybody():
            await each.start()

    def begin(self, job: RunningJob) -> None:
        if not job.service:
            job.service = self._only
        pool = self._pool.get(job.service)
        if pool is None:
            job.fail(Failure("LookupError", f"this worker does not offer {job.service!r}"))
            return
        job.job_runner = self
        job.pool = pool
        self._jobs.add(job)
        if job.assignment.timeout != inf:
            self._look_at(job, self._loop.time() + job.assignment.timeout)
        pool.begin(job)

    def recall(self, job: RunningJob, reason: str) -> None:
        """Nobody waits for it any more."""
        if not job.is_over and not job.is_recalled:
            log.info("a job of %s is recalled: %s", job.service, reason)
            job.is_recalled = True
            self._cancel(job)

    def drop(self, job: RunningJob) -> None:
        """It is over, whatever its handler does: stop that."""
        if job.pool is not None:
            job.is_cancelled = True
            job.pool.kill(job)

    def forget(self, job: RunningJob) -> None:
        self._jobs.discard(job)

    async def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        for job in self._jobs:
            job.is_over = True  # nobody is told any more
        for each in self._everybody():
            await each.close()

    def _everybody(self) -> Iterable[Pool]:
        return dict.fromkeys(self._pool.values())

    def _cancel(self, job: RunningJob) -> None:
        if not job.is_cancelled:
            assert job.pool is not None
            job.is_cancelled = True
            self._look_at(job, self._loop.time() + self._grace)
            job.pool.cancel(job)

    def _look_at(self, job: RunningJob, due: float) -> None:
        job.due = due
        if due < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = due
            self._alarm = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """A job whose time is over is cancelled; one that was cancelled, and goes on, is killed."""
        self._alarm, self._alarm_at = None, inf
        now = self._loop.time()
        for job in [each for each in self._jobs if each.due <= now]:
            if not job.is_cancelled:
                log.warning("a job of %s has had its time of %g s", job.service, job.assignment.timeout)
                self._cancel(job)
            else:
                assert job.pool is not None
                job.due = inf
                job.pool.kill(job)
        soonest = min(self._jobs, key=lambda job: job.due, default=None)
        if soonest is not None and soonest.due != inf:
            self._look_at(soonest, soonest.due)


def one_line(failure: Failure) -> str:
    """A failure in a sentence, for wires that have room for no more, and for the log."""
    return " ".join(failure.sentence.split()) or "it said nothing"
