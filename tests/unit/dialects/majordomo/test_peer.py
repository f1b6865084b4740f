"""Worker side and client side of Majordomo."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.majordomo.editions import Edition
from dragoman.dialects.majordomo.options import ClientOptions, WorkerOptions
from dragoman.dialects.majordomo.peer import ClientSide, WorkerSide, check_services

from .world import FIELD, RFC7, SPEECHES, Speech

every = pytest.mark.parametrize("speech", SPEECHES, ids=str)
CLIENT = b"whose this is"


class Port:
    """Records the calls of a side; `reconnect` ends the connection, as the real one does."""

    def __init__(self, speech: Speech = RFC7, **options: float) -> None:
        self.speech = speech
        self.sent: list[list[bytes]] = []
        self.runs: list[bytes] = []
        self.reconnects: list[str] = []
        self.now = 100.0
        chosen = WorkerOptions(edition=Edition(speech.name), **options)  # type: ignore[arg-type]
        self.side = WorkerSide(chosen, self, "echo")  # type: ignore[arg-type]

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append([bytes(frame) for frame in frames])

    def run(self, job_ref: Hashable, payload: bytes, assignment: object = None) -> None:
        self.job_ref = job_ref
        self.runs.append(bytes(payload))

    def reconnect(self, reason: str) -> None:
        assert reason
        self.reconnects.append(reason)
        self.side.lost()

    # what a test does

    def open(self) -> Port:
        self.side.opened(self.now)
        return self

    def receive(self, *rest: bytes) -> None:
        self.side.receive([*self.speech.worker, *rest], self.now)

    def job(self, *body: bytes) -> None:
        self.receive(b"\x02", CLIENT, b"", *(body or (b"job",)))

    def wait(self, seconds: float) -> None:
        """Let time pass; the side ticks when it requested it."""
        until = self.now + seconds
        while (due := self.side.tick(self.now)) <= until:
            assert due > self.now, "it asks to come again at once, for ever"
            self.now = due
        self.now = until
        self.side.tick(self.now)

    def said(self) -> list[list[bytes]]:
        """Return the sent messages without heads."""
        said, self.sent = self.sent, []
        at = len(self.speech.worker)
        assert all(tuple(frames[:at]) == self.speech.worker for frames in said)
        return [frames[at:] for frames in said]


READY = [b"\x01", b"echo"]


# -------------------------------------------------------------------- life without jobs


@every
def test_it_says_ready_on_every_connection(speech: Speech) -> None:
    port = Port(speech).open()
    port.side.lost()
    port.open()
    assert port.said() == [READY, READY]


@every
def test_it_says_heartbeat_every_period_idle_or_busy(speech: Speech) -> None:
    port = Port(speech, heartbeat=0.5).open()
    port.said()
    for _ in range(4):
        port.wait(0.5)
        port.receive(speech.heartbeat)
    port.job()
    port.wait(2)
    assert port.said() == [[speech.heartbeat]] * 8
    assert port.reconnects == []


@every
def test_after_liveness_heartbeats_of_silence_it_connects_anew(speech: Speech) -> None:
    port = Port(speech, heartbeat=0.5, liveness=4).open()
    port.wait(1.9)
    assert port.reconnects == []
    port.wait(0.2)
    assert len(port.reconnects) == 1


def test_any_command_is_a_life_sign_of_the_broker() -> None:
    port = Port(heartbeat=1, liveness=3).open()
    for _ in range(5):
        port.wait(2.5)
        port.receive(RFC7.heartbeat)
    assert port.reconnects == []


def test_a_broker_may_be_silent_while_we_work() -> None:
    """The Guide's broker is."""
    port = Port(heartbeat=1, liveness=3).open()
    port.job()
    port.wait(50)
    port.side.finished(port.job_ref, b"result", port.now)
    port.wait(2.9)
    assert port.reconnects == []
    port.wait(0.2)
    assert len(port.reconnects) == 1


