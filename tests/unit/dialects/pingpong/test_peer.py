"""Worker side and client side of PingPong."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.options import ClientOptions, WorkerOptions
from dragoman.dialects.pingpong.peer import ClientSide, WorkerSide

PLAIN, PACKAGE = Edition.PLAIN, Edition.PACKAGE
both = pytest.mark.parametrize("edition", [PLAIN, PACKAGE])

READY, PING, PONG, EXIT = b"READY", b"PING", b"PONG", b"EXIT"
TOKEN = b"t" * 16


class Port:
    """Records the calls of a side; `reconnect` ends the connection, as the real one does."""

    def __init__(self, **options: object) -> None:
        self.sent: list[list[bytes]] = []
        self.runs: list[bytes] = []
        self.reconnects: list[str] = []
        self.leaves: list[str] = []
        self.options = WorkerOptions(**options)  # type: ignore[arg-type]
        self.side = WorkerSide(self.options, self)
        self.now = 100.0

    def send(self, frames: Sequence[bytes]) -> None:
        assert frames[0] == b""
        self.sent.append([bytes(frame) for frame in frames[1:]])

    def run(self, job_ref: Hashable, payload: bytes, assignment: object = None) -> None:
        self.job_ref = job_ref
        self.runs.append(bytes(payload))

    def reconnect(self, reason: str) -> None:
        assert reason
        self.reconnects.append(reason)
        self.side.lost()

    def leave(self, reason: str) -> None:
        self.leaves.append(reason)

    # what a test does

    def open(self) -> Port:
        self.side.opened(self.now)
        return self

    def receive(self, *words: bytes) -> None:
        self.side.receive([b"", *words], self.now)

    def job(self, payload: bytes = b"job", token: bytes = TOKEN) -> None:
        self.receive(payload, *([] if self.options.edition is PLAIN else [token, b"", b""]))

    def wait(self, seconds: float) -> None:
        """Let time pass; the side ticks when it requested it."""
        until = self.now + seconds
        while (due := self.side.tick(self.now)) <= until:
            assert due > self.now, "it asks to come again at once, for ever"
            self.now = due
        self.now = until
        self.side.tick(self.now)

    def said(self) -> list[list[bytes]]:
        said, self.sent = self.sent, []
        return said


# -------------------------------------------------------------------- life without jobs


@both
def test_it_says_ready_on_every_connection(edition: Edition) -> None:
    port = Port(edition=edition).open()
    assert port.said() == [[READY]]
    port.side.lost()
    port.open()
    assert port.said() == [[READY]]


@both
def test_it_pings_every_period_while_it_is_answered(edition: Edition) -> None:
    """Frames, row PING: every `ping_every`."""
    port = Port(edition=edition, ping_every=0.5).open()
    port.said()
    for _ in range(4):
        port.wait(0.5)
        port.receive(PONG)
    assert port.said() == [[PING]] * 4
    assert port.reconnects == []


def test_it_asks_to_be_woken_when_its_next_ping_is_due() -> None:
    port = Port(ping_every=0.5).open()
    assert port.side.tick(port.now) == port.now + 0.5


def test_after_n_timeouts_of_silence_it_closes_and_says_ready_on_a_new_connection() -> None:
    """Timers, broker_timeout and n_timeouts; the first text, Broker timeout."""
    port = Port(broker_timeout=0.5, n_timeouts=4).open()
    port.wait(1.9)
    assert port.reconnects == []
    port.wait(0.2)
    assert len(port.reconnects) == 1
    port.said()
    port.open()
    assert port.said() == [[READY]]


@pytest.mark.parametrize("words", [[PONG], [PONG, b"7"]])
def test_a_pong_is_a_life_sign_of_the_broker(words: list[bytes]) -> None:
    port = Port(broker_timeout=1, n_timeouts=3).open()
    for _ in range(10):
        port.wait(2.5)
        port.receive(*words)
    assert port.reconnects == []
    port.wait(3.1)
    assert len(port.reconnects) == 1


@both
def test_a_job_is_a_life_sign_of_the_broker(edition: Edition) -> None:
    """Timers, broker_timeout: a PONG or a job, either counts."""
    port = Port(edition=edition, broker_timeout=1, n_timeouts=3).open()
    port.wait(2.9)
    port.job()
    port.side.finished(port.job_ref, b"result", port.now)
    port.wait(2.9)
    assert port.reconnects == []
    port.wait(0.2)
    assert len(port.reconnects) == 1


def test_while_it_works_the_brokers_silence_does_not_make_it_drop_the_job() -> None:
    port = Port(broker_timeout=1, n_timeouts=3).open()
    port.job()
    port.wait(60)
    assert port.reconnects == []
    port.side.finished(port.job_ref, b"result", port.now)
    assert port.said()[-1] == [b"result"]


def test_when_the_job_is_done_the_broker_has_its_full_time_again() -> None:
    port = Port(broker_timeout=1, n_timeouts=3).open()
    port.job()
    port.wait(60)
    port.side.finished(port.job_ref, b"result", port.now)
    port.wait(2.9)
    assert port.reconnects == []
    port.wait(0.2)
    assert len(port.reconnects) == 1


def test_it_pings_while_it_works_if_asked_to() -> None:
    """Heartbeats never share a thread with a job: they could go on."""
    port = Port(ping_while_busy=True).open()
    port.job()
    port.said()
    port.wait(5)
    assert port.said() == [[PING]] * 5


def test_it_does_not_ping_while_it_works() -> None:
    """A broker that takes the document at its word would give a second job to a worker that pings at its first."""
    port = Port().open()
    port.job()
    port.said()
    port.wait(60)
    assert (port.said(), port.reconnects) == ([], [])
    port.side.finished(port.job_ref, b"result", port.now)
    port.wait(1)
    assert port.said() == [[b"result"], [PING]]


def test_while_it_is_not_connected_it_says_nothing() -> None:
    port = Port()
    assert port.side.tick(port.now) > port.now
    port.open()
    port.side.lost()
    port.said()
    port.wait(60)
    assert port.said() == []
    assert port.reconnects == []


# -------------------------------------------------------------------- jobs


def test_in_plain_it_takes_one_frame_and_sends_one() -> None:
    port = Port().open()
    port.job(b"question")
    assert port.runs == [b"question"]
    assert port.side.is_busy
    port.said()
    port.side.finished(port.job_ref, b"answer", port.now)
    assert port.said() == [[b"answer"]]
    assert not port.side.is_busy


def test_in_package_it_sends_the_envelope_back() -> None:
    port = Port(edition=PACKAGE).open()
    port.job(b"question", b"whatever the broker wrote")
    assert port.runs == [b"question"]
    port.said()
    port.side.finished(port.job_ref, b"answer", port.now)
    assert port.said() == [[b"JOB COMPLETE", b"whatever the broker wrote", b"", b"answer"]]


@both
def test_empty_jobs_and_empty_results_are_legal(edition: Edition) -> None:
    port = Port(edition=edition).open()
    port.job(b"")
    port.said()
    port.side.finished(port.job_ref, b"", port.now)
    assert port.runs == [b""]
    assert port.said()[0][-1] == b""


@pytest.mark.parametrize("word", [READY, PING, b"DISCONNECT", b"ERROR", b"pong"])
def test_in_plain_it_takes_any_word_but_pong_and_exit_for_a_job(word: bytes) -> None:
    """The second text: what is not PONG or EXIT is a job."""
    port = Port().open()
    port.job(word)
    assert port.runs == [word]


@pytest.mark.parametrize("word", [PONG, EXIT])
def test_in_package_even_those_can_be_jobs(word: bytes) -> None:
    port = Port(edition=PACKAGE).open()
    port.job(word)
    assert port.runs == [word]
    assert port.leaves == []


@both
def test_r39_a_result_of_a_job_taken_on_an_earlier_connection_is_never_sent(edition: Edition) -> None:
    port = Port(edition=edition).open()
    port.job(b"A")
    port.side.lost()
    port.open()
    port.said()
    port.side.finished(port.job_ref, b"result of A", port.now)
    assert port.said() == []


@both
def test_a_job_that_fails_makes_it_reconnect_because_this_wire_has_no_word_for_failure(edition: Edition) -> None:
    port = Port(edition=edition).open()
    port.job()
    port.said()
    port.side.failed(port.job_ref, "ValueError: no", port.now)
    assert port.reconnects == ["ValueError: no"]
    assert port.said() == []
    assert not port.side.is_busy


def test_r39_a_failure_of_a_job_taken_on_an_earlier_connection_does_not_cost_the_new_one() -> None:
    port = Port().open()
    port.job(b"A")
    port.side.lost()
    port.open()
    port.side.failed(port.job_ref, "ValueError: no", port.now)
    assert port.reconnects == []


@both
def test_a_second_job_while_it_works_makes_it_reconnect(edition: Edition) -> None:
    """It cannot tell the broker which of two results is which; the broker sees that neither is coming."""
    port = Port(edition=edition).open()
    port.job(b"A")
    port.job(b"B")
    assert port.runs == [b"A"]
    assert len(port.reconnects) == 1
    port.said()
    port.side.finished(port.job_ref, b"result of A", port.now)
    assert port.said() == []


@pytest.mark.parametrize("word", [READY, PING, PONG, EXIT])
def test_r44_in_plain_a_result_that_is_a_control_word_is_not_sent(word: bytes) -> None:
    """A broker would take it for a control message, and the job would hang: losing it gives its caller an outcome."""
    port = Port().open()
    port.job()
    port.said()
    port.side.finished(port.job_ref, word, port.now)
    assert port.said() == []
    assert len(port.reconnects) == 1


@pytest.mark.parametrize("word", [READY, PING, PONG, EXIT, b"DISCONNECT"])
def test_r44_in_package_any_result_can_be_sent(word: bytes) -> None:
    port = Port(edition=PACKAGE).open()
    port.job()
    port.said()
    port.side.finished(port.job_ref, word, port.now)
    assert port.said() == [[b"JOB COMPLETE", TOKEN, b"", word]]


@pytest.mark.parametrize("result", [b"READY or not", b"PING\n", b"ready", b"DISCONNECT", bytearray(b"x" * 1_000)])
def test_other_results_are_sent_as_they_are(result: bytes) -> None:
    port = Port().open()
    port.job()
    port.said()
    port.side.finished(port.job_ref, result, port.now)
    assert port.said() == [[bytes(result)]]


# -------------------------------------------------------------------- the end


@both
def test_exit_makes_it_leave_without_an_answer(edition: Edition) -> None:
    """Frames, row EXIT: our worker: no answer, exit 0."""
    port = Port(edition=edition).open()
    port.said()
    port.receive(EXIT)
    assert len(port.leaves) == 1
    assert port.said() == []
    assert port.reconnects == []


def test_in_plain_it_stops_without_a_word_because_closing_says_it() -> None:
    port = Port().open()
    port.said()
    port.side.stop()
    assert port.said() == []


def test_in_package_it_says_disconnect_when_it_stops() -> None:
    port = Port(edition=PACKAGE).open()
    port.said()
    port.side.stop()
    assert port.said() == [[b"DISCONNECT"]]


def test_in_package_it_says_nothing_where_nobody_hears_it() -> None:
    port = Port(edition=PACKAGE)
    port.side.stop()
    assert port.said() == []


def test_in_package_disconnect_follows_the_last_result_at_once() -> None:
    """So that the broker reads both before it hands out another job."""
    port = Port(edition=PACKAGE).open()
    port.job()
    port.said()
    port.side.stop()
    assert port.said() == []
    port.side.finished(port.job_ref, b"result", port.now)
    assert [words[0] for words in port.said()] == [b"JOB COMPLETE", b"DISCONNECT"]


def test_a_job_that_comes_while_it_stops_is_not_begun() -> None:
    port = Port().open()
    port.side.stop()
    port.job()
    assert port.runs == []


@both
@pytest.mark.parametrize(
    "message", [[], [b""], [b"x", b"job"], [b"", b"EXIT", b"x"], [b"", b"a", b"b"], TooLarge([b""], 1 << 40)]
)
def test_what_it_does_not_understand_makes_it_reconnect(edition: Edition, message: list[bytes] | TooLarge) -> None:
    port = Port(edition=edition).open()
    port.side.receive(message, port.now)  # type: ignore[arg-type]
    assert len(port.reconnects) == 1
    assert port.runs == []


# -------------------------------------------------------------------- the client


class Client:
    """A client side and its results."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.side = ClientSide(ClientOptions(), self)

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append(list(frames))

    def answered(self, job_ref: Hashable, result: bytes) -> None:
        self.answers.append((job_ref, result))

    def ended(
        self, job_ref: Hashable, outcome: Outcome | None, reason: str, failure: Any = None, refusal: str = ""
    ) -> None:
        self.answers.append((job_ref, outcome, reason))

    def call(self, payload: bytes = b"job", job_ref: Hashable = "mine") -> Client:
        self.side.call(job_ref, "default", payload, None, 0.0)
        return self


