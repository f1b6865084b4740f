"""The other side of Worker-Controller: our worker's conversation with any controller, in both editions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import inf

import pytest

from dragoman.dialects.controller import codec
from dragoman.dialects.controller.editions import EDITIONS, Edition
from dragoman.dialects.controller.messages import ControlKind, ControllerError, Pulse, PulseKind, WorkerError
from dragoman.dialects.controller.options import EditionName, WorkerOptions
from dragoman.dialects.controller.peer import FETCH_WAIT, LAST_WORD, Answer, WorkerSide

REGISTER, OK, FETCH_ME, SHUTDOWN = PulseKind
RESTART, FETCH, SET_TASK, GET_STATUS = ControlKind
PAUSE = 0.25
EVERY = 5.0

Said = tuple[PulseKind | None, int, int, int]  # kind, worker id, task id, next_pulse
Replied = tuple[WorkerError | None, int, bytes]  # error, task id, extra bytes


@dataclass
class Pauses:
    """All alike, and counted."""

    taken: int = 0

    def next(self) -> float:
        self.taken += 1
        return PAUSE

    def reset(self) -> None:
        self.taken = 0


@dataclass
class Worker:
    """A worker's side and its port: records what it asks for."""

    edition: Edition
    next_pulse: float = 2 * EVERY
    now: float = 100.0
    heads: list[bytes] = field(default_factory=list)
    runs: list[tuple[Hashable, bytes]] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)  # ids it has listened by; none: it stopped
    complaints: list[str] = field(default_factory=list)
    taken_ids: list[int] = field(default_factory=list)  # at which nobody can listen
    due: float = -inf

    def __post_init__(self) -> None:
        self.pauses = Pauses()
        self.side = WorkerSide(WorkerOptions("s", EditionName(self.edition.name), self.next_pulse), self, self.pauses)

    # the port

    def pulse(self, head: bytes) -> None:
        self.heads.append(head)

    def listen(self, worker_id: int) -> str | None:
        if worker_id in self.taken_ids:
            return f"{worker_id} is taken"
        self.places.append(worker_id)
        return None

    def stop_listening(self) -> None:
        self.places.append(None)

    def run(self, ticket: Hashable, payload: bytes | bytearray) -> None:
        self.runs.append((ticket, bytes(payload)))

    def complain(self, problem: str) -> None:
        assert problem
        self.complaints.append(problem)

    # what a test does

    def tick(self, seconds: float = 0.0) -> float:
        self.now += seconds
        self.due = self.side.tick(self.now)
        return self.due

    def said(self) -> list[Said]:
        """Pulses since it was last asked for."""
        self.tick()
        heads, self.heads = self.heads, []
        return [self._read(head) for head in heads]

    def _read(self, head: bytes) -> Said:
        pulse: Pulse = codec.pulse_of(codec.read_pulse(head), self.edition)
        return pulse.kind, pulse.worker_id, pulse.task_id, pulse.next_pulse

    def answer(self, error: ControllerError = ControllerError.OK, worker_id: int = 0) -> None:
        """Answer its pulse."""
        self.side.answered(codec.write_pulse_response(error, self.edition, worker_id=worker_id), self.now)
        self.tick()

    def registered(self, worker_id: int = 7) -> Worker:
        """It is registered, and has said OK once."""
        assert self.said() == [(REGISTER, 0, 0, 10)]
        self.answer(worker_id=worker_id)
        assert self.said() == [(OK, worker_id, 0, 10)]
        self.answer()
        return self

    def hear(self, kind: ControlKind, task_id: int = 0, extra: bytes = b"") -> Answer:
        head = codec.write_control(kind, self.edition, task_id=task_id, extra_size=len(extra))
        return self.side.hear(head, extra, self.now)

    def control(self, kind: ControlKind, task_id: int = 0, extra: bytes = b"") -> Replied:
        """A whole exchange: what it answers, once it has said so."""
        answer = self.hear(kind, task_id, extra)
        self.side.said(answer, True, self.now)
        self.tick()
        return self.replied(answer)

    def replied(self, answer: Answer) -> Replied:
        head, extra = answer.frames
        response = codec.read_response(head, self.edition)
        assert response.extra_size == len(extra)
        return response.error, response.task_id, bytes(extra)

    def take(self, task_id: int, payload: bytes = b"job") -> Hashable:
        """It takes a task; returns its ticket."""
        assert self.control(SET_TASK, task_id, payload) == (WorkerError.OK, task_id, b"")
        assert self.runs[-1][1] == payload
        return self.runs[-1][0]

    def finish(self, ticket: Hashable, result: bytes = b"result") -> None:
        self.side.finished(ticket, result, self.now)
        self.tick()

    def fail(self, ticket: Hashable, reason: str) -> None:
        self.side.failed(ticket, reason, self.now)
        self.tick()

    def fetch_me(self, task_id: int, result: bytes = b"result") -> None:
        """It takes a task, does it, and has said so."""
        self.finish(self.take(task_id), result)
        assert self.said() == [(FETCH_ME, 7, task_id, 10)]
        self.answer()

    def stop(self) -> None:
        self.side.stop(self.now)
        self.tick()


@pytest.fixture(params=EDITIONS.values(), ids=EDITIONS)
def worker(request: pytest.FixtureRequest) -> Worker:
    return Worker(request.param)


