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


class Setup:
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
def setup_of(concurrency: int = 1) -> Iterator[Setup]:
    with LocalBroker(*LISTEN) as broker:
        setup = Setup(broker, concurrency)
        with setup.client:
            yield setup
        setup.release.set()
        setup.stop()


@pytest.fixture
def setup() -> Iterator[Setup]:
    with setup_of() as setup:
        yield setup


def test_jobs_are_done_one_after_the_other(setup: Setup) -> None:
    payloads = [b"%d" % number for number in range(60)] + [b"", bytes(range(256)) * 1000]
    assert list(setup.client.map("echo", payloads)) == payloads
    assert setup.client.call("größer/kleiner", b"ab") == b"a"
    assert setup.client.result(setup.client.enqueue("echo", b"later"), timeout=PATIENCE) == b"later"


def test_a_handler_knows_its_job(setup: Setup) -> None:
    job = setup.client.submit("echo", b"about", timeout=PATIENCE)
    assert job.result().decode() == f"echo {job.id} 1 True"


def test_a_failure_has_its_type_and_its_traceback(setup: Setup) -> None:
    with pytest.raises(JobFailed, match="failed: ValueError: no cat in it") as told:
        setup.client.call("echo", b"fail no cat in it")
    assert (told.value.remote_type, told.value.remote_message) == ("ValueError", "no cat in it")
    assert "in echo" in told.value.remote_traceback


def test_progress_reaches_the_caller_and_parts_are_refused(setup: Setup) -> None:
    job = setup.client.submit("echo", b"report 5")
    assert job.result(PATIENCE) == b"report 5"
    assert job.progress is not None
    with pytest.raises(JobFailed, match="http does not support parts of a result; return the whole result"):
        setup.client.call("echo", b"emit")


def test_a_result_that_is_too_large_is_a_failure_and_the_worker_goes_on(setup: Setup) -> None:
    with pytest.raises(JobFailed, match="over max_payload 1048576"):
        setup.client.call("echo", b"large 2000000")
    assert setup.client.call("echo", b"still there") == b"still there"


def test_a_worker_holds_as_many_jobs_as_it_has_room_for() -> None:
    with setup_of(3) as setup:
        jobs = [setup.client.submit("echo", b"hold %d" % number) for number in range(5)]
        for _ in range(3):
            setup.begun.get(timeout=PATIENCE)
        (view,) = setup.client.workers()
        assert (view.capacity, len(view.running), view.dialect) == (3, 3, "http")
        assert setup.begun.empty()
        setup.release.set()
        assert [job.result(PATIENCE) for job in jobs] == [b"hold %d" % number for number in range(5)]


def test_a_result_goes_out_while_a_poll_is_open() -> None:
    """The poll has a connection of its own."""
    with setup_of(2) as setup:
        assert setup.client.call("echo", b"one", timeout=PATIENCE) == b"one"
        begun = time.monotonic()
        assert setup.client.call("echo", b"two", timeout=PATIENCE) == b"two"
        assert time.monotonic() - begun < 7.0  # a poll lasts 7.5 s


def test_a_cancelled_job_is_stopped_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_worker, "HEARTBEAT", 0.05)
    with setup_of() as setup:
        job = setup.client.submit("echo", b"hold on")
        setup.begun.get(timeout=PATIENCE)
        assert job.cancel()
        assert setup.cancelled.get(timeout=PATIENCE) == b"hold on"
        assert setup.client.call("echo", b"next", timeout=PATIENCE) == b"next"
        with pytest.raises(CancelledError):
            job.result(PATIENCE)


def test_a_worker_that_stops_finishes_its_jobs_and_leaves(setup: Setup) -> None:
    held = setup.client.submit("echo", b"hold on")
    setup.begun.get(timeout=PATIENCE)
    waiting = setup.client.submit("echo", b"not mine", wait_for_worker=True)
    setup.worker.stop()
    setup.release.set()
    assert held.result(PATIENCE) == b"hold on"
    setup.thread.join(PATIENCE)
    assert not setup.thread.is_alive()
    until(lambda: not setup.client.workers(), "the worker has left")
    assert not waiting.done()


def test_an_idle_worker_stops_at_once_and_loses_no_job(setup: Setup) -> None:
    """Its poll is open: a job that is given to it at this very moment is done, and not lost."""
    jobs = [setup.client.enqueue("echo", b"%d" % number, attempts=1) for number in range(50)]
    setup.stop()
    until(lambda: not setup.client.workers(), "the worker has left")
    assert not setup.client.jobs(outcome="lost")
    assert {setup.client.job(job).outcome for job in jobs} <= {"done", None}


def test_a_worker_joins_again_when_the_broker_is_back() -> None:
    with LocalBroker(*LISTEN) as broker:
        setup = Setup(broker, 1)
        place = broker.urls["http"]
        setup.client.close()
    with LocalBroker(place, "tcp://127.0.0.1:0") as broker, Client(broker.urls["native"]) as client:
        broker.wait_for_workers()
        assert client.call("echo", b"again", timeout=PATIENCE) == b"again"
        setup.stop()
        until(lambda: not client.workers(), "the worker has left")


def test_a_worker_that_stops_while_there_is_no_broker_ends() -> None:
    with LocalBroker(*LISTEN) as broker:
        setup = Setup(broker, 1)
        setup.client.close()
    setup.stop()
