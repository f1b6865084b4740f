"""Tenants of a principal: turns between them, and most running jobs of each (R182, R185, R186)."""

from __future__ import annotations

import pytest

from dragoman.core.fair_queue import TenantQueues
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import LimitValues
from dragoman.core.model import Job, Worker
from dragoman.core.options import JobOptions
from dragoman.core.queues import SWEEP_FLOOR
from dragoman.core.restore import StoredJob, restore
from dragoman.core.turns import MOST_TENANTS, Turns
from owners import LOCAL_OWNER

from .world import NOBODY, CheckedBroker, attempt_of, caller_of, principal_of

WAITS = JobOptions(waits=True)


def states(*jobs: Job) -> str:
    return " ".join(job.state.value for job in jobs)


def served(broker: CheckedBroker, count: int, now: float = 100.0) -> list[str]:
    """Payloads in the order one worker is given them."""
    worker = broker.worker(now=now, name="server")
    order = []
    for _ in range(count):
        (attempt,) = worker.running.values()
        order.append(bytes(attempt.job.payload).decode())
        broker.succeed(attempt, b"", now)
    return order


# ---------------------------------------------------------------- turns


def test_tenants_take_turns_and_keep_their_own_order(broker: CheckedBroker) -> None:
    """R185: by tenant, then by priority and arrival."""
    for number in range(4):
        broker.call(b"a%d" % number, tenant="a", now=float(number))
    broker.call(b"b0", tenant="b", now=5.0)
    broker.call(b"b1", tenant="b", now=6.0, priority=9)
    broker.call(b"c0", tenant="c", now=7.0)
    assert served(broker, 7) == ["a0", "b1", "c0", "a1", "b0", "a2", "a3"]


def test_jobs_without_a_tenant_are_one_tenant(broker: CheckedBroker) -> None:
    """R185: also those that waited before the first tenant came."""
    for number in range(3):
        broker.call(b"-%d" % number, now=float(number))
    broker.call(b"a0", tenant="a", now=5.0)
    broker.call(b"-3", now=6.0)
    broker.call(b"a1", tenant="a", now=7.0)
    assert served(broker, 6) == ["-0", "a0", "-1", "a1", "-2", "-3"]


def test_turns_go_by_principal_before_they_go_by_tenant(broker: CheckedBroker) -> None:
    """R185: a principal gets no more turns by having many tenants."""
    web, other = principal_of(broker, "web"), principal_of(broker, "other")
    for number in range(4):
        broker.call(b"w%d" % number, caller=caller_of(web), tenant=f"t{number}", now=float(number))
    for number in range(3):
        broker.call(b"o%d" % number, caller=caller_of(other), now=10.0 + number)
    assert served(broker, 7) == ["w0", "o0", "w1", "o1", "w2", "o2", "w3"]


def test_tenants_of_two_principals_are_unrelated(broker: CheckedBroker) -> None:
    web, other = principal_of(broker, "web"), principal_of(broker, "other")
    broker.worker(capacity=9)
    broker.limit(max_running_per_tenant=1)
    jobs = [broker.call(caller=caller_of(each), tenant="acme") for each in (web, web, other, other)]
    assert states(*jobs) == "running waiting running waiting"


def test_job_that_returns_keeps_its_place_among_the_jobs_of_its_tenant(broker: CheckedBroker) -> None:
    worker = broker.worker()
    first = broker.call(b"a0", tenant="a", now=0.0)
    broker.call(b"a1", tenant="a", now=1.0)
    broker.call(b"b0", tenant="b", now=2.0)
    broker.leave(worker, 3.0, "gone", unseen=[attempt_of(first)])
    assert served(broker, 3) == ["a0", "b0", "a1"]


