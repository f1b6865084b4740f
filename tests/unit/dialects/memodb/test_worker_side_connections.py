"""The worker side of MemoDB: lost connections, leaving, and malformed messages."""

from __future__ import annotations

import cbor2
import pytest

from dragoman.dialects.memodb.peer import check_services

from .worker_side import DISCONNECT, HEARTBEAT, ID, JOB, READY, RESULT, Worker, memo

# -------------------------------------------------------------------- connections come and go


def test_what_is_outstanding_is_sent_again_with_the_same_id_and_bytes() -> None:
    """As NNG does: the broker must be able to know it again."""
    worker = Worker().open()
    ready = worker.take()
    worker.side.lost()
    assert worker.open().take() == ready
    worker.answer(ready[0][0], HEARTBEAT, ID)
    heartbeat = worker.take()
    worker.side.lost()
    assert worker.open().take() == heartbeat
    worker.answer(heartbeat[0][0], JOB, ID, "default", 5000)
    worker.finish()
    result = worker.take()
    worker.side.lost()
    assert worker.open().take() == result


def test_a_job_in_hand_goes_on_and_its_result_goes_out_on_the_new_connection() -> None:
    worker = Worker().open()
    worker.job(b"long")
    worker.side.lost()
    assert worker.side.is_busy
    worker.open()
    assert worker.said() == []
    worker.finish()
    assert worker.said() == [memo(RESULT, ID, payload=b"result")]
    assert worker.runs == [b"long"]


@pytest.mark.parametrize("ends", ["finishes", "fails"])
def test_what_ends_between_two_connections_is_said_on_the_next(ends: str) -> None:
    worker = Worker().open()
    worker.job()
    worker.side.lost()
    if ends == "finishes":
        worker.finish()
    else:
        worker.fail()
    assert worker.said() == []
    worker.open()
    assert worker.said() == [memo(RESULT, ID, payload=b"result") if ends == "finishes" else memo(HEARTBEAT, ID)]


def test_each_of_several_goes_on_where_it_was() -> None:
    worker = Worker(concurrency=3).open()
    (first, _), (second, _), third = worker.take()
    worker.answer(first, JOB, b"w1", "default", 5000)
    worker.answer(second, HEARTBEAT, b"w2")
    heartbeat = worker.take()
    worker.side.lost()
    worker.open()
    assert sorted(worker.take()) == sorted([third, *heartbeat])
    worker.finish()
    assert worker.said() == [memo(RESULT, b"w1", payload=b"result")]


def test_a_result_that_three_connections_did_not_survive_is_given_up() -> None:
    """A bug: a broker hangs up on what is over its max_payload, and we came back with it for ever."""
    worker = Worker(concurrency=3).open()
    for number, (request, _) in enumerate(worker.take()[:2]):
        worker.answer(request, JOB, b"w%d" % number, "default", 5000)
    worker.finish(b"small", 0)
    worker.finish(bytes(100_000), 1)
    small, large = worker.take()
    for _ in range(3):
        worker.side.lost()
        assert worker.side.is_busy
        again = worker.open().take()
        ready = [each for each in again if each not in (small, large)]
        last = [message for _, message in again if message == large[1]]
    assert last == []
    assert small in again
    assert [message for _, message in ready] == [memo(HEARTBEAT, b"w1"), memo(READY, b"", ["default"])]
    worker.answer(large[0], HEARTBEAT, b"w1")  # should it come after all
    assert worker.sent == []


def test_connections_that_end_with_an_answer_between_them_cost_no_result() -> None:
    worker = Worker().open()
    for _ in range(10):
        worker.job(b"job")
        worker.finish(bytes(100_000))
        worker.side.lost()
        assert [message for _, message in worker.open().sent] == [memo(RESULT, ID, payload=bytes(100_000))] * 2
        worker.sent = worker.sent[-1:]


# -------------------------------------------------------------------- the end


def test_stopping_an_idle_worker_takes_no_word_and_no_wait() -> None:
    worker = Worker(concurrency=2).open()
    worker.take()
    worker.side.stop()
    assert worker.sent == []
    assert not worker.side.is_busy


def test_whoever_works_says_goodbye_with_its_result_and_waits_for_the_answer() -> None:
    worker = Worker().open()
    worker.job()
    worker.side.stop()
    assert worker.side.is_busy
    worker.finish()
    assert [message for _, message in worker.sent] == [memo(RESULT, ID, True, payload=b"result")]
    assert worker.side.is_busy  # the broker may not have it
    worker.reply(DISCONNECT, ID)
    assert not worker.side.is_busy
    assert worker.sent == []


def test_all_results_in_hand_bear_the_flag() -> None:
    worker = Worker(concurrency=3).open()
    for number, (request, _) in enumerate(worker.take()):
        worker.answer(request, JOB, b"w%d" % number, "default", 5000)
    worker.finish(number=0)
    worker.side.stop()
    worker.finish(number=1)
    worker.finish(number=2)
    asked = worker.take()
    assert [message for _, message in asked] == [
        memo(RESULT, b"w0", payload=b"result"),
        memo(RESULT, b"w1", True, payload=b"result"),
        memo(RESULT, b"w2", True, payload=b"result"),
    ]
    for number, (request, _) in enumerate(asked):
        assert worker.side.is_busy
        worker.answer(request, DISCONNECT, b"w%d" % number)
    assert not worker.side.is_busy
    assert worker.sent == []


def test_a_job_that_fails_while_it_leaves_is_given_up_and_the_answer_awaited() -> None:
    worker = Worker().open()
    worker.job()
    worker.side.stop()
    worker.fail()
    assert worker.side.is_busy
    worker.reply(DISCONNECT, ID)
    assert not worker.side.is_busy
    assert worker.sent == []


