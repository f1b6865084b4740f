"""The worker side of Worker-Controller: a new registration, and leaving."""

from __future__ import annotations

import pytest

from dragoman.dialects.controller.messages import ControllerError, WorkerError
from dragoman.dialects.controller.peer import FETCH_WAIT, SHUTDOWN_WAIT

from .worker_side import EVERY, FETCH, FETCH_ME, GET_STATUS, OK, PAUSE, REGISTER, SET_TASK, SHUTDOWN, Worker, kinds

# -------------------------------------------------------------------- a new life


def forget(worker: Worker) -> None:
    """Reply to its next pulse with UNKNOWN_ID."""
    worker.tick(EVERY)
    worker.heads.clear()
    worker.answer(ControllerError.UNKNOWN_ID)


def test_a_worker_that_was_forgotten_registers_at_once(worker: Worker) -> None:
    worker.registered()
    forget(worker)
    assert worker.places == [7, None]
    assert worker.said() == [(REGISTER, 0, 0, 10)]
    worker.answer(worker_id=9)
    assert worker.places == [7, None, 9]
    assert worker.said() == [(OK, 9, 0, 10)]


def test_a_worker_that_is_forgotten_again_and_again_pauses(worker: Worker) -> None:
    worker.tick()
    worker.answer(worker_id=7)
    worker.heads.clear()
    worker.answer(ControllerError.UNKNOWN_ID)
    assert worker.said() == []
    assert worker.due == worker.now + PAUSE


def test_a_task_from_a_former_life_keeps_it_busy_and_its_result_is_nobodys(worker: Worker) -> None:
    worker.registered()
    job_ref = worker.take(21)
    forget(worker)
    assert worker.said() == [(REGISTER, 0, 0, 10)]
    worker.answer(worker_id=9)
    assert worker.said() == [(OK, 9, 0, 10)]
    assert worker.control(SET_TASK, 22) == (WorkerError.BUSY, 0, b"")
    assert worker.control(GET_STATUS) == (WorkerError.OK, 0, b"")
    worker.finish(job_ref)
    worker.answer()
    assert worker.said() == []
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")
    worker.take(22)


def test_an_outcome_from_a_former_life_is_dropped(worker: Worker) -> None:
    worker.registered()
    worker.fetch_me(21)
    forget(worker)
    worker.answer(worker_id=9)
    worker.answer()
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")
    worker.take(22)


def test_fetch_me_may_be_answered_with_unknown_id_too(worker: Worker) -> None:
    worker.registered()
    worker.finish(worker.take(21))
    assert kinds(worker.said()) == [FETCH_ME]
    worker.answer(ControllerError.UNKNOWN_ID)
    assert worker.said() == [(REGISTER, 0, 0, 10)]


def test_no_task_is_taken_between_two_lives(worker: Worker) -> None:
    worker.registered()
    forget(worker)
    assert worker.control(SET_TASK, 22) == (WorkerError.BUSY, 0, b"")


# -------------------------------------------------------------------- the end


def test_an_idle_worker_says_shutdown_and_is_gone(worker: Worker) -> None:
    worker.registered()
    worker.stop()
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]
    assert worker.control(SET_TASK, 22) == (WorkerError.BUSY, 0, b"")
    assert not worker.side.is_over
    worker.answer()
    assert worker.side.is_over


@pytest.mark.parametrize("error", [ControllerError.UNKNOWN_ID, ControllerError.FAILED])
def test_the_last_word_needs_no_good_answer(worker: Worker, error: ControllerError) -> None:
    worker.registered()
    worker.stop()
    worker.answer(error)
    assert worker.side.is_over


def test_the_last_word_is_not_waited_for_for_ever(worker: Worker) -> None:
    worker.registered()
    worker.stop()
    assert worker.due == worker.now + SHUTDOWN_WAIT
    worker.tick(SHUTDOWN_WAIT)
    assert worker.side.is_over


def test_a_worker_that_never_registered_just_goes(worker: Worker) -> None:
    worker.tick()
    worker.side.unanswered("nobody listens there", worker.now)
    worker.stop()
    assert worker.side.is_over
    assert kinds(worker.said()) == [REGISTER]


def test_a_registration_under_way_is_taken_back(worker: Worker) -> None:
    worker.tick()
    worker.heads.clear()
    worker.stop()
    assert not worker.side.is_over
    worker.answer(worker_id=7)
    assert worker.places == []
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]


def test_a_task_in_hand_is_finished_and_fetched_first(worker: Worker) -> None:
    worker.registered()
    job_ref = worker.take(21)
    assert worker.side.is_busy
    worker.stop()
    assert worker.said() == []
    assert worker.control(SET_TASK, 22) == (WorkerError.BUSY, 21, b"")
    worker.tick(EVERY)
    assert worker.said() == [(OK, 7, 21, 10)]
    worker.answer()
    worker.tick(100.0)
    worker.heads.clear()
    worker.answer()
    worker.finish(job_ref)
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]
    worker.answer()
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    assert not worker.side.is_busy
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]
    worker.answer()
    assert worker.side.is_over


@pytest.mark.parametrize("stops_first", [False, True])
def test_an_outcome_that_nobody_fetches_is_waited_with_for_a_while(worker: Worker, stops_first: bool) -> None:
    worker.registered()
    job_ref = worker.take(21)
    if stops_first:
        worker.stop()
    worker.finish(job_ref)
    assert kinds(worker.said()) == [FETCH_ME]
    worker.answer()
    if not stops_first:
        worker.stop()
    deadline = worker.now + FETCH_WAIT
    while worker.now < deadline:
        assert worker.due <= deadline
        worker.tick(worker.due - worker.now)
        if worker.heads and worker.now < deadline:
            assert kinds(worker.said()) == [FETCH_ME]
            worker.answer()
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]
    assert "the outcome of task 21 was not fetched" in worker.complaints[-1]


def test_a_controller_that_does_not_answer_does_not_keep_it(worker: Worker) -> None:
    worker.registered()
    worker.finish(worker.take(21))
    worker.stop()
    assert worker.due == worker.now + FETCH_WAIT
    worker.tick(FETCH_WAIT)
    worker.tick(SHUTDOWN_WAIT)
    assert worker.side.is_over


def test_an_outcome_that_is_being_fetched_is_given_more_time(worker: Worker) -> None:
    worker.registered()
    worker.fetch_me(21)
    worker.stop()
    worker.tick(FETCH_WAIT - 0.1)
    worker.answer()
    slow = worker.receive(FETCH)
    worker.tick(1.0)
    worker.side.said(slow, True, worker.now)
    worker.heads.clear()
    assert kinds(worker.said()) == [SHUTDOWN]
    assert worker.complaints == []


def test_a_task_from_a_former_life_is_not_waited_for(worker: Worker) -> None:
    worker.registered()
    worker.take(21)
    forget(worker)
    worker.heads.clear()
    worker.answer(worker_id=9)
    worker.answer()
    worker.heads.clear()
    assert not worker.side.is_busy
    worker.stop()
    assert worker.said() == [(SHUTDOWN, 9, 0, 0)]


def test_unknown_id_ends_a_worker_that_was_told_to_stop(worker: Worker) -> None:
    worker.registered()
    worker.take(21)
    worker.stop()
    forget(worker)
    worker.tick()
    assert worker.side.is_over
    assert worker.heads == []
