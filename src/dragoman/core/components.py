"""Components of the broker and their connections."""

from __future__ import annotations

from typing import Any

from dragoman.core.attempts import Attempts
from dragoman.core.counters import Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.delays import Delays
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import Effect
from dragoman.core.entropy import Entropy
from dragoman.core.events import Events
from dragoman.core.expiry import Expiry
from dragoman.core.infinity import inf
from dragoman.core.job_registry import JobRegistry
from dragoman.core.owners import Owners
from dragoman.core.policy import Policy
from dragoman.core.worker_registry import WorkerRegistry


class Components:
    """State of a broker: registries of jobs and workers, and the classes that decide about them."""

    def __init__(
        self, policy: Policy, entropy: Entropy, counters: Counters | None = None, first_worker: int = 1
    ) -> None:
        self.policy = policy
        self.entropy = entropy
        self.counters = counters = counters if counters is not None else Counters()
        self.effects: list[Effect] = []  # the runner executes them in order
        self.owners = Owners()
        self.resumed_at = -inf  # time at which the last pause of the broker ended (D13)
        self.worker_registry = worker_registry = WorkerRegistry(policy.priority_step, policy.max_services, first_worker)
        deadlines: Deadlines[Any] = Deadlines()
        self.events = Events(self.effects)
        self.job_registry = job_registry = JobRegistry(policy, counters, deadlines, self.effects, self.events)
        self.dispatch = dispatch = Dispatch(
            policy, entropy, counters, worker_registry, job_registry, deadlines, self.effects
        )
        self.delays = delays = Delays(policy, job_registry, deadlines, dispatch)
        self.attempts = Attempts(
            policy, entropy, counters, worker_registry, job_registry, deadlines, self.effects, dispatch, delays
        )
        self._expiry = Expiry(
            policy, counters, worker_registry, job_registry, deadlines, self.effects, dispatch, delays, self.attempts
        )
        self._deadlines = deadlines
        self.jobs = job_registry.jobs
        self.resumable = self.attempts.resumable

    @property
    def is_draining(self) -> bool:
        """True if the broker is shutting down: it accepts and dispatches no jobs."""
        return self.dispatch.is_draining

    @is_draining.setter
    def is_draining(self, value: bool) -> None:
        self.dispatch.is_draining = value