def test_a_job_that_comes_while_it_leaves_is_done_and_its_result_says_goodbye() -> None:
    """The broker gave it before it could know."""
    worker = Worker().open()
    worker.side.stop()
    worker.job(b"late")
    assert worker.runs == [b"late"]
    assert worker.side.is_busy
    worker.finish()
    assert worker.said() == [memo(RESULT, ID, True, payload=b"result")]


@pytest.mark.parametrize("kind", [HEARTBEAT, DISCONNECT])
def test_while_it_leaves_it_asks_for_nothing_more(kind: int) -> None:
    worker = Worker().open()
    worker.side.stop()
    worker.reply(kind, ID)
    assert worker.sent == []
    worker.side.lost()
    worker.open()
    assert worker.sent == []


def test_a_goodbye_is_said_again_on_a_new_connection() -> None:
    worker = Worker().open()
    worker.job()
    worker.side.stop()
    worker.finish()
    goodbye = worker.take()
    worker.side.lost()
    assert worker.side.is_busy
    assert worker.open().take() == goodbye


def test_a_goodbye_without_an_answer_does_not_wait_for_ever_on_one_connection() -> None:
    worker = Worker(heartbeat_after=1.0).open()
    worker.job()
    worker.side.stop()
    worker.finish()
    worker.wait(3.1)
    assert len(worker.reconnects) == 1


@pytest.mark.parametrize("ends", ["finishes", "fails"])
def test_what_has_not_gone_out_is_something_to_wait_for(ends: str) -> None:
    """A bug: what became of a job between two connections was dropped by a stop."""
    worker = Worker().open()
    worker.job()
    worker.side.lost()
    if ends == "finishes":
        worker.finish()
    else:
        worker.fail()
    worker.side.stop()
    assert worker.side.is_busy
    worker.open()
    assert worker.said() == [memo(RESULT, ID, payload=b"result") if ends == "finishes" else memo(HEARTBEAT, ID)]
    assert not worker.side.is_busy
    worker.side.lost()  # as we hang up
    assert not worker.side.is_busy


def test_what_went_out_on_a_connection_that_was_lost_is_something_to_wait_for() -> None:
    """A bug: the same; the broker need not have read it."""
    worker = Worker().open()
    worker.job()
    worker.finish()
    result = worker.take()
    worker.side.lost()
    worker.side.stop()
    assert worker.side.is_busy
    assert worker.open().take() == result
    assert not worker.side.is_busy


def test_a_result_that_was_answered_is_nothing_to_wait_for() -> None:
    worker = Worker().open()
    worker.job()
    worker.finish()
    worker.reply(HEARTBEAT, ID)
    worker.side.lost()
    worker.side.stop()
    assert not worker.side.is_busy


def test_while_it_leaves_whoever_waits_asks_again_but_nobody_asks_anew() -> None:
    """The answer that was lost with the connection may have been a job."""
    worker = Worker(concurrency=3).open()
    (first, _), (second, _), third = worker.take()
    worker.answer(first, JOB, b"w1", "default", 5000)
    worker.answer(second, HEARTBEAT, b"w2")
    heartbeat = worker.take()
    worker.side.stop()
    worker.side.lost()
    worker.open()
    assert sorted(worker.sent) == sorted([third, *heartbeat])
    for request, _ in worker.take():
        worker.answer(request, DISCONNECT, b"")
    assert worker.sent == []
    worker.finish()
    assert worker.said() == [memo(RESULT, b"w1", True, payload=b"result")]


# -------------------------------------------------------------------- what it does not understand

NONSENSE = {
    "nothing": b"",
    "no CBOR": b"\xff\xff",
    "another version": cbor2.dumps(["memo02", HEARTBEAT, ID]),
    "cut off": memo(JOB, ID, "default", 5000)[:-3],
    "a heartbeat with a payload": memo(HEARTBEAT, ID, payload=b"x"),
    "an unknown type": memo(6, ID),
    "a RESULT": memo(RESULT, b"", payload=b"x"),
    "a READY": memo(READY, b"", ["default"]),
}


@pytest.mark.parametrize("message", NONSENSE.values(), ids=NONSENSE)
def test_what_it_does_not_understand_makes_it_connect_anew_and_begin_with_ready(message: bytes) -> None:
    worker = Worker().open()
    ((request, ready),) = worker.take()
    worker.side.receive([request, message], worker.now)
    assert len(worker.reconnects) == 1
    assert worker.runs == []
    ((again, asked),) = worker.open().take()
    assert asked == ready
    assert again != request


def test_what_one_does_not_understand_costs_the_others_nothing_but_the_connection() -> None:
    worker = Worker(concurrency=2).open()
    (first, _), (second, _) = worker.take()
    worker.answer(first, JOB, b"w1", "default", 5000)
    worker.side.receive([second, b"nonsense"], worker.now)
    assert len(worker.reconnects) == 1
    assert worker.open().said() == [memo(READY, b"", ["default"])]
    worker.finish()
    assert worker.said() == [memo(RESULT, b"w1", payload=b"result")]


# -------------------------------------------------------------------- names of services


@pytest.mark.parametrize("services", [["a"], ["a", "b"], ["grüß"], ["x" * 128], ["a b"], [f"s{n}" for n in range(64)]])
def test_names_that_can_be_offered(services: list[str]) -> None:
    assert check_services(services) is None


@pytest.mark.parametrize(
    ("services", "complaint"),
    [
        ([""], "bad service name"),
        (["x" * 129], "bad service name"),
        (["a", "\n"], "visible text"),
        ([f"s{n}" for n in range(65)], "1 to 64"),
    ],
)
def test_names_that_cannot(services: list[str], complaint: str) -> None:
    assert complaint in str(check_services(services))
