"""The broker against a naive broker of some 100 lines: after every step both agree about every job and worker."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from core_rules import NOBODY, SERVICES, SETTINGS, WORKER_VERBS, Caller, Machine, chosen, pick, uneven, verb_of
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from naive import Naive
from naive_starvation import naive_starved

from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import NO_RATE, LimitValues, Rate
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.starvation import starved
from dragoman.core.states import JobState, WorkerState
from owners import LOCAL_OWNER


class AgainstTheModel(Machine):
    policy = Policy(max_undelivered=3, max_worker_deaths=2)

    def __init__(self) -> None:
        super().__init__()
        self.naive = Naive(self.policy, uneven())
        self.callers: dict[bytes, Caller] = {}

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        if self.broker.next_deadline() <= self.now:  # else a job that its rate allows by now would lose its turn
            self.after()

    def after(self) -> None:
        self.carry_out()
        if self.broker.next_deadline() <= self.now:
            self.broker.tick(self.now)
            self.carry_out()
        self.naive.tick(self.now)

    @initialize()
    def begin(self) -> None:
        for service in SERVICES:  # so that both are known
            worker = self.broker.join(NOBODY, None, "first", [service], WorkerProfile(), 0.0, LOCAL_OWNER)
            assert worker is not None
            self.broker.leave(worker, 0.0, "gone")

    @rule(
        service=st.sampled_from(SERVICES),
        deadline=st.sampled_from([inf, inf, 11.7, -1.0]),
        job_options=st.builds(
            JobOptions,
            attempts=st.integers(1, 4),
            delay=st.sampled_from([0.0, 0.0, 0.0, 4.3]),
            priority=st.sampled_from([5, 5, 4, 9]),
            queue_timeout=st.sampled_from([inf, 3.1]),
            job_timeout=st.sampled_from([5.9, 50.3]),
            orphan_grace=st.sampled_from([0.0, 2.7]),
        ),
        parent=st.sampled_from([None, 0, 0, 1, 2]),
    )
    def submit(self, service: str, deadline: float, job_options: JobOptions, parent: int | None = None) -> None:
        self.advance(0.0)
        own = len(self.jobs) * 0.0013  # jobs given at the same moment are not over at the same moment
        job_options = replace(job_options, job_timeout=job_options.job_timeout + own)
        caller = Caller()
        parents = [each.id for each in self.jobs if each.attempt is not None]  # a handler submits while it runs
        extras = JobExtras(parent=parents[parent]) if parent is not None and parent < len(parents) else None
        job = self.broker.submit(
            service, b"payload", caller, job_options, self.now, deadline=self.now + deadline, extras=extras
        )
        assert job is not None
        self.jobs.append(job)
        self.callers[job.id] = caller
        self.naive.submit(job.id, service, job_options, self.now + deadline, self.now)
        self.after()

    @rule(
        services=st.sampled_from([["a"], ["b"], ["a", "b"], ["b", "a"]]),
        capacity=st.sampled_from([1, 1, 2, 3]),
        may_decline=st.booleans(),
        silent=st.booleans(),
        lease=st.sampled_from([inf, 7.3]),
        is_idle=st.booleans(),
        asks=st.sampled_from([None, None, 0, 1, 2]),
    )
    def join(
        self,
        services: list[str],
        capacity: int,
        may_decline: bool,
        silent: bool,
        lease: float,
        is_idle: bool,
        asks: int | None,
    ) -> None:
        self.advance(0.0)
        own = len(self.workers) * 0.011
        profile = WorkerProfile(
            lease=lease + own,
            silent_while_busy=silent,
            may_decline=may_decline,
            capacity=capacity,
            stuck_timeout=20.7 + own,
            detach_timeout=9.1 + own,
            pulls=asks is not None,
        )
        worker = self.broker.join(NOBODY, None, "w", services, profile, self.now, LOCAL_OWNER)
        assert worker is not None
        self.workers.append(worker)
        self.naive.join(worker.id, services, profile, self.now)
        if asks is not None:
            self.broker.availability.ask(worker, asks, self.now)
            self.naive.ask(self.naive.workers[worker.id], asks, self.now)
        if is_idle:
            self.broker.idle(worker, self.now)
            self.naive.idle(self.naive.workers[worker.id], self.now)
        self.after()

    @precondition(lambda self: self.workers)
    @rule(number=pick, verb=st.sampled_from(WORKER_VERBS))
    def about_a_worker(self, number: int, verb: str) -> None:
        self.advance(0.0)
        worker, now = chosen(self.workers, number), self.now
        record = self.naive.workers[worker.id]
        is_gone = record.mark == "gone"
        if verb == "idle":
            self.broker.idle(worker, now)
            self.naive.idle(record, now)
        elif verb == "seen":
            self.broker.seen(worker, now)
            record.seen = now
        elif verb in ("leave", "unseen"):
            unseen = list(worker.running.values())[:1] if verb == "unseen" else []
            self.broker.leave(worker, now, "gone", unseen=unseen)
            self.naive.leave(record, now, [self.keys[attempt] for attempt in unseen])
        else:
            self.broker.availability.drain(worker, now, at_once=verb == "kill")
            if verb == "kill":
                self.naive.leave(record, now)
            elif not is_gone:
                record.mark = "draining"
        self.after()

    @precondition(lambda self: self.workers)
    @rule(number=pick, is_within=st.booleans(), is_newest=st.booleans())
    def reach(self, number: int, is_within: bool, is_newest: bool) -> None:
        self.advance(0.0)
        worker = chosen(self.workers[-2:] if is_newest else self.workers, number)
        record = self.naive.workers[worker.id]
        if is_within:
            self.broker.availability.attach(worker, self.now)
            record.seen, record.away = self.now, inf
        else:
            self.broker.availability.detach(worker, self.now)
            record.away = min(record.away, self.now) if record.mark in (None, "draining") else inf
        self.after()

    @precondition(lambda self: self.workers)
    @rule(number=pick, count=st.integers(0, 3), is_newest=st.booleans())
    def ask(self, number: int, count: int, is_newest: bool) -> None:
        self.advance(0.0)
        worker = chosen(self.workers[-2:] if is_newest else self.workers, number)
        self.broker.availability.ask(worker, count, self.now)
        self.naive.ask(self.naive.workers[worker.id], count, self.now)
        self.after()

    @precondition(lambda self: self.workers)
    @rule(number=pick, services=st.sampled_from([[], ["a"], ["b"], ["b", "a"]]))
    def offer(self, number: int, services: list[str]) -> None:
        self.advance(0.0)
        worker = chosen(self.workers, number)
        record = self.naive.workers[worker.id]
        assert self.broker.availability.offer(worker, services, self.now) is (record.mark != "gone")
        record.services = services
        self.after()

    @precondition(lambda self: self.attempts)
    @rule(
        number=pick,
        delay=st.sampled_from([0.0, 0.0, 3.3]),
        priority=st.sampled_from([None, 2, 9]),
        spends=st.booleans(),
    )
    def give_back(self, number: int, delay: float, priority: int | None, spends: bool) -> None:
        self.advance(0.0)
        attempt = chosen(self.attempts[-5:], number)
        is_current = self.naive.jobs[attempt.job.id].attempt == self.keys[attempt]
        said = self.broker.attempts.give_back(attempt, self.now, delay=delay, priority=priority, spends=spends)
        assert said is is_current
        self.naive.give_back(self.keys[attempt], delay, priority, spends, self.now)
        self.after()

    @precondition(lambda self: self.attempts)
    @rule(number=pick, seconds=st.sampled_from([0.7, 8.9, 90.7]))
    def extend(self, number: int, seconds: float) -> None:
        self.advance(0.0)
        attempt = chosen(self.attempts[-5:], number)
        seconds += len(self.attempts) * 0.00017
        is_current = self.naive.jobs[attempt.job.id].attempt == self.keys[attempt]
        assert self.broker.attempts.extend(attempt, seconds, self.now) is is_current
        self.naive.extend(self.keys[attempt], seconds, self.now)
        self.after()

    @precondition(lambda self: self.attempts)
    @rule(
        number=pick,
        verb=st.sampled_from(["succeed", "succeed", "fail", "refuse", "undelivered"]),
        is_newest=st.booleans(),
    )
    def about_an_attempt(self, number: int, verb: str, is_newest: bool) -> None:
        self.advance(0.0)
        attempt = chosen(self.attempts[-5:] if is_newest else self.attempts, number)
        arguments = {"succeed": (b"result",), "fail": ("no",)}.get(verb, ())
        is_current = self.naive.jobs[attempt.job.id].attempt == self.keys[attempt]
        result = verb_of(self.broker, verb)(attempt, *arguments, self.now)
        assert result is (None if verb == "undelivered" else is_current)
        self.naive.word(verb, self.keys[attempt], self.now)
        self.after()

    @precondition(lambda self: self.jobs)
    @rule(number=pick, verb=st.sampled_from(["withdraw", "withdraw", "away", "away", "back"]))
    def about_a_job(self, number: int, verb: str) -> None:
        self.advance(0.0)
        job = chosen(self.jobs, number)
        record = self.naive.jobs[job.id]
        is_present = record.outcome is None
        if verb == "away":
            self.broker.availability.caller_away(self.callers[job.id], self.now)
            record.orphan = self.now + record.options.orphan_grace
        elif verb == "back":
            self.broker.availability.caller_back(self.callers[job.id])
            record.orphan = inf
        else:
            assert self.broker.withdraw(job, self.now) is is_present
            if is_present:
                self.naive.end(record, "cancelled", self.now)
        self.after()

    @rule(service=st.sampled_from(SERVICES), verb=st.sampled_from(["pause", "resume", "resume"]))
    def about_a_service(self, service: str, verb: str) -> None:
        self.advance(0.0)
        if verb == "pause":
            self.broker.operator.pause(service)
            self.naive.paused.add(service)
        else:
            self.broker.operator.resume(service, self.now)
            self.naive.paused.discard(service)
        self.after()

    @rule(
        service=st.sampled_from(SERVICES),
        max_running=st.sampled_from([0, 1, 1, 2, 3]),
        rate=st.sampled_from([NO_RATE, NO_RATE, Rate(5), Rate(37, "min")]),
    )
    def limit(self, service: str, max_running: int, rate: Rate) -> None:
        self.advance(0.0)
        self.broker.limiter.set_by_operator(service, LimitValues(max_running, None, rate), "ada", self.now)
        self.naive.limit(service, max_running, rate.interval, self.now)
        self.after()

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3, 1.1, 2.3, 5.2, 30.1]))
    def wait(self, seconds: float) -> None:
        """Let time pass with a runner that is never late: each deadline is handled at its time."""
        end = self.now + seconds + 0.0001
        while (due := self.broker.next_deadline()) <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            self.after()
        self.now = end
        self.broker.tick(self.now)
        self.after()

    @invariant()
    def both_agree(self) -> None:
        for job in self.jobs:
            record = self.naive.jobs[job.id]
            attempt = None if job.attempt is None else self.keys[job.attempt]
            ours = (job.state, job.outcome, job.spent, self.dispatched[job.id], attempt)
            assert ours == (record.state, record.outcome, record.spent, record.given, record.attempt)
            assert self.answers[self.callers[job.id]] == (job.state is JobState.ENDED)
            del self.answers[self.callers[job.id]]  # Counter: looking makes an entry
            if job.state is JobState.ENDED:
                self.answers[self.callers[job.id]] = 1
        for worker in self.workers:
            record = self.naive.workers[worker.id]
            held = [self.keys[attempt] for attempt in worker.running.values()]
            stuck_since = [self.keys[attempt] for attempt in worker.stuck.values()]
            assert (worker.state, held, stuck_since) == (record.state, record.running, list(record.stuck))

    @invariant()
    def starvation_is_as_it_is_defined(self) -> None:
        """R201."""
        registry, index = self.broker.worker_registry, self.broker.job_registry.with_extras
        found = starved(registry.services.values(), registry.workers.values(), index)
        assert {each.service.name for each in found} == naive_starved(self.broker)


def the_model() -> AgainstTheModel:
    """A machine whose steps are chosen by a test."""
    machine = AgainstTheModel()
    machine.begin()
    return machine


def join(machine: AgainstTheModel, service: str, capacity: int = 1) -> None:
    """Let an idle worker join."""
    machine.join([service], capacity, may_decline=False, silent=False, lease=inf, is_idle=True, asks=None)


def test_both_agree_about_a_worker_that_adds_a_service() -> None:
    """A wide run found it: in the model, the worker had been idle there as long as anywhere (R132)."""
    machine = the_model()
    join(machine, "b")
    join(machine, "a")
    machine.offer(0, ["a"])
    machine.submit("a", inf, JobOptions(attempts=1, job_timeout=5.9))
    machine.both_agree()


def test_both_agree_about_the_order_of_idle_workers_after_a_job_was_given_back() -> None:
    """A wide run found it: in the model, the worker that gave the job back was idle before another was given it."""
    machine = the_model()
    join(machine, "b")
    join(machine, "b", capacity=2)
    machine.submit("b", inf, JobOptions(attempts=1, job_timeout=5.9))
    for number in range(2):
        machine.give_back(number, delay=0.0, priority=None, spends=False)
        machine.both_agree()


def test_both_agree_about_a_detached_worker_whose_lease_was_renewed() -> None:
    """A wide run found it: in the model, `detach_timeout` ended a worker that has a lease (R64)."""
    machine = the_model()
    machine.join(["b"], 1, may_decline=False, silent=False, lease=7.3, is_idle=True, asks=0)
    machine.reach(0, is_within=False, is_newest=True)
    machine.wait(5.2)
    machine.ask(0, 1, is_newest=True)
    machine.wait(5.2)  # detach_timeout is over, and the lease is not
    machine.both_agree()
    assert machine.workers[0].state is WorkerState.DETACHED
    machine.wait(2.3)
    machine.both_agree()
    assert machine.workers[0].state is WorkerState.GONE


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = SETTINGS
