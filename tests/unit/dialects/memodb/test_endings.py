"""Time-outs of MemoDB's jobs, and outcomes without a reply: R71 to R73, R80."""

from __future__ import annotations

import pytest

from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.states import Outcome
from owners import LOCAL_OWNER

from .world import (
    DAY,
    MAX_PAYLOAD,
    World,
    answered,
    disconnected,
    given,
    header,
    heartbeat,
    job,
    result,
)

# -------------------------------------------------------------------- the timeout of a JOB: R72


@pytest.mark.parametrize("timeout", [1, 23, 24, 255, 256, 999, 1_001, 2_007, 4_019, 65_535, 65_536, 131_071, DAY])
def test_r72_a_job_goes_out_with_the_timeout_it_came_with(timeout: int) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.ask(1, job(timeout=timeout))
    assert side.heard() == given(1, id, timeout=timeout)
    assert world.counters.clamped_timeouts == 0


@pytest.mark.parametrize("timeout", [DAY + 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_r72_a_timeout_over_a_day_is_cut_down_and_counted(timeout: int) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.ask(1, job(timeout=timeout))
    assert side.heard() == given(1, id, timeout=DAY)
    caller.ask(2, job(timeout=timeout))
    assert world.counters.clamped_timeouts == 2


def test_r72_minus_one_means_no_limit() -> None:
    world = World(detach_timeout=1e9)
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    caller.ask(1, job(timeout=-1))
    assert side.heard() == given(1, id, timeout=-1)
    world.now += 0.1
    world.broker.tick(world.now + 30 * 86_400)
    assert world.state(id) == "busy"
    side.ask(2, result(id))
    assert caller.heard() == answered(1)


def test_r72_zero_is_over_at_once_and_never_handed_out() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.worker(side)
    assert caller.ask(1, job(timeout=0)) == []
    assert side.heard() == []
    assert world.counters.dispatched == 0
    assert world.present == 0
    assert world.silences == {"timed out": 1}


@pytest.mark.parametrize("timeout", [-2, -1_000, -(2**63), -(2**64), 2**64, 1.5, float("nan"), None, True, "5", b"5"])
def test_r72_any_other_timeout_is_invalid(timeout: object) -> None:
    world = World()
    side = world.connect()
    assert side.ask(1, header(2, b"", "echo", timeout) + b"payload") == []
    assert world.bad == {"bad timeout": 1}
    assert world.present == 0


@pytest.mark.parametrize(("timeout", "on_wire"), [(float("inf"), DAY), (2.5, 2_500), (0.0001, 1), (60.0, 60_000)])
def test_jobs_of_other_dialects_go_out_with_their_run_time_and_a_day_if_they_have_none(
    timeout: float, on_wire: int
) -> None:
    """JOB to a worker carries the run time-out in ms; none is 86400000, unless its client sent -1."""

    world = World()
    side = world.connect()
    id = world.worker(side)
    world.broker.submit("echo", b"job", Caller(Recipient(), LOCAL_OWNER), JobOptions(job_timeout=timeout), world.now)
    world.run_once()
    assert side.heard() == given(1, id, timeout=on_wire)


def test_many_different_timeouts_cost_no_memory_for_ever() -> None:
    world = World()
    caller = world.connect()
    for timeout in range(1, 3_000):
        world.session._callers._options_for(timeout)
    assert len(world.session._callers._job_options) <= 1_024
    caller.ask(1, job(timeout=7))
    assert world.job().options.job_timeout == 0.007


# -------------------------------------------------------------------- endings without a word: R73, R71


def test_r73_a_job_that_no_worker_takes_within_queue_timeout_ends_in_silence() -> None:
    world = World(queue_timeout=10)
    caller = world.connect()
    caller.ask(1, job())
    world.wait(9.99)
    assert world.present == 1
    world.wait(0.02)
    assert world.present == 0
    assert caller.heard() == []
    assert not caller.is_lost
    assert world.silences == {"timed out": 1}


def test_by_default_a_job_waits_for_a_worker_as_long_as_its_caller_is_there() -> None:
    """A bug: queue_timeout was 10 s, and this wire has no message for a time-out: callers waited for nothing."""
    world = World()
    caller = world.connect()
    caller.ask(1, job())
    world.wait(3_600)
    assert world.present == 1
    assert world.worker(world.connect())
    assert world.counters.dispatched == 1


def test_the_run_time_of_a_job_begins_when_it_is_handed_out() -> None:
    """Client JOB: the timeout starts when it is handed to a worker."""
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(1, job(timeout=1_000))
    world.wait(9)
    id = world.worker(side)
    world.wait(0.9)
    side.ask(2, result(id))
    assert caller.heard() == answered(1)


def test_r71_when_a_job_times_out_its_worker_s_id_is_dead_at_once() -> None:
    """D11 does not apply; the late RESULT is dropped and gets DISCONNECT."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=5_000)
    world.wait(4.99)
    assert world.state(id) == "busy"
    world.wait(0.02)
    assert world.state(id) == "gone"
    assert side.heard() == []
    assert caller.heard() == []
    assert world.silences == {"timed out": 1}
    assert side.ask(2, result(id, b"too late")) == disconnected(2, id)
    assert caller.heard() == []
    assert world.counters.late_results == 1


def test_r71_a_late_result_is_never_given_to_another_caller() -> None:
    world = World()
    side, caller, other = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=1_000)
    world.wait(1.5)
    other.ask(7, job(b"another"))
    assert side.ask(2, result(id, b"of the first")) == disconnected(2, id)
    assert (caller.heard(), other.heard()) == ([], [])
    new = world.worker(side, 3)
    assert world.state(new) == "busy"
    side.ask(4, result(new, b"of the other"))
    assert (caller.heard(), other.heard()) == ([], answered(7, b"of the other"))


def test_d8_with_a_second_attempt_a_job_that_timed_out_goes_to_another_worker() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    first = world.busy_worker(side, caller, timeout=1_000)
    second = world.worker(side, 10)
    world.wait(2.5)
    assert side.heard() == given(10, second, timeout=1_000)
    assert side.ask(2, result(first, b"late")) == disconnected(2, first)
    assert caller.heard() == []
    side.ask(11, result(second, b"in time"))
    assert caller.heard() == answered(501, b"in time")


def test_d8_after_the_last_attempt_the_job_ends_in_silence() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller, timeout=1_000)
    world.worker(side, 10)
    world.wait(10)
    assert caller.heard() == []
    assert world.silences == {"timed out": 1}
    assert world.counters.dispatched == 2
    assert world.workers == 0


def test_d8_by_default_a_job_has_one_attempt() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.worker(side, 10)
    side.ask(2, heartbeat(id))
    world.wait(2)
    assert world.counters.dispatched == 1
    assert world.silences == {"lost": 1}


def test_a_cancelled_job_is_silence_for_its_caller_and_its_worker_s_result_is_dropped() -> None:
    """Cancelled: the RESULT is dropped, and the worker is parked as idle."""
    world = World()
    side, caller, other = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.withdraw(world.job(), world.now)
    world.run_once()
    assert world.silences == {"cancelled": 1}
    assert world.state(id) == "stuck"
    world.wait(100)
    assert world.state(id) == "stuck"
    other.ask(7, job(b"next"))
    assert side.heard() == []
    assert side.ask(2, result(id, b"of the cancelled")) == given(2, id, b"next")
    assert (caller.heard(), other.heard()) == ([], [])
    side.ask(3, result(id, b"of the next"))
    assert other.heard() == answered(7, b"of the next")


def test_a_worker_of_a_cancelled_job_is_not_waited_for_for_ever() -> None:
    world = World(stuck_timeout=100)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.withdraw(world.job(), world.now)
    world.wait(101)
    assert world.state(id) == "gone"
    assert side.ask(2, result(id)) == disconnected(2, id)


def test_r73_silence_is_for_that_request_only() -> None:
    """The connection stays open, for others share it."""
    world = World(queue_timeout=10)
    side = world.connect()
    id = world.worker(side, 1)
    side.ask(2, job(service="nobody's"))
    world.wait(9)
    assert side.ask(3, job(b"mine")) == given(1, id, b"mine")
    world.wait(2)
    assert world.silences == {"timed out": 1}
    assert side.ask(4, result(id)) == answered(3)


def test_a_job_that_ended_in_silence_is_forgotten_and_the_next_resend_is_a_new_one() -> None:
    world = World(queue_timeout=10)
    side, caller = world.connect(), world.connect()
    caller.ask(1, job())
    world.wait(10.1)
    assert world.present == 0
    caller.ask(1, job())
    assert world.counters.accepted == 2
    world.worker(side)
    assert world.counters.dispatched == 1


@pytest.mark.parametrize("policy", [Policy(max_jobs=1), Policy(max_memory=3), Policy(max_services=1)])
def test_a_job_that_is_refused_at_the_listener_is_silence(policy: Policy) -> None:
    """The outcome of the caller's job is refused."""
    world = World(policy=policy)
    caller = world.connect()
    caller.ask(1, job())
    assert caller.ask(2, job(service="other")) == []
    assert world.silences == {"refused": 1}
    assert world.bad == {}
    assert world.present == 1


def test_a_worker_s_result_over_max_payload_fails_the_job_and_frees_the_worker() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"x" * (MAX_PAYLOAD + 1))) == []
    assert caller.heard() == []
    assert world.silences == {"failed": 1}
    assert world.state(id) == "idle"


