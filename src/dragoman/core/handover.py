"""Handover: a running attempt goes on as the same attempt at another connection, or at another broker of a cluster.

Its worker keeps running. For the core, the attempt moves from one worker to another: to a stand-in while its worker is
on its way or at another broker, and to the worker that names its token.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from dragoman.core.accepted_jobs import enter_job
from dragoman.core.attempts import Attempts
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import Delivery
from dragoman.core.infinity import inf
from dragoman.core.job_counting import count_job
from dragoman.core.leases import worker_deadline
from dragoman.core.lifecycle import move_job, move_worker
from dragoman.core.model import Attempt, Caller, Job, Service, Token, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.recipients import Recipient
from dragoman.core.shared_state import SharedState
from dragoman.core.states import IDLE, RUNNING, WAITING

ARRIVED: Final = JobOptions(job_timeout=inf, attempts=1, is_limited=False)  # its own broker has its limits
GOES_ON: Final = "its job goes on elsewhere"


class MoveWorker(Delivery):
    """Ask the worker to take its running jobs to another broker of the cluster, because this one stops."""

    __slots__ = ("worker",)

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def recipient(self) -> Recipient:
        return self.worker.recipient


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrivals:
    """Takes attempts of other brokers that workers bring here."""

    def take(self, worker: Worker, token: Token, service: Service, now: float) -> bool:
        """Let this broker wait for the outcome of an attempt that the worker runs. False: it does not."""
        raise NotImplementedError


class Handover:
    """Moves running attempts between workers."""

    def __init__(self, state: SharedState, dispatch: Dispatch, attempts: Attempts) -> None:
        self._counters = state.counters
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._entropy = state.entropy
        self._job_registry = state.job_registry
        self._worker_registry = state.worker_registry
        self.arrivals: Arrivals | None = None  # without a cluster
        self._dispatch = dispatch
        self._attempts = attempts
        self._waiting = WorkerProfile(detach_timeout=state.policy.worker_resume_timeout, can_resume=True)
        self._elsewhere = WorkerProfile(detach_timeout=inf, can_resume=True)

    # ---------------------------------------------------------------- where the attempt leaves

    def send_away(self, worker: Worker) -> None:
        """Ask a worker to take its running jobs to another broker."""
        self._effects.append(MoveWorker(worker))

    # ---------------------------------------------------------------- at the broker that owns the job

    def wait(self, attempt: Attempt, recipient: Recipient, now: float) -> None:
        """Wait `worker_resume_timeout` for the worker of an attempt: it is on its way to another broker (R119). It
        may bring a result that it made in time."""
        attempt.due = max(attempt.due, now + self._waiting.detach_timeout)
        self._move(attempt, self._stand_in(attempt, attempt.worker.name, recipient, self._waiting, now), now)
        self._attempts.restore_running(attempt)

    def expected(self, token: Token) -> Attempt | None:
        """Return the attempt with this token, if its worker is on its way."""
        return self._attempts.resumable.get(token)

    def forget(self, token: Token) -> bool:
        """Wait no longer for the worker of an attempt. False: it is not on its way."""
        return self._attempts.resumable.pop(token, None) is not None

    def follow(self, attempt: Attempt, broker: str, recipient: Recipient, now: float) -> None:
        """Wait for the broker at which the worker of an attempt has appeared. `recipient`: receives its effects."""
        self._move(attempt, self._stand_in(attempt, broker, recipient, self._elsewhere, now), now)

    # ---------------------------------------------------------------- at the broker where the worker appears

    def claim(self, worker: Worker, token: Token, service: str, now: float) -> bool:
        """A worker that joins names an attempt that it runs. True: it runs at this worker from now on. False: this
        broker does not know it, or its principal lacks the right (R178), or the worker has no slot for it."""
        attempt = self.expected(token)
        if worker.free <= 0:
            return False
        if attempt is not None:
            is_allowed = self._attempts.is_resumable(token, worker.owner.principal)
            if is_allowed and attempt.job.attempt is attempt:
                self._move(attempt, worker, now)
                return True
            return False
        for offered in worker.services:
            if offered.name == service and self.arrivals is not None:
                return self.arrivals.take(worker, token, offered, now)
        return False

    def arrive(self, worker: Worker, token: Token, service: Service, caller: Caller, now: float) -> None:
        """The worker runs an attempt of another broker. `caller` receives its outcome."""
        job = Job(self._entropy.job_id(), service, b"", (caller,), ARRIVED, now, caller.owner)
        enter_job(self._job_registry, job)
        count_job(job, WAITING, 1)
        self._counters.restored += 1
        attempt = Attempt(job, 1, token, worker, now, inf)
        attempt.mark_sent()
        job.attempt = attempt
        move_job(job, RUNNING)
        caller.add_job(job)
        self._add(worker, attempt, now)

    def name(self, attempt: Attempt, token: Token) -> None:
        """Give an attempt the token by which its own broker knows it. Call it before the job is sent."""
        running = attempt.worker.running
        del running[attempt.token]
        attempt.token = token
        running[token] = attempt

    def renumber(self, attempt: Attempt, number: int) -> None:
        """Give an attempt the number that it has at its own broker. Call it before the job is sent."""
        attempt.number = number
        conversation = attempt.job.conversation
        if conversation is not None and conversation.next_attempt is not None:
            conversation.next_attempt.number = number

    # ---------------------------------------------------------------- the workers

    def _stand_in(
        self, attempt: Attempt, name: str, recipient: Recipient, profile: WorkerProfile, now: float
    ) -> Worker:
        """Make a worker that is not reachable and gets no job."""
        registry = self._worker_registry
        worker = Worker(registry.next_id(), recipient, None, name, profile, now, attempt.job.owner)
        registry.enter(worker, ())
        move_worker(worker, IDLE)
        worker.away_since = now
        return worker

    def _move(self, attempt: Attempt, worker: Worker, now: float) -> None:
        before = attempt.worker
        del before.running[attempt.token]
        self.forget(attempt.token)
        attempt.worker = worker
        self._add(worker, attempt, now)
        if attempt.job.options.durable:
            self._job_registry.pending_commits.save(attempt.job)
        if before.services or before.running or before.stuck:
            self._dispatch.freed(before, now)
        else:
            self._dispatch.removal.remove(before, GOES_ON, now)

    def _add(self, worker: Worker, attempt: Attempt, now: float) -> None:
        worker.running[attempt.token] = attempt
        self._worker_registry.settle(worker, now)
        self._deadlines.arm(worker, worker_deadline(worker))