@every
def test_disconnect_makes_it_connect_anew(speech: Speech) -> None:
    port = Port(speech).open()
    port.receive(speech.disconnect)
    assert port.reconnects == ["the broker sent DISCONNECT"]
    port.said()
    port.open()
    assert port.said() == [READY]


def test_a_side_without_a_connection_asks_for_nothing() -> None:
    port = Port(heartbeat=1, liveness=3)
    port.wait(10)
    assert port.sent == port.reconnects == []


# -------------------------------------------------------------------- jobs


@every
def test_the_clients_frame_goes_back_with_the_result(speech: Speech) -> None:
    port = Port(speech).open()
    port.job(b"job")
    assert port.runs == [b"job"]
    assert port.side.is_busy
    port.said()
    port.side.finished(port.job_ref, b"result", port.now)
    assert port.said() == [[speech.reply, CLIENT, b"", b"result"]]
    assert not port.side.is_busy


@every
def test_a_body_of_several_frames_is_one_payload_and_goes_back_as_the_handler_leaves_it(speech: Speech) -> None:
    port = Port(speech).open()
    port.job(b"one", b"two")
    assert port.runs == [b"onetwo"]
    port.said()
    port.side.finished(port.job_ref, b"joined", port.now)
    assert port.said() == [[speech.reply, CLIENT, b"", b"joined"]]


@every
def test_a_job_that_failed_makes_it_say_disconnect_and_connect_anew(speech: Speech) -> None:
    port = Port(speech).open()
    port.job()
    port.said()
    port.side.failed(port.job_ref, "boom", port.now)
    assert port.said() == [[speech.disconnect]]
    assert port.reconnects == ["boom"]


def test_the_result_of_a_job_of_an_earlier_connection_is_never_sent() -> None:
    port = Port().open()
    port.job()
    port.receive(RFC7.disconnect)
    port.open()
    port.said()
    port.side.finished(port.job_ref, b"result", port.now)
    port.side.failed(port.job_ref, "boom", port.now)
    assert port.said() == []
    assert len(port.reconnects) == 1


def test_a_second_job_while_it_works_makes_it_connect_anew() -> None:
    port = Port().open()
    port.job()
    port.job(b"another")
    assert port.runs == [b"job"]
    assert len(port.reconnects) == 1


@every
@pytest.mark.parametrize("rest", [[], [b"\x01", b"echo"], [b"\x07"], [b"\x02"], [b"\x02", b"c", b"x"], [b"\x02", b"c"]])
def test_what_it_cannot_understand_makes_it_connect_anew(speech: Speech, rest: list[bytes]) -> None:
    port = Port(speech).open()
    port.receive(*rest)
    assert len(port.reconnects) == 1
    assert port.runs == []


def test_a_job_over_what_it_takes_makes_it_connect_anew() -> None:
    port = Port().open()
    port.side.receive(TooLarge([b"", b"MDPW01", b"\x02"], 1 << 40), port.now)
    assert len(port.reconnects) == 1


# -------------------------------------------------------------------- leaving


@every
def test_an_idle_worker_that_stops_says_disconnect_and_nothing_more(speech: Speech) -> None:
    port = Port(speech, heartbeat=1).open()
    port.said()
    port.side.stop()
    assert port.said() == [[speech.disconnect]]
    port.job()
    port.receive(speech.disconnect)
    port.wait(10)
    assert port.said() == port.runs == port.reconnects == []


@every
def test_a_busy_worker_that_stops_says_disconnect_behind_its_result(speech: Speech) -> None:
    port = Port(speech, heartbeat=1).open()
    port.job()
    port.said()
    port.side.stop()
    port.wait(1)
    assert port.said() == [[speech.heartbeat]]
    port.side.finished(port.job_ref, b"result", port.now)
    assert port.said() == [[speech.reply, CLIENT, b"", b"result"], [speech.disconnect]]


def test_one_service_a_worker() -> None:
    assert check_services(["echo"]) is None
    assert "one service" in str(check_services(["a", "b"]))
    for name in ("", "a" * 129, "tab\t"):
        assert "service name" in str(check_services([name]))


