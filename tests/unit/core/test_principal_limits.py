"""Limits of a principal, over all of its owners (R165 to R167), and limits in bytes (L24)."""

from __future__ import annotations

import pytest

from dragoman.core.accepted_jobs import set_payload
from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.model import Job, Worker
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.restore import StoredJob, restore
from dragoman.core.rights import NO_LIMITS, Principal, PrincipalLimits
from dragoman.core.states import Outcome, RefusalReason

from .world import NOBODY, Caller, CheckedBroker, attempt_of, caller_of, principal_of

WAITS = JobOptions(waits=True)


def submit(broker: CheckedBroker, principal: Principal, payload: bytes = b"x", now: float = 0.0) -> Job | None:
    """Submit on a connection of its own."""
    job: Job | None = broker.submit("s", payload, caller_of(principal), WAITS, now)
    return job


def refusal(broker: CheckedBroker) -> tuple[RefusalReason | None, str]:
    (answer,) = [each for each in broker.take() if isinstance(each, DeliverOutcome)]
    assert (answer.outcome, answer.job) == (Outcome.REFUSED, None)
    return answer.refusal, answer.reason


def counts(principal: Principal) -> tuple[int, int, int]:
    return principal.waiting, principal.waiting_bytes, principal.running


def states(*jobs: Job) -> str:
    return " ".join(job.state.value for job in jobs)


# ---------------------------------------------------------------- submits that are refused


def test_waiting_jobs_of_all_connections_count_together(broker: CheckedBroker) -> None:
    """R165. Another principal is not affected."""
    web, other = principal_of(broker, "web", max_waiting=2), principal_of(broker, "other")
    assert submit(broker, web)
    assert submit(broker, web)
    assert submit(broker, web) is None
    assert refusal(broker) == (
        RefusalReason.BUSY,
        "busy: web has 2 waiting jobs, the maximum (max_waiting of web); retry later",
    )
    assert submit(broker, other)
    assert broker.counters.limits_reached == {"max_waiting": 1}


