"""A broker that is checked after every call, and short ways to bring it into a state.

Effects are taken as the runner takes them: `take` returns the list and leaves a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Any

from dragoman.core import model
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, SendJob
from dragoman.core.invariants import check
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import LimitValues, read_rate
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ALL_RIGHTS, Principal, PrincipalLimits
from dragoman.core.store_entries import StoreJob
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

# Methods that change the state of a broker, by the part of it that has them.
VERBS_OF = {
    "": (
        *("submit", "withdraw", "caller_gone"),
        *("join", "idle", "seen", "leave"),
        *("succeed", "fail"),
        *("extend_leases", "tick"),
    ),
    "availability": (
        "caller_away",
        "caller_back",
        "detach",
        "attach",
        "measured",
        "ask",
        "heal",
        "offer",
        "partition",
        "resize",
        "drain",
    ),
    "attempts": (
        "begin",
        "extend",
        "limit",
        "progress",
        "stopped",
        "refuse",
        "reject",
        "undelivered",
        "give_back",
        "refused",
    ),
    "operator": ("pause", "resume", "retry", "release", "close", "abort", "limits_changed"),
    "store_reports": ("saved",),
    "limiter": ("set_by_operator", "declare", "declare_parameters", "loaded"),
    "dependencies": ("take_input",),
}
VERBS = [verb for verbs in VERBS_OF.values() for verb in verbs]


NOBODY = Recipient()  # receives nothing: tests take the effects themselves


class Caller(model.Caller):
    def __init__(self, name: str = "caller") -> None:
        super().__init__(NOBODY, LOCAL_OWNER)
        self.name = name

    def __repr__(self) -> str:
        return self.name


class FixedEntropy(SeededEntropy):
    """Ids as usual; the test sets the jitter."""

    def __init__(self, jitter: float = 0.0) -> None:
        super().__init__("core")
        self.fixed = jitter

    def jitter(self) -> float:
        return self.fixed


class CheckedPart:
    """Wraps a part of a broker: the broker is checked after every verb of the part."""

    def __init__(self, broker: CheckedBroker, name: str) -> None:
        self._broker = broker
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(getattr(self._broker.plain, self._name), name)
        return self._broker.checked(found) if name in VERBS_OF[self._name] else found


class CheckedBroker:
    """Wraps a broker. It is not a subclass, because a compiled class has no interpreted subclasses."""

    def __init__(self, jitter: float = 0.0, **policy: Any) -> None:
        self.plain = Broker(Policy(**policy), FixedEntropy(jitter))
        self.last_save = 0  # the highest number that was passed to the store

    def __getattr__(self, name: str) -> Any:
        if name in VERBS_OF:
            return CheckedPart(self, name)
        found = getattr(self.plain, name)
        return self.checked(found) if name in VERBS_OF[""] else found

    def checked(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def method(*args: Any, **kwargs: Any) -> Any:
            result = verb(*args, **kwargs)
            self.last_save = max([self.last_save, *(e.number for e in self.effects if isinstance(e, StoreJob))])
            check(self.plain)
            return result

        return method

    # ------------------------------------------------------------ ways into a state

    def take(self) -> list[Effect]:
        """Execute the effects as the runner does: an attempt whose SendJob was taken has been sent."""
        effects = list(self.effects)
        self.effects.clear()
        for effect in effects:
            if isinstance(effect, SendJob):
                effect.attempt.is_sent = True
            elif isinstance(effect, DeliverOutcome):
                effect.caller.remove_job(effect.job)
        return effects

    def worker(self, *services: str, now: float = 0.0, name: str = "w", held: float = 0.0, **profile: Any) -> Worker:
        """A worker that has joined and is ready."""
        worker = self.starting(*services, now=now, name=name, held=held, **profile)
        self.idle(worker, now)
        return worker

    def starting(self, *services: str, now: float = 0.0, name: str = "w", held: float = 0.0, **profile: Any) -> Worker:
        names = services or ("s",)
        worker = self.join(NOBODY, None, name, names, WorkerProfile(**profile), now, LOCAL_OWNER, held_back_until=held)
        assert worker is not None
        return worker

    def call(
        self,
        payload: bytes = b"x",
        *,
        service: str = "s",
        caller: Caller | None = None,
        now: float = 0.0,
        deadline: float = inf,
        key: str | None = None,
        tenant: str = "",
        **job_options: Any,
    ) -> Job:
        """A job that was accepted; it waits if there is no worker."""
        job_options.setdefault("waits", True)
        caller = caller or Caller()
        extras = JobExtras(tenant=tenant) if tenant else None
        job = self.submit(
            service, payload, caller, JobOptions(**job_options), now, deadline=deadline, key=key, extras=extras
        )
        assert job is not None
        return job

    def store(self, payload: bytes = b"x", *, now: float = 0.0, **more: Any) -> Job:
        """A background job that is committed."""
        job = self.call(payload, now=now, durable=True, **more)
        self.save_all(now)
        return job

    def save_all(self, now: float = 0.0, problem: str | None = None) -> None:
        """Commit everything that was passed to the store so far."""
        self.store_reports.saved(self.last_save, now, problem)

    def limit(self, service: str = "s", now: float = 0.0, rate: str | None = None, **most: int) -> None:
        """Set the limits of a service as an operator."""
        values = LimitValues(rate=read_rate(rate) if rate is not None else None, **most)
        self.limiter.set_by_operator(service, values, "an operator", now)

    def running(self, worker: Worker | None = None, **more: Any) -> Attempt:
        """The attempt of a call that a worker holds; its SendJob was executed."""
        if worker is None:
            self.worker()
        attempt = attempt_of(self.call(**more))
        self.take()
        return attempt

    def run_until(self, end: float) -> None:
        """Tick at every deadline up to `end`, as a runner that is never late."""
        while (due := self.next_deadline()) <= end:
            self.tick(due)


def attempt_of(job: Job) -> Attempt:
    assert job.attempt is not None
    return job.attempt


def principal_of(broker: CheckedBroker, name: str, **limits: Any) -> Principal:
    """A principal with all rights and these limits."""
    principal: Principal = broker.principals.named(name)
    principal.rights = ALL_RIGHTS
    principal.limit(PrincipalLimits(**limits))
    return principal


def caller_of(principal: Principal, label: str = "this connection") -> Caller:
    """A caller of this principal, on a connection of its own."""
    caller = Caller(principal.name)
    caller.owner = Owner(principal, label)
    return caller
