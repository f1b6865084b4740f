"""The worker side of MemoDB: heartbeats, jobs, and several workers on one connection."""

from __future__ import annotations

import pytest

from dragoman.dialects.memodb.peer import SILENCES

from .worker_side import DISCONNECT, HEARTBEAT, ID, JOB, OTHER, READY, RESULT, Worker, memo

# -------------------------------------------------------------------- life without jobs


def test_it_says_ready_with_its_services_and_no_id() -> None:
    worker = Worker("echo").open()
    assert worker.said() == [bytes.fromhex("84666d656d6f3031014081646563686f")]


def test_it_offers_all_its_services_in_one_ready() -> None:
    assert Worker("a", "b", "grüß").open().said() == [memo(READY, b"", ["a", "b", "grüß"])]


def test_without_any_it_offers_the_one_of_its_options() -> None:
    assert Worker().open().said() == [memo(READY, b"", ["default"])]


def test_before_it_is_connected_it_says_nothing() -> None:
    worker = Worker()
    worker.wait(1_000)
    assert (worker.said(), worker.reconnects) == ([], [])
    assert not worker.side.is_busy


def test_a_heartbeat_is_answered_at_once_under_a_new_request_id() -> None:
    worker = Worker().open()
    ids = set()
    for _ in range(5):
        ((request, _),) = worker.take()
        ids.add(request)
        worker.answer(request, HEARTBEAT, ID)
        assert [message for _, message in worker.sent] == [memo(HEARTBEAT, ID)]
    assert len(ids) == 5
    assert not worker.side.is_busy


def test_it_goes_by_the_id_that_it_was_told_last() -> None:
    worker = Worker().open()
    worker.reply(HEARTBEAT, ID)
    worker.reply(HEARTBEAT, OTHER)
    assert worker.said() == [memo(HEARTBEAT, OTHER)]


@pytest.mark.parametrize("id", [b"", b"x", bytes(16), bytes(100)])
def test_any_bytestring_may_be_its_id(id: bytes) -> None:
    worker = Worker().open()
    worker.job(id=id)
    worker.finish()
    assert worker.said() == [memo(RESULT, id, payload=b"result")]


def test_disconnect_makes_it_begin_anew_on_the_same_connection() -> None:
    """Others share the connection: only what this one knew is forgotten."""
    worker = Worker("a").open()
    ((first, ready),) = worker.take()
    worker.answer(first, DISCONNECT, b"")
    ((second, again),) = worker.take()
    assert again == ready
    assert second != first
    assert worker.reconnects == []
    worker.answer(second, HEARTBEAT, ID)
    worker.reply(DISCONNECT, ID)
    assert worker.said() == [memo(READY, b"", ["a"])]


def test_without_an_answer_for_three_heartbeats_it_connects_anew_and_asks_the_same() -> None:
    worker = Worker(heartbeat_after=2.0).open()
    asked = worker.take()
    worker.wait(SILENCES * 2.0 - 0.1)
    assert worker.reconnects == []
    worker.wait(0.2)
    assert worker.reconnects == ["nothing received from the broker for 6 s"]
    worker.wait(100)
    assert worker.sent == []
    worker.open()
    assert worker.take() == asked


def test_each_answer_gives_the_broker_its_full_time_again() -> None:
    worker = Worker(heartbeat_after=2.0).open()
    for _ in range(5):
        worker.wait(5.9)
        worker.reply(HEARTBEAT, ID)
    assert worker.reconnects == []
    worker.wait(6.1)
    assert len(worker.reconnects) == 1


def test_a_new_connection_gives_the_broker_its_full_time_again() -> None:
    worker = Worker(heartbeat_after=2.0).open()
    worker.wait(5)
    worker.side.lost()
    worker.wait(50)
    assert worker.reconnects == []
    worker.open()
    worker.wait(5.9)
    assert worker.reconnects == []
    worker.wait(0.2)
    assert len(worker.reconnects) == 1


def test_it_asks_to_be_woken_when_its_patience_is_over() -> None:
    worker = Worker(heartbeat_after=2.0).open()
    assert worker.side.tick(worker.now) == worker.now + 6


# -------------------------------------------------------------------- jobs


@pytest.mark.parametrize("payload", [b"", b"question", b"\x85\x66memo01", bytes(100_000)])
def test_a_job_is_run_and_its_result_is_the_next_request(payload: bytes) -> None:
    worker = Worker().open()
    worker.job(payload)
    assert worker.runs == [payload]
    assert worker.side.is_busy
    assert worker.sent == []
    worker.finish(payload)
    assert worker.said() == [memo(RESULT, ID, payload=payload)]
    assert not worker.side.is_busy


def test_the_answer_to_a_result_may_be_the_next_job_or_a_heartbeat() -> None:
    worker = Worker().open()
    worker.job(b"one")
    worker.finish()
    worker.job(b"two")
    worker.finish()
    worker.reply(HEARTBEAT, ID)
    worker.job(b"three")
    assert worker.runs == [b"one", b"two", b"three"]


