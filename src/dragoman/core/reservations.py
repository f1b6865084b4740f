"""Reservations: attempts that are committed while their job still waits (R108).

A background job is sent to its worker after the commit of that attempt. Workers whose jobs take less time than a commit
would mostly wait for the store. While such workers finish jobs, the jobs at the head of their queue are reserved: the
store gets the token of their next attempt ahead of time, and they are sent as soon as a slot is free. A reserved job
keeps its place in the queue. After a crash its attempt counts as spent, for it may have been sent. Therefore at most as
many jobs are reserved as run, never one for its last attempt, and what is not used within `KEPT` is taken back.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dragoman.core.entropy import Entropy
from dragoman.core.gate import Promise
from dragoman.core.infinity import inf
from dragoman.core.ledger import Ledger
from dragoman.core.model import Job, Service
from dragoman.core.reservation import Reservation

QUICK: Final = 0.02  # seconds: an attempt that ends sooner calls for reservations
KEPT: Final = 1.0  # seconds
AHEAD: Final = 4  # per quick attempt since the last commit: some are being committed, some are used meanwhile


class Reservations:
    __slots__ = ("_ahead", "_entropy", "_ledger", "_made", "_quick", "due")

    def __init__(self, entropy: Entropy, ledger: Ledger) -> None:
        self._entropy = entropy
        self._ledger = ledger
        self._quick: dict[Service, int] = {}  # quick attempts since the last commit
        self._ahead: dict[Service, int] = {}  # how many jobs at the head of its queue have a reservation
        self._made: deque[tuple[float, Job, Reservation]] = deque()  # with the time at which each is taken back
        self.due = inf  # when the oldest is taken back

    def note_quick(self, service: Service) -> None:
        """An attempt at a background job of this service took less than `QUICK`."""
        self._quick[service] = self._quick.get(service, 0) + 1

    def reserve(self, now: float) -> None:
        """Commit the next attempts of the services that had quick ones since the last commit."""
        self._ahead = {service: min(count * AHEAD, _under_way(service)) for service, count in self._quick.items()}
        self._quick.clear()
        for service, count in self._ahead.items():
            if service.queue.length and not service.paused:
                for job in service.queue.first(count):
                    if job.reservation is None and _may_lose_one(job):
                        self._reserve(job, now)

    def reserve_new(self, job: Job, now: float) -> None:
        """Let the commit that accepts a job carry its reservation, if it is near enough to the head of its queue."""
        service = job.service
        if service.queue.length <= self._ahead.get(service, 0) and not service.paused and _may_lose_one(job):
            self._reserve(job, now)

    def _reserve(self, job: Job, now: float) -> None:
        job.reservation = reservation = Reservation(self._entropy.token(), now)
        self._ledger.save(job, Promise.RESERVE)
        self._made.append((now + KEPT, job, reservation))
        if self.due == inf:
            self.due = now + KEPT

    def committed(self, job: Job, reservation: Reservation, is_written: bool) -> None:
        """The store has it, or could not write it."""
        if job.reservation is reservation:
            if is_written:
                reservation.is_committed = True
            else:
                self._take_back(job)

    def expire(self, now: float) -> None:
        """Take back what was not used in time."""
        made = self._made
        while made and (made[0][0] <= now or made[0][1].reservation is not made[0][2]):
            _, job, reservation = made.popleft()
            if job.reservation is reservation:
                self._take_back(job)
        self.due = made[0][0] if made else inf

    def take_back_all(self) -> None:
        """Take back every reservation: the broker is about to stop."""
        self._quick.clear()
        self._ahead.clear()
        self.expire(inf)

    def _take_back(self, job: Job) -> None:
        job.reservation = None
        self._ledger.save(job)


def _under_way(service: Service) -> int:
    """The number of its jobs that run, or are delayed."""
    return service.jobs - service.queue.length


def _may_lose_one(job: Job) -> bool:
    """Whether a background job has another attempt left if its next one is lost without having run."""
    wishes = job.wishes
    limit = wishes.attempts if wishes.attempts is not None else wishes.default_attempts
    return wishes.durable and job.spent + 1 < limit
