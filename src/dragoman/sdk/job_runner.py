"""Runs a worker's jobs in pools and enforces time-outs and cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import Protocol

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import NOTHING_SAID, Failure, JobInfo, Outcome
from dragoman.sdk.parts import parts_required

log = logging.getLogger("dragoman.worker")


class JobOwner(Protocol):
    """Receives a job's reports and its result. One of `finished`, `failed` and `returned` is called, once, on the event
    loop's thread."""

    @property
    def max_payload(self) -> int:
        """Bytes of a result that the broker accepts; the most that one may accept where its dialect does not tell."""

    def finished(self, job: RunningJob, result: Frame) -> None: ...

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        """Receive a failure; `reason` is the failure in one line."""

    def returned(self, job: RunningJob) -> None:
        """Receive the end of a job that was cancelled."""

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        """Receive a progress report, or a part of the result."""


class Pool(Protocol):
    """A pool that runs jobs: in child processes, threads, coroutines or programs."""

    async def start(self) -> None:
        """Start the pool. Raises HandlerLoadError."""

    def begin(self, job: RunningJob) -> None:
        """Run the job now, or as soon as a process or thread of the pool is free."""

    def has_ended(self, job: RunningJob) -> bool:
        """Take in what the handler has given back by now, without waiting. Return whether the job has ended; its
        outcome has then been passed on, or is about to be."""

    def cancel(self, job: RunningJob) -> None:
        """Notify the handler that the job is cancelled; `job.is_cancelled` is already set."""

    def kill(self, job: RunningJob) -> None:
        """Stop the job by force if the pool can; `job.lost` follows."""

    async def close(self) -> None:
        """Stop all jobs at once and release all processes and threads."""


