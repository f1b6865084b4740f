"""Jobs of PingPong and their results, late and repeated ones too: R2, R3, R37, R38."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome
from dragoman.dialects.pingpong.editions import Edition

from .world import (
    JOB_COMPLETE,
    PACKAGE,
    PING,
    PONG,
    READY,
    World,
    both,
    finish,
)

# -------------------------------------------------------------------- the table: a job's way there and back


@both
def test_ready_is_answered_with_pong_and_makes_the_worker_idle(edition: Edition) -> None:
    """Frames, row READY; the second text: READY is answered with PONG."""
    world = World(edition=edition)
    worker = world.worker()
    assert world.state(worker) == "unknown"
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "idle"


def test_in_plain_a_job_goes_out_as_one_frame_and_its_result_comes_back_as_one() -> None:
    """Frames, rows job and result of edition plain, and rows of the client."""
    world = World()
    worker, caller = world.busy_worker(b"question")
    assert world.state(worker) == "busy"
    assert world.tell(worker, b"answer") == [[PONG]]
    assert caller.told() == [[b"answer"]]
    assert world.state(worker) == "idle"
    assert world.counters.ended[Outcome.DONE] == 1


def test_in_package_a_job_carries_our_token_and_the_worker_sends_it_back() -> None:
    """Frames, rows of edition package."""
    world = World(edition=PACKAGE)
    worker = world.ready_worker()
    caller = world.call(b"question")
    ((job, token, *rest),) = worker.told()
    assert (job, len(token), rest) == (b"question", 16, [b"", b""])
    assert world.tell(worker, JOB_COMPLETE, token, b"", b"answer") == [[PONG]]
    assert caller.told() == [[b"answer"]]
    assert world.state(worker) == "idle"


@both
def test_empty_job_and_empty_result_are_legal(edition: Edition) -> None:
    """Decisions, `Empty job and empty result are legal`."""
    world = World(edition=edition)
    worker, caller = world.busy_worker(b"")
    finish(world, worker, b"")
    assert caller.told() == [[b""]]


def test_d9_the_url_names_the_service() -> None:
    world = World(service="resize")
    world.ready_worker()
    world.call()
    assert world.job().service.name == "resize"


def test_d7_the_longest_idle_worker_goes_first_and_jobs_go_in_the_order_they_came() -> None:
    world = World()
    first, second = world.ready_worker(), world.ready_worker()
    callers = [world.call(payload) for payload in (b"1", b"2", b"3")]
    assert first.told() == [[b"1"]]
    assert second.told() == [[b"2"]]
    assert [b"3"] in world.tell(second, b"two")
    assert [caller.told() for caller in callers] == [[], [[b"two"]], []]


def test_callers_may_come_before_workers() -> None:
    """Timers, queue_timeout: the listener's service exists as soon as it listens."""
    world = World()
    caller = world.call(b"early")
    worker = world.worker()
    assert world.tell(worker, READY) == [[PONG], [b"early"]]
    world.tell(worker, b"late but fine")
    assert caller.told() == [[b"late but fine"]]


def test_one_caller_may_wait_for_several_jobs_at_once() -> None:
    """A DEALER need not wait; answers come as jobs end."""
    world = World()
    first, second = world.ready_worker(), world.ready_worker()
    caller = world.caller()
    world.tell(caller, b"1")
    world.tell(caller, b"2")
    world.tell(second, b"two")
    world.tell(first, b"one")
    assert caller.told() == [[b"two"], [b"one"]]
    assert not caller.peer.open_jobs()


# -------------------------------------------------------------------- results nobody waits for: R2, R3, R37, R38


def test_r37_a_result_from_an_idle_worker_is_late_and_answered_with_pong() -> None:
    world = World()
    worker = world.ready_worker()
    assert world.tell(worker, b"what is this") == [[PONG]]
    assert world.counters.late_results == 1
    assert len(world.remarked("late result")) == 1
    assert world.state(worker) == "idle"


def test_r37_a_result_from_an_unknown_worker_does_not_join_it() -> None:
    world = World()
    worker = world.worker()
    assert world.tell(worker, b"from an earlier life") == [[PONG]]
    assert world.state(worker) == "unknown"
    assert world.counters.late_results == 1


