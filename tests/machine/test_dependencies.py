"""Dependent jobs and groups against a naive model, which looks at all jobs again after every step (R190 to R194).

The model knows for each job what it comes after, and how each job ended. From this it computes which jobs must be
dependent, started or cancelled, which input they have, and the numbers of each group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core_rules import NOBODY, Caller, Machine, UnevenEntropy, chosen, pick
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from dragoman.core.broker import Broker
from dragoman.core.bulk import NewJob, Refusal
from dragoman.core.effects import Effect
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import Job, JobId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.results_payload import Entry, unpack_results
from dragoman.core.states import DEPENDENT, ENDED, Outcome
from dragoman.core.store_entries import CollectInput
from owners import LOCAL_OWNER

OPTIONS = JobOptions(durable=True, waits=True, attempts=1)
LATER = JobOptions(durable=True, waits=True, attempts=1, delay=5.0)


@dataclass
class Known:
    """A job as the model knows it."""

    job: Job
    after: tuple[JobId, ...] = ()
    runs: bool = False
    input: JobInput = JobInput.PAYLOAD
    payload: bytes = b""
    place: tuple[JobId, int] | None = None
    result: bytes | None = None
    has_started: bool = False
    seen: set[str] = field(default_factory=set)


class DependencyMachine(Machine):
    policy = Policy(outcome_retention=1e9)

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker(self.policy, UnevenEntropy())
        self.known: dict[JobId, Known] = {}
        self.groups: dict[JobId, list[JobId]] = {}  # ids of the members, in order
        self.collecting: list[Job] = []
        self.is_slow = False  # inputs are loaded later
        worker = self.broker.join(NOBODY, None, "w", ["s"], WorkerProfile(capacity=1_000), 0.0, LOCAL_OWNER)
        assert worker is not None
        self.broker.idle(worker, 0.0)
        self.settle()

    # ------------------------------------------------------------ the runner

    def carry_out(self) -> list[Effect]:
        effects = super().carry_out()
        self.collecting += [each.job for each in effects if isinstance(each, CollectInput)]
        return effects

    def settle(self) -> None:
        """Let everything happen that is due, with a store that is always quick."""
        while True:
            self.carry_out()
            self.save_up_to(self.last_save)
            if not self.is_slow:
                self.load_inputs()
            if self.broker.next_deadline() > self.now:
                break
            self.broker.tick(self.now)
        self.carry_out()
        self.save_up_to(self.last_save)

    def load_inputs(self) -> None:
        jobs, self.collecting = self.collecting, []
        for job in jobs:
            results = {each.id: each.result for each in self.broker.dependencies.sources(job)}
            self.broker.dependencies.take_input(job, job.payload, results, self.now)
            self.carry_out()

    # ------------------------------------------------------------ what happens

    def some(self, numbers: list[int]) -> tuple[JobId, ...]:
        """Ids of jobs and groups; some more than once."""
        names = [*self.known, *self.groups]
        return tuple(chosen(names, number) for number in numbers) if names else ()

    def know(self, job: Job, extras: JobExtras | None, payload: bytes) -> None:
        known = self.known[job.id] = Known(job, payload=payload)
        if extras is not None:
            known.after, known.runs, known.input = extras.after, extras.runs_after_failure, extras.input
            if extras.group is not None:
                members = self.groups.setdefault(extras.group, [])
                known.place = (extras.group, len(members))
                members.append(job.id)

    @rule(
        numbers=st.lists(pick, max_size=3),
        runs=st.booleans(),
        input=st.sampled_from(JobInput),
        is_late=st.booleans(),
        payload=st.sampled_from([b"", b"own"]),
    )
    def submit(self, numbers: list[int], runs: bool, input: JobInput, is_late: bool, payload: bytes) -> None:
        after = self.some(numbers)
        if input is JobInput.RESULT and (len(after) != 1 or after[0] in self.groups):
            input = JobInput.RESULTS
        if not after:
            input = JobInput.PAYLOAD
        extras = JobExtras(after=after, runs_after_failure=runs, input=input) if after else None
        job = self.broker.submit("s", payload, Caller(), LATER if is_late else OPTIONS, self.now, extras=extras)
        assert job is not None
        self.know(job, extras, payload)
        self.settle()

    @rule(
        members=st.lists(st.lists(st.integers(0, 5), max_size=2), min_size=1, max_size=4),
        outside=st.lists(pick, max_size=1),
        groups=st.integers(0, 2),
    )
    def batch(self, members: list[list[int]], outside: list[int], groups: int) -> None:
        """Jobs that come after each other, in any direction: a circle is refused and leaves nothing."""
        ids = [self.broker.entropy.job_id() for _ in members]
        made = [self.broker.entropy.job_id() for _ in range(groups)]
        named = [*ids, *made]
        orders = []
        for index, numbers in enumerate(members):
            after = tuple(chosen(named, number) for number in numbers) + self.some(outside)
            group = made[index % groups] if groups else None
            after = tuple(each for each in after if each not in made or made.index(each) < min(groups, len(members)))
            orders.append(NewJob("s", b"", OPTIONS, ids[index], extras=JobExtras(after=after, group=group)))
        before = len(self.broker.jobs), self.broker.counters.accepted
        try:
            jobs = self.broker.bulk.submit(orders, LOCAL_OWNER, "test", self.now)
        except Refusal:
            assert has_circle(orders)
            assert (len(self.broker.jobs), self.broker.counters.accepted) == before
            assert not any(each in self.broker.job_registry.groups.by_id for each in made)
        else:
            assert not has_circle(orders)
            for job, order in zip(jobs, orders, strict=True):
                self.know(job, order.extras, b"")
        self.settle()

    def running(self) -> list[Job]:
        return [each.job for each in self.known.values() if each.job.attempt is not None]

    @precondition(lambda self: self.running())
    @rule(number=pick, is_done=st.booleans())
    def end(self, number: int, is_done: bool) -> None:
        job = chosen(self.running(), number)
        assert job.attempt is not None
        if is_done:
            self.known[job.id].result = b"r%d" % number
            self.broker.succeed(job.attempt, b"r%d" % number, self.now)
        else:
            self.broker.fail(job.attempt, "boom", self.now)
        self.settle()

    @precondition(lambda self: self.known)
    @rule(number=pick)
    def cancel(self, number: int) -> None:
        self.broker.withdraw(chosen(list(self.known.values()), number).job, self.now)
        self.settle()

    @precondition(lambda self: any(each.job.quarantined for each in self.known.values()))
    @rule(number=pick, is_release=st.booleans())
    def retry(self, number: int, is_release: bool) -> None:
        first = chosen([each for each in self.known.values() if each.job.quarantined], number)
        if is_release:
            assert self.broker.operator.release(first.job, self.now)
        else:
            again = self.broker.operator.retry(first.job, self.now)
            assert again is not None
            self.known[again.id] = Known(again, first.after, first.runs, first.input, bytes(again.payload), first.place)
            self.known[again.id].has_started = True
            if first.place is not None:
                group, place = first.place
                self.groups[group][place] = again.id
        self.settle()

    @rule(seconds=st.sampled_from([0.1, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    @rule(is_slow=st.booleans())
    def be_slow(self, is_slow: bool) -> None:
        self.is_slow = is_slow
        self.settle()

    # ------------------------------------------------------------ what must hold

    def has_ended(self, id: JobId) -> bool:
        members = self.groups.get(id)
        return all(self.known[each].job.state is ENDED for each in (members if members is not None else [id]))

    def has_failed(self, id: JobId) -> bool:
        members = self.groups.get(id)
        jobs = [self.known[each].job for each in (members if members is not None else [id])]
        return any(job.state is ENDED and job.outcome is not Outcome.DONE for job in jobs)

    @invariant()
    def dependent_jobs_are_those_that_wait(self) -> None:
        for each in self.known.values():
            if not each.after or each.has_started or each.job.state is ENDED:
                continue
            is_cancelled = not each.runs and any(self.has_failed(id) for id in each.after)
            is_ready = all(self.has_ended(id) for id in each.after)
            assert not is_cancelled, "it comes after a failure, and is not cancelled"
            if not is_ready or each.job in self.collecting:
                assert each.job.state is DEPENDENT
                continue
            assert each.job.state is not DEPENDENT, "all before it have ended, and it waits"
            each.has_started = True
            self.check_input(each)

    def check_input(self, each: Known) -> None:
        payload = each.job.payload
        if each.input is JobInput.PAYLOAD:
            assert payload == each.payload
        elif each.input is JobInput.RESULT:
            assert payload == (self.known[each.after[0]].result or b"")
        else:
            entries: list[Entry] = []
            for id in each.after:
                members = self.groups.get(id)
                results = [self.known[one].result for one in (members if members is not None else [id])]
                entries.append(list(results) if members is not None else results[0])
            assert unpack_results(payload) == (each.payload, entries)

    @invariant()
    def cancelled_jobs_come_after_failures(self) -> None:
        for each in self.known.values():
            job = each.job
            if job.outcome is Outcome.CANCELLED and "which it comes after" in job.reason:
                assert not each.has_started
                assert not each.runs

    @invariant()
    def groups_count_their_jobs(self) -> None:
        for id, members in self.groups.items():
            group = self.broker.job_registry.groups.by_id[id]
            jobs = [self.known[each].job for each in members]
            assert group.jobs == jobs
            done = sum(job.outcome is Outcome.DONE for job in jobs)
            ended = sum(job.state is ENDED for job in jobs)
            assert (group.open, group.done, group.undone) == (len(jobs) - ended, done, ended - done)


def has_circle(orders: list[NewJob]) -> bool:
    """Follow every path, without regard to cost."""
    by_id = {order.id: order for order in orders}

    def before(id: JobId) -> list[JobId]:
        order = by_id.get(id)
        if order is not None:
            return list(order.extras.after) if order.extras is not None else []
        return [each.id for each in orders if each.extras is not None and each.extras.group == id]

    def leads_to(start: JobId) -> bool:
        found: set[JobId] = set()
        left = before(start)
        while left:
            id = left.pop()
            if id == start:
                return True
            if id not in found:
                found.add(id)
                left += before(id)
        return False

    return any(leads_to(order.id) for order in orders)


def test_job_waits_again_if_a_predecessor_is_released_while_its_input_is_loaded() -> None:
    """A wide run found it: the job started although the predecessor ran again."""
    machine = DependencyMachine()
    machine.submit([], False, JobInput.PAYLOAD, False, b"")
    machine.be_slow(True)
    machine.submit([0], True, JobInput.RESULT, False, b"")
    machine.end(0, is_done=False)
    machine.retry(0, is_release=True)
    machine.be_slow(False)
    machine.dependent_jobs_are_those_that_wait()
    machine.end(0, is_done=True)
    machine.dependent_jobs_are_those_that_wait()


TestDependencyMachine = DependencyMachine.TestCase
TestDependencyMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
