"""The worker side of Worker-Controller: tasks and other control messages."""

from __future__ import annotations

import pytest

from dragoman.dialects.controller.messages import ControlKind, WorkerError

from .worker_side import EVERY, FETCH, FETCH_ME, GET_STATUS, OK, PAUSE, RESTART, SET_TASK, SHUTDOWN, Worker, kinds

# -------------------------------------------------------------------- tasks


def test_a_task_is_run_reported_at_once_and_fetched(worker: Worker) -> None:
    worker.registered()
    job_ref = worker.take(21, b"payload")
    assert worker.runs == [(job_ref, b"payload")]
    worker.finish(job_ref, b"result")
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]
    worker.answer()
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    assert worker.said() == []


def test_an_empty_payload_and_an_empty_result_are_fine(worker: Worker) -> None:
    worker.registered()
    worker.finish(worker.take(1, b""), b"")
    assert kinds(worker.said()) == [FETCH_ME]
    assert worker.control(FETCH) == (WorkerError.OK, 1, b"")


def test_several_tasks_one_after_another(worker: Worker) -> None:
    worker.registered()
    for number in (1, 2, 2**53):
        worker.fetch_me(number, b"%d" % number)
        assert worker.control(FETCH) == (WorkerError.OK, number, b"%d" % number)


def test_a_task_that_ends_while_a_pulse_has_no_answer_is_reported_right_after_it(worker: Worker) -> None:
    worker.registered()
    job_ref = worker.take(21)
    worker.tick(EVERY)
    worker.finish(job_ref)
    assert kinds(worker.said()) == [OK]
    worker.answer()
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]


def test_a_task_that_comes_before_the_first_ok_was_answered_is_taken(worker: Worker) -> None:
    worker.tick()
    worker.answer(worker_id=7)
    worker.heads.clear()
    worker.finish(worker.take(21))
    worker.answer()
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]


def test_fetch_me_is_said_instead_of_ok_until_somebody_comes(worker: Worker) -> None:
    worker.registered()
    worker.fetch_me(21)
    worker.tick(EVERY)
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]
    worker.side.unanswered("it hung up", worker.now)
    worker.tick(PAUSE)
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]


def test_a_second_task_is_refused_until_the_first_was_fetched(worker: Worker) -> None:
    worker.registered()
    job_ref = worker.take(21)
    assert worker.control(SET_TASK, 22, b"more") == (WorkerError.BUSY, 21, b"")
    worker.finish(job_ref)
    assert worker.control(SET_TASK, 22, b"more") == (WorkerError.BUSY, 21, b"")
    assert len(worker.runs) == 1
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    worker.take(22)


def test_nothing_to_fetch_before_during_and_after_a_task(worker: Worker) -> None:
    worker.registered()
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")
    job_ref = worker.take(21)
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 21, b"")
    worker.finish(job_ref)
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")


def test_the_status_is_the_task_also_while_it_works(worker: Worker) -> None:
    worker.registered()
    assert worker.control(GET_STATUS) == (WorkerError.OK, 0, b"")
    job_ref = worker.take(21)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 21, b"")
    worker.finish(job_ref)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 21, b"")
    worker.control(FETCH)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 0, b"")


def test_a_failure_is_fetched_with_its_text(worker: Worker) -> None:
    worker.registered()
    worker.fail(worker.take(21), "ValueError: größer \udcff")
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]
    worker.answer()
    assert worker.control(FETCH) == (WorkerError.TASK_FAILED, 21, "ValueError: größer ?".encode())
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")
    worker.take(22)


def test_an_outcome_that_was_not_said_whole_can_be_fetched_again(worker: Worker) -> None:
    """R94."""
    worker.registered()
    worker.fetch_me(21)
    broken = worker.receive(FETCH)
    worker.side.said(broken, False, worker.now)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 21, b"")
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")


def test_an_answer_that_is_still_being_said_ends_only_its_own_task(worker: Worker) -> None:
    worker.registered()
    worker.fetch_me(21)
    slow = worker.receive(FETCH)
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    worker.take(22)
    worker.side.said(slow, True, worker.now)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 22, b"")


# -------------------------------------------------------------------- other control messages


@pytest.mark.parametrize("kind", [FETCH, GET_STATUS])
def test_a_task_id_and_extra_bytes_are_ignored_where_none_are_wanted(worker: Worker, kind: ControlKind) -> None:
    worker.registered()
    worker.fetch_me(21)
    result = b"result" if kind is FETCH else b""
    assert worker.control(kind, task_id=99, extra=b"whatever") == (WorkerError.OK, 21, result)


@pytest.mark.parametrize("number", [5, 99, -1])
def test_an_unknown_control_message_has_failed(worker: Worker, number: int) -> None:
    worker.registered()
    worker.take(21)
    head = b"\x08" + (bytes([number]) if number > 0 else b"\xff" * 9 + b"\x01")
    answer = worker.side.receive(head, b"", worker.now)
    worker.side.said(answer, True, worker.now)
    error, task_id, text = worker.replied(answer)
    assert (error, task_id) == (WorkerError.FAILED, 21)
    assert str(number) in text.decode()


def test_what_cannot_be_read_has_failed(worker: Worker) -> None:
    worker.registered()
    for answer in (worker.side.receive(b"\xff", b"", worker.now), worker.side.refuse("too long")):
        error, _, text = worker.replied(answer)
        assert error is WorkerError.FAILED
        assert text


@pytest.mark.parametrize("is_busy", [False, True])
def test_restart_is_answered_then_shutdown_is_said_and_nothing_waited_for(worker: Worker, is_busy: bool) -> None:
    worker.registered()
    job_ref = worker.take(21) if is_busy else None
    answer = worker.receive(RESTART, task_id=99, extra=b"ignored")
    assert worker.replied(answer) == (WorkerError.OK, 21 if is_busy else 0, b"")
    assert worker.said() == []
    worker.side.said(answer, True, worker.now)
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]
    worker.answer()
    assert worker.side.is_over
    if job_ref is not None:
        worker.finish(job_ref)  # nobody's


def test_restart_is_obeyed_although_its_answer_could_not_be_said(worker: Worker) -> None:
    worker.registered()
    worker.side.said(worker.receive(RESTART), False, worker.now)
    assert kinds(worker.said()) == [SHUTDOWN]
