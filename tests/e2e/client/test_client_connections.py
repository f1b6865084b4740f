"""Clients with lost connections, and the end of clients."""

from __future__ import annotations

import concurrent.futures
import gc
import socket
import sys
import threading
import warnings

import pytest
from client_broker import OTHERS, Broker
from native_worker import Cutter, HandWorker

from dragoman import BrokerUnavailable, Client, JobCancelled, JobTimeout, Unsupported
from programs import PATIENCE, Programs, until

# -------------------------------------------------------------------- connections that break


def test_what_is_under_way_outlives_its_connection(broker: Broker, worker: HandWorker) -> None:
    cutter = Cutter(broker.port)
    payloads = [b"%d" % number for number in range(1200)]
    try:
        with Client(f"tcp://127.0.0.1:{cutter.port}") as client:
            results = []
            for result in client.map("echo", payloads, window=100):
                results.append(result)
                if len(results) in (200, 600, 1000):
                    cutter.cut()
            held = client.submit("echo", b"hold")
            _, token = worker.held.get(timeout=PATIENCE)
            cutter.cut()
            worker.release(token, b"while it was away")
            assert held.result(PATIENCE) == b"while it was away"
    finally:
        cutter.close()
    assert results == payloads
    assert set(worker.seen.values()) == {1}, "none ran twice, none was lost"
    assert cutter.count == 5


def test_a_cancel_while_the_connection_is_down_is_said_later(broker: Broker, worker: HandWorker) -> None:
    cutter = Cutter(broker.port)
    try:
        with Client(f"tcp://127.0.0.1:{cutter.port}") as client:
            job = client.submit("echo", b"hold")
            _, token = worker.held.get(timeout=PATIENCE)
            cutter.cut()
            job.cancel()
            with pytest.raises(concurrent.futures.CancelledError):
                job.result(PATIENCE)
            assert worker.recalled.get(timeout=PATIENCE) == token
    finally:
        cutter.close()


def test_a_broker_that_was_started_again_has_lost_what_was_under_way(programs: Programs) -> None:
    first = Broker(programs)
    worker = HandWorker(first.url, "echo")
    with Client(first.url) as client:
        job = client.submit("echo", b"hold")
        worker.held.get(timeout=PATIENCE)
        first.program.kill()
        worker.stop()
        second = Broker(programs, first.port)
        with pytest.raises(BrokerUnavailable, match="the job may have run"):
            job.result(PATIENCE)
        worker = HandWorker(second.url, "echo")
        assert client.call("echo", b"x", timeout=10) == b"x"
        worker.stop()


def test_without_a_broker_a_job_waits_as_long_as_it_is_told(worker: HandWorker) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        with Client(f"tcp://{where}", connect_timeout=0.3) as client:
            told = rf"no broker answers at {where}: connection refused; no connection within 0.3 s \(connect_timeout\)"
            with pytest.raises(BrokerUnavailable, match=told) as error:
                client.call("echo", b"x")
            assert isinstance(error.value, ConnectionError)
        with Client(f"tcp://{where}", wait_for_broker=False) as client, pytest.raises(BrokerUnavailable, match=where):
            client.call("echo", b"x")
        with Client(f"tcp://{where}") as client, pytest.raises(JobTimeout, match=r"no answer within 0\.1 s"):
            client.call("echo", b"x", timeout=0.1)


def test_a_broker_that_comes_late_is_waited_for(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"tcp://127.0.0.1:{port}") as client:
        job = client.submit("echo", b"x", wait_for_worker=True)
        broker = Broker(programs, port)
        worker = HandWorker(broker.url, "echo")
        assert job.result(PATIENCE) == b"x"
        worker.stop()


def test_a_broker_that_dies_for_good_ends_what_is_under_way(programs: Programs) -> None:
    broker = Broker(programs)
    worker = HandWorker(broker.url, "echo")
    with Client(broker.url, connect_timeout=0.3) as client:
        job = client.submit("echo", b"hold")
        worker.held.get(timeout=PATIENCE)
        broker.program.kill()
        with pytest.raises(BrokerUnavailable, match=r"no connection within 0\.3 s"):
            job.result(PATIENCE)
    worker.stop()


# -------------------------------------------------------------------- the end


def test_close_ends_what_is_under_way_and_the_broker_withdraws_it(broker: Broker, worker: HandWorker) -> None:
    client = Client(broker.url)
    job = client.submit("echo", b"hold")
    _, token = worker.held.get(timeout=PATIENCE)
    client.close()
    client.close()
    with pytest.raises(JobCancelled, match="the client was closed"):
        job.result(PATIENCE)
    assert worker.recalled.get(timeout=PATIENCE) == token
    with pytest.raises(RuntimeError, match="closed"):
        client.call("echo", b"x")
    assert not [each for each in threading.enumerate() if each.name.startswith("dragoman ")]


def test_an_unclosed_client_is_warned_of(broker: Broker, worker: HandWorker) -> None:
    client = Client(broker.url)
    client.call("echo", b"x")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert [str(each.message) for each in caught] == [f"unclosed client of {broker.url}"]
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("dragoman ")], "its thread ends")


SCRIPT = """
import os, sys
from dragoman import Client

client = Client(sys.argv[1])
job = client.submit("echo", b"hold")
assert client.call("echo", b"x") == b"x"
child = os.fork()
if not child:
    for act in (lambda: client.call("echo", b"x"), job.result, job.cancel):
        try:
            act()
        except RuntimeError as error:
            print(error, flush=True)
    with Client(sys.argv[1]) as own:
        print(own.call("echo", b"of the child"), flush=True)
    client.close()
    os._exit(0)
os.waitpid(child, 0)
print(client.call("echo", b"of the parent"), flush=True)
"""


def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(
    programs: Programs, broker: Broker, worker: HandWorker
) -> None:
    """The interpreter also ends while a job runs and the client is not closed."""
    program = programs.start(sys.executable, "-c", SCRIPT, broker.url)
    assert program.ends() == 0, program.err
    assert program.out.count("create a new Client after the fork") == 3
    assert "b'of the child'" in program.out
    assert "b'of the parent'" in program.out
    assert program.err == ""


@pytest.mark.parametrize("dialect", OTHERS)
def test_background_jobs_need_the_native_dialect(broker: Broker, dialect: str) -> None:
    with Client(getattr(broker, dialect)) as client:
        for ask in (lambda: client.enqueue("echo", b"x", delay=60), lambda: client.result("00" * 16), client.services):
            with pytest.raises(
                Unsupported, match=f"{dialect} does not support background jobs; .* tcp://127.0.0.1:7400"
            ):
                ask()
