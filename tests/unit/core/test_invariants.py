"""`check` finds damage: each test breaks a healthy broker in one way."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from dragoman.core.deadlines import SWEEP_FLOOR
from dragoman.core.errors import InvariantBroken
from dragoman.core.invariants import check
from dragoman.core.model import Job, Worker
from dragoman.core.rights import PrincipalLimits
from dragoman.core.running_account import Blockable
from dragoman.core.states import JobState, Outcome, WorkerState
from owners import LOCAL_OWNER

from .world import CheckedBroker, attempt_of, caller_of, principal_of


class Busy(CheckedBroker):
    """A broker with one of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = self.worker("s", name="busy", lease=5.0)
        self.run = self.call(b"running", deadline=100.0)
        self.wide = self.worker("wide", name="wide", capacity=2)
        self.mark_stuck = attempt_of(self.call(b"withdrawn", service="wide"))
        self.take()
        self.withdraw(self.mark_stuck.job, 0.0)
        self.doubtful = self.worker("u", name="doubtful")
        self.withdraw(self.running(self.doubtful, service="u").job, 0.0)
        self.free = self.worker("f", name="free")
        self.boot = self.starting("g", name="boot")
        self.away = self.worker("h", name="away")
        self.availability.detach(self.away, 0.0)
        self.first = self.call(b"first", queue_timeout=50.0)
        self.second = self.call(b"second", now=1.0)
        self.late = self.call(b"delayed", delay=10.0, now=1.0)
        self.kept = self.call(b"kept", service="f", key="k", now=1.0)
        self.succeed(attempt_of(self.kept), b"result", 1.0)
        self.worker("web", name="web", capacity=2)
        web = principal_of(self, "web", max_running=1)
        self.call(b"runs", service="web", caller=caller_of(web), now=1.0)
        self.web = self.call(b"blocked", service="web", caller=caller_of(web), now=1.0)
        self.take()


Damage = Callable[[Busy], object]


def damage(letter: str, name: str) -> Callable[[Damage], Damage]:
    def register(function: Damage) -> Damage:
        DAMAGES.append(pytest.param(letter, function, id=f"{letter}: {name}"))
        return function

    return register


DAMAGES: list[object] = []


@damage("I1", "a waiting job stands in no queue")
def _(b: Busy) -> None:
    b.first.service.queue.remove(b.first)


@damage("I1", "a running job stands in a queue")
def _(b: Busy) -> None:
    b.run.service.queue.append(b.run, 2.0)


@damage("I1", "a job runs without an attempt")
def _(b: Busy) -> None:
    b.run.attempt = None


@damage("I1", "a delayed job has an attempt")
def _(b: Busy) -> None:
    b.late.attempt = b.run.attempt


@damage("I1", "a job is counted twice")
def _(b: Busy) -> None:
    b.job_registry.present += 1


@damage("I1", "a queued job is not among the jobs")
def _(b: Busy) -> None:
    del b.job_registry.jobs[b.first.id]
    b.job_registry.present -= 1


@damage("I1", "the length of a queue is miscounted")
def _(b: Busy) -> None:
    b.first.service.queue.length += 1


@damage("I1", "the workers of a service are miscounted")
def _(b: Busy) -> None:
    b.worker_registry.services["s"].workers += 1


@damage("I2", "a worker holds more than its capacity")
def _(b: Busy) -> None:
    other = attempt_of(b.run)
    b.free.running[other.token] = b.wide.running[other.token] = other
    b.free.stuck[other.token] = other


@damage("I2", "a busy worker is listed as idle")
def _(b: Busy) -> None:
    b.worker_registry.services["s"].queue.remove(b.first)
    b.worker_registry.services["s"].queue.remove(b.second)
    for job in (b.first, b.second):
        job.state = JobState.DELAYED
    b.worker_registry.services["s"].idle.append(b.busy)


@damage("I2", "a starting worker is listed as held back")
def _(b: Busy) -> None:
    b.worker_registry.services["g"].held_back.append(b.boot)


@damage("I2", "a detached worker is listed as idle")
def _(b: Busy) -> None:
    b.worker_registry.services["h"].idle.append(b.away)


@damage("I2", "a detached worker is listed as held back")
def _(b: Busy) -> None:
    b.worker_registry.services["h"].held_back.append(b.away)