def kinds(said: Iterable[Said]) -> list[PulseKind | None]:
    return [each[0] for each in said]


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
    answer = worker.side.hear(fetch, b"", worker.now)
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
    ticket = worker.take(21)
    worker.tick(EVERY)
    assert worker.said() == [(OK, 7, 21, 10)]
    worker.answer()
    worker.finish(ticket)
    assert worker.said() == [(FETCH_ME, 7, 21, 10)]
    worker.answer()
    worker.control(FETCH)
    worker.tick(EVERY)
    assert worker.said() == [(OK, 7, 0, 10)]


# -------------------------------------------------------------------- tasks


def test_a_task_is_run_reported_at_once_and_fetched(worker: Worker) -> None:
    worker.registered()
    ticket = worker.take(21, b"payload")
    assert worker.runs == [(ticket, b"payload")]
    worker.finish(ticket, b"result")
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
    ticket = worker.take(21)
    worker.tick(EVERY)
    worker.finish(ticket)
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
    ticket = worker.take(21)
    assert worker.control(SET_TASK, 22, b"more") == (WorkerError.BUSY, 21, b"")
    worker.finish(ticket)
    assert worker.control(SET_TASK, 22, b"more") == (WorkerError.BUSY, 21, b"")
    assert len(worker.runs) == 1
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    worker.take(22)


def test_nothing_to_fetch_before_during_and_after_a_task(worker: Worker) -> None:
    worker.registered()
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")
    ticket = worker.take(21)
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 21, b"")
    worker.finish(ticket)
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")
    assert worker.control(FETCH) == (WorkerError.NO_FETCH, 0, b"")


def test_the_status_is_the_task_also_while_it_works(worker: Worker) -> None:
    worker.registered()
    assert worker.control(GET_STATUS) == (WorkerError.OK, 0, b"")
    ticket = worker.take(21)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 21, b"")
    worker.finish(ticket)
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
    broken = worker.hear(FETCH)
    worker.side.said(broken, False, worker.now)
    assert worker.control(GET_STATUS) == (WorkerError.OK, 21, b"")
    assert worker.control(FETCH) == (WorkerError.OK, 21, b"result")


def test_an_answer_that_is_still_being_said_ends_only_its_own_task(worker: Worker) -> None:
    worker.registered()
    worker.fetch_me(21)
    slow = worker.hear(FETCH)
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
    answer = worker.side.hear(head, b"", worker.now)
    worker.side.said(answer, True, worker.now)
    error, task_id, text = worker.replied(answer)
    assert (error, task_id) == (WorkerError.FAILED, 21)
    assert str(number) in text.decode()


def test_what_cannot_be_read_has_failed(worker: Worker) -> None:
    worker.registered()
    for answer in (worker.side.hear(b"\xff", b"", worker.now), worker.side.refuse("too long")):
        error, _, text = worker.replied(answer)
        assert error is WorkerError.FAILED
        assert text


@pytest.mark.parametrize("is_busy", [False, True])
def test_restart_is_answered_then_shutdown_is_said_and_nothing_waited_for(worker: Worker, is_busy: bool) -> None:
    worker.registered()
    ticket = worker.take(21) if is_busy else None
    answer = worker.hear(RESTART, task_id=99, extra=b"ignored")
    assert worker.replied(answer) == (WorkerError.OK, 21 if is_busy else 0, b"")
    assert worker.said() == []
    worker.side.said(answer, True, worker.now)
    assert worker.said() == [(SHUTDOWN, 7, 0, 0)]
    worker.answer()
    assert worker.side.is_over
    if ticket is not None:
        worker.finish(ticket)  # nobody's


def test_restart_is_obeyed_although_its_answer_could_not_be_said(worker: Worker) -> None:
    worker.registered()
    worker.side.said(worker.hear(RESTART), False, worker.now)
    assert kinds(worker.said()) == [SHUTDOWN]


# -------------------------------------------------------------------- a new life


def forget(worker: Worker) -> None:
    """Its next pulse is answered with UNKNOWN_ID."""
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
    ticket = worker.take(21)
    forget(worker)
    assert worker.said() == [(REGISTER, 0, 0, 10)]
    worker.answer(worker_id=9)
    assert worker.said() == [(OK, 9, 0, 10)]
    assert worker.control(SET_TASK, 22) == (WorkerError.BUSY, 0, b"")
    assert worker.control(GET_STATUS) == (WorkerError.OK, 0, b"")
    worker.finish(ticket)
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
    assert worker.due == worker.now + LAST_WORD
    worker.tick(LAST_WORD)
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
    ticket = worker.take(21)
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
    worker.finish(ticket)
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
    ticket = worker.take(21)
    if stops_first:
        worker.stop()
    worker.finish(ticket)
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
    assert "nobody fetched the outcome of task 21" in worker.complaints[-1]


def test_a_controller_that_does_not_answer_does_not_keep_it(worker: Worker) -> None:
    worker.registered()
    worker.finish(worker.take(21))
    worker.stop()
    assert worker.due == worker.now + FETCH_WAIT
    worker.tick(FETCH_WAIT)
    worker.tick(LAST_WORD)
    assert worker.side.is_over


def test_an_outcome_that_is_being_fetched_is_given_more_time(worker: Worker) -> None:
    worker.registered()
    worker.fetch_me(21)
    worker.stop()
    worker.tick(FETCH_WAIT - 0.1)
    worker.answer()
    slow = worker.hear(FETCH)
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
