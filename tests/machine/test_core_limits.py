"""Limits of services, tenants and principals under any order of calls.

Running jobs never exceed a limit by a start, rates stay within their bucket, no job that may run waits beside a free
worker (I6, which `check` checks), nobody starves, and nothing is left once the limits are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf

from core_rules import NOBODY, SETTINGS, Caller, Machine, chosen, pick, verb_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from dragoman.core.effects import Effect, SendJob
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import NO_RATE, LimitValues, Rate
from dragoman.core.model import Job, JobId, Service, Token
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.restore import StoredJob, restore
from dragoman.core.rights import ALL_RIGHTS, PrincipalLimits
from dragoman.core.service_limits import SMOOTHING
from dragoman.core.states import JobState
from owners import LOCAL_OWNER

LIMITED = "limited"  # a service; `free` has never a limit, and tells whether turns are fair
SERVICES = [LIMITED, LIMITED, "free"]
TENANTS = ["", "x", "x", "y"]
OPTIONS = JobOptions(waits=True, attempts=5, job_timeout=40.0)
NO_LIMITS = LimitValues(0, 0, NO_RATE)
LIMITS = [
    LimitValues(max_running=1),
    LimitValues(max_running=3, max_running_per_tenant=1),
    LimitValues(max_running_per_tenant=1),
    LimitValues(max_running_per_tenant=2, rate=Rate(2)),
    LimitValues(rate=Rate(20, "min")),
    LimitValues(),
]


class Limited(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.web = self.broker.principals.named("web")
        self.web.rights = ALL_RIGHTS
        self.owners = [LOCAL_OWNER, Owner(self.web)]
        self.starts: list[float] = []  # of the limited service, since its rate was set
        self.turns: dict[tuple[str, str], Counter[str]] = {}  # by a tenant that waits in `free`: turns of the others
        self.restored = 0

    # ---------------------------------------------------------------- what is checked after each step

    def carry_out(self) -> list[Effect]:
        effects = super().carry_out()
        for effect in effects:
            if isinstance(effect, SendJob):
                self.started(effect.attempt.job)
        for job in self.waiting_in_free():
            self.turns.setdefault((job.principal.name, job.tenant), Counter())
        limits = self.limited().limits
        assert limits is None or not limits.waits_for_rate or limits.alarm <= limits.next_start
        return effects

    def started(self, job: Job) -> None:
        if job.service.name == "free":
            self.take_turn(job)
            return
        self.turns.pop((job.principal.name, job.tenant), None)  # it was its turn, at a worker of both services
        limits = job.service.limits
        assert limits is not None
        assert limits.running <= limits.max_running, "a job was started over max_running"
        tenant = limits.tenants.get((job.principal.name, job.tenant))
        assert tenant is None or tenant.running <= tenant.max_running, "a job was started over its tenant's limit"
        self.starts.append(self.now)
        if limits.interval:
            for number, first in enumerate(self.starts):
                most = (self.now - first + SMOOTHING) / limits.interval + 1
                assert len(self.starts) - number <= most + 1e-6, "more jobs were started than the bucket allows"

    def take_turn(self, job: Job) -> None:
        """Between two turns of a tenant that waits, each other tenant of its principal gets at most one."""
        self.turns.pop((job.principal.name, job.tenant), None)
        waiting = {(each.principal.name, each.tenant) for each in self.waiting_in_free()}
        self.turns = {key: turns for key, turns in self.turns.items() if key in waiting}
        for (principal, tenant), turns in self.turns.items():
            if principal == job.principal.name:
                turns[job.tenant] += 1
                assert turns[job.tenant] == 1, f"{job.tenant!r} got two turns while {tenant!r} waited"

    def waiting_in_free(self) -> list[Job]:
        return [job for job in self.jobs if job.service.name == "free" and job.state is JobState.WAITING]

    def limited(self) -> Service:
        return self.broker.worker_registry.services[LIMITED]

    # ---------------------------------------------------------------- steps

    @initialize(limits=st.sampled_from(LIMITS), services=st.sampled_from([[LIMITED], [LIMITED, "free"]]))
    def begin(self, limits: LimitValues, services: list[str]) -> None:
        self.broker.worker_registry.names.restore_service(LIMITED)
        self.broker.limiter.set_by_operator(LIMITED, LimitValues(max_running=1), "ada", self.now)
        self.limit(limits)
        for _ in range(2):
            self.join(services, 2, LimitValues())
        for tenant in ("x", "y", "x"):
            self.submit("free", tenant, 0, 3)

    @rule(
        service=st.sampled_from(SERVICES),
        tenant=st.sampled_from(TENANTS),
        who=pick,
        count=st.sampled_from([1, 2, 4]),
    )
    def submit(self, service: str, tenant: str, who: int, count: int) -> None:
        for _ in range(count):
            caller = Caller(chosen(self.owners, who))
            extras = JobExtras(tenant=tenant) if tenant else None
            job = self.broker.submit(service, b"x", caller, OPTIONS, self.now, extras=extras)
            assert job is not None
            self.jobs.append(job)
            self.carry_out()

    @rule(
        services=st.sampled_from([[LIMITED], ["free"], ["free", LIMITED]]),
        capacity=st.integers(1, 3),
        limits=st.sampled_from([*LIMITS, LimitValues(), LimitValues()]),
    )
    def join(self, services: list[str], capacity: int, limits: LimitValues) -> None:
        profile = WorkerProfile(capacity=capacity, may_decline=True, detach_timeout=20.0)
        worker = self.broker.join(NOBODY, None, "w", services, profile, self.now, LOCAL_OWNER)
        assert worker is not None
        self.changing(lambda: self.broker.limiter.declare(worker, {LIMITED: limits}, self.now))
        self.broker.idle(worker, self.now)
        self.workers.append(worker)
        self.carry_out()

    @rule(values=st.sampled_from([*LIMITS, NO_LIMITS]))
    def limit(self, values: LimitValues) -> None:
        self.changing(lambda: self.broker.limiter.set_by_operator(LIMITED, values, "ada", self.now))
        self.carry_out()

    @rule(most=st.sampled_from([None, 1, 2]))
    def limit_principal(self, most: int | None) -> None:
        self.web.limit(PrincipalLimits(max_running=most))
        self.broker.operator.limits_changed(self.now)
        self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, verb=st.sampled_from(["leave", "unseen", "drain", "kill", "detach", "attach", "attach", "idle"]))
    def about_a_worker(self, number: int, verb: str) -> None:
        worker = chosen(self.workers, number)
        availability = self.broker.availability
        if verb in ("leave", "unseen"):
            unseen = list(worker.running.values()) if verb == "unseen" else []
            self.changing(lambda: self.broker.leave(worker, self.now, "gone", unseen=unseen))
        elif verb in ("drain", "kill"):
            self.changing(lambda: availability.drain(worker, self.now, at_once=verb == "kill"))
        elif verb == "idle":
            self.broker.idle(worker, self.now)
        else:
            getattr(availability, verb)(worker, self.now)
        self.carry_out()

    @precondition(lambda self: self.attempts)
    @rule(
        number=pick,
        verb=st.sampled_from(["succeed", "succeed", "succeed", "fail", "refuse", "undelivered"]),
        count=st.sampled_from([1, 1, 3]),
    )
    def about_an_attempt(self, number: int, verb: str, count: int) -> None:
        for _ in range(count):
            running = [each for each in self.attempts if each.job.attempt is each]
            arguments = {"succeed": (b"result",), "fail": ("no",)}.get(verb, ())
            verb_of(self.broker, verb)(chosen(running or self.attempts, number), *arguments, self.now)
            self.carry_out()

    @precondition(lambda self: self.jobs)
    @rule(number=pick)
    def withdraw(self, number: int) -> None:
        self.broker.withdraw(chosen(self.jobs, number), self.now)
        self.carry_out()

    @rule(service=st.sampled_from(SERVICES), verb=st.sampled_from(["pause", "resume", "resume", "resume"]))
    def about_a_service(self, service: str, verb: str) -> None:
        if verb == "pause":
            self.broker.operator.pause(service)
        else:
            self.broker.operator.resume(service, self.now)
        self.carry_out()

    @rule(tenant=st.sampled_from(TENANTS), is_running=st.booleans())
    def restore(self, tenant: str, is_running: bool) -> None:
        """A job of an earlier run: it counts as running if its worker may still finish it, over a limit, too."""
        self.restored += 1
        name = self.restored.to_bytes(16, "big")
        stored = StoredJob(self.restored, JobId(name), LIMITED, OPTIONS, self.now)
        stored.extras = JobExtras(tenant=tenant) if tenant else None
        if is_running:
            stored.token, stored.attempt, stored.given, stored.can_resume = Token(name), 1, self.now, True
        self.jobs.append(restore(self.broker, stored, self.now, NOBODY))
        self.carry_out()

    @rule(seconds=st.sampled_from([0.05, 0.3, 0.7, 3.1, 50.0]), is_late=st.booleans())
    def wait(self, seconds: float, is_late: bool) -> None:
        """Let time pass, with a runner that handles each deadline at its time, or was paused itself."""
        end = self.now + seconds
        while not is_late and (due := self.broker.next_deadline()) <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            self.carry_out()
        self.now = end
        if is_late:
            self.broker.extend_leases(seconds, self.now)
        self.broker.tick(self.now)
        self.carry_out()
        limits = self.limited().limits
        assert limits is None or not limits.waits_for_rate or limits.next_start > self.now

    def changing(self, change: Callable[[], object]) -> None:
        """Execute a change of limits. Earlier starts are forgotten if the rate is another one."""
        before = self.interval()
        change()
        if self.interval() != before:
            self.starts.clear()

    def interval(self) -> float:
        limits = self.limited().limits
        return limits.interval if limits is not None else 0.0

    def teardown(self) -> None:
        """Without limits, and with a worker for all services, everything ends: nobody was forgotten."""
        if LIMITED not in self.broker.worker_registry.services:
            return
        self.limit(NO_LIMITS)
        self.limit_principal(None)
        for name in (LIMITED, "free"):
            self.about_a_service(name, "resume")
        for worker in self.workers:
            self.broker.leave(worker, self.now, "gone")
        self.join([LIMITED, "free"], 3, LimitValues())
        helper = self.workers[-1]
        for _ in range(10_000):
            for attempt in list(helper.running.values()):
                self.broker.succeed(attempt, b"", self.now)
                self.carry_out()
            due = self.broker.next_deadline()
            if not self.broker.job_registry.present or (not helper.running and due == inf):
                break
            if not helper.running:
                self.now = max(self.now, due)
                self.broker.tick(self.now)
                self.carry_out()
        assert self.broker.job_registry.present == 0, "a job waits for nothing"
        limits = self.limited().limits
        assert limits is not None
        assert (limits.running, limits.tenants) == (0, {})


TestLimited = Limited.TestCase
TestLimited.settings = settings(SETTINGS, max_examples=100)