@damage("I2", "a detached worker holds more than its capacity")
def _(b: Busy) -> None:
    b.away.stuck = {attempt.token: attempt for attempt in (b.mark_stuck, attempt_of(b.run))}


@damage("I2", "a worker that has gone is listed as idle")
def _(b: Busy) -> None:
    del b.worker_registry.workers[b.free.id]
    b.worker_registry.services["f"].workers -= 1


@damage("I2", "an idle worker is not listed")
def _(b: Busy) -> None:
    b.worker_registry.services["f"].idle.remove(b.free)


@damage("I2", "a worker is idle without a free slot")
def _(b: Busy) -> None:
    b.busy.state = WorkerState.IDLE


@damage("I2", "a worker is busy with nothing")
def _(b: Busy) -> None:
    b.boot.state = WorkerState.BUSY


@damage("I2", "a worker is stuck of nothing")
def _(b: Busy) -> None:
    b.boot.state = WorkerState.STUCK


@damage("I4", "an ended job that nobody may come back for is still here")
def _(b: Busy) -> None:
    b.kept.key = None


@damage("I5", "the bytes of payloads are miscounted")
def _(b: Busy) -> None:
    b.job_registry.memory.payloads += 1


@damage("I5", "data in transit is miscounted")
def _(b: Busy) -> None:
    b.job_registry.memory.in_transit += 1


@damage("I5", "the bytes of a service are miscounted")
def _(b: Busy) -> None:
    b.first.service.bytes += 1


@damage("I5", "the bytes of a caller are miscounted")
def _(b: Busy) -> None:
    b.web.owner.bytes += 1


@damage("I5", "the waiting jobs of a principal are miscounted")
def _(b: Busy) -> None:
    b.web.owner.principal.waiting += 1


@damage("I5", "the waiting bytes of a principal are miscounted")
def _(b: Busy) -> None:
    b.web.owner.principal.waiting_bytes -= 1


@damage("I5", "the running jobs of a principal are miscounted")
def _(b: Busy) -> None:
    b.principals.local.running += 1


@damage("I6", "jobs of a principal are blocked, and it may run more")
def _(b: Busy) -> None:
    b.web.owner.principal.limit(PrincipalLimits(max_running=2))


@damage("I6", "jobs of a principal are blocked, and it does not know")
def _(b: Busy) -> None:
    b.web.owner.principal.blocked.clear()


@damage("I6", "a principal waits in a service where it has no jobs")
def _(b: Busy) -> None:
    b.web.owner.principal.blocked["s"] = Blockable()


@damage("I5", "dead entries pile up in a queue")
def _(b: Busy) -> None:
    b.first.service.queue.leaves()[0]._dead = SWEEP_FLOOR + 3


@damage("I6", "a job waits while a worker is idle")
def _(b: Busy) -> None:
    b.late.state = JobState.WAITING
    b.late.service = b.worker_registry.services["f"]
    b.late.service.queue.append(b.late, 2.0)
    services = b.worker_registry.services
    if hasattr(services["s"], "jobs"):
        services["s"].jobs -= 1
        services["f"].jobs += 1
        services["s"].bytes -= len(b.late.payload)
        services["f"].bytes += len(b.late.payload)


@damage("I8", "more attempts were spent than the job has")
def _(b: Busy) -> None:
    job = b.call(b"x", attempts=2, now=2.0)
    job.spent = 3


@damage("I9", "a job ended without an outcome")
def _(b: Busy) -> None:
    b.kept.outcome = None


@damage("I9", "a waiting job has an outcome")
def _(b: Busy) -> None:
    b.first.outcome = Outcome.DONE


@damage("I9", "a worker that has gone is still here")
def _(b: Busy) -> None:
    b.boot.state = WorkerState.GONE


@damage("I10", "a job has another job's attempt")
def _(b: Busy) -> None:
    attempt_of(b.run).job = b.first


@damage("I10", "the worker does not hold what it runs")
def _(b: Busy) -> None:
    b.busy.running.clear()


@damage("I10", "a worker runs an attempt that is over")
def _(b: Busy) -> None:
    b.wide.running[b.mark_stuck.token] = b.mark_stuck
    b.wide.stuck.clear()


@damage("I10", "a worker is stuck of a current attempt")
def _(b: Busy) -> None:
    attempt = attempt_of(b.run)
    b.wide.stuck[attempt.token] = attempt
    b.wide.state = WorkerState.STUCK
    b.worker_registry.services["wide"].idle.remove(b.wide)


