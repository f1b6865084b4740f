"""Requests that NNG repeats."""

from __future__ import annotations

import pytest
from memodb_peers import JOB, READY, RESULT, TCP, Nngs, Start, count_workers, job, joined, result_of, tap

from dragoman.core.states import IDLE
from programs import until


@pytest.mark.parametrize(("resend", "seconds"), [(100, 1.5), (1000, 5)])
def test_r62_a_slow_job_with_an_impatient_caller_runs_once(
    broker_setup: Start, nngs: Nngs, resend: int, seconds: float
) -> None:
    setup = broker_setup(TCP)
    asked = tap(setup, JOB)
    job_runner = nngs.work(setup.workers, 2, resend=resend)
    joined(setup, 2)
    caller = nngs.dial(setup.callers, resend=resend)
    caller.send(job(b"sleep %g" % seconds))
    assert result_of(caller.recv()) == b"did sleep %g" % seconds
    assert job_runner.done == [b"sleep %g" % seconds]
    assert len(asked) >= 3
    assert len(set(asked)) == 1
    assert (setup.counters.accepted, setup.counters.dispatched) == (1, 1)


def test_r61_a_ready_that_is_repeated_is_one_worker(broker_setup: Start, nngs: Nngs, url: str) -> None:
    setup = broker_setup(url)
    said = tap(setup, READY)
    job_runner = nngs.work(setup.workers, 3, resend=40)
    until(lambda: len(said) >= 15, "each has said READY five times")
    assert count_workers(setup) == count_workers(setup, IDLE) == 3
    caller = nngs.dial(setup.callers)
    for number in range(9):
        caller.send(job(b"%d" % number))
        assert result_of(caller.recv()) == b"did %d" % number
    assert sorted(job_runner.done) == [b"%d" % number for number in range(9)]
    assert count_workers(setup) == 3


def test_r60_results_that_are_repeated_are_booked_once(broker_setup: Start, nngs: Nngs) -> None:
    """The worker waits for its next job with its last RESULT, which is repeated meanwhile."""
    setup = broker_setup(TCP)
    said = tap(setup, RESULT)
    nngs.work(setup.workers, resend=30)
    caller = nngs.dial(setup.callers)
    for number in range(3):
        caller.send(job(b"%d" % number))
        assert result_of(caller.recv()) == b"did %d" % number
        until(lambda number=number: len(said) >= 4 * (number + 1), "its RESULT came again and again")
    assert setup.counters.late_results == 0
    assert count_workers(setup, IDLE) == 1


def test_r60_r62_all_of_them_repeat_themselves_all_the_time_and_nothing_runs_twice(
    broker_setup: Start, nngs: Nngs, url: str
) -> None:
    setup = broker_setup(url)
    # Each request is repeated while its job runs; more often, and a busy machine does nothing but repeat.
    job_runner = nngs.work(setup.workers, 10, resend=100)
    callers = nngs.contexts(nngs.dial(setup.callers, resend=100), 10)
    for turn in range(8):
        for number, caller in enumerate(callers):
            caller.send(job(b"sleep 0.25 %d %d" % (turn, number)))
        for number, caller in enumerate(callers):
            assert result_of(caller.recv()) == b"did sleep 0.25 %d %d" % (turn, number)
    assert len(job_runner.done) == len(set(job_runner.done)) == 80