def test_a_result_over_max_payload_of_a_worker_that_leaves_is_a_goodbye_too() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"x" * (MAX_PAYLOAD + 1), True)) == disconnected(2, id)
    assert world.silences == {"failed": 1}


def test_a_result_of_max_payload_arrives_whole() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    payload = bytes(range(250)) * (MAX_PAYLOAD // 250)
    side.ask(2, result(id, payload))
    assert caller.heard() == answered(501, payload)
    assert caller.ask(501, job()) == answered(501, payload)


def test_a_job_over_max_payload_is_met_with_silence() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    assert caller.ask(1, job(b"x" * (MAX_PAYLOAD + 1))) == []
    assert world.bad == {"too large": 1}
    caller.ask(1, job(b"x" * MAX_PAYLOAD))
    assert side.heard() == given(1, id, b"x" * MAX_PAYLOAD)


def test_r80_a_length_far_over_max_payload_ends_the_connection_at_the_length() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    side.feed((1 << 30).to_bytes(8, "big"))
    world.run_once()
    assert side.is_lost
    assert world.bad == {"over max_payload": 1}
    assert world.state(id) == "detached"


def test_a_worker_that_stopped_its_job_at_the_time_limit_before_the_broker_looked_ends_it_timed_out() -> None:
    """R220. MemoDB has no message for that, so the worker sends HEARTBEAT instead of a RESULT; the job was *lost*."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=5_000)
    world.now += 5.0
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    assert world.counters.undone[Outcome.TIMED_OUT] == 1
    assert world.counters.undone[Outcome.LOST] == 0
