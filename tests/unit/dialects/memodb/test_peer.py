"""The other side of MemoDB: our workers' conversation with any broker, and our client's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import Any

import cbor2
import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.memodb.options import ClientOptions, WorkerOptions
from dragoman.dialects.memodb.peer import ASK_AGAIN, SILENCES, ClientSide, WorkerSide, objection

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
ID, OTHER = b"\xd8\x5f\xf4\x7f", b"another id"


def memo(*items: object, payload: bytes = b"") -> bytes:
    """A message as another program writes it."""
    return cbor2.dumps(["memo01", *items], canonical=True) + payload


class Worker:
    """A worker's side and its port: records what it asks for; `reconnect` ends the connection, as the real one does."""

    def __init__(
        self, *services: str, concurrency: int = 1, heartbeat_after: float = 10.0, first_request: int = 0
    ) -> None:
        self.sent: list[tuple[bytes, bytes]] = []  # request id and message
        self.tickets: list[Hashable] = []
        self.runs: list[bytes] = []
        self.reconnects: list[str] = []
        self.now = 100.0
        options = WorkerOptions(heartbeat_after=heartbeat_after)
        self.side = WorkerSide(options, self, services, concurrency, first_request)

    # the port

    def send(self, frames: Sequence[bytes]) -> None:
        assert len(frames[0]) == 4
        assert frames[0][0] & 0x80, "the last word of the route has its top bit set"
        self.sent.append((bytes(frames[0]), b"".join(frames[1:])))

    def run(self, ticket: Hashable, payload: bytes, assignment: object = None) -> None:
        self.tickets.append(ticket)
        self.runs.append(bytes(payload))

    def reconnect(self, reason: str) -> None:
        assert reason
        self.reconnects.append(reason)
        self.side.lost()

    def leave(self, reason: str) -> None:
        raise AssertionError("this wire has no word for it")

    # what a test does

    def open(self) -> Worker:
        self.side.opened(self.now)
        return self

    def said(self) -> list[bytes]:
        """Messages since it was last asked for, without their request ids."""
        return [message for _, message in self.take()]

    def take(self) -> list[tuple[bytes, bytes]]:
        taken, self.sent = self.sent, []
        return taken

    def answer(self, request: bytes, *items: object, payload: bytes = b"") -> None:
        self.side.hear([request, memo(*items, payload=payload)], self.now)

    def reply(self, *items: object, payload: bytes = b"") -> None:
        """Answer the one request that it has made."""
        ((request, _),) = self.take()
        self.answer(request, *items, payload=payload)

    def job(self, payload: bytes = b"job", id: bytes = ID) -> None:
        self.reply(JOB, id, "default", 5000, payload=payload)

    def finish(self, result: bytes = b"result", number: int = -1) -> None:
        self.side.finished(self.tickets[number], result, self.now)

    def fail(self, number: int = -1) -> None:
        self.side.failed(self.tickets[number], "ValueError: no", self.now)

    def wait(self, seconds: float) -> None:
        """Time passes; the conversation ticks when it asked to."""
        until = self.now + seconds
        while (due := self.side.tick(self.now)) <= until:
            assert due > self.now, "it asks to come again at once, for ever"
            self.now = due
        self.now = until
        self.side.tick(self.now)


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
    assert worker.reconnects == ["nothing heard from the broker for 6 s"]
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
    worker.side.hear([request, bytearray(memo(JOB, ID, "default", 1, payload=b"large"))], worker.now)
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
    worker.side.hear([request, message], worker.now)
    assert len(worker.reconnects) == 1
    assert worker.runs == []
    ((again, asked),) = worker.open().take()
    assert asked == ready
    assert again != request


def test_what_one_does_not_understand_costs_the_others_nothing_but_the_connection() -> None:
    worker = Worker(concurrency=2).open()
    (first, _), (second, _) = worker.take()
    worker.answer(first, JOB, b"w1", "default", 5000)
    worker.side.hear([second, b"nonsense"], worker.now)
    assert len(worker.reconnects) == 1
    assert worker.open().said() == [memo(READY, b"", ["default"])]
    worker.finish()
    assert worker.said() == [memo(RESULT, b"w1", payload=b"result")]