class RunningJob:
    """A job that this worker has accepted and whose outcome it has not yet passed to the owner."""

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
        self.job_ref = job_ref  # the owner's own name for the job
        self.payload = payload
        self.assignment = assignment
        self.service = assignment.service
        self.job_runner: JobRunner | None = None
        self.pool: Pool | None = None
        self.performer: object = None  # the child process, subprocess or task that runs it
        self.due = inf  # time of the next check: time-out, or end of the grace period
        self.is_cancelled = False  # cancelled by the broker, or timed out
        self.is_recalled = False
        self.is_over = False

    @property
    def label(self) -> str:
        """The job in a log line: its id, where the wire has one, and its service."""
        id = self.assignment.job_id
        return f"job {id} of {self.service}" if id else f"a job of {self.service}"

    def finish(self, result: Frame) -> None:
        if self.is_cancelled:
            self._stopped()
        elif self._end():
            self.job_owner.finished(self, result)

    def fail(self, failure: Failure, outcome: Outcome = Outcome.FAILED) -> None:
        if self.is_cancelled:
            self._stopped(failure)
        elif self._end():
            reason = one_line(failure)
            self._log_failure(failure, reason)
            self.job_owner.failed(self, outcome, reason, failure)

    def _stopped(self, failure: Failure | None = None) -> None:
        """End a cancelled job. Its outcome is that of the cancellation, whatever its handler has returned or raised: a
        handler that obeys `ctx.cancelled` returns a stump."""
        if not self._end():
            return
        if failure is not None:
            log.info("%s ended after it was cancelled: %s", self.label, one_line(failure))
        if self.is_recalled:
            self.job_owner.returned(self)
        else:
            timed_out = Failure("TimeoutError", f"stopped after {self.assignment.timeout:g} s, the attempt's time-out")
            reason = one_line(timed_out)
            log.error("%s ended: %s", self.label, reason)
            self.job_owner.failed(self, Outcome.TIMED_OUT, reason, timed_out)

    def _log_failure(self, failure: Failure, reason: str) -> None:
        if failure.retry_in is not None and failure.retry_in != inf:  # its handler raised Retry: no error of the code
            log.info("%s requests another attempt after %g s: %s", self.label, failure.retry_in, reason)
            return
        if failure.unknown:
            log.warning("%s refused, because this worker may be older than its caller: %s", self.label, reason)
            return
        detail = f"\n{failure.traceback}" if failure.traceback else ""
        log.error("%s failed: %s%s", self.label, reason, detail)

    def lost(self, reason: str) -> None:
        """End the job because its process or task has ended without a result: it was killed, or has crashed."""
        self.fail(Failure("", reason), Outcome.LOST)

    def report(self, report: tuple[Frame, bool]) -> None:
        """Pass on a report: a payload, and whether it is a part of the result."""
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
    """Passes each job to the pool of its service and stops jobs that time out."""

    def __init__(self, pool: Mapping[str, Pool], grace: float) -> None:
        """`pool`: pools by service. `grace`: seconds until a cancelled job is stopped by force."""
        self._pool = pool
        self._only_service = next(iter(pool)) if len(pool) == 1 else ""  # for dialects without service names
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._jobs: set[RunningJob] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf

    async def start(self) -> None:
        """Start all pools. Raises HandlerLoadError."""
        for each in self._pools():
            await each.start()

    def begin(self, job: RunningJob) -> None:
        if not job.service:
            job.service = self._only_service
        pool = self._pool.get(job.service)
        if pool is None:
            job.fail(Failure("LookupError", f"this worker does not offer {job.service!r}"))
            return
        if not job.assignment.takes_parts:
            job.fail(parts_required(job.service))
            return
        job.job_runner = self
        job.pool = pool
        self._jobs.add(job)
        if job.assignment.timeout != inf:
            self._check_at(job, self._loop.time() + job.assignment.timeout)
        pool.begin(job)

    def recall(self, job: RunningJob, reason: str) -> None:
        """Cancel a job at the broker's request."""
        if not job.is_over and not job.is_recalled and not self._has_ended(job):
            log.info("%s was cancelled: %s", job.label, reason)
            job.is_recalled = True
            self._cancel(job)

    def drop(self, job: RunningJob) -> None:
        """Stop the handler of a job that has already ended."""
        if job.pool is not None:
            job.is_cancelled = True
            job.pool.kill(job)

    def forget(self, job: RunningJob) -> None:
        self._jobs.discard(job)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for job in self._jobs:
            job.is_over = True  # the owner gets no more calls
        for each in self._pools():
            await each.close()

    def _pools(self) -> Iterable[Pool]:
        return dict.fromkeys(self._pool.values())

    def _has_ended(self, job: RunningJob) -> bool:
        """Return whether the handler of a job that is about to be cancelled has ended already.

        This is the moment that decides: what the pool has from the handler by now is the job's outcome, even if this
        process was too busy to notice it in time. What the handler gives back later is dropped (`RunningJob._stopped`).
        """
        assert job.pool is not None
        return not job.is_cancelled and job.pool.has_ended(job)

    def _cancel(self, job: RunningJob) -> None:
        if not job.is_cancelled:
            assert job.pool is not None
            job.is_cancelled = True
            self._check_at(job, self._loop.time() + self._grace)
            job.pool.cancel(job)

    def _check_at(self, job: RunningJob, due: float) -> None:
        job.due = due
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_at(due, self._check_due)

    def _check_due(self) -> None:
        """Cancel jobs that have timed out; kill cancelled jobs whose grace period has ended."""
        self._timer, self._timer_due = None, inf
        now = self._loop.time()
        for job in [each for each in self._jobs if each.due <= now]:
            if self._has_ended(job):
                job.due = inf
            elif not job.is_cancelled:
                log.warning("%s timed out after %g s", job.label, job.assignment.timeout)
                self._cancel(job)
            elif not job.is_over:
                assert job.pool is not None
                job.due = inf
                job.pool.kill(job)
        soonest = min(self._jobs, key=lambda job: job.due, default=None)
        if soonest is not None and soonest.due != inf:
            self._check_at(soonest, soonest.due)


def one_line(failure: Failure) -> str:
    """Return a failure as one line, for the log and for dialects that carry no more."""
    return " ".join(failure.sentence.split()) or "no error message"