@both
def test_r3_a_worker_that_answers_twice_gives_one_answer(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    message = [b"", b"result"]
    if edition is PACKAGE:
        message = [b"", JOB_COMPLETE, world.token(worker), b"", b"result"]
    world.raw(worker, message)
    assert world.raw(worker, message) == [[PONG]]
    assert caller.told() == [[b"result"]]
    assert world.counters.late_results == 1
    assert world.state(worker) == "idle"


def test_r3_two_results_in_one_turn_do_not_answer_the_job_that_has_not_gone_out_yet() -> None:
    world = World()
    worker, first = world.busy_worker()
    second = world.call(b"second")
    world.receive(worker, [b"", b"result"])
    world.receive(worker, [b"", b"result"])
    world.settle()
    assert first.told() == [[b"result"]]
    assert second.told() == []
    assert world.state(worker) == "busy"
    assert world.counters.late_results == 1


def test_in_package_a_wrong_token_is_late_and_the_worker_stays_busy() -> None:
    """D2 through the token: the result of an earlier attempt never ends a later job."""
    world = World(edition=PACKAGE, job_timeout=5)
    worker, _ = world.busy_worker(b"A")
    old = world.token(worker)
    world.wait(6)
    finish(world, worker, b"result of A")
    caller = world.call(b"B")
    worker.told()
    assert world.tell(worker, JOB_COMPLETE, old, b"", b"result of A") == [[PONG]]
    assert world.state(worker) == "busy"
    assert caller.told() == []
    assert world.counters.late_results == 2
    finish(world, worker, b"result of B")
    assert caller.told() == [[b"result of B"]]


def test_in_package_a_duplicate_of_the_last_result_does_not_answer_the_next_job() -> None:
    world = World(edition=PACKAGE)
    worker, _ = world.busy_worker(b"A")
    old = world.token(worker)
    finish(world, worker, b"a")
    caller = world.call(b"B")
    world.tell(worker, JOB_COMPLETE, old, b"", b"a")
    assert caller.told() == []
    assert world.state(worker) == "busy"


@pytest.mark.parametrize("token", [b"", b"x", b"x" * 16, b"x" * 255])
def test_in_package_any_other_token_is_late(token: bytes) -> None:
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker()
    assert world.tell(worker, JOB_COMPLETE, token, b"", b"forged") == [[PONG]]
    assert caller.told() == []
    assert world.state(worker) == "busy"


def test_r38_during_the_first_job_timeout_a_worker_adopted_by_ping_is_used_last() -> None:
    world = World(started=0.0, job_timeout=100)
    adopted = world.worker()
    world.tell(adopted, PING)
    ready = world.ready_worker()
    world.call(b"1")
    assert ready.told() == [[b"1"]]
    world.call(b"2")
    assert adopted.told() == [[b"2"]]  # last, but not left out


def test_r38_after_the_first_job_timeout_a_ping_is_as_good_as_ready() -> None:
    world = World(started=0.0, job_timeout=100)
    world.wait(100.1)
    adopted = world.worker()
    world.tell(adopted, PING)
    world.ready_worker()
    world.call(b"1")
    assert adopted.told() == [[b"1"]]


def test_r38_a_worker_held_back_stands_among_the_others_once_that_time_is_over() -> None:
    """D7: the longest idle worker goes first; R38 excepts only the first job_timeout."""
    world = World(started=0.0, job_timeout=100)
    adopted = world.worker()
    world.tell(adopted, PING)
    world.wait_pinging(adopted, 110)
    world.ready_worker()
    world.call(b"1")
    assert adopted.told() == [[b"1"]]


def test_r38_without_a_job_timeout_the_caution_lasts_for_stuck_limit() -> None:
    world = World(started=0.0, job_timeout=0, stuck_timeout=50)
    early = world.worker()
    world.tell(early, PING)
    ready = world.ready_worker()
    world.call(b"1")
    assert ready.told() == [[b"1"]]
    assert early.told() == []


def test_in_package_a_worker_that_keeps_the_token_as_a_c_string_ends_all_its_jobs() -> None:
    """A token of sixteen random bytes has a zero byte in six of a hundred jobs; what was before it is no token."""
    world = World(edition=PACKAGE)
    worker = world.ready_worker()
    for number in range(100):
        caller = world.call(b"%d" % number)
        _, token, *_ = worker.told()[0]
        world.tell(worker, JOB_COMPLETE, token.split(b"\0")[0], b"", b"result")
        assert caller.told() == [[b"result"]]