# -------------------------------------------------------------------- names of services


@pytest.mark.parametrize("services", [["a"], ["a", "b"], ["grüß"], ["x" * 128], ["a b"], [f"s{n}" for n in range(64)]])
def test_names_that_can_be_offered(services: list[str]) -> None:
    assert objection(services) is None


@pytest.mark.parametrize(
    ("services", "complaint"),
    [
        ([""], "bad service name"),
        (["x" * 129], "bad service name"),
        (["a", "\n"], "control characters"),
        ([f"s{n}" for n in range(65)], "1 to 64"),
    ],
)
def test_names_that_cannot(services: list[str], complaint: str) -> None:
    assert complaint in str(objection(services))


# -------------------------------------------------------------------- the client


class Client:
    """A client's side, and what came of it."""

    def __init__(self, first_request: int = 0, **options: float) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.now = 100.0
        self.side = ClientSide(ClientOptions(**options), self, first_request)  # type: ignore[arg-type]

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append((bytes(frames[0]), b"".join(frames[1:])))

    def answered(self, ticket: Hashable, result: bytes) -> None:
        self.answers.append((ticket, bytes(result)))

    def call(
        self, payload: bytes = b"job", ticket: Hashable = "mine", timeout: float | None = None, service: str = "echo"
    ) -> bytes:
        """Returns its request id."""
        self.side.call(ticket, service, payload, timeout, self.now)
        return self.sent[-1][0]

    def result(self, request: bytes, payload: bytes = b"result") -> None:
        self.side.hear([request, memo(RESULT, b"", payload=payload)], self.now)

    def take(self) -> list[tuple[bytes, bytes]]:
        taken, self.sent = self.sent, []
        return taken


def test_a_clients_request_is_a_job_without_an_id() -> None:
    client = Client()
    client.call(b"hello", timeout=5)
    assert client.sent[0][1] == bytes.fromhex("85666d656d6f3031024064 6563686f 191388") + b"hello"


@pytest.mark.parametrize(
    ("options", "timeout", "milliseconds"),
    [
        ({}, None, 60_000),
        ({"job_timeout": 1.5}, None, 1_500),
        ({"job_timeout": 0.0}, None, -1),
        ({}, 2.0, 2_000),
        ({}, 0.0001, 1),
        ({}, 0.0015, 2),
        ({}, inf, -1),
        ({"job_timeout": 0.0}, 3.0, 3_000),
    ],
)
def test_what_a_job_is_given_on_the_wire(options: dict[str, float], timeout: float | None, milliseconds: int) -> None:
    client = Client(**options)
    client.call(timeout=timeout)
    assert client.sent[0][1] == memo(JOB, b"", "echo", milliseconds, payload=b"job")


@pytest.mark.parametrize("timeout", [1e17, 1e30, 1e300])
def test_a_time_too_long_for_the_wire_is_the_longest_there_is(timeout: float) -> None:
    """A bug: it was more than eight bytes can hold, and an OverflowError came up."""
    client = Client()
    request = client.call(timeout=timeout)
    version, kind, _, _, milliseconds = cbor2.loads(client.sent[0][1])
    assert (version, kind) == ("memo01", JOB)
    assert 86_400_000 <= milliseconds < 1 << 64
    client.result(request)
    assert client.answers == [("mine", b"result")]


@pytest.mark.parametrize(("job_timeout", "patience"), [(60.0, 90.0), (1.5, 31.5), (0.0, inf)])
def test_how_long_it_waits_if_nobody_says(job_timeout: float, patience: float) -> None:
    assert Client(job_timeout=job_timeout).side.patience == patience


