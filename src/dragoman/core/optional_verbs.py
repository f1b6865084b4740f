"""Verbs that only some dialects have a word for: out of reach, pull, give back, extend, progress."""

from __future__ import annotations

from collections.abc import Collection

from dragoman.core.admission import can_offer
from dragoman.core.effects import DeliverProgress
from dragoman.core.events import JOB_PROGRESS
from dragoman.core.infinity import inf
from dragoman.core.leases import worker_deadline
from dragoman.core.model import Attempt, Caller, Payload, Service, Worker
from dragoman.core.operator_verbs import OperatorVerbs
from dragoman.core.states import DETACHED, ENDED, GONE, IDLE, STARTING


class OptionalVerbs(OperatorVerbs):
    """The part of the broker that dialects with more than jobs and results call."""

    # ---------------------------------------------------------------- callers and workers out of reach

    def caller_away(self, caller: Caller, now: float) -> None:
        """The caller is out of reach and may come back: a call of it that waits is kept `orphan_grace` for it (R64)."""
        for job in caller.open_jobs():
            if job.state is not ENDED and not job.is_kept:
                job.orphan_due = now + job.options.orphan_grace
                self._deadlines.arm(job, job.due())

    def caller_back(self, caller: Caller) -> None:
        """The caller is within reach again."""
        for job in caller.open_jobs():
            job.orphan_due = inf

    def detach(self, worker: Worker, now: float) -> None:
        """The worker is out of reach for the moment: it is given nothing, and its lease runs on (R64)."""
        if worker.away_since == inf and worker.state is not STARTING and worker.state is not GONE:
            worker.away_since = now
            self.worker_registry.settle(worker, now)
            self._deadlines.arm(worker, worker_deadline(worker))

    def attach(self, worker: Worker, now: float) -> None:
        """It is within reach again."""
        worker.seen = now
        worker.away_since = inf
        if worker.state is DETACHED and self.worker_registry.settle(worker, now):
            self.dispatch.freed(worker, now)

    # ---------------------------------------------------------------- workers

    def ask(self, worker: Worker, count: int, now: float) -> None:
        """A worker that pulls asks for up to so many jobs, in place of what it asked for before (R131). 0: for none. An
        attempt that it is given uses up one; so does one that it has not been sent yet."""
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
        """The worker offers these services from now on, or none; what it holds is not touched (R132). False: it has
        gone, or these are too many, or not names."""
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
        """The job goes to its worker only now, for that was asked first: its run time begins."""
        attempt.begin(now)
        if attempt.job.attempt is attempt:
            self._deadlines.arm(attempt.worker, attempt.over_at)

    def refuse(self, attempt: Attempt, now: float) -> bool:
        """The worker would not take it, as its terms allow: nothing has started (R8). It gets no job until `idle`."""
        attempt.worker.seen = now
        return self.attempts.refuse(attempt, now)

    def give_back(
        self, attempt: Attempt, now: float, *, delay: float = 0.0, priority: int | None = None, spends: bool = False
    ) -> bool:
        """The worker gives the job back and is free: it waits again, after `delay` and with another `priority` if that
        is said (R133). `spends`: the attempt counts. False if it was over already. ValueError: no such priority."""
        attempt.worker.seen = now
        return self.attempts.give_back(attempt, min(delay, self.policy.max_delay), priority, spends, now)

    def extend(self, attempt: Attempt, seconds: float, now: float) -> bool:
        """The worker needs more time: its run time ends in so many seconds (R134). False if the attempt is over."""
        attempt.worker.seen = now
        if attempt.job.attempt is not attempt:
            return False
        attempt.extend(seconds, now)
        self._deadlines.arm(attempt.worker, attempt.over_at)
        return True

    def progress(self, attempt: Attempt, payload: Payload, now: float, *, is_part: bool = False) -> bool:
        """Pass on a report of a running job, or a part of its result that is ready before the rest. The part is kept
        if the caller takes the result whole. False if the attempt is over."""
        attempt.worker.seen = now
        job = attempt.job
        if job.attempt is not attempt:
            return False
        if is_part and not job.options.streams:
            self.job_registry.keep_part(attempt, payload)
            return True
        self.effects.extend(DeliverProgress(caller, attempt, payload, is_part) for caller in job.callers)
        if not is_part and self.events.wanted & JOB_PROGRESS:
            self.events.job_progressed(job, payload)
        return True


def _change_services(worker: Worker, services: Collection[Service]) -> None:
    """The worker offers these from now on. Where it offered one before, it keeps its place among the idle."""
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
