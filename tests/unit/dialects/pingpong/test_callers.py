"""Callers of a PingPong listener, and their responses: D4, R15, R18, R19, R50."""

from __future__ import annotations

from dragoman.core.effects import DeliverOutcome
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.policy import Policy
from dragoman.core.states import JobState, Outcome

from .world import PING, PONG, READY, World, error


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
    world.broker.operator.close(world.now)
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
    world.broker.operator.close(world.now)
    world.settle()
    assert waiting.told() == error("refused: draining: the broker is about to stop")
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]
    world.tell(worker, b"result")
    assert running.told() == [[b"result"]]


def test_progress_from_a_worker_of_another_dialect_is_passed_over() -> None:
    """This wire has no word for it, and its caller never asked; the answer still comes."""
    world = World()
    _, caller = world.busy_worker()
    attempt = world.job().attempt
    assert attempt is not None
    world.broker.attempts.progress(attempt, b"half done", world.now)
    assert [type(effect) for effect in world.broker.effects] == [DeliverProgress]
    world.settle()
    assert caller.told() == []


def test_an_answer_for_a_caller_that_is_unknown_to_it_is_said_all_the_same() -> None:
    """A refusal at the listener names no job."""
    world = World()
    caller = world.caller()
    world.session.execute(DeliverOutcome(caller.peer, None, Outcome.REFUSED, b"", "busy: no room"), world.now)
    world.run_once()
    assert caller.told() == error("refused: busy: no room")


def test_r29_a_worker_whose_service_finds_no_room_is_not_joined_and_gets_no_pong() -> None:
    world = World(policy=Policy(max_services=1))
    assert world.broker.operator.pause("another") is not None
    worker = world.worker()
    assert world.tell(worker, READY) == []
    assert world.tell(worker, PING) == []
    assert world.remarked("worker rejected")