@pytest.mark.parametrize("result", [b"", b"result", memo(RESULT, b"")])
def test_a_client_gets_the_result_once(result: bytes) -> None:
    client = Client()
    request = client.call()
    client.result(request, result)
    client.result(request, result)
    assert client.answers == [("mine", result)]
    assert client.side.tick(client.now + 1_000_000) == inf
    assert len(client.sent) == 1


def test_a_result_with_the_flag_of_a_leaving_worker_is_a_result() -> None:
    client = Client()
    client.side.hear([client.call(), memo(RESULT, b"", True, payload=b"x")], client.now)
    assert client.answers == [("mine", b"x")]


def test_many_calls_are_in_flight_and_answered_in_any_order() -> None:
    client = Client(first_request=0x7FFF_FFF0)
    requests = [client.call(b"%d" % number, ticket=number) for number in range(50)]
    assert len(set(requests)) == 50
    assert all(request[0] & 0x80 for request in requests)
    for number in reversed(range(50)):
        client.result(requests[number], b"to %d" % number)
    assert client.answers == [(number, b"to %d" % number) for number in reversed(range(50))]


def test_what_is_not_answered_is_asked_again_with_the_same_id_and_bytes() -> None:
    client = Client()
    client.call(timeout=5.0)
    asked = client.take()
    due = client.side.tick(client.now)
    assert due == client.now + 5.0 + ASK_AGAIN
    assert client.side.tick(due - 0.1) == due
    assert client.sent == []
    assert client.side.tick(due) == due + 5.0 + ASK_AGAIN
    assert client.take() == asked
    client.side.tick(due + 5.0 + ASK_AGAIN)
    assert client.take() == asked


def test_each_call_has_its_own_time() -> None:
    client = Client()
    client.call(b"fast", timeout=1.0)
    client.call(b"slow", timeout=100.0)
    client.call(b"endless", timeout=inf)
    fast, slow, _ = client.take()
    assert client.side.tick(client.now) == client.now + 1.0 + ASK_AGAIN
    client.side.tick(client.now + 31)
    assert client.take() == [fast]
    client.side.tick(client.now + 130)
    assert client.take() == [fast, slow]


def test_a_call_without_a_limit_is_never_asked_again_on_the_same_connection() -> None:
    client = Client()
    client.call(timeout=inf)
    client.take()
    assert client.side.tick(client.now + 1e9) == inf
    assert client.sent == []


def test_on_a_new_connection_whatever_has_no_answer_is_asked_again() -> None:
    client = Client()
    done = client.call(b"one", ticket=1, timeout=5.0)
    client.call(b"two", ticket=2, timeout=5.0)
    client.call(b"three", ticket=3, timeout=inf)
    client.result(done)
    _, *rest = client.take()
    client.now += 20
    client.side.opened(client.now)
    assert client.take() == rest
    assert client.side.tick(client.now) == client.now + 5.0 + ASK_AGAIN


def test_it_outlives_connections_and_has_a_hint_for_those_who_hear_nothing() -> None:
    client = Client()
    assert client.side.outlives_connections
    assert "no word" in client.side.hint


@pytest.mark.parametrize("request_id", [b"", b"\x80\0\0\0", b"\xff\xff\xff\xff"])
def test_an_answer_to_nothing_a_client_asked_is_ignored(request_id: bytes) -> None:
    client = Client(first_request=7)
    client.call()
    client.result(request_id)
    assert client.answers == []


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        memo(READY, b"", ["a"]),
        memo(JOB, b"", "a", 1),
        memo(HEARTBEAT, b""),
        memo(DISCONNECT, b""),
        cbor2.dumps(["memo02", RESULT, b""]),
        memo(RESULT, b"", 1),
        memo(RESULT),
    ],
    ids=bytes.hex,
)
def test_what_is_no_result_is_malformed_and_costs_only_its_own_call(message: bytes) -> None:
    client = Client()
    request = client.call(ticket="bad")
    other = client.call(ticket="good")
    with pytest.raises(Malformed):
        client.side.hear([request, message], client.now)
    client.result(other)
    assert client.answers == [("good", b"result")]
