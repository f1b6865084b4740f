"""The broker against hostile arguments, twice.

`Against the model`: every method is called on the broker and on a naive broker of some 100 lines; after every step both
must agree about every job and every worker. `At the bounds`: tiny limits, background jobs, keys, and jumps of time;
there the broker must keep its invariants and deliver at most one outcome per submit, and exactly one after the faults
have ended (I14).

Ended attempts, ended jobs and workers that have left are drawn as often as live ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive import Naive

from dragoman.core import model
from dragoman.core.broker import Broker
from dragoman.core.effects import Acknowledge, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.states import JobState, WorkerState
from dragoman.core.store_entries import StoreJob
from dragoman.testing.entropy import SeededEntropy

SERVICES = ["a", "b"]
WORKER_VERBS = ["idle", "idle", "seen", "leave", "unseen", "drain", "kill"]
pick = st.integers(0, 1_000)  # of a list that the machine keeps: taken modulo its length


NOBODY = Recipient()  # receives nothing: the machine takes the effects itself


class Caller(model.Caller):
    def __init__(self) -> None:
        super().__init__(NOBODY)


class UnevenEntropy(SeededEntropy):
    """A jitter that never repeats itself, so that no two back-offs end at the same moment."""

    def __init__(self) -> None:
        super().__init__("machine")
        self.jitter = uneven()  # type: ignore[method-assign]


def uneven() -> Any:
    numbers = count(1)
    return lambda: (next(numbers) * 0.618) % 2.0 - 1.0


class Machine(RuleBasedStateMachine):
    policy = Policy()

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker(self.policy, UnevenEntropy())
        self.now = 0.0
        self.jobs: list[Job] = []
        self.workers: list[Worker] = []
        self.attempts: list[Attempt] = []
        self.keys: dict[Attempt, tuple[bytes, int]] = {}  # number of the dispatch of its job
        self.dispatched: Counter[bytes] = Counter()
        self.answers: Counter[Caller] = Counter()
        self.accepts: Counter[tuple[Caller, bytes]] = Counter()
        self.last_save = 0
        self.written = 0  # the last save that the store has
        self.tokens: dict[bytes, int] = {}  # the save that carried an attempt first

    def save_up_to(self, number: int, problem: str | None = None) -> None:
        if problem is None:
            self.written = max(self.written, number)
        self.broker.saved(number, self.now, problem)
        self.carry_out()

    def advance(self, seconds: float) -> None:
        self.now += seconds + 0.0001  # nothing happens twice at the same moment

    def carry_out(self) -> list[Effect]:
        effects = list(self.broker.effects)
        self.broker.effects.clear()
        for effect in effects:
            if isinstance(effect, SendJob):
                attempt = effect.attempt
                assert attempt.job.attempt is attempt, "a Give that is not current"
                assert attempt.worker.state is not WorkerState.GONE
                assert attempt.worker.away_since == inf, "somebody out of reach was given a job"
                if attempt.job.options.durable:
                    assert self.tokens[attempt.token] <= self.written, "an attempt that the store does not have"
                self.dispatched[attempt.job.id] += 1
                self.keys[attempt] = (attempt.job.id, self.dispatched[attempt.job.id])
                self.attempts.append(attempt)
                attempt.mark_sent()
            elif isinstance(effect, DeliverOutcome):
                self.answers[effect.caller] += 1  # type: ignore[index]
                effect.caller.remove_job(effect.job)
            elif isinstance(effect, Acknowledge):
                self.accepts[effect.caller, effect.job.id] += 1  # type: ignore[index]
            elif isinstance(effect, StoreJob):
                assert effect.number == self.last_save + 1
                self.last_save = effect.number
                if effect.job.attempt is not None:
                    self.tokens.setdefault(effect.job.attempt.token, effect.number)
            elif isinstance(effect, RemoveWorker):
                assert effect.worker.state is WorkerState.GONE
        return effects

    @invariant()
    def all_is_well(self) -> None:
        check(self.broker)
        assert not self.broker.effects
        assert all(number == 1 for number in self.answers.values()), "somebody was answered twice"
        assert all(number == 1 for number in self.accepts.values()), "somebody was accepted twice"
        assert len({attempt.token for attempt in self.attempts}) == len(self.attempts)


def chosen(things: list[Any], number: int) -> Any:
    return things[number % len(things)]


class AgainstTheModel(Machine):
    policy = Policy(max_undelivered=3, max_worker_deaths=2)

    def __init__(self) -> None:
        super().__init__()
        self.naive = Naive(self.policy, uneven())
        self.callers: dict[bytes, Caller] = {}

    def after(self) -> None:
        self.carry_out()
        if self.broker.next_deadline() <= self.now:
            self.broker.tick(self.now)
            self.carry_out()
        self.naive.tick(self.now)

    @initialize()
    def begin(self) -> None:
        for service in SERVICES:  # so that both are known
            worker = self.broker.join(NOBODY, None, "first", [service], WorkerProfile(), 0.0)
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
    )
    def submit(self, service: str, deadline: float, job_options: JobOptions) -> None:
        self.advance(0.0)
        own = len(self.jobs) * 0.0013  # jobs given at the same moment are not over at the same moment
        job_options = replace(job_options, job_timeout=job_options.job_timeout + own)
        caller = Caller()
        job = self.broker.submit(service, b"payload", caller, job_options, self.now, deadline=self.now + deadline)
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
        worker = self.broker.join(NOBODY, None, "w", services, profile, self.now)
        assert worker is not None
        self.workers.append(worker)
        self.naive.join(worker.id, services, profile, self.now)
        if asks is not None:
            self.broker.ask(worker, asks, self.now)
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
            self.broker.drain(worker, now, at_once=verb == "kill")
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
            self.broker.attach(worker, self.now)
            record.seen, record.away = self.now, inf
        else:
            self.broker.detach(worker, self.now)
            record.away = min(record.away, self.now) if record.mark in (None, "draining") else inf
        self.after()

    @precondition(lambda self: self.workers)
    @rule(number=pick, count=st.integers(0, 3), is_newest=st.booleans())
    def ask(self, number: int, count: int, is_newest: bool) -> None:
        self.advance(0.0)
        worker = chosen(self.workers[-2:] if is_newest else self.workers, number)
        self.broker.ask(worker, count, self.now)
        self.naive.ask(self.naive.workers[worker.id], count, self.now)
        self.after()

    @precondition(lambda self: self.workers)
    @rule(number=pick, services=st.sampled_from([[], ["a"], ["b"], ["b", "a"]]))
    def offer(self, number: int, services: list[str]) -> None:
        self.advance(0.0)
        worker = chosen(self.workers, number)
        record = self.naive.workers[worker.id]
        assert self.broker.offer(worker, services, self.now) is (record.mark != "gone")
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
        said = self.broker.give_back(attempt, self.now, delay=delay, priority=priority, spends=spends)
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
        assert self.broker.extend(attempt, seconds, self.now) is is_current
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
        result = getattr(self.broker, verb)(attempt, *arguments, self.now)
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
            self.broker.caller_away(self.callers[job.id], self.now)
            record.orphan = self.now + record.options.orphan_grace
        elif verb == "back":
            self.broker.caller_back(self.callers[job.id])
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
            self.broker.pause(service)
            self.naive.paused.add(service)
        else:
            self.broker.resume(service, self.now)
            self.naive.paused.discard(service)
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


class AtTheBounds(Machine):
    policy = Policy(
        max_jobs=8,
        max_jobs_per_service=4,
        max_memory=40,
        max_services=3,
        max_services_per_worker=2,
        max_undelivered=2,
        max_worker_deaths=2,
        max_attempts=3,
        outcome_retention=40.0,
        max_outcome_bytes=5_000,
    )

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[Caller, Job] = {}  # accepted callers that have not left
        self.committed = 0

    @rule(
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
            keeps_outcome=st.booleans(),
            orphan_grace=st.sampled_from([0.0, 3.0]),
        ),
    )
    def submit(self, service: str, payload: bytes, deadline: float, key: str | None, job_options: JobOptions) -> None:
        caller = Caller()
        job = self.broker.submit(service, payload, caller, job_options, self.now, deadline=self.now + deadline, key=key)
        self.carry_out()
        assert len(self.broker.worker_registry.services) <= self.policy.max_services
        assert self.broker.job_registry.present <= self.policy.max_jobs
        assert self.broker.job_registry.bytes <= self.policy.max_memory
        if job is None:
            assert self.answers[caller] == 1
        else:
            self.jobs.append(job)
            self.waiting[caller] = job

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
        worker = self.broker.join(NOBODY, None, "w", services, profile, self.now, held_back_until=self.now + held)
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
            self.broker.drain(worker, self.now, at_once=verb == "kill")
        else:
            getattr(self.broker, verb)(worker, self.now)
        self.carry_out()

    @rule(rounds=st.integers(1, 3))
    def hurry(self, rounds: int) -> None:
        """Background jobs come, and are done at once."""
        for _ in range(3):
            self.submit("a", b"one", inf, None, JobOptions(durable=True, waits=True, attempts=2))
        for _ in range(rounds):
            self.save_up_to(self.last_save)
            for attempt in [each for each in self.attempts if each.job.attempt is each and each.job.options.durable]:
                self.broker.begin(attempt, self.now)
                self.broker.succeed(attempt, b"", self.now)
                self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, count=st.integers(0, 2))
    def ask(self, number: int, count: int) -> None:
        self.broker.ask(chosen(self.workers, number), count, self.now)
        self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, services=st.lists(st.sampled_from(["a", "b", "c", "d", "e", ""]), max_size=3))
    def offer(self, number: int, services: list[str]) -> None:
        self.broker.offer(chosen(self.workers, number), services, self.now)
        assert len(self.broker.worker_registry.services) <= self.policy.max_services
        self.carry_out()

    @precondition(lambda self: self.workers)
    @rule(number=pick, is_within=st.booleans())
    def reach(self, number: int, is_within: bool) -> None:
        worker = chosen(self.workers, number)
        self.broker.attach(worker, self.now) if is_within else self.broker.detach(worker, self.now)
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
            result = self.broker.give_back(attempt, self.now, delay=size, priority=size % 7, spends=verb == "spend")
        else:
            result = getattr(self.broker, verb)(attempt, *words.get(verb, (b"r" * size,)), self.now)
        assert result is (None if verb == "undelivered" else is_current)
        self.carry_out()

    @precondition(lambda self: self.jobs)
    @rule(number=pick, verb=st.sampled_from(["withdraw", "retry", "release", "release"]))
    def about_a_job(self, number: int, verb: str) -> None:
        job = chosen(self.jobs, number)
        result = getattr(self.broker, verb)(job, self.now)
        if verb == "release" and result:
            assert (job.state is not JobState.ENDED, job.quarantined, job.spent) == (True, False, 0)
        if verb == "retry" and result is not None:
            assert (result.retry_of, job.retried_as, job.quarantined) == (job.id, result.id, False)
            self.jobs.append(result)
        self.carry_out()

    @precondition(lambda self: self.waiting)
    @rule(number=pick, verb=st.sampled_from(["away", "back", "gone", "gone"]))
    def about_a_caller(self, number: int, verb: str) -> None:
        caller = chosen(list(self.waiting), number)
        had = self.answers.get(caller, 0)
        if verb == "away":
            self.broker.caller_away(caller, self.now)
        elif verb == "back":
            self.broker.caller_back(caller)
        else:
            del self.waiting[caller]
            self.broker.caller_gone(caller, self.now)
            assert not caller.open_jobs()
        self.carry_out()
        assert self.answers.get(caller, 0) == had, "somebody who has gone was answered"

    @rule(service=st.sampled_from(["a", "b", "c", "d"]), verb=st.sampled_from(["pause", "resume", "resume"]))
    def about_a_service(self, service: str, verb: str) -> None:
        self.broker.pause(service) if verb == "pause" else self.broker.resume(service, self.now)
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
            broker.resume(service, self.now)
        for worker in list(broker.worker_registry.workers.values()):
            broker.leave(worker, self.now, "gone")
        helpers: dict[str, Worker] = {}
        rounds = 0
        while broker.job_registry.present or broker.next_deadline() < inf:
            rounds += 1
            assert rounds < 100, "it never comes to rest"
            for service in list(broker.worker_registry.services):
                if service not in helpers:
                    helper = broker.join(NOBODY, None, "helper", [service], WorkerProfile(stuck_timeout=inf), self.now)
                    assert helper is not None
                    helpers[service] = helper
                broker.idle(helpers[service], self.now)
            self.carry_out()
            for attempt in [attempt for attempt in self.attempts if attempt.job.attempt is attempt]:
                broker.succeed(attempt, b"", self.now)
                self.carry_out()
            self.save_up_to(self.last_save)
            if broker.next_deadline() < inf and not any(attempt.job.attempt is attempt for attempt in self.attempts):
                self.now = max(self.now, broker.next_deadline())
            broker.tick(self.now)
            self.carry_out()
            check(broker)
        self.save_up_to(self.last_save)
        assert broker.jobs == {}
        assert [caller for caller in self.waiting if self.answers[caller] != 1] == []
        self.all_is_well()


SETTINGS = settings(max_examples=50, stateful_step_count=50, derandomize=True, deadline=None)

TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = SETTINGS
TestAtTheBounds = AtTheBounds.TestCase
TestAtTheBounds.settings = SETTINGS
