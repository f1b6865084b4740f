"""Dragoman's workers over HTTP: a `Worker` in a thread, with a broker for each test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from queue import Queue

import pytest

from dragoman import Client, Context, JobFailed, LocalBroker, Worker
from dragoman.sdk import http_worker
from programs import PATIENCE, until

LISTEN = ("tcp://127.0.0.1:0?max_payload=1MiB", "http://127.0.0.1:0?max_payload=1MiB")


class House:
    """A broker, an HTTP worker that offers `echo`, and a native client."""

    def __init__(self, broker: LocalBroker, concurrency: int) -> None:
        self.broker = broker
        self.begun: Queue[bytes] = Queue()
        self.cancelled: Queue[bytes] = Queue()
        self.release = threading.Event()
        self.worker = Worker(broker.urls["http"], threads=concurrency)
        self.worker.service("echo")(self.echo)
        self.worker.service("größer/kleiner")(lambda payload: payload[:1])
        self.thread = threading.Thread(target=self.worker.run, daemon=True)
        self.thread.start()
        self.client = Client(broker.urls["native"])
        broker.wait_for_workers()

    def echo(self, payload: bytes, ctx: Context) -> bytes:
        word, _, rest = payload.partition(b" ")
        if word == b"fail":
            raise ValueError(rest.decode())
        if word == b"large":
            return bytes(int(rest))
        if word == b"report":
            for number in range(int(rest)):
                ctx.progress(number + 1, int(rest))
        if word == b"emit":
            ctx.emit(b"part")
        if word == b"about":
            return f"{ctx.service} {ctx.job_id} {ctx.attempt} {ctx.deadline is not None}".encode()
        if word == b"hold":
            self.begun.put(payload)
            while not self.release.wait(0.01):
                if ctx.cancelled:
                    self.cancelled.put(payload)
                    break
        return payload

    def stop(self) -> None:
        self.worker.stop()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@contextmanager
def house_of(concurrency: int = 1) -> Iterator[House]:
    with LocalBroker(*LISTEN) as broker:
        house = House(broker, concurrency)
        with house.client:
            yield house
        house.release.set()
        house.stop()


@pytest.fixture
def house() -> Iterator[House]:
    with house_of() as house:
        yield house


def test_jobs_are_done_one_after_the_other(house: House) -> None:
    payloads = [b"%d" % number for number in range(60)] + [b"", bytes(range(256)) * 1000]
    assert list(house.client.map("echo", payloads)) == payloads
    assert house.client.call("größer/kleiner", b"ab") == b"a"
    assert house.client.result(house.client.enqueue("echo", b"later"), timeout=PATIENCE) == b"later"


def test_a_handler_knows_its_job(house: House) -> None:
    job = house.client.submit("echo", b"about", timeout=PATIENCE)
    assert job.result().decode() == f"echo {job.id} 1 True"


def test_a_failure_has_its_type_and_its_traceback(house: House) -> None:
    with pytest.raises(JobFailed, match="failed: ValueError: no cat in it") as told:
        house.client.call("echo", b"fail no cat in it")
    assert (told.value.remote_type, told.value.remote_message) == ("ValueError", "no cat in it")
    assert "in echo" in told.value.remote_traceback


def test_progress_reaches_the_caller_and_parts_are_refused(house: House) -> None:
    job = house.client.submit("echo", b"report 5")
    assert job.result(PATIENCE) == b"report 5"
    assert job.progress is not None
    with pytest.raises(JobFailed, match="http does not support parts of a result; return the whole result"):
        house.client.call("echo", b"emit")


def test_a_result_that_is_too_large_is_a_failure_and_the_worker_goes_on(house: House) -> None:
    with pytest.raises(JobFailed, match="over max_payload 1048576"):
        house.client.call("echo", b"large 2000000")
    assert house.client.call("echo", b"still there") == b"still there"


def test_a_worker_holds_as_many_jobs_as_it_has_room_for() -> None:
    with house_of(3) as house:
        jobs = [house.client.submit("echo", b"hold %d" % number) for number in range(5)]
        for _ in range(3):
            house.begun.get(timeout=PATIENCE)
        (view,) = house.client.workers()
        assert (view.capacity, len(view.running), view.dialect) == (3, 3, "http")
        assert house.begun.empty()
        house.release.set()
        assert [job.result(PATIENCE) for job in jobs] == [b"hold %d" % number for number in range(5)]


def test_a_result_goes_out_while_a_poll_is_open() -> None:
    """The poll has a connection of its own."""
    with house_of(2) as house:
        assert house.client.call("echo", b"one", timeout=PATIENCE) == b"one"
        begun = time.monotonic()
        assert house.client.call("echo", b"two", timeout=PATIENCE) == b"two"
        assert time.monotonic() - begun < 7.0  # a poll lasts 7.5 s


def test_a_cancelled_job_is_stopped_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_worker, "HEARTBEAT", 0.05)
    with house_of() as house:
        job = house.client.submit("echo", b"hold on")
        house.begun.get(timeout=PATIENCE)
        assert job.cancel()
        assert house.cancelled.get(timeout=PATIENCE) == b"hold on"
        assert house.client.call("echo", b"next", timeout=PATIENCE) == b"next"
        with pytest.raises(CancelledError):
            job.result(PATIENCE)


def test_a_worker_that_stops_finishes_its_jobs_and_leaves(house: House) -> None:
    held = house.client.submit("echo", b"hold on")
    house.begun.get(timeout=PATIENCE)
    waiting = house.client.submit("echo", b"not mine", wait_for_worker=True)
    house.worker.stop()
    house.release.set()
    assert held.result(PATIENCE) == b"hold on"
    house.thread.join(PATIENCE)
    assert not house.thread.is_alive()
    until(lambda: not house.client.workers(), "the worker has left")
    assert not waiting.done()


def test_an_idle_worker_stops_at_once_and_loses_no_job(house: House) -> None:
    """Its poll is open: a job that is given to it at this very moment is done, and not lost."""
    jobs = [house.client.enqueue("echo", b"%d" % number, attempts=1) for number in range(50)]
    house.stop()
    until(lambda: not house.client.workers(), "the worker has left")
    assert not house.client.jobs(outcome="lost")
    assert {house.client.job(job).outcome for job in jobs} <= {"done", None}


def test_a_worker_joins_again_when_the_broker_is_back() -> None:
    with LocalBroker(*LISTEN) as broker:
        house = House(broker, 1)
        place = broker.urls["http"]
        house.client.close()
    with LocalBroker(place, "tcp://127.0.0.1:0") as broker, Client(broker.urls["native"]) as client:
        broker.wait_for_workers()
        assert client.call("echo", b"again", timeout=PATIENCE) == b"again"
        house.stop()
        until(lambda: not client.workers(), "the worker has left")


def test_a_worker_that_stops_while_there_is_no_broker_ends() -> None:
    with LocalBroker(*LISTEN) as broker:
        house = House(broker, 1)
        house.client.close()
    house.stop()
