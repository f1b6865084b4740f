"""The broker with tiny limits, principals with limits of their own, background jobs, keys and jumps of time.

It keeps its invariants and delivers at most one outcome per submit, and exactly one after the faults have ended (I14).
"""

from __future__ import annotations

from math import inf

from core_rules import NOBODY, SETTINGS, WORKER_VERBS, Caller, Machine, chosen, pick, verb_of
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dragoman.core.archive import keeps_forever
from dragoman.core.bulk import NewJob, Refusal
from dragoman.core.effects import Effect
from dragoman.core.invariants import check
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.rights import ALL_RIGHTS, PrincipalLimits
from dragoman.core.states import JobState, Unique
from dragoman.core.store_entries import CollectInput
from owners import LOCAL_OWNER

# Principals, and the limits that they may get. Each has two owners.
PRINCIPALS = ("web", "app")
LIMITS = (
    PrincipalLimits(max_waiting=2, max_running=1),
    PrincipalLimits(max_waiting_bytes=12, max_running=2),
    PrincipalLimits(max_payload=5, max_rate=2.0),
    PrincipalLimits(max_waiting=1, max_waiting_bytes=20, max_running=1),
)


class AtTheBounds(Machine):
    policy = Policy(
        max_jobs=8,
        max_jobs_per_service=4,
        max_memory=40,
        max_bytes_per_service=30,
        max_bytes_per_caller=25,
        max_services=3,
        max_services_per_worker=2,
        max_undelivered=2,
        max_worker_deaths=2,
        max_attempts=3,
        outcome_retention=40.0,
        max_outcome_bytes=5_000,
        max_input=60,
        max_groups=3,
        max_kept_forever=4,
    )

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[Caller, Job] = {}  # accepted callers that have not left
        self.committed = 0
        self.collecting: list[Job] = []  # their inputs are being loaded
        self.owners = [LOCAL_OWNER]
        for name, limits in zip(PRINCIPALS, LIMITS, strict=False):
            principal = self.broker.principals.named(name)
            principal.rights = ALL_RIGHTS
            principal.limit(limits)
            self.owners += [Owner(principal), Owner(principal, is_limited=False)]

    @rule(name=st.sampled_from(PRINCIPALS), limits=st.sampled_from(LIMITS))
    def limit(self, name: str, limits: PrincipalLimits) -> None:
        self.broker.principals.named(name).limit(limits)
        self.broker.operator.limits_changed(self.now)
        self.carry_out()

    @rule(
        who=pick,
        service=st.sampled_from(["a", "b", "c", "d", "", "\ud800"]),
        payload=st.sampled_from([b"", b"one", b"ten bytes!"]),
        deadline=st.sampled_from([inf, 10.0, 0.0]),
        key=st.sampled_from([None, None, "k", "l", "", "\ud800"]),
        job_options=st.builds(
            JobOptions,
            attempts=st.sampled_from([None, 1, 2, 100]),
            delay=st.sampled_from([0.0, 0.0, 5.0]),
            priority=st.integers(0, 9),
            queue_timeout=st.sampled_from([inf, 5.0, 0.0]),
            job_timeout=st.sampled_from([5.0, inf, 0.0]),
            waits=st.booleans(),
            durable=st.booleans(),
            keep=st.sampled_from([None, 0.0, 10.0, 100.0, inf]),
            unique=st.sampled_from(Unique),
            orphan_grace=st.sampled_from([0.0, 3.0]),
        ),
    )
    def submit(
        self, service: str, payload: bytes, deadline: float, key: str | None, job_options: JobOptions, who: int = 0
    ) -> None:
        owner = chosen(self.owners, who)
        caller = Caller(owner)
        was_running = owner.principal.running
        holder = self.holder(owner.principal.name, service, key)
        known = set(self.broker.jobs)
        job = self.broker.submit(service, payload, caller, job_options, self.now, deadline=self.now + deadline, key=key)
        self.carry_out()
        assert len(self.broker.worker_registry.services) <= self.policy.max_services
        assert job is None or (job is holder) is (job.id in known), "a key that is held makes no new job"
        assert job is None or holder is None or job is holder, "a key that is held finds its job"
        assert self.broker.job_registry.kept.forever <= self.policy.max_kept_forever
        assert self.broker.job_registry.present <= self.policy.max_jobs
        assert self.broker.job_registry.memory.payloads <= self.policy.max_memory
        principal, limits = owner.principal, owner.principal.limits
        assert principal.running == was_running or principal.running <= principal.max_running
        if job is None:
            assert self.answers[caller] == 1
        else:
            if principal.name in PRINCIPALS and job not in self.jobs:
                assert limits.max_payload is None or len(payload) <= limits.max_payload
                assert limits.max_waiting is None or principal.waiting <= limits.max_waiting
                assert limits.max_waiting_bytes is None or principal.waiting_bytes <= limits.max_waiting_bytes
            self.jobs.append(job)
            self.waiting[caller] = job

    def carry_out(self) -> list[Effect]:
        effects = super().carry_out()
        self.collecting += [each.job for each in effects if isinstance(each, CollectInput)]
        return effects

    @rule(number=pick)
    def load_inputs(self, number: int) -> None:
        """Load the inputs of some dependent jobs."""
        jobs, self.collecting = self.collecting[: number % 4], self.collecting[number % 4 :]
        for job in jobs:
            results = {each.id: each.result for each in self.broker.dependencies.sources(job)}
            self.broker.dependencies.take_input(job, job.payload, results, self.now)
            self.carry_out()

    @rule(
        who=pick,
        members=st.lists(st.lists(st.integers(0, 6), max_size=2), min_size=1, max_size=4),
        numbers=st.lists(pick, max_size=2),
        payload=st.sampled_from([b"", b"one", b"ten bytes!"]),
        key=st.sampled_from([None, None, "k"]),
        runs=st.booleans(),
        input=st.sampled_from([JobInput.PAYLOAD, JobInput.RESULTS]),
        is_group=st.booleans(),
    )
    def batch(
        self,
        who: int,
        members: list[list[int]],
        numbers: list[int],
        payload: bytes,
        key: str | None,
        runs: bool,
        input: JobInput,
        is_group: bool,
    ) -> None:
        """Background jobs that come after each other and after others, or that are a group: all of them, or none."""
        owner = chosen(self.owners, who)
        ids = [self.broker.entropy.job_id() for _ in members]
        group = self.broker.entropy.job_id() if is_group else None
        known = [job.id for job in self.jobs if job.options.durable and job.id in self.broker.jobs]
        orders = []
        for index, indexes in enumerate(members):
            after = tuple(chosen(ids, each) for each in indexes)
            after += tuple(chosen(known, each) for each in numbers if known)
            extras = JobExtras(after=after, runs_after_failure=runs, input=input, group=group)
            asked = JobOptions(durable=True, waits=True, attempts=2, keep=inf if is_group else None if runs else 0.0)
            orders.append(NewJob("ab"[index % 2], payload, asked, ids[index], key if not index else None, extras))
        before = len(self.broker.jobs), self.broker.job_registry.present, self.broker.counters.accepted
        try:
            self.jobs += self.broker.bulk.submit(orders, owner, "test", self.now)
        except Refusal:
            after_it = len(self.broker.jobs), self.broker.job_registry.present, self.broker.counters.accepted
            assert after_it == before
        self.carry_out()
        assert self.broker.job_registry.present <= self.policy.max_jobs
        assert len(self.broker.job_registry.groups.by_id) <= self.policy.max_groups

    def holder(self, principal: str, service: str, key: str | None) -> Job | None:
        """The job that holds a key, as R24 says it: the latest one, if it has not given the key up."""
        place = (principal, service, key)
        same = [job for job in self.broker.jobs.values() if (job.principal.name, job.service.name, job.key) == place]
        if key is None or not same or same[-1].retried_as is not None:
            return None
        job = same[-1]
        is_sent = job.attempt is not None and job.attempt in self.keys
        is_held = {
            Unique.KEPT: True,
            Unique.UNFINISHED: job.state is not JobState.ENDED,
            Unique.WAITING: job.state is not JobState.ENDED and not job.spent and not is_sent,
        }
        return job if is_held[job.options.unique] else None

    @rule(
        services=st.lists(st.sampled_from(["a", "b", "c", "d", "e", ""]), max_size=3),
        capacity=st.integers(1, 3),
        may_decline=st.booleans(),
        silent=st.booleans(),
        lease=st.sampled_from([inf, 6.0]),
        held=st.sampled_from([0.0, 20.0]),
        patience=st.sampled_from([4.0, inf]),
        is_idle=st.booleans(),
        pulls=st.booleans(),
    )
    def join(
        self,
        services: list[str],
        capacity: int,
        may_decline: bool,
        silent: bool,
        lease: float,
        held: float,
        patience: float,
        is_idle: bool,
        pulls: bool,
    ) -> None:
        profile = WorkerProfile(
            lease=lease,
            silent_while_busy=silent,
            may_decline=may_decline,
            capacity=capacity,
            stuck_timeout=15.0,
            detach_timeout=patience,
            pulls=pulls,
        )
        worker = self.broker.join(
            NOBODY, None, "w", services, profile, self.now, LOCAL_OWNER, held_back_until=self.now + held
        )
        if worker is not None:
            self.workers.append(worker)
            if is_idle:
                self.broker.idle(worker, self.now)
        self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, verb=st.sampled_from(WORKER_VERBS), other=pick)
    def about_a_worker(self, number: int, verb: str, other: int) -> None:
        worker = chosen(self.workers, number)
        if verb == "unseen":
            foreign = [chosen(self.attempts, other)] if self.attempts else []
            self.broker.leave(worker, self.now, "gone", unseen=[*list(worker.running.values())[:1], *foreign])
        elif verb == "leave":
            self.broker.leave(worker, self.now, "gone")
        elif verb in ("drain", "kill"):
            self.broker.availability.drain(worker, self.now, at_once=verb == "kill")
        else:
            verb_of(self.broker, verb)(worker, self.now)
        self.carry_out()

    @rule(rounds=st.integers(1, 3))
    def hurry(self, rounds: int) -> None:
        """Background jobs come, and are done at once."""
        for _ in range(3):
            self.submit("a", b"one", inf, None, JobOptions(durable=True, waits=True, attempts=2))
        for _ in range(rounds):
            self.save_up_to(self.last_save)
            for attempt in [each for each in self.attempts if each.job.attempt is each and each.job.options.durable]:
                self.broker.attempts.begin(attempt, self.now)
                self.broker.succeed(attempt, b"", self.now)
                self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, count=st.integers(0, 2))
    def ask(self, number: int, count: int) -> None:
        self.broker.availability.ask(chosen(self.workers, number), count, self.now)
        self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, services=st.lists(st.sampled_from(["a", "b", "c", "d", "e", ""]), max_size=3))
    def offer(self, number: int, services: list[str]) -> None:
        self.broker.availability.offer(chosen(self.workers, number), services, self.now)
        assert len(self.broker.worker_registry.services) <= self.policy.max_services
        self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, is_within=st.booleans())
    def reach(self, number: int, is_within: bool) -> None:
        worker = chosen(self.workers, number)
        self.broker.availability.attach(worker, self.now) if is_within else self.broker.availability.detach(
            worker, self.now
        )
        self.carry_out()

    @precondition(lambda self: self.attempts)
    @rule(
        number=pick,
        verb=st.sampled_from(
            [
                "succeed",
                "succeed",
                "fail",
                "refuse",
                "reject",
                "undelivered",
                "progress",
                "give_back",
                "spend",
                "extend",
            ]
        ),
        size=st.sampled_from([0, 10, 3_000]),
    )
    def about_an_attempt(self, number: int, verb: str, size: int) -> None:
        attempt = chosen(self.attempts, number)
        is_current = attempt.job.attempt is attempt
        words = {"refuse": (), "undelivered": (), "fail": ("e" * size,), "reject": ("no",), "extend": (size,)}
        if verb in ("give_back", "spend"):
            result = self.broker.attempts.give_back(
                attempt, self.now, delay=size, priority=size % 7, spends=verb == "spend"
            )
        else:
            result = verb_of(self.broker, verb)(attempt, *words.get(verb, (b"r" * size,)), self.now)
        assert result is (None if verb == "undelivered" else is_current)
        self.carry_out()

    @precondition(lambda self: self.jobs)
    @rule(number=pick, verb=st.sampled_from(["withdraw", "retry", "release", "release"]))
    def about_a_job(self, number: int, verb: str) -> None:
        job = chosen(self.jobs, number)
        result = verb_of(self.broker, verb)(job, self.now)
        if verb == "release" and result:
            assert (job.state is not JobState.ENDED, job.quarantined, job.spent) == (True, False, 0)
        if verb == "retry" and result is not None:
            assert (result.retry_of, job.retried_as, job.quarantined) == (job.id, result.id, False)
            self.jobs.append(result)
        self.carry_out()

    @precondition(lambda self: self.jobs)
    @rule(number=pick)
    def delete_a_job(self, number: int) -> None:
        job = chosen(self.jobs, number)
        is_pinned = self.broker.job_registry.kept.archive.is_pinned(job)
        if self.broker.jobs.get(job.id) is job and job.is_told and not is_pinned:
            self.delete(job)

    def delete(self, job: Job) -> None:
        self.broker.job_registry.kept.erase(job)
        self.carry_out()
        assert job.id not in self.broker.jobs

    @precondition(lambda self: self.waiting)
    @rule(number=pick, verb=st.sampled_from(["away", "back", "gone", "gone"]))
    def about_a_caller(self, number: int, verb: str) -> None:
        caller = chosen(list(self.waiting), number)
        had = self.answers.get(caller, 0)
        if verb == "away":
            self.broker.availability.caller_away(caller, self.now)
        elif verb == "back":
            self.broker.availability.caller_back(caller)
        else:
            del self.waiting[caller]
            self.broker.caller_gone(caller, self.now)
            assert not caller.open_jobs()
        self.carry_out()
        assert self.answers.get(caller, 0) == had, "somebody who has gone was answered"

    @rule(service=st.sampled_from(["a", "b", "c", "d"]), verb=st.sampled_from(["pause", "resume", "resume"]))
    def about_a_service(self, service: str, verb: str) -> None:
        self.broker.operator.pause(service) if verb == "pause" else self.broker.operator.resume(service, self.now)
        self.carry_out()

    @rule(back=st.integers(0, 3), problem=st.sampled_from([None, None, "disk full"]))
    def saved(self, back: int, problem: str | None) -> None:
        self.save_up_to(self.last_save - back, problem)

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 5.0, 50.0]), is_paused=st.booleans())
    def jump(self, seconds: float, is_paused: bool) -> None:
        """Let the runner be late, with or without `extend_leases`."""
        self.now += seconds
        if is_paused:
            self.broker.extend_leases(seconds, self.now)
        self.broker.tick(self.now)
        self.carry_out()
        assert self.broker.next_deadline() > self.now

    def teardown(self) -> None:
        """End all faults: the store writes, workers join and work, time passes. Then every caller has its outcome."""
        broker = self.broker
        for service in list(broker.worker_registry.services):
            broker.operator.resume(service, self.now)
        for worker in list(broker.worker_registry.workers.values()):
            broker.leave(worker, self.now, "gone")
        helpers: dict[str, Worker] = {}
        rounds = 0
        while broker.job_registry.present or broker.next_deadline() < inf:
            rounds += 1
            assert rounds < 100, "it never comes to rest"
            for service in list(broker.worker_registry.services):
                if service not in helpers:
                    helper = broker.join(
                        NOBODY, None, "helper", [service], WorkerProfile(stuck_timeout=inf), self.now, LOCAL_OWNER
                    )
                    assert helper is not None
                    helpers[service] = helper
                broker.idle(helpers[service], self.now)
            self.carry_out()
            for attempt in [attempt for attempt in self.attempts if attempt.job.attempt is attempt]:
                broker.succeed(attempt, b"", self.now)
                self.carry_out()
            self.save_up_to(self.last_save)
            self.load_inputs(3)
            if broker.next_deadline() < inf and not any(attempt.job.attempt is attempt for attempt in self.attempts):
                self.now = max(self.now, broker.next_deadline())
            broker.tick(self.now)
            self.carry_out()
            check(broker)
        self.save_up_to(self.last_save)
        for job in [each for each in broker.jobs.values() if keeps_forever(each)]:
            self.delete(job)
        assert broker.jobs == {}
        assert (broker.job_registry.groups.by_id, broker.job_registry.kept.archive.pins) == ({}, {})
        assert [caller for caller in self.waiting if self.answers[caller] != 1] == []
        self.all_is_well()


TestAtTheBounds = AtTheBounds.TestCase
TestAtTheBounds.settings = SETTINGS
