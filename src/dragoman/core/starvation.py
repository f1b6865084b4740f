"""Starvation by nested calls: every slot that could run a job runs one that waits for such jobs (R201).

A handler that calls a service keeps its slot until the child has ended. If all slots of all workers of the child's
service are kept like this, directly or by way of other services, no child ever starts. The broker knows it where the
submits named their parents. What it cannot know is whether a handler really waits, so only children count that somebody
waits for: calls, and background jobs whose result is being requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.core.extras_index import ExtrasIndex
from dragoman.core.model import Attempt, Job, JobId, Service, Worker
from dragoman.core.rights import SEE
from dragoman.core.states import BUSY, DRAINING, RUNNING, WAITING

MOST_CHILDREN: Final = 20_000  # children that one search looks at
MOST_DEPTH: Final = 50  # of nested calls


class Starvation:
    """A service whose jobs starve. `slots`: those of its workers. `services`: those that these slots wait for."""

    __slots__ = ("service", "services", "slots")

    def __init__(self, service: Service, slots: int, services: list[Service]) -> None:
        self.service = service
        self.slots = slots
        self.services = services


def starved(candidates: Iterable[Service], workers: Iterable[Worker], index: ExtrasIndex) -> list[Starvation]:
    """Return those of the services whose waiting jobs starve. `workers`: all of the broker."""
    if not index.by_parent:
        return []
    waiting = [each for each in candidates if _may_starve(each)]
    return _Search(workers, index).starved(waiting) if waiting else []


def _may_starve(service: Service) -> bool:
    has_idle = service.idle.length or service.held_back.length
    return bool(service.queue.length and service.workers and not has_idle and not service.paused)


class _Search:
    """One search. It assumes that all services it meets starve, and removes those that do not."""

    def __init__(self, workers: Iterable[Worker], index: ExtrasIndex) -> None:
        self._index = index
        self._workers: dict[Service, list[Worker]] = {}
        for worker in workers:
            if worker.state is not DRAINING:  # it takes no more jobs
                for service in worker.services:
                    self._workers.setdefault(service, []).append(worker)
        self._attempts: dict[Service, list[Attempt]] = {}  # those that keep the slots of the services that may starve
        self._known: dict[JobId, list[Job]] = {}  # results of `_children`
        self._looked_at = 0

    def starved(self, candidates: list[Service]) -> list[Starvation]:
        unknown = list(candidates)
        while unknown:
            service = unknown.pop()
            attempts = self._kept_slots(service)
            if attempts is None or service in self._attempts:
                continue
            self._attempts[service] = attempts
            unknown += [each for attempt in attempts for each in self._waited_for(attempt.job, MOST_DEPTH)]
        while True:
            free = [
                service
                for service, attempts in self._attempts.items()
                if not all(self._is_kept(each.job, MOST_DEPTH) for each in attempts)
            ]
            if not free:
                break
            for service in free:
                del self._attempts[service]
        return [self._found(each) for each in candidates if each in self._attempts]

    def _kept_slots(self, service: Service) -> list[Attempt] | None:
        """Return the attempts in all slots of a service's workers; None if a slot is or may become free otherwise."""
        attempts: list[Attempt] = []
        for worker in self._workers.get(service, ()):
            if worker.state is not BUSY or worker.stuck or worker.is_behind:
                return None
            attempts += worker.running.values()
        return attempts if attempts and not service.paused else None

    def _children(self, job: Job) -> list[Job]:
        """Return the open jobs that a running job waits for."""
        known = self._known.get(job.id)
        if known is not None:
            return known
        attempt = job.attempt
        children = self._index.children_of(job.id)
        self._looked_at += len(children)
        found: list[Job] = []
        if attempt is not None and self._looked_at <= MOST_CHILDREN:  # beyond it, slots count as not kept
            found = [each for each in children.values() if _is_awaited(each) and _may_know(each, attempt)]
        self._known[job.id] = found
        return found

    def _waited_for(self, job: Job, depth: int) -> list[Service]:
        """Return the services in which children of a job wait, directly or below."""
        found: dict[Service, None] = {}
        for child in self._children(job):
            if child.state is WAITING:
                found[child.service] = None
            elif child.state is RUNNING and depth:
                found |= dict.fromkeys(self._waited_for(child, depth - 1))
        return list(found)

    def _is_kept(self, job: Job, depth: int) -> bool:
        """True if the slot of a running job is kept until a job of a starved service starts."""
        for child in self._children(job):
            if child.state is WAITING and child.service in self._attempts:
                return True
            if child.state is RUNNING and depth and self._is_kept(child, depth - 1):
                return True
        return False

    def _found(self, service: Service) -> Starvation:
        attempts = self._attempts[service]
        services = {each: None for attempt in attempts for each in self._waited_for(attempt.job, MOST_DEPTH)}
        return Starvation(service, len(attempts), list(services))


def _is_awaited(child: Job) -> bool:
    """True if somebody waits for the outcome of a child that has not ended."""
    return child.outcome is None and bool(child.callers)


def _may_know(child: Job, attempt: Attempt) -> bool:
    """True if the owner of a child may know of its parent: otherwise the id of the parent is forged (R200)."""
    owner = child.owner.principal
    parent = attempt.job
    return (
        owner.rights.sees_all
        or owner.name == parent.owner.principal.name
        or owner.name == attempt.worker.owner.principal.name
        or owner.may(SEE, parent.service.name)
    )