# -------------------------------------------------------------------- the client


class Client:
    """A client side and its results."""

    def __init__(self, speech: Speech) -> None:
        self.speech = speech
        self.sent: list[list[bytes]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.parts: list[tuple[Hashable, bytes, bool, int]] = []
        self.reconnects: list[str] = []
        self.side = ClientSide(ClientOptions(edition=Edition(speech.name)), self)

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append([bytes(frame) for frame in frames])

    def answered(self, job_ref: Hashable, result: bytes) -> None:
        self.answers.append((job_ref, bytes(result)))

    def reported(self, job_ref: Hashable, payload: bytes, is_part: bool, attempt: int) -> None:
        self.parts.append((job_ref, bytes(payload), is_part, attempt))

    def reconnect(self, reason: str) -> None:
        self.reconnects.append(reason)

    def call(self, payload: bytes = b"job") -> Client:
        self.side.call("mine", "echo", payload, None, 0.0)
        return self

    def receive(self, *body: bytes, part: bool = False, service: bytes = b"echo") -> None:
        self.side.receive(list(self.speech.answer(service, *body, part=part)), 0.0)


@every
@pytest.mark.parametrize("payload", [b"job", b""])
def test_a_clients_request_names_the_service(speech: Speech, payload: bytes) -> None:
    assert Client(speech).call(payload).sent == [[*speech.client, b"echo", payload]]


@every
@pytest.mark.parametrize("body", [[b"result"], [b""], [], [b"a", b"", b"b"]])
def test_a_client_gets_the_result_once(speech: Speech, body: list[bytes]) -> None:
    client = Client(speech).call()
    client.receive(*body)
    client.receive(*body)
    assert client.answers == [("mine", b"".join(body))]
    client.call()
    client.receive(b"second")
    assert len(client.answers) == 2


@pytest.mark.parametrize("speech", SPEECHES[1:], ids=str)
def test_parts_are_reported_as_they_come(speech: Speech) -> None:
    client = Client(speech).call()
    client.receive(b"one ", part=True)
    client.receive(b"two", b" ", part=True)
    assert client.parts == [("mine", b"one ", True, 1), ("mine", b"two ", True, 1)]
    assert client.answers == []
    client.receive(b"three")
    assert client.answers == [("mine", b"three")]


@every
def test_what_is_no_answer_is_malformed(speech: Speech) -> None:
    client = Client(speech).call()
    strange: list[list[bytes] | TooLarge] = [
        [],
        [b"x"],
        [b"", b"ERROR"],
        [*speech.worker, b"\x01"],
        TooLarge([], 1 << 40),
    ]
    if speech is not FIELD:
        strange.append(speech.answer(b"another", b"x"))
        strange.append(list(speech.final))
    if speech.part:
        strange.append([*speech.final[:-1], b"\x09", b"echo", b"x"])
    for message in strange:
        with pytest.raises(Malformed):
            client.side.receive(message, 0.0)  # type: ignore[arg-type]
    assert client.answers == []


@every
def test_a_call_that_nobody_waits_for_any_more_costs_the_connection(speech: Speech) -> None:
    """A bug: its reply was taken for the next call's."""
    client = Client(speech).call()
    client.side.forget("somebody else's", b"", 0.0)
    assert client.reconnects == []
    client.side.forget("mine", b"", 0.0)
    assert len(client.reconnects) == 1
    client.receive(b"too late")
    client.call()
    client.receive(b"in time")
    assert client.answers == [("mine", b"in time")]


def test_a_client_waits_for_reply_timeout_and_says_why_nothing_came() -> None:
    client = Client(RFC7).call()
    assert client.side.patience == 90
    assert not client.side.outlives_connections
    assert "Majordomo has no message" in client.side.hint
    client.side.opened(0.0)
    client.side.lost()
    assert client.side.tick(0.0) == float("inf")
