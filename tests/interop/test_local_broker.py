"""LocalBroker, the broker for users' own tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from dragoman import Client, JobTimeout, LocalBroker, NoSuchService
from dragoman.testing.local import VirtualClock
from programs import PATIENCE, until

RESULT, JOB = b"\x20", b"\x30"
RECORD = 38


@contextmanager
def a_worker(url: str, *, is_deaf: bool = False) -> Iterator[None]:
    """Start a hand-written worker that offers `shout`; a deaf one takes jobs and never answers."""
    over = threading.Event()

    def live() -> None:
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(url.removeprefix("native+"))
            socket.send_multipart([b"\x01\x01\x02", b'{"services": ["shout"], "capacity": 8}'])
            while not over.is_set():
                if socket.poll(20):
                    head, *frames = socket.recv_multipart()
                    if head[:1] == JOB and not is_deaf:
                        tokens = [frames[0][at : at + 16] for at in range(0, len(frames[0]), RECORD)]
                        socket.send_multipart([RESULT + b"".join(tokens), *(each.upper() for each in frames[1:])])

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_clients_and_workers_meet_in_it() -> None:
    with LocalBroker() as broker, a_worker(broker.url):
        broker.wait_for_workers(1, "shout")
        with broker.client() as client:
            assert client.call("shout", b"hello", timeout=PATIENCE) == b"HELLO"


def test_the_fixtures_are_there_by_themselves(dragoman_broker: LocalBroker, dragoman_client: Client) -> None:
    with a_worker(dragoman_broker.url):
        dragoman_broker.wait_for_workers()
        assert dragoman_client.call("shout", b"hello", timeout=PATIENCE) == b"HELLO"
    with pytest.raises(NoSuchService):
        dragoman_client.call("whisper", b"", timeout=PATIENCE)


def test_two_of_them_stand_side_by_side_and_speak_what_they_are_told(tmp_path: Path) -> None:
    with (
        LocalBroker() as one,
        LocalBroker(
            f"native+ipc://{tmp_path}/n.sock", "memodb+tcp://127.0.0.1:0", "pingpong+tcp://127.0.0.1:0?frontend=0"
        ) as other,
    ):
        assert one.url.startswith("native+tcp://127.0.0.1:")
        assert other.url == f"native+ipc://{tmp_path}/n.sock"
        assert list(other.urls) == ["native", "memodb", "pingpong workers", "pingpong callers"]
        with a_worker(other.url.replace("native+ipc", "ipc")), Client(other.urls["memodb"]) as client:
            other.wait_for_workers(1, "shout")
            assert client.call("shout", b"hello", timeout=PATIENCE) == b"HELLO"


def test_an_hour_passes_in_a_moment_on_a_virtual_clock() -> None:
    with LocalBroker(clock=VirtualClock()) as broker, a_worker(broker.url, is_deaf=True), broker.client() as client:
        broker.wait_for_workers()
        job = client.submit("shout", b"", job_timeout=3600)
        until(lambda: broker._thread.run(lambda: broker._thread.server.broker.counters.dispatched), "it is given")
        broker.advance(3599)
        assert not job.done()
        broker.advance(2)
        with pytest.raises(JobTimeout):
            job.result(PATIENCE)
        assert (
            broker._thread.run(lambda: len(broker._thread.server.broker.worker_registry.workers)) == 1
        )  # nobody has aged


def test_real_time_cannot_be_advanced() -> None:
    with LocalBroker() as broker, pytest.raises(RuntimeError, match="VirtualClock"):
        broker.advance(1)


def test_waiting_for_workers_that_do_not_come_ends() -> None:
    with LocalBroker() as broker, pytest.raises(TimeoutError, match="fewer than 1 workers offer 'shout'"):
        broker.wait_for_workers(1, "shout", timeout=0.05)


def test_it_can_be_closed_twice_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "n.sock"
    broker = LocalBroker(f"ipc://{path}")
    assert path.exists()
    broker.close()
    broker.close()
    assert not path.exists()
    with pytest.raises(RuntimeError, match="closed"):
        broker.wait_for_workers()