@pytest.mark.parametrize("payload", [b"job", b""])
def test_a_clients_request_is_the_job_behind_a_delimiter(payload: bytes) -> None:
    assert Client().call(payload).sent == [[b"", payload]]


@pytest.mark.parametrize("result", [b"", b"result", b"ERROR"])
def test_a_client_gets_the_result(result: bytes) -> None:
    client = Client().call()
    client.side.receive([b"", result], 0.0)
    client.side.receive([b"", result], 0.0)  # twice is once
    assert client.answers == [("mine", result)]


@pytest.mark.parametrize("outcome", ["failed", "timed out", "lost", "cancelled", "refused"])
def test_a_client_gets_the_reason_of_every_other_outcome(outcome: str) -> None:
    client = Client().call()
    client.side.receive([b"", b"", b"ERROR", f"{outcome}: ein Grund".encode()], 0.0)
    assert client.answers == [("mine", outcome, "ein Grund")]


@pytest.mark.parametrize(
    "message", [[], [b"x"], [b"x", b"y"], [b"", b"a", b"b"], [b"", PONG], TooLarge([b""], 1 << 40)]
)
def test_what_is_no_answer_is_malformed(message: list[bytes] | TooLarge) -> None:
    client = Client().call()
    with pytest.raises(Malformed):
        client.side.receive(message, 0.0)  # type: ignore[arg-type]
    assert client.answers == []