def test_delayed_jobs_count_as_waiting_and_running_ones_do_not(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web", max_waiting=1)
    broker.worker()
    assert submit(broker, web)  # it runs
    broker.call(caller=caller_of(web), delay=5.0)
    assert counts(web) == (1, 1, 1)
    assert submit(broker, web) is None


def test_waiting_bytes_of_a_principal(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web", max_waiting_bytes=10)
    assert submit(broker, web, b"123456")
    assert submit(broker, web, b"12345") is None
    assert refusal(broker) == (
        RefusalReason.BUSY,
        "busy: waiting jobs of web take 6 of 10 bytes (max_waiting_bytes of web); retry later",
    )
    assert submit(broker, web, b"1234")


def test_payload_of_a_principal(broker: CheckedBroker) -> None:
    """It is refused like a payload over the listener's limit (R16)."""
    web = principal_of(broker, "web", max_payload=3)
    assert submit(broker, web, b"123")
    assert submit(broker, web, b"1234") is None
    assert refusal(broker) == (RefusalReason.TOO_LARGE, "too large: payload of 4 bytes is over max_payload 3 of web")


def test_rate_of_a_principal_counts_accepted_submits(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web", max_rate=2.0, max_payload=3)
    assert submit(broker, web, b"1234") is None  # too large, so it does not count
    broker.take()
    assert [submit(broker, web, now=0.1) is not None for _ in range(3)] == [True, True, False]
    assert refusal(broker) == (
        RefusalReason.BUSY,
        "busy: web has submitted 2 jobs a second, the maximum (max_rate of web); submit more slowly",
    )
    assert submit(broker, web, now=0.6)


def test_retry_by_an_operator_is_no_submit(broker: CheckedBroker) -> None:
    """max_rate does not apply to it; max_waiting does, to a release too (R135)."""
    web = principal_of(broker, "web", max_rate=0.1, max_waiting=1)
    broker.worker()
    first, second = (
        broker.store(caller=caller_of(web), attempts=1, now=now, priority=priority)
        for now, priority in ((0.0, 1), (20.0, 1))
    )
    broker.take()
    for job in (first, second):
        broker.fail(attempt_of(job), "no", 30.0)
        broker.save_all(30.0)
        broker.take()
    worker = broker.worker("other", now=30.0)
    broker.leave(next(iter(broker.worker_registry.workers.values())), 30.0, "gone")
    broker.leave(worker, 30.0, "gone")
    again = broker.operator.retry(first, 30.0)
    assert again is not None
    assert counts(web) == (1, 1, 0)
    assert not broker.operator.release(second, 30.0)
    assert broker.operator.retry(second, 30.0) is None
    broker.withdraw(again, 31.0)
    assert broker.operator.release(second, 31.0)
    assert counts(web) == (1, 1, 0)


def test_local_has_no_limits(broker: CheckedBroker) -> None:
    assert broker.principals.local.limits is NO_LIMITS
    for _ in range(100):
        assert submit(broker, broker.principals.local)
    assert counts(broker.principals.local) == (100, 100, 0)


# ---------------------------------------------------------------- bytes of a service and of a caller


def test_bytes_of_one_service() -> None:
    """L24: waiting and running jobs count. Another service is not affected."""
    broker = CheckedBroker(max_bytes_per_service=10)
    broker.worker()
    broker.call(b"123456")
    caller = Caller()
    assert broker.submit("s", b"12345", caller, WAITS, 0.0) is None
    broker.take()
    assert broker.submit("s", b"12345", caller, WAITS, 0.0) is None
    assert refusal(broker) == (
        RefusalReason.BUSY,
        "busy: payloads of this service take 6 of 10 bytes (max_bytes_per_service); retry later",
    )
    assert broker.call(b"12345", service="other")
    assert broker.counters.limits_reached == {"max_bytes_per_service": 2}


def test_bytes_of_one_caller() -> None:
    """L24: over all services; another connection of the same principal has its own."""
    broker = CheckedBroker(max_bytes_per_caller=10)
    web = principal_of(broker, "web")
    caller = caller_of(web)
    job = broker.call(b"123456", caller=caller)
    assert broker.submit("other", b"12345", caller, WAITS, 0.0) is None
    assert refusal(broker) == (
        RefusalReason.BUSY,
        "busy: payloads of this connection take 6 of 10 bytes (max_bytes_per_caller); "
        "retry when some of its jobs have ended",
    )
    assert submit(broker, web, b"12345")
    broker.withdraw(job, 0.0)
    assert broker.submit("other", b"12345", caller, WAITS, 0.0)


def test_program_inside_the_broker_is_no_caller_with_limits() -> None:
    broker = CheckedBroker(max_bytes_per_caller=10)
    caller = Caller()
    caller.owner = Owner(broker.principals.local, is_limited=False)
    assert broker.submit("s", b"12345678901", caller, WAITS, 0.0)


# ---------------------------------------------------------------- max_running


def test_jobs_over_max_running_wait_and_the_next_is_dispatched_at_once(broker: CheckedBroker) -> None:
    """R166."""
    web = principal_of(broker, "web", max_running=1)
    broker.worker(capacity=5)
    first, second, third = (broker.call(caller=caller_of(web)) for _ in range(3))
    assert states(first, second, third) == "running waiting waiting"
    broker.take()
    broker.succeed(attempt_of(first), b"", 1.0)
    assert states(first, second, third) == "ended running waiting"
    assert [type(each) for each in broker.take()] == [SendJob, DeliverOutcome]
    assert counts(web) == (1, 1, 1)


def test_jobs_of_others_are_dispatched_past_a_principal_that_must_wait(broker: CheckedBroker) -> None:
    """R166: both for a new job and for a worker that becomes free."""
    web, other = principal_of(broker, "web", max_running=1), principal_of(broker, "other")
    worker = broker.worker(capacity=2)
    broker.call(caller=caller_of(web))
    blocked = broker.call(caller=caller_of(web))
    mine = broker.call(caller=caller_of(other))
    assert states(blocked, mine) == "waiting running"
    more = [broker.call(caller=caller_of(other)) for _ in range(3)]
    broker.succeed(attempt_of(mine), b"", 1.0)
    assert states(*more) == "running waiting waiting"
    assert len(worker.running) == 2


def test_next_job_may_be_of_another_service(broker: CheckedBroker) -> None:
    """R166: services take turns, so none of them starves."""
    web = principal_of(broker, "web", max_running=1)
    names = ("a", "b", "c")
    for name in names:
        broker.worker(name, capacity=10)
    jobs = {name: [broker.call(service=name, caller=caller_of(web)) for _ in range(3)] for name in names}
    order = []
    for number in range(9):
        (job,) = (job for each in jobs.values() for job in each if job.attempt is not None)
        order.append(job.service.name)
        broker.succeed(attempt_of(job), b"", float(number))
    assert order == ["a", "a", "b", "c", "a", "b", "c", "b", "c"]


def test_every_end_of_an_attempt_lets_the_next_job_run(broker: CheckedBroker) -> None:
    """R166: a result, a failure, a time-out, a withdrawal, a worker that leaves, a job that is given back."""

    def lost(job: Job) -> None:
        broker.leave(attempt_of(job).worker, 1.0, "gone")

    ends = {
        "succeed": lambda job: broker.succeed(attempt_of(job), b"", 1.0),
        "fail": lambda job: broker.fail(attempt_of(job), "no", 1.0),
        "withdraw": lambda job: broker.withdraw(job, 1.0),
        "time out": lambda job: broker.tick(5.0),
        "leave": lost,
        "give back later": lambda job: broker.attempts.give_back(attempt_of(job), 1.0, delay=60.0),
        "spend": lambda job: broker.attempts.give_back(attempt_of(job), 1.0, delay=60.0, spends=True),
        "reject": lambda job: broker.attempts.reject(attempt_of(job), "no", 1.0),
    }
    for name, end in ends.items():
        web = principal_of(broker, name, max_running=1)
        broker.worker(f"{name} 1")
        broker.worker(f"{name} 2")
        first = broker.call(service=f"{name} 1", caller=caller_of(web), job_timeout=5.0, attempts=2)
        second = broker.call(service=f"{name} 2", caller=caller_of(web), job_timeout=500.0)
        broker.take()
        assert states(first, second) == "running waiting", name
        end(first)
        assert second.state.value == "running", name
        broker.withdraw(second, 5.0)


def test_job_that_was_never_sent_keeps_its_place_before_later_ones(broker: CheckedBroker) -> None:
    """R8 with max_running: the job that returns is dispatched first."""
    web = principal_of(broker, "web", max_running=1)
    first_worker, second_worker = broker.worker(), broker.worker()
    first, second = (broker.call(caller=caller_of(web)) for _ in range(2))
    assert attempt_of(first).worker is first_worker
    broker.leave(first_worker, 1.0, "gone", unseen=[attempt_of(first)])
    assert states(first, second) == "running waiting"
    assert attempt_of(first).worker is second_worker


def test_cancelled_jobs_leave_nothing_behind(broker: CheckedBroker) -> None:
    """A blocked queue that becomes empty is forgotten, so a principal that waits long cannot fill the memory."""
    web = principal_of(broker, "web", max_running=1)
    broker.worker()
    broker.call(caller=caller_of(web))
    for number in range(50):
        name = f"t{number}"
        worker = broker.worker(name)
        job = broker.call(service=name, caller=caller_of(web))
        assert list(web.blocked) == [name]
        broker.withdraw(job, 1.0)
        broker.leave(worker, 1.0, "gone")
    assert web.blocked == {}


def test_new_limits_apply_at_once(broker: CheckedBroker) -> None:
    """R166: a reload may raise max_running, or take it away."""
    web = principal_of(broker, "web", max_running=1)
    broker.worker(capacity=9)
    jobs = [broker.call(caller=caller_of(web)) for _ in range(5)]
    web.limit(PrincipalLimits(max_running=3))
    broker.operator.limits_changed(1.0)
    assert states(*jobs) == "running running running waiting waiting"
    web.limit(PrincipalLimits())
    broker.operator.limits_changed(1.0)
    assert web.running == 5


def test_lower_limit_ends_no_job(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web", max_running=3)
    broker.worker(capacity=9)
    jobs = [broker.call(caller=caller_of(web)) for _ in range(4)]
    web.limit(PrincipalLimits(max_running=1))
    broker.operator.limits_changed(1.0)
    assert web.running == 3
    for job in jobs[:2]:
        broker.succeed(attempt_of(job), b"", 1.0)
    assert states(*jobs[2:]) == "running waiting"
    broker.succeed(attempt_of(jobs[2]), b"", 1.0)
    assert states(jobs[3]) == "running"


def test_queue_timeout_of_a_blocked_job_names_the_limit(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web", max_running=1)
    broker.worker(capacity=2)
    broker.call(caller=caller_of(web))
    blocked = broker.call(caller=caller_of(web), queue_timeout=3.0)
    broker.take()
    broker.tick(3.0)
    (answer,) = broker.take()
    assert blocked.outcome is Outcome.TIMED_OUT
    assert isinstance(answer, DeliverOutcome)
    assert answer.reason == (
        "no worker was free within 3 s, or a limit was reached: web runs 1 job, the maximum (max_running of web)"
    )


def test_paused_service_of_a_blocked_principal(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web", max_running=1)
    broker.worker("a")
    broker.worker("b")
    first = broker.call(service="a", caller=caller_of(web))
    second = broker.call(service="b", caller=caller_of(web))
    broker.operator.pause("b")
    broker.succeed(attempt_of(first), b"", 1.0)
    assert states(second) == "waiting"
    broker.operator.resume("b", 2.0)
    assert states(second) == "running"


# ---------------------------------------------------------------- jobs of an earlier run


@pytest.mark.parametrize("is_running", [False, True])
def test_restored_jobs_count_and_are_never_refused(broker: CheckedBroker, is_running: bool) -> None:
    """R107: they were acknowledged. New jobs are refused until the principal is below its limit."""
    web = principal_of(broker, "web", max_waiting=1, max_running=1)
    for number in range(3):
        stored = StoredJob(number, bytes([number]) * 16, "s", JobOptions(durable=True, waits=True), 0.0)  # type: ignore[arg-type]
        stored.owner = "web"
        if is_running:
            stored.token, stored.attempt, stored.can_resume = bytes([number]) * 16, 1, True  # type: ignore[assignment]
        restore(broker.plain, stored, 0.0, NOBODY)
    assert counts(web) == ((0, 0, 3) if is_running else (3, 0, 0))
    if is_running:
        broker.worker()
        job = broker.call(caller=caller_of(web))
        assert states(job) == "waiting"
    else:
        assert submit(broker, web) is None


def test_fetched_payload_of_a_waiting_job_counts(broker: CheckedBroker) -> None:
    web = principal_of(broker, "web")
    stored = StoredJob(1, b"j" * 16, "s", JobOptions(durable=True, waits=True), 0.0)  # type: ignore[arg-type]
    stored.owner = "web"
    job = restore(broker.plain, stored, 0.0, NOBODY)
    set_payload(broker.job_registry, job, b"12345")
    assert counts(web) == (1, 5, 0)
    broker.worker()
    assert counts(web) == (0, 0, 1)


# ---------------------------------------------------------------- a flood of one principal


def most_jobs_before_a_call(broker: CheckedBroker, worker: Worker) -> int:
    """Call 20 times. Returns the highest number of jobs that ended before such a call was dispatched."""
    plain, mine = broker.plain, caller_of(principal_of(broker, "mine"))
    most = 0
    for call in range(1, 21):
        job = plain.submit("s", b"mine", mine, WAITS, float(call))
        assert job is not None
        ended = 0
        while job.attempt is None:
            (attempt,) = worker.running.values()
            plain.succeed(attempt, b"", float(call))
            ended += 1
        most = max(most, ended)
        plain.succeed(job.attempt, b"", float(call))
        plain.effects.clear()
    return most


@pytest.mark.parametrize("principals", [2, 3, 10])
def test_flood_of_one_principal_delays_a_call_of_another_by_at_most_one_job_of_each(
    broker: CheckedBroker, principals: int
) -> None:
    """R167: with k principals that have waiting jobs, a call starts at the latest when k jobs have ended."""
    plain = broker.plain  # checking 100,000 jobs after each call would take hours
    worker = broker.worker()
    floods = [principal_of(broker, f"flood {number}") for number in range(principals - 1)]
    callers = [caller_of(each) for each in floods]
    for number in range(100_000):
        plain.submit("s", b"flood", callers[number % len(callers)], WAITS, 0.0)
    assert most_jobs_before_a_call(broker, worker) <= principals


@pytest.mark.parametrize(("principals", "most"), [(2, 2), (3, 6), (10, 20)])
@pytest.mark.parametrize("flooded", ["s", "other", "both"])
def test_flood_of_one_service_delays_no_call_of_another_service_of_its_worker(
    broker: CheckedBroker, principals: int, most: int, flooded: str
) -> None:
    """R14: with k principals that wait for a worker of n services, a call starts when k * n jobs have ended, or two of
    two principals. A worker took the oldest job of all its services, so that a flood of one delayed the others."""
    plain = broker.plain
    worker = broker.worker("s", "other")
    callers = [caller_of(principal_of(broker, f"flood {number}")) for number in range(principals - 1)]
    for number in range(2_000):
        for name in ("s", "other") if flooded == "both" else (flooded,):
            plain.submit(name, b"flood", callers[number % len(callers)], WAITS, 0.0)
    assert most_jobs_before_a_call(broker, worker) <= most
