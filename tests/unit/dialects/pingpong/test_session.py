"""The broker's side of PingPong: every row of the page, its timers and decisions, and rules R30 to R50."""

from __future__ import annotations

from random import Random

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.core.effects import Answer, Progress
from dragoman.core.model import JobState, Outcome
from dragoman.core.policy import Policy
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.session import EXITS, PONG_EVERY

from .world import DISCONNECT, EXIT, JOB_COMPLETE, MAX_PAYLOAD, PING, PONG, READY, FakePeer, World, error

PLAIN, PACKAGE = Edition.PLAIN, Edition.PACKAGE
both = pytest.mark.parametrize("edition", [PLAIN, PACKAGE])


def finish(world: World, worker: FakePeer, result: bytes) -> list[list[bytes]]:
    """The worker sends its result as its edition has it."""
    if world.options.edition is PLAIN:
        return world.tell(worker, result)
    return world.tell(worker, JOB_COMPLETE, world.token(worker), b"", result)


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
    assert not caller.guest.jobs


# -------------------------------------------------------------------- PING: R30, R31, R32, R47, R49


@both
def test_r30_a_ping_from_an_unknown_worker_adopts_it(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.worker()
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "idle"
    world.call(b"work")
    assert worker.told()[0][0] == b"work"


@both
def test_r30_without_adopt_on_ping_an_unknown_worker_gets_no_pong_until_it_says_ready(edition: Edition) -> None:
    world = World(edition=edition, adopt_on_ping=False)
    worker = world.worker()
    assert world.tell(worker, PING) == []
    assert world.state(worker) == "unknown"
    assert world.tell(worker, READY) == [[PONG]]
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]


def test_r31_a_ping_from_an_idle_worker_makes_no_second_entry() -> None:
    world = World()
    worker = world.ready_worker()
    for _ in range(3):
        world.wait(1)
        assert world.tell(worker, PING) == [[PONG]]
    world.call(b"1")
    world.call(b"2")
    assert worker.told() == [[b"1"]]


@both
def test_r32_d1_a_ping_from_a_busy_worker_is_a_life_sign_and_no_second_job_goes_out(edition: Edition) -> None:
    world = World(edition=edition)
    worker, _ = world.busy_worker()
    world.call(b"second")
    for _ in range(5):
        world.wait(1)
        assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "busy"
    assert world.counters.handed_out == 1


def test_r32_the_ping_that_crossed_the_job_does_not_make_the_worker_idle() -> None:
    world = World()
    worker, _ = world.busy_worker()
    waiting = world.call(b"second")
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "busy"
    assert waiting.told() == []