def test_a_payload_that_came_in_a_bytearray_is_run_whole() -> None:
    worker = Worker().open()
    ((request, _),) = worker.take()
    worker.side.receive([request, bytearray(memo(JOB, ID, "default", 1, payload=b"large"))], worker.now)
    assert worker.runs == [b"large"]


def test_while_it_works_the_brokers_silence_means_nothing() -> None:
    worker = Worker(heartbeat_after=1.0).open()
    worker.job()
    worker.wait(1_000)
    assert worker.reconnects == []
    worker.finish()
    worker.wait(2.9)
    assert worker.reconnects == []
    worker.wait(0.2)
    assert len(worker.reconnects) == 1


def test_a_job_that_failed_is_given_up_by_a_heartbeat_out_of_turn() -> None:
    """This wire has no word for failure; the broker sees that no RESULT is coming, and says DISCONNECT."""
    worker = Worker("a").open()
    worker.job()
    worker.fail()
    assert not worker.side.is_busy
    worker.reply(DISCONNECT, ID)
    assert worker.said() == [memo(READY, b"", ["a"])]
    assert worker.reconnects == []


def test_what_it_says_of_a_failed_job() -> None:
    worker = Worker().open()
    worker.job()
    worker.fail()
    assert worker.said() == [memo(HEARTBEAT, ID)]


def test_a_result_that_the_broker_did_not_want_leads_to_a_new_beginning() -> None:
    worker = Worker().open()
    worker.job()
    worker.finish()
    worker.reply(DISCONNECT, ID)
    assert worker.said() == [memo(READY, b"", ["default"])]


def test_an_answer_that_comes_twice_is_heard_once() -> None:
    worker = Worker().open()
    ((request, _),) = worker.take()
    for _ in range(3):
        worker.answer(request, JOB, ID, "default", 5000, payload=b"once")
    assert worker.runs == [b"once"]
    worker.finish()
    worker.answer(request, JOB, ID, "default", 5000, payload=b"once")
    assert worker.runs == [b"once"]
    assert worker.said() == [memo(RESULT, ID, payload=b"result")]


@pytest.mark.parametrize("request_id", [b"", b"\x80\0\0\0", b"\xff\xff\xff\xff"])
def test_an_answer_to_nothing_it_asked_is_ignored(request_id: bytes) -> None:
    worker = Worker(first_request=7).open()
    worker.answer(request_id, JOB, ID, "default", 5000)
    assert (worker.runs, worker.reconnects) == ([], [])


# -------------------------------------------------------------------- several workers on one connection


def test_n_workers_have_n_requests_in_flight_each_with_its_own_id() -> None:
    worker = Worker("a", concurrency=3).open()
    asked = worker.take()
    assert [message for _, message in asked] == [memo(READY, b"", ["a"])] * 3
    assert len({request for request, _ in asked}) == 3


def test_n_workers_run_n_jobs_at_once_and_each_answers_under_its_own_name() -> None:
    worker = Worker(concurrency=3).open()
    for number, (request, _) in enumerate(worker.take()):
        worker.answer(request, JOB, b"w%d" % number, "default", 5000, payload=b"job %d" % number)
    assert worker.runs == [b"job 0", b"job 1", b"job 2"]
    for number in (1, 2, 0):
        assert worker.side.is_busy
        worker.finish(b"did %d" % number, number)
    assert not worker.side.is_busy
    assert worker.said() == [memo(RESULT, b"w%d" % number, payload=b"did %d" % number) for number in (1, 2, 0)]


def test_disconnect_of_one_leaves_the_others_alone() -> None:
    worker = Worker(concurrency=3).open()
    first, second, third = (request for request, _ in worker.take())
    worker.answer(first, JOB, b"w1", "default", 5000)
    worker.answer(second, DISCONNECT, b"w2")
    assert worker.said() == [memo(READY, b"", ["default"])]
    worker.finish()
    assert worker.said() == [memo(RESULT, b"w1", payload=b"result")]
    worker.answer(third, HEARTBEAT, b"w3")
    assert worker.said() == [memo(HEARTBEAT, b"w3")]


def test_one_that_is_not_answered_is_reason_enough_to_connect_anew() -> None:
    worker = Worker(concurrency=2, heartbeat_after=1.0).open()
    (first, _), second = worker.take()
    worker.wait(2.0)
    worker.answer(first, HEARTBEAT, ID)
    beaten = worker.take()
    worker.wait(1.1)
    assert len(worker.reconnects) == 1
    worker.open()
    assert sorted(worker.take()) == sorted([second, *beaten])


def test_request_ids_begin_anywhere_and_rise_beyond_the_end() -> None:
    worker = Worker(concurrency=3, first_request=0x7FFF_FFFD).open()
    assert [request.hex() for request, _ in worker.take()] == ["fffffffe", "ffffffff", "80000000"]
