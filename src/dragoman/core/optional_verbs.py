"""Broker methods that only some dialects use: detach, pull, give back, extend, progress."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dragoman.core.admission import can_offer
from dragoman.core.effects import DeliverProgress
from dragoman.core.events import JOB_PROGRESS
from dragoman.core.infinity import inf
from dragoman.core.leases import worker_deadline
from dragoman.core.model import Attempt, Caller, Payload, Service, Worker
from dragoman.core.operator_verbs import OperatorVerbs
from dragoman.core.states import DETACHED, ENDED, GONE, IDLE, STARTING

PROGRESS_KEPT: Final = 65_536  # bytes: a longer report is delivered, but not kept


class OptionalVerbs(OperatorVerbs):
    """The part of the broker for dialects that have more than jobs and results."""

    # ---------------------------------------------------------------- callers and workers out of reach

    def caller_away(self, caller: Caller, now: float) -> None:
        """The caller is disconnected and may return: its waiting calls are kept for `orphan_grace` seconds (R64)."""
        for job in caller.open_jobs():
            if job.state is not ENDED and not job.is_kept:
                job.orphan_due = now + job.options.orphan_grace
                self._deadlines.arm(job, job.due())

    def caller_back(self, caller: Caller) -> None:
        """The caller has reconnected."""
        for job in caller.open_jobs():
            job.orphan_due = inf

    def detach(self, worker: Worker, now: float) -> None:
        """The worker is not reachable for now: it gets no job while its lease runs (R64)."""
        if worker.away_since == inf and worker.state is not STARTING and worker.state is not GONE:
            worker.away_since = now
            self.worker_registry.settle(worker, now)
            self._deadlines.arm(worker, worker_deadline(worker))

    def attach(self, worker: Worker, now: float) -> None:
        """The worker is reachable again."""
        worker.seen = now
        worker.away_since = inf
        if worker.state is DETACHED and self.worker_registry.settle(worker, now):
            self.dispatch.freed(worker, now)

    # ---------------------------------------------------------------- workers

    def ask(self, worker: Worker, count: int, now: float) -> None:
        """Set the number of jobs that a pulling worker requests, replacing the previous number (R131). Every attempt it
        is given uses up one, including an attempt that has not been sent yet."""
        if not worker.profile.pulls:
            return
        if count > 0:
            worker.seen = now
        for attempt in worker.running.values():
            if not attempt.is_sent:
                count -= 1
        worker.asked = count
        if (worker.state is DETACHED or worker.state is IDLE) and self.worker_registry.settle(worker, now):
            self.dispatch.freed(worker, now)

    def offer(self, worker: Worker, services: Collection[str], now: float) -> bool:
        """Set the services that the worker offers; none is allowed. Attempts it holds are not affected (R132). False:
        it has left, or there are too many or invalid names."""
        if worker.state is GONE or not (can_offer(services, self.policy) or not services):
            return False
        offered = self.worker_registry.services_for(dict.fromkeys(services))
        if offered is None:
            return False
        _change_services(worker, offered)
        if worker.state is IDLE and self.worker_registry.settle(worker, now):
            self.dispatch.freed(worker, now)
        return True

    # ---------------------------------------------------------------- attempts

    def begin(self, attempt: Attempt, now: float) -> None:
        """Start the run time of an attempt whose worker has only now accepted the job."""
        attempt.begin(now)
        if attempt.job.attempt is attempt:
            self._deadlines.arm(attempt.worker, attempt.over_at)

    def refuse(self, attempt: Attempt, now: float) -> bool:
        """The worker declined the job, as its profile allows: nothing has started (R8). It gets no job until `idle`."""
        attempt.worker.seen = now
        return self.attempts.refuse(attempt, now)

    def give_back(
        self, attempt: Attempt, now: float, *, delay: float = 0.0, priority: int | None = None, spends: bool = False
    ) -> bool:
        """Return a job that its worker gives back; the worker is free. The job is queued after `delay`, with another
        `priority` if given (R133). `spends`: the attempt counts. False if it had ended. ValueError: invalid priority.
        """
        attempt.worker.seen = now
        return self.attempts.give_back(attempt, min(delay, self.policy.max_delay), priority, spends, now)

    def extend(self, attempt: Attempt, seconds: float, now: float) -> bool:
        """Extend the attempt: its run time ends in this many seconds (R134). False if the attempt has ended."""
        attempt.worker.seen = now
        if attempt.job.attempt is not attempt:
            return False
        attempt.extend(seconds, now)
        self._deadlines.arm(attempt.worker, attempt.over_at)
        return True

    def progress(self, attempt: Attempt, payload: Payload, now: float, *, is_part: bool = False) -> bool:
        """Deliver a progress report of a running job, or a part of its result. The last report is kept with the job; a
        part is kept if the caller receives the result whole. False if the attempt has ended."""
        attempt.worker.seen = now
        job = attempt.job
        if job.attempt is not attempt:
            return False
        if is_part and not job.options.streams:
            self.job_registry.keep_part(attempt, payload)
            return True
        self.effects.extend(DeliverProgress(caller, attempt, payload, is_part) for caller in job.callers)
        if not is_part:
            if len(payload) <= PROGRESS_KEPT:
                job.progress = payload
            if self.events.wanted & JOB_PROGRESS:
                self.events.job_progressed(job, payload)
        return True


def _change_services(worker: Worker, services: Collection[Service]) -> None:
    """Set the worker's services. It keeps its place in the idle list of a service that it offered before."""
    dropped = [each for each in worker.services if each not in services]
    added = [each for each in services if each not in worker.services]
    worker.services = tuple(services)
    for service in dropped:
        service.workers -= 1
        service.idle.remove(worker)
        service.held_back.remove(worker)
    for service in added:
        service.workers += 1
        service.is_known = True
        service.discharge()
