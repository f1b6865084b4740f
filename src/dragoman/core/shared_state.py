"""State that the parts of the core share: settings, registries, timers, and the list of effects."""

from __future__ import annotations

from typing import Any, final

from dragoman.core.counters import Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import Effect
from dragoman.core.entropy import Entropy
from dragoman.core.events import Events
from dragoman.core.job_registry import JobRegistry
from dragoman.core.policy import Policy
from dragoman.core.refused_rights import RefusedRights
from dragoman.core.worker_registry import WorkerRegistry


@final
class SharedState:
    """One object of each kind per broker. Parts of the core copy the references they need."""

    __slots__ = (
        "counters",
        "deadlines",
        "effects",
        "entropy",
        "events",
        "job_registry",
        "policy",
        "refused_rights",
        "worker_registry",
    )

    def __init__(self, policy: Policy, entropy: Entropy, counters: Counters, first_worker: int) -> None:
        self.policy = policy
        self.entropy = entropy
        self.counters = counters
        self.effects: list[Effect] = []  # the runner executes them in order
        self.deadlines: Deadlines[Any] = Deadlines()
        self.events = Events(self.effects)
        self.refused_rights = RefusedRights(counters, self.events)
        self.worker_registry = WorkerRegistry(policy.priority_step, policy.max_services, first_worker)
        self.job_registry = JobRegistry(policy, counters, self.deadlines, self.effects, self.events)
