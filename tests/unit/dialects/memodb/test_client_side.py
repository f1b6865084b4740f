"""The client side of MemoDB."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import Any

import cbor2
import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.memodb.options import ClientOptions
from dragoman.dialects.memodb.peer import ASK_AGAIN, ClientSide

from .worker_side import DISCONNECT, HEARTBEAT, JOB, READY, RESULT, memo


class Client:
    """A client side and its results."""

    def __init__(self, first_request: int = 0, **options: float) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.now = 100.0
        self.side = ClientSide(ClientOptions(**options), self, first_request)  # type: ignore[arg-type]

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append((bytes(frames[0]), b"".join(frames[1:])))

    def answered(self, job_ref: Hashable, result: bytes) -> None:
        self.answers.append((job_ref, bytes(result)))

    def call(
        self, payload: bytes = b"job", job_ref: Hashable = "mine", timeout: float | None = None, service: str = "echo"
    ) -> bytes:
        """Make a call. Returns its request id."""
        self.side.call(job_ref, service, payload, timeout, self.now)
        return self.sent[-1][0]

    def result(self, request: bytes, payload: bytes = b"result") -> None:
        self.side.receive([request, memo(RESULT, b"", payload=payload)], self.now)

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
    client.side.receive([client.call(), memo(RESULT, b"", True, payload=b"x")], client.now)
    assert client.answers == [("mine", b"x")]


def test_many_calls_are_in_flight_and_answered_in_any_order() -> None:
    client = Client(first_request=0x7FFF_FFF0)
    requests = [client.call(b"%d" % number, job_ref=number) for number in range(50)]
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
    done = client.call(b"one", job_ref=1, timeout=5.0)
    client.call(b"two", job_ref=2, timeout=5.0)
    client.call(b"three", job_ref=3, timeout=inf)
    client.result(done)
    _, *rest = client.take()
    client.now += 20
    client.side.opened(client.now)
    assert client.take() == rest
    assert client.side.tick(client.now) == client.now + 5.0 + ASK_AGAIN


def test_it_outlives_connections_and_has_a_hint_for_those_who_hear_nothing() -> None:
    client = Client()
    assert client.side.outlives_connections
    assert "MemoDB has no message" in client.side.hint


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
    request = client.call(job_ref="bad")
    other = client.call(job_ref="good")
    with pytest.raises(Malformed):
        client.side.receive([request, message], client.now)
    client.result(other)
    assert client.answers == [("good", b"result")]
