"""Availability: whether a caller or worker can be reached, and which jobs a worker is ready to get."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from dragoman.core.admission import can_offer, forbidden_work
from dragoman.core.attempts import Attempts
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import RemoveWorker
from dragoman.core.events import WORKER_DRAINING
from dragoman.core.infinity import inf
from dragoman.core.leases import worker_deadline
from dragoman.core.model import Caller, Service, Worker
from dragoman.core.options import BEHIND
from dragoman.core.recipients import Recipient, dialect_of
from dragoman.core.recording import record_caller_gone
from dragoman.core.rights import WORK
from dragoman.core.shared_state import SharedState
from dragoman.core.states import DETACHED, DRAINING, ENDED, GONE, IDLE, STARTING, RemovalReason


class Availability:
    """Records what only some dialects report: a lost and restored connection, requests for jobs, other services."""

    __slots__ = (
        "_attempts",
        "_deadlines",
        "_dispatch",
        "_effects",
        "_events",
        "_policy",
        "_refused_rights",
        "_worker_registry",
    )

    def __init__(self, state: SharedState, dispatch: Dispatch, attempts: Attempts) -> None:
        self._policy = state.policy
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._events = state.events
        self._refused_rights = state.refused_rights
        self._worker_registry = state.worker_registry
        self._dispatch = dispatch
        self._attempts = attempts

    # ---------------------------------------------------------------- callers

    def caller_away(self, caller: Caller, now: float) -> None:
        """The caller is disconnected and may return: its waiting calls are kept for `orphan_grace` seconds (R64)."""
        for job in caller.open_jobs():
            if job.state is not ENDED and not job.is_kept:
                job.orphan_due = now + job.options.orphan_grace
                self._deadlines.arm(job, job.due())
            if job.conversation is not None:
                record_caller_gone(job, caller, now)

    def caller_back(self, caller: Caller) -> None:
        """The caller has reconnected."""
        for job in caller.open_jobs():
            job.orphan_due = inf

    # ---------------------------------------------------------------- workers

    def detach(self, worker: Worker, now: float) -> None:
        """The worker is not reachable for now: it gets no job while its lease runs (R64)."""
        if worker.away_since == inf and worker.state is not STARTING and worker.state is not GONE:
            worker.away_since = now
            self._worker_registry.settle(worker, now)
            self._deadlines.arm(worker, worker_deadline(worker))

    def attach(self, worker: Worker, now: float) -> None:
        """The worker is reachable again."""
        worker.seen = now
        worker.away_since = inf
        if worker.state is DETACHED and self._worker_registry.settle(worker, now):
            self._dispatch.freed(worker, now)

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
        worker.asked = count - BEHIND if worker.is_behind else count
        if (worker.state is DETACHED or worker.state is IDLE) and self._worker_registry.settle(worker, now):
            self._dispatch.freed(worker, now)

    def measured(self, worker: Worker, unsent: int, now: float) -> None:
        """Report the bytes that wait to be sent to a worker that was given large jobs (R206)."""
        if self._dispatch.measured(worker, unsent) and self._worker_registry.settle(worker, now):
            self._dispatch.freed(worker, now)

    def resize(self, worker: Worker, capacity: int, now: float) -> None:
        """Set the number of slots of a worker. With fewer than it uses, it gets no job until enough have ended."""
        if capacity == worker.profile.capacity or worker.state is GONE:
            return
        worker.profile = replace(worker.profile, capacity=capacity)
        if worker.state is not STARTING and worker.state is not DRAINING and self._worker_registry.settle(worker, now):
            self._dispatch.freed(worker, now)

    def partition(self, services: Iterable[str], remote: Recipient) -> None:
        """Refuse calls for services whose only workers are at other brokers that are not heard. `remote`: recipient of
        such workers."""
        reachable = {
            each
            for worker in self._worker_registry.workers.values()
            if worker.recipient is not remote or worker.away_since == inf
            for each in worker.services
        }
        for name in services:
            service = self._worker_registry.services.get(name)
            if service is not None and service not in reachable and service.is_known:
                service.is_known, service.is_partitioned = False, True

    def heal(self, services: Iterable[str]) -> None:
        """Accept calls for these services again: their workers are heard."""
        for name in services:
            service = self._worker_registry.services.get(name)
            if service is not None and service.is_partitioned:
                service.is_known, service.is_partitioned = True, False
                service.discharge()

    def offer(self, worker: Worker, services: Collection[str], now: float) -> bool:
        """Set the services that the worker offers; none is allowed. Attempts it holds are not affected (R132). False:
        it has left, there are too many or invalid names, or its principal may not work for them."""
        if worker.state is GONE or not (can_offer(services, self._policy) or not services):
            return False
        principal = worker.owner.principal
        if forbidden_work(principal, services) is not None:
            self._refused_rights.note(principal, WORK, services, dialect_of(worker.recipient))
            return False
        offered = self._worker_registry.names.services_for(dict.fromkeys(services), worker.owner)
        if offered is None:
            return False
        dropped = [each for each in worker.services if each not in offered]
        _change_services(worker, offered)
        for service in dropped:
            self._dispatch.limiter.undeclare(worker, service, now)
            if service.parameters is not None:
                service.parameters.undeclare(worker.id)
        if worker.state is IDLE and self._worker_registry.settle(worker, now):
            self._dispatch.freed(worker, now)
        return True

    def drain(
        self, worker: Worker, now: float, *, at_once: bool = False, stays: bool = False, by: str = "an operator"
    ) -> None:
        """Give the worker no more jobs. Remove it once it holds none, unless it `stays`; or now, if `at_once` (D8)."""
        if worker.state is GONE:
            return
        if at_once:
            self._effects.append(RemoveWorker(worker, RemovalReason.KILLED, f"killed by {by}"))
            self._attempts.leave(worker, now, f"its worker was killed by {by}", ())
            return
        if worker.state is not DRAINING and self._events.wanted & WORKER_DRAINING:
            self._events.worker_changed(WORKER_DRAINING, worker)
        self._worker_registry.stop_dispatch(worker, stays)
        self._dispatch.removal.remove_if_drained(worker, now)


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
