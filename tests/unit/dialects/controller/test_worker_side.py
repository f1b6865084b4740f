"""The worker side of Worker-Controller: bytes on the wire, registration and pulses."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.dialects.controller.editions import EDITIONS
from dragoman.dialects.controller.messages import ControllerError

from .worker_side import EVERY, FETCH, FETCH_ME, OK, PAUSE, REGISTER, SHUTDOWN, Worker, kinds

# -------------------------------------------------------------------- on the wire

# REGISTER, its answer, OK, OK's answer, FETCH_ME, FETCH, its answer, SHUTDOWN.
VECTORS = {
    "seed": ["200a", "1001", "08011001200a", "", "080210011807200a", "0801", "10071806", "08031001"],
    "shifted": ["0802200a", "08011001", "08011001200a", "0801", "080310011807200a", "0802", "080110071806", "08041001"],
}


@pytest.mark.parametrize("name", EDITIONS)
def test_a_whole_life_byte_by_byte(name: str) -> None:
    vectors = [bytes.fromhex(each) for each in VECTORS[name]]
    register, registered, ok, fine, fetch_me, fetch, fetched, shutdown = vectors
    worker = Worker(EDITIONS[name])
    worker.tick()
    worker.side.answered(registered, worker.now)
    worker.tick()
    worker.side.answered(fine, worker.now)
    worker.finish(worker.take(7), b"SPAMMY")
    worker.side.answered(fine, worker.now)
    answer = worker.side.receive(fetch, b"", worker.now)
    assert list(answer.frames) == [fetched, b"SPAMMY"]
    worker.side.said(answer, True, worker.now)
    worker.stop()
    assert worker.heads == [register, ok, fetch_me, shutdown]
    worker.side.answered(fine, worker.now)
    worker.tick()
    assert worker.side.is_over


@pytest.mark.parametrize(("seconds", "promised"), [(0.2, 1), (1.0, 1), (1.5, 2), (10.0, 10), (86_400.0, 86_400)])
def test_whole_seconds_are_promised_and_pulses_come_after_half_of_what_was_asked_for(
    seconds: float, promised: int
) -> None:
    worker = Worker(EDITIONS["seed"], next_pulse=seconds)
    assert worker.said() == [(REGISTER, 0, 0, promised)]
    worker.answer(worker_id=3)
    assert worker.said() == [(OK, 3, 0, promised)]
    worker.answer()
    assert worker.tick() == worker.now + seconds / 2


# -------------------------------------------------------------------- registering


def test_it_listens_once_it_has_an_id_and_says_ok_at_once(worker: Worker) -> None:
    assert worker.said() == [(REGISTER, 0, 0, 10)]
    assert worker.places == []
    worker.answer(worker_id=7)
    assert worker.places == [7]
    assert worker.said() == [(OK, 7, 0, 10)]


def test_nothing_is_said_while_an_answer_is_due(worker: Worker) -> None:
    worker.tick()
    assert worker.tick(100 * EVERY) == inf
    assert kinds(worker.said()) == [REGISTER]


@pytest.mark.parametrize("error", [ControllerError.FAILED, ControllerError.UNKNOWN_TYPE, ControllerError.UNKNOWN_ID])
def test_a_registration_that_failed_is_tried_again_after_a_pause(worker: Worker, error: ControllerError) -> None:
    assert kinds(worker.said()) == [REGISTER]
    worker.answer(error)
    assert error.value in worker.complaints[0]
    assert worker.said() == []
    assert worker.due == worker.now + PAUSE
    worker.tick(PAUSE)
    assert kinds(worker.said()) == [REGISTER]


def test_ok_without_an_id_is_no_registration(worker: Worker) -> None:
    worker.tick()
    worker.answer()
    assert worker.places == []
    assert worker.due == worker.now + PAUSE


@pytest.mark.parametrize("head", [b"\xff", b"\x08\x09", b"\x08\x63"])
def test_an_answer_that_makes_no_sense_is_none(worker: Worker, head: bytes) -> None:
    worker.tick()
    worker.side.answered(head, worker.now)
    assert worker.complaints
    assert worker.tick() == worker.now + PAUSE


def test_a_controller_that_is_not_there_is_looked_for_with_pauses(worker: Worker) -> None:
    for tries in range(1, 4):
        assert kinds(worker.said())[-1:] == [REGISTER]
        worker.side.unanswered("nobody listens there", worker.now)
        assert worker.pauses.taken == tries
        worker.tick(PAUSE)


def test_an_id_at_which_it_cannot_listen_is_given_back_and_another_asked_for(worker: Worker) -> None:
    worker.taken_ids.append(7)
    worker.tick()
    worker.heads.clear()
    worker.answer(worker_id=7)
    assert worker.complaints == ["7 is taken"]
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]
    worker.answer()
    assert worker.said() == []
    worker.tick(PAUSE)
    assert worker.said() == [(REGISTER, 0, 0, 10)]
    worker.answer(worker_id=8)
    assert worker.places == [8]
    assert worker.said() == [(OK, 8, 0, 10)]


def test_an_id_that_cannot_even_be_given_back_is_forgotten(worker: Worker) -> None:
    worker.taken_ids.append(7)
    worker.tick()
    worker.answer(worker_id=7)
    worker.heads.clear()
    worker.side.unanswered("it hung up", worker.now)
    worker.tick(PAUSE)
    assert kinds(worker.said()) == [REGISTER]


# -------------------------------------------------------------------- pulses


def test_it_pulses_after_half_of_what_it_promised(worker: Worker) -> None:
    worker.registered()
    for _ in range(3):
        assert worker.said() == []
        assert worker.due == worker.now + EVERY
        worker.tick(EVERY)
        assert worker.said() == [(OK, 7, 0, 10)]
        worker.answer()


def test_pulses_keep_their_time_though_answers_are_slow(worker: Worker) -> None:
    worker.registered()
    worker.tick(EVERY)
    worker.now += 2.0
    worker.answer()
    assert worker.due == worker.now + EVERY - 2.0


def test_a_pulse_that_led_nowhere_is_said_again_after_a_pause(worker: Worker) -> None:
    worker.registered()
    worker.tick(EVERY)
    worker.heads.clear()
    worker.side.unanswered("it hung up", worker.now)
    assert worker.tick() == worker.now + PAUSE
    worker.tick(PAUSE)
    assert worker.said() == [(OK, 7, 0, 10)]
    worker.answer(ControllerError.FAILED)
    assert "OK was answered with FAILED" in worker.complaints[-1]
    worker.tick(PAUSE)
    assert worker.said() == [(OK, 7, 0, 10)]
    worker.answer()
    assert worker.pauses.taken == 0


def test_a_pulse_names_the_task_until_its_outcome_was_fetched(worker: Worker) -> None:
    worker.registered()
    job_ref = worker.take(21)
    worker.tick(EVERY)
    assert worker.said() == [(OK, 7, 21, 10)]
    worker.answer()
    worker.finish(job_ref)
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]
    worker.answer()
    worker.control(FETCH)
    worker.tick(EVERY)
    assert worker.said() == [(OK, 7, 0, 10)]