@damage("I11", "an alarm and its subject disagree")
def _(b: Busy) -> None:
    b.busy.alarm -= 1.0


@damage("I11", "alarms are miscounted")
def _(b: Busy) -> None:
    b._deadlines.armed += 1


@damage("I11", "a job will not be looked at in time")
def _(b: Busy) -> None:
    b.first.deadline = 2.0


@damage("I11", "a running job will not be looked at in time")
def _(b: Busy) -> None:
    b.run.deadline = 2.0


@damage("I11", "a worker will not be looked at in time")
def _(b: Busy) -> None:
    b.busy.seen = -100.0


@damage("I11", "a detached worker will not be looked at in time")
def _(b: Busy) -> None:
    b.away.away_since = -1.0


@damage("I11", "an orphaned call will not be looked at in time")
def _(b: Busy) -> None:
    b.second.orphan_due = 5.0


@damage("I11", "a job with a deadline has no alarm")
def _(b: Busy) -> None:
    b._deadlines.disarm(b.first)


@damage("I11", "dead alarms pile up")
def _(b: Busy) -> None:
    b._deadlines._heap += [(inf, 10**6 + number, b.second) for number in range(SWEEP_FLOOR * 2)]


@damage("I11", "an alarm refers to a job that is gone")
def _(b: Busy) -> None:
    stranger = Job(b.run.id, b.run.service, b"", (), b.run.options, 0.0, LOCAL_OWNER)
    stranger.id = type(b.run.id)(b"stranger" * 2)
    b._deadlines.arm(stranger, 3.0)


@damage("I12", "jobs of one priority do not stand in the order they came")
def _(b: Busy) -> None:
    b.first.order, b.second.order = b.second.order, b.first.order


@damage("I17", "an accepted job is missing from the counters")
def _(b: Busy) -> None:
    b.counters.accepted += 1


@damage("I22", "a job is in quarantine without a spent attempt")
def _(b: Busy) -> None:
    b.kept.quarantined = True


@pytest.mark.parametrize(("letter", "do"), DAMAGES)
def test_damage_is_found_and_named(letter: str, do: Damage) -> None:
    broker = Busy()
    check(broker.plain)
    do(broker)
    with pytest.raises(InvariantBroken, match=f"^{letter}:"):
        check(broker.plain)


@pytest.mark.parametrize(
    ("who", "state"), [("free", "idle"), ("busy", "busy"), ("doubtful", "stuck"), ("boot", "starting")]
)
def test_worker_that_is_out_of_reach_and_not_said_to_be_is_found(who: str, state: str) -> None:
    """I2, R64."""
    broker = Busy()
    worker = getattr(broker, who)
    worker.away_since = 1.0
    with pytest.raises(InvariantBroken, match=f"^I2: worker {worker.id} is {state} and not reachable$"):
        check(broker.plain)


def test_worker_that_is_detached_and_within_reach_is_found() -> None:
    """I2, R64."""
    broker = Busy()
    broker.away.away_since = inf
    with pytest.raises(
        InvariantBroken, match=f"^I2: worker {broker.away.id} is detached, reachable and requests a job$"
    ):
        check(broker.plain)


def test_draining_worker_may_be_out_of_reach_or_within() -> None:
    """I2, R64."""
    broker = Busy()
    broker.availability.drain(broker.busy, 1.0)
    for away_since in (1.0, inf):
        broker.busy.away_since = away_since
        check(broker.plain)


def test_worker_listed_for_one_of_its_two_services_is_found(broker: CheckedBroker) -> None:
    """I2."""
    worker: Worker = broker.worker("a", "b")
    broker.worker_registry.services["b"].idle.remove(worker)
    with pytest.raises(InvariantBroken, match=r"^I2:"):
        check(broker.plain)


def test_service_of_a_worker_that_the_roster_does_not_know_is_found(broker: CheckedBroker) -> None:
    """R29, I1: no caller could request it. A gap: `check` only checked registered services."""
    broker.worker("a", "b")
    del broker.worker_registry.services["b"]
    with pytest.raises(InvariantBroken):
        check(broker.plain)


def test_fresh_broker_is_healthy() -> None:
    check(CheckedBroker().plain)