def test_restored_jobs_take_turns_by_tenant(broker: CheckedBroker) -> None:
    for number, tenant in enumerate("aaab"):
        stored = StoredJob(number, bytes([number]) * 16, "s", JobOptions(durable=True, waits=True), float(number))  # type: ignore[arg-type]
        stored.extras = JobExtras(tenant=tenant)
        restore(broker.plain, stored, 10.0, NOBODY)
    worker = broker.worker(now=20.0)
    order = []
    for _ in range(4):
        (attempt,) = worker.running.values()
        order.append(attempt.job.tenant)
        broker.succeed(attempt, b"", 20.0)
        broker.save_all(20.0)
    assert "".join(order) == "abaa"


def test_retry_of_a_quarantined_job_has_the_same_tenant(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.store(tenant="acme", attempts=1)
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    broker.save_all(1.0)
    again = broker.operator.retry(job, 2.0)
    assert again is not None
    assert again.tenant == "acme"


def test_tenant_without_jobs_is_forgotten(broker: CheckedBroker) -> None:
    """I5: after its jobs were served, or cancelled behind a job that stays."""
    broker.limit(max_running_per_tenant=1)
    broker.call(tenant="stays")
    for number in range(1_000):
        broker.withdraw(broker.call(tenant=f"t{number}"), 0.0)
    queue = broker.worker_registry.services["s"].queue
    limits = broker.worker_registry.services["s"].limits
    assert limits is not None
    assert len(queue.leaves()) == len(limits.tenants) <= 3 * SWEEP_FLOOR
    served(broker, 1)
    assert (queue.leaves(), limits.tenants) == ([], {})


def test_number_of_jobs_ahead_is_the_place_in_the_order_of_dispatch(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web")
    jobs = [
        broker.call(
            b"%d" % number, caller=caller_of(web) if number % 3 == 0 else None, tenant="abc"[number % 2], now=number
        )
        for number in range(20)
    ]
    jobs += [broker.call(b"%d" % number, now=number) for number in range(20, 25)]
    queue = broker.worker_registry.services["s"].queue
    ahead = {job.payload.decode(): queue.count_before(job, 1_000) for job in jobs}  # type: ignore[union-attr]
    order = served(broker, 25)
    assert [ahead[each] for each in order] == list(range(25))


@pytest.mark.parametrize("tenants", [2, 5])
def test_flood_of_one_tenant_delays_a_job_of_another_by_at_most_one_job_of_each(
    broker: CheckedBroker, tenants: int
) -> None:
    """R186: with k tenants that have waiting jobs, a job starts at the latest when k jobs have ended."""
    plain = broker.plain  # checking 100,000 jobs after each call would take hours
    worker = broker.worker()
    caller = caller_of(principal_of(broker, "web"))
    for number in range(100_000):
        extras = JobExtras(tenant=f"flood {number % (tenants - 1)}")
        plain.submit("s", b"flood", caller, WAITS, 0.0, extras=extras)
    for call in range(1, 11):
        job = plain.submit("s", b"mine", caller, WAITS, float(call), extras=JobExtras(tenant="mine"))
        assert job is not None
        ended = 0
        while job.attempt is None:
            (attempt,) = worker.running.values()
            plain.succeed(attempt, b"", float(call))
            ended += 1
        assert ended <= tenants
        plain.succeed(job.attempt, b"", float(call))
        plain.effects.clear()


# ---------------------------------------------------------------- most running jobs of a tenant


def test_tenant_at_its_limit_blocks_nobody_else(broker: CheckedBroker) -> None:
    """R182: neither a tenant that comes later nor jobs without one."""
    broker.worker(capacity=9)
    broker.limit(max_running_per_tenant=2)
    acme = [broker.call(tenant="acme") for _ in range(4)]
    others = [broker.call(tenant="b"), broker.call(), broker.call(), broker.call()]
    assert states(*acme) == "running running waiting waiting"
    assert states(*others) == "running running running waiting"
    broker.succeed(attempt_of(acme[0]), b"", 1.0)
    assert states(*acme, others[3]) == "ended running running waiting waiting"
    broker.succeed(attempt_of(others[1]), b"", 1.0)
    assert states(acme[3], others[3]) == "waiting running"


def test_every_end_of_an_attempt_lets_the_next_job_of_its_tenant_start(broker: CheckedBroker) -> None:
    ends = {
        "succeed": lambda job: broker.succeed(attempt_of(job), b"", 1.0),
        "fail": lambda job: broker.fail(attempt_of(job), "no", 1.0),
        "withdraw": lambda job: broker.withdraw(job, 1.0),
        "time out": lambda job: broker.tick(5.0),
        "leave": lambda job: broker.leave(attempt_of(job).worker, 1.0, "gone"),
        "give back later": lambda job: broker.attempts.give_back(attempt_of(job), 1.0, delay=60.0),
        "reject": lambda job: broker.attempts.reject(attempt_of(job), "no", 1.0),
    }
    for name, end in ends.items():
        broker.worker(name)
        broker.worker(name)
        broker.limit(name, max_running_per_tenant=1)
        first = broker.call(service=name, tenant="t", job_timeout=5.0, attempts=2)
        second = broker.call(service=name, tenant="t", job_timeout=500.0)
        broker.take()
        assert states(first, second) == "running waiting", name
        end(first)
        assert second.state.value == "running", name


def test_principal_whose_tenants_are_all_blocked_takes_turns_again_with_a_new_one(broker: CheckedBroker) -> None:
    """R182. Its ring was taken out of that of the service."""
    web = principal_of(broker, "web")
    broker.worker(capacity=9)
    broker.limit(max_running_per_tenant=1)
    first, second = (broker.call(caller=caller_of(web), tenant="a") for _ in range(2))
    assert not broker.worker_registry.services["s"].queue.members["web"].has_turn
    new = broker.call(caller=caller_of(web), tenant="b")
    assert states(first, second, new) == "running waiting running"
    broker.withdraw(second, 1.0)
    assert broker.worker_registry.services["s"].queue.leaves() == []


def test_principal_and_tenant_may_both_be_at_their_limit(broker: CheckedBroker) -> None:
    """R166, R182: in either order, and a principal that is blocked keeps new tenants waiting."""
    web = principal_of(broker, "web", max_running=2)
    broker.worker(capacity=9)
    broker.limit(max_running_per_tenant=1)
    first, second = (broker.call(caller=caller_of(web), tenant=each) for each in "ab")
    waiting = [broker.call(caller=caller_of(web), tenant=each) for each in "abc"]
    assert states(*waiting) == "waiting waiting waiting"
    broker.succeed(attempt_of(first), b"", 1.0)
    assert sum(job.state.value == "running" for job in waiting) == 1
    broker.succeed(attempt_of(second), b"", 1.0)
    assert sum(job.state.value == "running" for job in waiting) == 2
    web.limit(web.limits.__class__())
    broker.operator.limits_changed(1.0)
    assert states(*waiting) == "running running running"


def test_limit_of_tenants_may_come_and_go_while_jobs_wait(broker: CheckedBroker) -> None:
    """R182: jobs that have no tenant are split off only then, and those that run are counted."""
    broker.worker(capacity=4)
    jobs = [broker.call() for _ in range(6)]
    broker.limit(max_running_per_tenant=1)
    queue = broker.worker_registry.services["s"].queue
    assert isinstance(queue.members["local"], TenantQueues)
    broker.succeed(attempt_of(jobs[0]), b"", 1.0)
    other = broker.call(tenant="b")
    assert states(*jobs[1:], other) == "running running running waiting waiting running"
    broker.limit(max_running_per_tenant=0)
    broker.succeed(attempt_of(jobs[1]), b"", 1.0)
    assert states(jobs[4], jobs[5]) == "running waiting"
    broker.limit(max_running_per_tenant=1)
    broker.limit(max_running=9)
    broker.succeed(attempt_of(jobs[2]), b"", 1.0)
    assert states(jobs[5]) == "running"


def test_blocked_principal_that_gets_tenants_stays_blocked(broker: CheckedBroker) -> None:
    """Its queue is replaced by those of tenants while it waits for `max_running` of the principal."""
    web = principal_of(broker, "web", max_running=1)
    broker.worker(capacity=9)
    first, second = (broker.call(caller=caller_of(web)) for _ in range(2))
    third = broker.call(caller=caller_of(web), tenant="a")
    assert list(web.blocked) == ["s"]
    broker.succeed(attempt_of(first), b"", 1.0)
    assert states(second, third) == "running waiting"
    broker.succeed(attempt_of(second), b"", 1.0)
    assert states(third) == "running"
    assert web.blocked == {}


def test_accounts_of_tenants_are_forgotten(broker: CheckedBroker) -> None:
    """I5: neither running nor waiting, whatever came last."""
    broker.worker(capacity=2)
    broker.limit(max_running_per_tenant=1)
    for number in range(50):
        first, second, third = (broker.call(tenant=f"t{number}") for _ in range(3))
        broker.withdraw(second, 0.0)
        broker.succeed(attempt_of(first), b"", 0.0)
        broker.succeed(attempt_of(third), b"", 0.0)
    limits = broker.worker_registry.services["s"].limits
    assert limits is not None
    assert limits.tenants == {}


def test_declared_limit_of_tenants(broker: CheckedBroker) -> None:
    worker = broker.starting(capacity=9)
    broker.limiter.declare(worker, {"s": LimitValues(max_running_per_tenant=1)}, 0.0)
    broker.idle(worker, 0.0)
    jobs = [broker.call(tenant="a") for _ in range(2)]
    assert states(*jobs) == "running waiting"


# ---------------------------------------------------------------- the oldest job


def test_oldest_job_of_all_tenants_is_found_whatever_came_and_went(broker: CheckedBroker) -> None:
    """Views ask for it: against all waiting jobs, one by one."""
    queue = None
    waiting: list[Job] = []
    for step in range(400):
        now = float(step)
        draw = (step * 7_919) % 100
        if draw < 60 or not waiting:
            waiting.append(broker.call(tenant=f"t{draw % 7}" if draw % 5 else "", priority=draw % 10, now=now))
        else:
            broker.withdraw(waiting.pop(draw % len(waiting)), now)
        queue = broker.worker_registry.services["s"].queue
        oldest = queue.oldest()
        assert (oldest.order if oldest is not None else None) == min((job.order for job in waiting), default=None)
    worker = broker.worker(now=1_000.0)
    while worker.running:
        (attempt,) = worker.running.values()
        waiting.remove(attempt.job)
        assert queue is not None
        oldest = queue.oldest()
        assert (oldest.order if oldest is not None else None) == min((job.order for job in waiting), default=None)
        broker.succeed(attempt, b"", 1_000.0)


def test_entries_of_tenants_that_went_are_swept_out(broker: CheckedBroker) -> None:
    """I5: also if nobody ever asks for the oldest job."""
    broker.call(tenant="stays")
    for number in range(2_000):
        broker.withdraw(broker.call(tenant=f"t{number}"), 0.0)
    tenants = broker.worker_registry.services["s"].queue.members["local"]
    assert isinstance(tenants, TenantQueues)
    assert len(tenants._by_age) <= 10 * SWEEP_FLOOR


# ---------------------------------------------------------------- workers of several services


@pytest.mark.parametrize("flooded", [("s",), ("other",), ("s", "other"), ("s", "other", "third")])
@pytest.mark.parametrize(("tenants", "most"), [(1, 2), (4, 10)])
def test_flood_of_a_tenant_delays_no_tenant_at_a_worker_of_several_services(
    broker: CheckedBroker, flooded: tuple[str, ...], tenants: int, most: int
) -> None:
    """R14, R186. A worker of several services took the oldest job of its principal, so that many jobs of one tenant
    delayed those of all others, in its other services and, if a queue had one tenant, in all of them."""
    plain = broker.plain
    worker = broker.worker("s", "other", "third", "fourth")
    for number in range(2_000):
        extras = JobExtras(tenant=f"flood {number % tenants}")
        plain.submit(flooded[number % len(flooded)], b"", caller_of(LOCAL_OWNER.principal), WAITS, 0.0, extras=extras)
    for call in range(1, 21):
        job = plain.submit("s", b"", caller_of(LOCAL_OWNER.principal), WAITS, float(call), extras=JobExtras(tenant="a"))
        assert job is not None
        assert jobs_before(broker, worker, job) <= most
        plain.succeed(attempt_of(job), b"", float(call))
        plain.effects.clear()


def jobs_before(broker: CheckedBroker, worker: Worker, job: Job) -> int:
    """Let the worker serve until it has this job. Returns the number of jobs that ended before."""
    ended = 0
    while job.attempt is None:
        (attempt,) = worker.running.values()
        broker.plain.succeed(attempt, b"", 100.0)
        ended += 1
    return ended


def test_urgent_job_of_a_principal_passes_its_jobs_in_a_queue_that_it_shares(broker: CheckedBroker) -> None:
    """R14: at each of its turns it got a job of the queue that it shares, as long as both had jobs there."""
    web, other = caller_of(principal_of(broker, "web")), caller_of(principal_of(broker, "other"))
    worker = broker.worker("s", "second")
    for _ in range(500):
        for each in (web, other):
            broker.plain.submit("s", b"", each, WAITS, 0.0)
    job = broker.plain.submit("second", b"", web, JobOptions(waits=True, priority=9), 1.0)
    assert job is not None
    assert jobs_before(broker, worker, job) <= 2


def test_many_tenants_of_a_principal_delay_no_other_principal(broker: CheckedBroker) -> None:
    """R14: each of them is new, and the other principal is behind a tenant that is not."""
    web, other = caller_of(principal_of(broker, "web")), caller_of(principal_of(broker, "other"))
    worker = broker.worker("s", "second")
    for number in range(500):
        broker.plain.submit("s", b"", web, WAITS, 0.0, extras=JobExtras(tenant="known"))
        broker.plain.submit("second", b"", web, WAITS, 0.0, extras=JobExtras(tenant=f"new {number}"))
    for call in range(1, 6):
        job = broker.plain.submit("s", b"", other, WAITS, float(call))
        assert job is not None
        assert jobs_before(broker, worker, job) <= 2
        broker.plain.succeed(attempt_of(job), b"", float(call))


def test_new_tenants_delay_no_known_one(broker: CheckedBroker) -> None:
    """R186: all of them have had their turn longer ago, or never."""
    caller = caller_of(LOCAL_OWNER.principal)
    worker = broker.worker("s", "second")
    for number in range(500):
        broker.plain.submit("second", b"", caller, WAITS, 0.0, extras=JobExtras(tenant=f"new {number}"))
    for call in range(1, 21):
        job = broker.plain.submit("s", b"", caller, WAITS, float(call), extras=JobExtras(tenant="known"))
        assert job is not None
        assert jobs_before(broker, worker, job) <= 3
        broker.plain.succeed(attempt_of(job), b"", float(call))


def test_jobs_of_one_tenant_keep_their_order_over_services(broker: CheckedBroker) -> None:
    """R14: beside another tenant that has jobs for one of the services."""
    caller = caller_of(LOCAL_OWNER.principal)
    worker = broker.worker("s", "second")
    jobs = []
    for number in range(20):
        broker.plain.submit("s", b"", caller, WAITS, float(number), extras=JobExtras(tenant="other"))
        name = "second" if number % 3 else "s"
        jobs.append(broker.plain.submit(name, b"", caller, WAITS, float(number), extras=JobExtras(tenant="mine")))
    order = []
    while worker.running:
        (attempt,) = worker.running.values()
        if attempt.job.tenant == "mine":
            order.append(jobs.index(attempt.job))
        broker.plain.succeed(attempt, b"", 100.0)
    assert order == sorted(order)
    assert len(order) == len(jobs)


def test_turns_of_the_latest_tenants_are_known() -> None:
    """I5: names of tenants come from outside."""
    turns = Turns()
    for number in range(MOST_TENANTS + 10):
        turns.turn_of("web", f"t{number}")
    assert len(turns.tenants) == MOST_TENANTS
    assert ("web", "t9") not in turns.tenants