@both
def test_r47_counts_of_a_ping_come_back_behind_pong(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.worker()
    assert world.tell(worker, PING, b"1") == [[PONG, b"1"]]
    world.wait(1)
    assert world.tell(worker, PING, b"2", b"x" * 32, b"third") == [[PONG, b"2", b"x" * 32]]
    world.wait(1)
    assert world.tell(worker, PING, b"y" * 33) == [[PONG]]


def test_r47_a_count_that_falls_is_remarked_and_nothing_more() -> None:
    world = World()
    worker = world.worker()
    for count in (b"5", b"6", b"2"):
        world.wait(1)
        assert world.tell(worker, PING, count) == [[PONG, count]]
    assert world.line.remarks.count("ping count fell") == 1
    world.wait(1)
    assert world.tell(worker, PING, b"not a number") == [[PONG, b"not a number"]]
    assert world.state(worker) == "idle"


def test_r49_of_a_flood_of_pings_at_most_one_every_20_ms_is_answered() -> None:
    world = World()
    worker = world.ready_worker()
    answered = 0
    for _ in range(1_000):
        world.wait(0.001)
        answered += len(world.tell(worker, PING))
    assert 40 <= answered <= 50
    assert world.counters.throttled_pings == 1_000 - answered


def test_r49_a_throttled_ping_is_a_life_sign_all_the_same() -> None:
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.tell(worker, PING)
    world.wait(PONG_EVERY / 2)
    assert world.tell(worker, PING) == []
    world.wait(2.999)
    assert world.state(worker) == "idle"


def test_r43_pong_is_said_while_the_message_is_heard_and_waits_for_no_effect() -> None:
    world = World()
    worker = world.worker()
    world.hear(worker, [b"", PING])
    assert worker.told() == [[PONG]]
    world.settle()


def test_a_pong_from_a_worker_is_a_life_sign_without_an_answer() -> None:
    """Frames, row result: PONG, where the documents write PONG for PING, is a life sign."""
    world = World(worker_expire=3)
    worker = world.ready_worker()
    for _ in range(3):
        world.wait(2)
        assert world.tell(worker, PONG) == []
    assert world.state(worker) == "idle"


# -------------------------------------------------------------------- READY again: R33, R34, R35


@both
def test_r33_ready_again_from_an_idle_worker_is_answered_and_changes_nothing(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    assert world.tell(worker, READY) == [[PONG]]
    world.call(b"1")
    world.call(b"2")
    assert [frames[0] for frames in worker.told()] == [b"1"]


@both
def test_r34_ready_within_a_second_of_the_job_may_have_crossed_it(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.wait(0.9)
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "busy"
    assert world.counters.ready_while_busy == 1
    finish(world, worker, b"result")
    assert caller.told() == [[b"result"]]


@both
def test_r34_ready_later_than_that_fails_the_attempt_and_frees_the_worker(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.wait(1.1)
    assert world.tell(worker, READY) == [[PONG]]
    (((_, word, reason),),) = (caller.told(),)
    assert word == b"ERROR"
    assert reason.startswith(b"failed: ")
    assert b"said READY" in reason
    assert world.state(worker) == "idle"
    assert world.counters.ready_while_busy == 1


def test_r34_d8_with_attempts_left_the_job_goes_to_another_worker() -> None:
    world = World(attempts=2)
    worker, caller = world.busy_worker(b"job")
    other = world.ready_worker()
    world.wait(1.1)
    world.tell(worker, READY)
    world.wait(1.9)
    assert other.told() == [[b"job"]]
    world.tell(other, b"result")
    assert caller.told() == [[b"result"]]


@both
def test_r35_ready_on_a_new_connection_with_the_same_routing_id_is_a_new_life(edition: Edition) -> None:
    world = World(edition=edition)
    former = world.ready_worker(b"w1")
    caller = world.call()
    former.told()
    fresh = world.ready_worker(b"w1")
    assert former.closed is not None
    assert caller.told() == error("lost: its worker came back on a new connection")
    assert world.state(fresh) == "idle"
    assert world.counters.takeovers == 1
    assert len(world.broker.roster.workers) == 1


def test_r35_an_idle_worker_that_restarts_costs_nothing() -> None:
    world = World()
    former = world.ready_worker(b"w1")
    fresh = world.ready_worker(b"w1")
    assert former.is_lost
    caller = world.call(b"job")
    assert fresh.told() == [[b"job"]]
    world.tell(fresh, b"result")
    assert caller.told() == [[b"result"]]


def test_r35_the_end_of_the_old_connection_does_not_end_the_new_life() -> None:
    """A third connection must still find the second under the name."""
    world = World()
    world.ready_worker(b"w1")
    second = world.ready_worker(b"w1")
    assert world.state(second) == "idle"
    third = world.ready_worker(b"w1")
    assert second.is_lost
    assert world.state(third) == "idle"


def test_r35_connections_without_a_routing_id_take_nothing_over() -> None:
    world = World()
    first, second = world.ready_worker(), world.ready_worker()
    assert (world.state(first), world.state(second)) == ("idle", "idle")
    assert world.counters.takeovers == 0


def test_r35_a_caller_with_a_workers_routing_id_takes_nothing_over() -> None:
    """The two ROUTERs have names of their own."""
    world = World()
    worker = world.ready_worker(b"same")
    world.caller(b"same")
    assert world.state(worker) == "idle"


def test_r35_a_caller_that_comes_back_under_its_routing_id_ends_its_former_connection() -> None:
    world = World()
    former = world.caller(b"c")
    world.tell(former, b"job")
    fresh = world.caller(b"c")
    assert former.is_lost
    assert world.present == 0
    assert world.tell(fresh, b"job") == []
    assert world.present == 1


def test_d3_a_routing_id_may_be_used_again_after_its_connection_ended() -> None:
    world = World()
    worker = world.ready_worker(b"w1")
    world.lose(worker)
    world.ready_worker(b"w1")
    assert world.counters.takeovers == 0


# -------------------------------------------------------------------- unproven: R7, R36, R42, D11


@both
def test_r42_r7_a_job_slower_than_job_timeout_ends_timed_out_and_its_worker_is_unproven(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, caller = world.busy_worker()
    world.wait(4.9)
    assert caller.told() == []
    world.wait(0.2)
    assert caller.told() == error("timed out: no result within 5 s")
    assert world.state(worker) == "unproven"
    world.call(b"next")
    assert worker.told() == []


@both
def test_r36_its_late_result_is_dropped_and_proves_it_free(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, caller = world.busy_worker()
    world.wait(6)
    caller.told()
    assert finish(world, worker, b"at last") == [[PONG]]
    assert caller.told() == []
    assert world.counters.late_results == 1
    assert world.state(worker) == "idle"


@both
def test_r36_ready_proves_it_free(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "idle"
    assert world.counters.ready_while_busy == 0


@both
def test_r36_its_connections_end_frees_it(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.lose(worker)
    assert not world.broker.roster.workers


@both
@pytest.mark.parametrize("proof", ["result", "READY", "too large"])
def test_r36_once_proven_it_is_given_the_job_that_waited_meanwhile(edition: Edition, proof: str) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    caller = world.call(b"next")
    if proof == "result":
        told = finish(world, worker, b"late")
    elif proof == "READY":
        told = world.tell(worker, READY)
    else:
        told = world.raw(worker, TooLarge([b""], 5_000))
    assert told[-1][0] == b"next"
    finish(world, worker, b"done")
    assert caller.told() == [[b"done"]]


def test_r36_once_proven_its_lease_counts_again() -> None:
    world = World(job_timeout=5, worker_expire=3)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.tell(worker, READY)
    world.wait(3.1)
    assert world.state(worker) == "unknown"


@both
def test_r36_one_that_fell_silent_and_pings_again_gets_no_pong_and_comes_back_with_ready(edition: Edition) -> None:
    """A PING never frees it; unanswered, it reconnects by its document's own rule and says READY."""
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    for _ in range(3):
        assert world.tell(worker, PING) == []
        assert world.tell(worker, PING, b"1") == []
        world.wait(1)
    assert world.state(worker) == "unproven"
    world.lose(worker)
    again = world.ready_worker()
    world.call(b"next")
    assert again.told()[0][0] == b"next"


@both
def test_r36_one_that_pinged_all_along_is_threaded_and_keeps_its_pong(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 6)
    assert world.state(worker) == "unproven"
    for _ in range(3):
        world.wait(1)
        assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "unproven"
    finish(world, worker, b"old")
    assert world.state(worker) == "idle"


def test_r36_silence_is_more_than_two_ping_periods_and_the_period_is_an_option() -> None:
    world = World(job_timeout=5, ping_every=2)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 8, every=4)
    world.wait(4)
    assert world.tell(worker, PING) == [[PONG]]  # 4 s is not more than 2 periods of 2 s
    world.wait(4.1)
    assert world.tell(worker, PING) == []


def test_r36_a_worker_silent_before_its_time_out_that_pings_again_is_back_in_its_loop() -> None:
    """While the attempt is current a PING is answered; once it has ended, no more."""
    world = World(job_timeout=10)
    worker, _ = world.busy_worker()
    world.wait(5)
    assert world.tell(worker, PING) == [[PONG]]
    world.wait_pinging(worker, 6)
    assert world.state(worker) == "unproven"
    assert world.tell(worker, PING) == []


def test_r36_a_new_job_begins_a_new_silence() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.tell(worker, b"late")
    world.call(b"second")
    assert worker.told() == [[b"second"]]
    world.wait_pinging(worker, 6)
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]


def test_d13_a_pause_of_our_own_is_not_the_workers_silence() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 2)
    world.now += 8  # we were stopped
    world.broker.shift(8, world.now)
    world.tell(worker, PING)
    world.wait(1)
    assert world.state(worker) == "unproven"
    assert world.tell(worker, PING) == [[PONG]]


@both
def test_r36_after_unproven_limit_the_connection_is_closed(edition: Edition) -> None:
    """It must come on a new connection: a PING on the old one would make a worker idle that may still compute."""
    world = World(edition=edition, job_timeout=5, unproven_limit=20)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 24)
    assert world.state(worker) == "unproven"
    world.wait(2)
    assert worker.closed is not None
    assert not world.broker.roster.workers


def test_r36_a_silent_unproven_worker_is_not_expired_by_worker_expire() -> None:
    world = World(job_timeout=5, worker_expire=3)
    worker, _ = world.busy_worker()
    world.wait(60)
    assert world.state(worker) == "unproven"


@both
def test_r36_a_cancelled_job_leaves_its_worker_unproven_and_tells_the_caller(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.broker.withdraw(world.job(), world.now, "withdrawn by an operator")
    world.settle()
    assert caller.told() == error("cancelled: withdrawn by an operator")
    assert worker.told() == []  # this wire has no word for it
    assert world.state(worker) == "unproven"
    finish(world, worker, b"in vain")
    assert world.state(worker) == "idle"
    assert caller.told() == []


def test_r36_a_draining_unproven_worker_that_is_back_in_its_loop_gets_no_pong_either() -> None:
    """It would otherwise ping until unproven_limit instead of coming again."""
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    drained = world.worker_of(worker)
    assert drained is not None
    world.broker.drain(drained, world.now)
    world.settle()
    assert world.tell(worker, PING) == []


# -------------------------------------------------------------------- results nobody waits for: R2, R3, R37, R38


def test_r37_a_result_from_an_idle_worker_is_late_and_answered_with_pong() -> None:
    world = World()
    worker = world.ready_worker()
    assert world.tell(worker, b"what is this") == [[PONG]]
    assert world.counters.late_results == 1
    assert world.line.remarks.count("late result") == 1
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
    world.hear(worker, [b"", b"result"])
    world.hear(worker, [b"", b"result"])
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
    world.tell(worker, READY)
    caller = world.call(b"B")
    worker.told()
    assert world.tell(worker, JOB_COMPLETE, old, b"", b"result of A") == [[PONG]]
    assert world.state(worker) == "busy"
    assert caller.told() == []
    assert world.counters.late_results == 1
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


def test_r38_without_a_job_timeout_the_caution_lasts_for_unproven_limit() -> None:
    world = World(started=0.0, job_timeout=0, unproven_limit=50)
    early = world.worker()
    world.tell(early, PING)
    ready = world.ready_worker()
    world.call(b"1")
    assert ready.told() == [[b"1"]]
    assert early.told() == []


# -------------------------------------------------------------------- workers that die: R40, R41, R8, R9


def test_r40_an_idle_worker_not_heard_of_for_worker_expire_is_forgotten_without_exit() -> None:
    """Timers, worker_expire; Frames, row EXIT: expiry never sends EXIT."""
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.wait(2.9)
    assert world.state(worker) == "idle"
    world.wait(0.2)
    assert world.state(worker) == "unknown"
    assert worker.told() == []
    assert worker.closed is None
    assert world.counters.expired_workers == 1


def test_a_forgotten_worker_joins_again_with_its_next_ping() -> None:
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.wait(4)
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "idle"


@pytest.mark.parametrize("word", [READY, PING, PONG, EXIT, b"some result"])
def test_any_message_restarts_worker_expire(word: bytes) -> None:
    """Timers, worker_expire: any message restarts it."""
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.wait(2)
    world.tell(worker, word)
    world.wait(2)
    assert world.state(worker) == "idle"


def test_worker_expire_counts_from_the_result_not_from_the_job() -> None:
    world = World(worker_expire=3)
    worker, _ = world.busy_worker()
    world.wait(10)
    world.tell(worker, b"result")
    world.wait(2.9)
    assert world.state(worker) == "idle"
    world.wait(0.2)
    assert world.state(worker) == "unknown"


def test_r40_an_idle_workers_connection_end_is_noticed_at_once_and_costs_no_job() -> None:
    world = World()
    worker = world.ready_worker()
    world.lose(worker)
    assert not world.broker.roster.workers
    caller = world.call(b"job")
    other = world.worker()
    assert [b"job"] in world.tell(other, READY)
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


@both
def test_r41_a_worker_that_dies_busy_ends_its_job_lost_at_once(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.lose(worker)
    assert caller.told() == error("lost: its worker's connection ended")


def test_seed_000_a_busy_worker_may_be_silent_for_longer_than_worker_expire() -> None:
    """The first text, Notes; Timers, job_timeout: a busy worker is silent in this dialect."""
    world = World(worker_expire=3, job_timeout=0)
    worker, caller = world.busy_worker()
    world.wait(3_600 * 24)
    world.tell(worker, b"result")
    assert caller.told() == [[b"result"]]


def test_r9_d8_with_attempts_left_a_lost_job_goes_to_another_worker() -> None:
    world = World(attempts=2)
    worker, caller = world.busy_worker(b"job")
    other = world.ready_worker()
    world.lose(worker)
    assert caller.told() == []
    world.wait(0.2)
    assert other.told() == [[b"job"]]
    world.lose(other)
    assert caller.told() == error("lost: its worker's connection ended")


def test_r8_d8_a_job_whose_bytes_never_left_goes_to_another_worker_at_once_and_spends_nothing() -> None:
    world = World()
    worker, caller = world.busy_worker(b"job")
    (attempt,) = world.line.marks
    world.lose(worker, unsent=[attempt])
    assert caller.told() == []
    assert world.job().spent == 0
    other = world.worker()
    assert [b"job"] in world.tell(other, READY)
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


def test_r8_a_worker_that_vanishes_in_the_turn_it_is_chosen_cannot_have_seen_the_job() -> None:
    """The job's frames are written at the end of a turn: a connection that ends before has taken none of them."""
    world = World()
    worker = world.ready_worker()
    other = world.ready_worker()
    caller = world.caller()
    world.hear(caller, [b"", b"job"])
    world.lose(worker)
    assert caller.told() == []
    assert other.told() == [[b"job"]]
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


def test_r8_a_worker_taken_over_in_the_turn_it_is_chosen_cannot_have_seen_the_job() -> None:
    world = World()
    world.ready_worker(b"w1")
    caller = world.caller()
    world.hear(caller, [b"", b"job"])
    fresh = world.worker(b"w1")
    assert caller.told() == []
    assert [b"job"] in world.tell(fresh, READY)


def test_r8_disconnect_behind_the_last_result_does_not_cost_the_next_job() -> None:
    """Both come in one read. The next job was chosen for it in between, but has not been sent."""
    world = World()
    worker, first = world.busy_worker(b"1")
    second = world.call(b"2")
    world.hear(worker, [b"", b"one"])
    world.hear(worker, [b"", DISCONNECT])
    world.settle()
    assert first.told() == [[b"one"]]
    assert second.told() == []
    assert [b"2"] not in worker.told()
    other = world.worker()
    assert [b"2"] in world.tell(other, READY)


def test_a_job_that_ends_in_the_turn_it_is_chosen_is_not_sent_and_its_worker_stays_free() -> None:
    world = World()
    worker = world.ready_worker()
    caller = world.caller()
    world.hear(caller, [b"", b"job"])
    world.broker.withdraw(world.job(), world.now)
    world.settle()
    assert caller.told() == error("cancelled: withdrawn")
    assert worker.told() == []
    assert world.state(worker) == "idle"


# -------------------------------------------------------------------- words that are also payloads: R44, R45


@pytest.mark.parametrize("word", [PONG, EXIT])
def test_r45_in_plain_a_job_that_is_a_reserved_word_fails_and_is_never_sent(word: bytes) -> None:
    world = World()
    worker = world.ready_worker()
    caller = world.caller()
    (answer,) = world.tell(caller, word)
    assert answer[:2] == [b"", b"ERROR"]
    assert answer[2].startswith(b"failed: reserved word")
    assert worker.told() == []
    assert world.state(worker) == "idle"


def test_r45_the_job_behind_a_reserved_word_is_not_held_up() -> None:
    world = World()
    callers = [world.call(payload) for payload in (PONG, EXIT, b"job")]
    worker = world.worker()
    assert world.tell(worker, READY) == [[PONG], [b"job"]]
    assert [len(caller.told()) for caller in callers] == [1, 1, 0]


@pytest.mark.parametrize("word", [PONG, EXIT, READY, PING])
def test_r45_in_package_every_word_can_be_a_job(word: bytes) -> None:
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker(word)
    finish(world, worker, word)
    assert caller.told() == [[word]]


@pytest.mark.parametrize("word", [READY, PING, DISCONNECT, b"ERROR", b"pong", b"PONG "])
def test_r45_in_plain_all_other_words_can_be_jobs(word: bytes) -> None:
    world = World()
    worker, caller = world.busy_worker(word)
    world.tell(worker, b"fine")
    assert caller.told() == [[b"fine"]]


@pytest.mark.parametrize("word", [PONG, EXIT])
def test_r44_pong_and_exit_from_a_busy_worker_are_never_its_result(word: bytes) -> None:
    world = World(job_timeout=5)
    worker, caller = world.busy_worker()
    assert world.tell(worker, word) == []
    assert world.state(worker) == "busy"
    world.wait(5.1)
    assert caller.told() == error("timed out: no result within 5 s")


def test_r44_a_result_that_is_ping_is_a_ping_and_the_job_ends_by_time_out() -> None:
    world = World(job_timeout=5)
    worker, caller = world.busy_worker()
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "busy"
    world.wait(5.1)
    assert caller.told() == error("timed out: no result within 5 s")


def test_r44_a_result_that_is_ready_is_counted_as_ambiguous() -> None:
    world = World()
    worker, caller = world.busy_worker()
    world.tell(worker, READY)
    assert world.counters.ambiguous_results == 1
    assert caller.told() == []


# -------------------------------------------------------------------- DISCONNECT


@both
def test_disconnect_from_an_idle_worker_means_leaving_and_is_not_answered(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    assert world.tell(worker, DISCONNECT) == []
    assert world.state(worker) == "unknown"
    world.call()
    assert worker.told() == []


def test_in_plain_disconnect_from_a_busy_worker_is_its_result() -> None:
    world = World()
    worker, caller = world.busy_worker()
    assert world.tell(worker, DISCONNECT) == [[PONG]]
    assert caller.told() == [[DISCONNECT]]
    assert world.state(worker) == "idle"


def test_in_package_disconnect_from_a_busy_worker_loses_its_job() -> None:
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker()
    assert world.tell(worker, DISCONNECT) == []
    assert caller.told() == error("lost: its worker said DISCONNECT")
    assert world.state(worker) == "unknown"


@both
def test_a_worker_that_disconnected_may_come_back_on_the_same_connection(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    world.tell(worker, DISCONNECT)
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "idle"


# -------------------------------------------------------------------- EXIT: R46


def drain(world: World, worker: FakePeer, *, at_once: bool = False) -> None:
    found = world.worker_of(worker)
    assert found is not None
    world.broker.drain(found, world.now, at_once=at_once)
    world.settle()


@both
def test_r46_draining_an_idle_worker_says_exit_at_once(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    drain(world, worker)
    assert worker.told() == [[EXIT]]
    world.call()
    assert worker.told() == []
    world.lose(worker)


@both
def test_r46_draining_a_busy_worker_says_exit_once_it_is_idle(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    waiting = world.call(b"next")
    drain(world, worker)
    assert worker.told() == []
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]
    assert finish(world, worker, b"result") == [[PONG], [EXIT]]
    assert caller.told() == [[b"result"]]
    assert waiting.told() == []


@both
def test_r46_killing_a_busy_worker_says_exit_at_once_and_loses_its_job(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    drain(world, worker, at_once=True)
    assert worker.told() == [[EXIT]]
    assert caller.told() == error("lost: its worker was killed by an operator")


def test_r46_a_worker_that_goes_in_the_turn_it_is_killed_is_told_nothing() -> None:
    world = World()
    worker, caller = world.busy_worker()
    found = world.worker_of(worker)
    assert found is not None
    world.broker.drain(found, world.now, at_once=True)
    world.lose(worker)
    assert worker.told() == []
    assert caller.told() == error("lost: its worker was killed by an operator")


def test_d8_a_killed_workers_job_goes_to_another_while_attempts_remain() -> None:
    world = World(attempts=2)
    worker, caller = world.busy_worker(b"job")
    other = world.ready_worker()
    drain(world, worker, at_once=True)
    world.wait(0.2)
    assert other.told() == [[b"job"]]
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


def test_r46_a_killed_workers_result_is_late() -> None:
    world = World()
    worker, caller = world.busy_worker()
    drain(world, worker, at_once=True)
    caller.told()
    world.tell(worker, b"too late")
    assert caller.told() == []
    assert world.counters.late_results == 1
    assert world.state(worker) == "exiting"


@both
def test_r46_a_worker_that_ignores_exit_hears_it_three_times_and_is_then_closed(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    drain(world, worker)
    heard = worker.told()
    for _ in range(EXITS - 1):
        world.wait(1)
        heard += world.tell(worker, PING)
    assert heard == [[EXIT]] * 3
    assert worker.closed is None
    world.wait(1)
    assert world.tell(worker, PING) == []
    assert worker.closed is not None


def test_r46_after_exit_ready_does_not_bring_it_back() -> None:
    world = World()
    worker = world.ready_worker()
    drain(world, worker)
    worker.told()
    world.wait(1)
    assert world.tell(worker, READY) == [[EXIT]]
    world.call(b"job")
    assert worker.told() == []


def test_r46_exits_are_a_second_apart_so_that_pings_under_way_do_not_close_the_connection() -> None:
    """R46: at most 3 times, 1 s apart. PINGs that crossed the first EXIT are no sign that it was ignored."""
    world = World()
    worker = world.ready_worker()
    drain(world, worker)
    for _ in range(5):
        world.wait(0.1)
        world.tell(worker, PING)
    assert worker.closed is None


def test_r46_an_unproven_worker_is_told_to_exit_once_it_proves_free() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    drain(world, worker)
    assert worker.told() == []
    assert world.tell(worker, b"late") == [[PONG], [EXIT]]


# -------------------------------------------------------------------- rubbish: R48, D6


@both
@pytest.mark.parametrize(
    "message", [[], [b""], [b"PING"], [b"x", b"PING"], [b"", b"READY", b"x"], [b""] * 9, [b"", b"a", b"b"]]
)
def test_r48_d6_rubbish_from_a_busy_worker_changes_nothing(edition: Edition, message: list[bytes]) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    assert world.raw(worker, message) == []
    assert len(world.line.bad) == 1
    assert world.state(worker) == "busy"
    finish(world, worker, b"result")
    assert caller.told() == [[b"result"]]


@pytest.mark.parametrize("message", [[], [b""], [b"job"], [b"x", b"job"], [b"", b"a", b"b"], [b""] * 9])
def test_r48_d6_rubbish_from_a_caller_is_dropped_and_its_next_job_is_taken(message: list[bytes]) -> None:
    world = World()
    worker = world.ready_worker()
    caller = world.caller()
    assert world.raw(caller, message) == []
    assert len(world.line.bad) == 1
    assert worker.told() == []
    world.tell(caller, b"job")
    assert worker.told() == [[b"job"]]


def test_rubbish_from_an_unknown_worker_does_not_join_it() -> None:
    world = World()
    worker = world.worker()
    world.raw(worker, [b"PING"])
    assert world.state(worker) == "unknown"


# -------------------------------------------------------------------- too large, both ways: R16


def test_r16_a_job_over_max_payload_is_refused_by_name() -> None:
    world = World()
    caller = world.caller()
    told = world.raw(caller, TooLarge([b""], 5_000))
    assert told == error(f"refused: payload of 5000 bytes is over max_payload {MAX_PAYLOAD}")
    assert world.counters.refused == 1
    assert world.present == 0


@both
def test_r16_a_result_over_max_payload_fails_the_job_and_frees_the_worker(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    frames = [b""] if edition is PLAIN else [b"", JOB_COMPLETE, world.token(worker), b""]
    assert world.raw(worker, TooLarge(frames, 5_000)) == [[PONG]]
    assert caller.told() == error(f"failed: its result of 5000 bytes is over max_payload {MAX_PAYLOAD}")
    assert world.state(worker) == "idle"
    assert world.line.bad == ["too large"]


def test_r16_a_message_over_max_payload_from_an_unproven_worker_proves_it_free() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.raw(worker, TooLarge([b""], 5_000))
    assert world.state(worker) == "idle"
    assert world.counters.late_results == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_r16_a_message_over_max_payload_from_a_worker_without_a_job_is_only_counted(is_known: bool) -> None:
    world = World()
    worker = world.ready_worker() if is_known else world.worker()
    world.raw(worker, TooLarge([b""], 5_000))
    assert world.line.bad == ["too large"]
    assert world.state(worker) == ("idle" if is_known else "unknown")


def test_r16_d2_in_package_a_too_large_result_of_an_earlier_attempt_does_not_fail_the_current_one() -> None:
    world = World(edition=PACKAGE, job_timeout=5)
    worker, _ = world.busy_worker(b"A")
    old = world.token(worker)
    world.wait(6)
    world.tell(worker, READY)
    caller = world.call(b"B")
    worker.told()
    world.raw(worker, TooLarge([b"", JOB_COMPLETE, old, b""], 5_000))
    assert caller.told() == []
    assert world.state(worker) == "busy"


# -------------------------------------------------------------------- what callers are told: D4, R15, R18, R19, R50


def test_d4_each_outcome_has_its_row() -> None:
    """Frames, last row: `<outcome>: <sentence>` in one UTF-8 frame."""
    world = World(job_timeout=5, queue_timeout=7)
    worker = world.ready_worker()

    def ends(act: str) -> bytes:
        caller = world.call(b"job")
        told: dict[str, bytes] = {}
        if act == "done":
            world.tell(worker, b"result")
            return caller.told()[0][0]
        if act == "failed":
            world.wait(1.5)
            world.tell(worker, READY)
        elif act == "timed out":
            world.wait(5.1)
            world.tell(worker, READY)
        elif act == "cancelled":
            world.broker.withdraw(world.job(), world.now)
            world.settle()
            world.tell(worker, READY)
        elif act == "lost":
            world.lose(worker)
        ((empty, word, reason),) = caller.told()
        assert (empty, word) == (b"", b"ERROR")
        told[act] = reason
        outcome, colon, sentence = reason.decode("utf-8").partition(": ")
        assert (outcome, colon) == (act, ": ")
        assert sentence
        return reason

    assert ends("done") == b"result"
    for act in ("failed", "timed out", "cancelled", "lost"):
        ends(act)
    world.broker.close(world.now)
    refused = world.caller()
    assert world.tell(refused, b"job") == error("refused: draining: the broker is about to stop")


def test_a_job_nobody_was_free_for_within_queue_timeout_ends_timed_out() -> None:
    """Timers, queue_timeout: no idle worker, or none at all."""
    world = World(queue_timeout=7)
    caller = world.call()
    world.wait(6.9)
    assert caller.told() == []
    world.wait(0.2)
    assert caller.told() == error("timed out: no worker was free within 7 s")


def test_queue_timeout_is_over_once_the_job_runs_and_job_timeout_counts_from_there() -> None:
    world = World(queue_timeout=7, job_timeout=10)
    caller = world.call()
    world.wait(6)
    world.ready_worker()
    world.wait(9.9)
    assert caller.told() == []
    world.wait(0.2)
    assert caller.told() == error("timed out: no result within 10 s")


def test_r6_a_life_sign_extends_no_job_timeout() -> None:
    world = World(job_timeout=5)
    worker, caller = world.busy_worker()
    world.wait_pinging(worker, 5.1)
    assert caller.told() == error("timed out: no result within 5 s")


def test_r15_beyond_its_bound_the_broker_is_busy() -> None:
    world = World(policy=Policy(max_jobs=2))
    world.call(b"1")
    world.call(b"2")
    third = world.caller()
    (((_, _, reason),),) = (world.tell(third, b"3"),)
    assert reason.startswith(b"refused: busy")
    assert b"max_jobs" in reason


def test_r18_a_caller_that_goes_while_its_job_waits_takes_the_job_with_it() -> None:
    world = World()
    caller = world.call(b"never mind")
    world.lose(caller)
    assert world.counters.ended[Outcome.CANCELLED] == 1
    worker = world.worker()
    assert world.tell(worker, READY) == [[PONG]]


def test_r19_a_caller_that_goes_while_its_job_runs_leaves_it_running_and_nobody_is_told() -> None:
    world = World()
    worker, caller = world.busy_worker()
    world.lose(caller)
    assert world.job().state is JobState.RUNNING
    assert world.tell(worker, b"for nobody") == [[PONG]]
    assert world.counters.unclaimed_results == 1
    assert world.state(worker) == "idle"


def test_r18_a_job_whose_caller_went_is_not_started_again() -> None:
    world = World(attempts=3)
    worker, caller = world.busy_worker()
    world.lose(caller)
    world.lose(worker)
    assert world.present == 0


def test_r50_a_job_sent_again_is_a_second_job() -> None:
    world = World()
    first, second = world.ready_worker(), world.ready_worker()
    caller = world.caller()
    world.tell(caller, b"same")
    world.tell(caller, b"same")
    assert (first.told(), second.told()) == ([[b"same"]], [[b"same"]])


def test_a_draining_broker_refuses_what_waits_and_lets_run_what_runs() -> None:
    """new jobs are refused, connections stay open, running jobs may end."""
    world = World()
    worker, running = world.busy_worker()
    waiting = world.call(b"second")
    world.broker.close(world.now)
    world.settle()
    assert waiting.told() == error("refused: draining: the broker is about to stop")
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]
    world.tell(worker, b"result")
    assert running.told() == [[b"result"]]


def test_progress_from_a_worker_of_another_people_is_passed_over() -> None:
    """This wire has no word for it, and its caller never asked; the answer still comes."""
    world = World()
    _, caller = world.busy_worker()
    attempt = world.job().attempt
    assert attempt is not None
    world.broker.progress(attempt, b"half done", world.now)
    assert [type(effect) for effect in world.broker.effects] == [Progress]
    world.settle()
    assert caller.told() == []


def test_an_answer_for_a_caller_that_is_unknown_to_it_is_said_all_the_same() -> None:
    """A refusal at the door names no job."""
    world = World()
    caller = world.caller()
    world.session.execute(Answer(caller, None, Outcome.REFUSED, b"", "busy: no room"), world.now)
    assert caller.told() == error("refused: busy: no room")


def test_r29_a_worker_whose_service_finds_no_room_is_not_joined_and_gets_no_pong() -> None:
    world = World(policy=Policy(max_services=1))
    assert world.broker.pause("another") is not None
    worker = world.worker()
    assert world.tell(worker, READY) == []
    assert world.tell(worker, PING) == []
    assert "worker refused" in world.line.remarks


# -------------------------------------------------------------------- honest workers, any order of events


class HonestWorker:
    """Does what it is given, one job at a time, and sends results only on the connection the job came by (R39)."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.peer: FakePeer | None = None
        self.doing: list[bytes] | None = None
        self.is_threaded = random.random() < 0.5

    def act(self) -> None:
        world, random = self.world, self.random
        if self.peer is None or self.peer.is_lost:
            self.peer, self.doing = world.worker(random.choice([b"", b"same"])), None
            self._say(READY)
        elif random.random() < 0.1:
            world.lose(self.peer)
        elif self.doing is not None and random.random() < 0.5:
            (job, *envelope), self.doing = self.doing, None
            result = b"done " + job
            self._say(*([result] if not envelope else [JOB_COMPLETE, *envelope[:2], result]))
        elif self.doing is None or self.is_threaded:
            self._say(random.choice([PING, PING, PING, READY]) if self.doing is None else PING)
        self.look()

    def look(self) -> None:
        for frames in self.peer.told() if self.peer is not None else ():
            if self.peer.is_lost:
                return
            if frames == [EXIT]:
                self.world.lose(self.peer)
            elif frames[0] != PONG:
                assert self.doing is None, "a job came while another was being done"
                self.doing = frames

    def _say(self, *words: bytes) -> None:
        assert self.peer is not None
        if self.peer.closed is None:
            self.world.hear(self.peer, [b"", *words])


@both
@pytest.mark.parametrize("seed", range(8))
def test_i3_i4_honest_workers_give_every_caller_at_most_one_answer_and_its_own(edition: Edition, seed: int) -> None:
    """D1 to D4 in any order of events: nobody gets two jobs at once, nobody gets another's result."""
    random = Random(seed)
    world = World(edition=edition, job_timeout=6, queue_timeout=20, attempts=random.choice([1, 3]), unproven_limit=40)
    workers = [HonestWorker(world, random) for _ in range(3)]
    asked: list[tuple[FakePeer, bytes]] = []
    for number in range(300):
        for each in workers:
            each.look()
        if random.random() < 0.3:
            caller, payload = world.caller(), b"job %d" % number
            world.hear(caller, [b"", payload])
            asked.append((caller, payload))
        random.choice(workers).act()
        if random.random() < 0.02 and world.broker.roster.workers:
            world.broker.drain(
                random.choice(list(world.broker.roster.workers.values())), world.now, at_once=random.random() < 0.5
            )
        if random.random() < 0.6:
            world.settle()
        if random.random() < 0.5:
            world.settle()
            world.wait(random.choice([0.1, 1.0, 3.0]))
    world.settle()
    world.wait(200)
    for caller, payload in asked:
        (answer,) = caller.told()
        assert answer in ([b"done " + payload], [b"", b"ERROR", answer[-1]])
    assert world.present == 0
