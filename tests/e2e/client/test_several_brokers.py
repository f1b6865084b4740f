"""Clients and workers with the addresses of two brokers, one of which is gone."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest
from client_broker import Broker

from dragoman import BrokerUnavailable, Client, Worker
from programs import PATIENCE, Program, Programs, until


def both(*places: str) -> str:
    """Return one URL for the same listener of several brokers."""
    first, *others = places
    return ",".join([first, *(each.rpartition("//")[2] for each in others)])


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def offers(broker: Broker, service: str) -> bool:
    with Client(broker.url) as client:
        return any(service in each.services for each in client.workers())


class RunningWorker:
    """A worker in a thread. Jobs of `held` end when `go` is set."""

    def __init__(self, url: str) -> None:
        self.started, self.go, self.runs = threading.Event(), threading.Event(), 0
        self._worker = Worker(url, threads=2)
        self._worker.service("echo")(self._echo)
        self._worker.service("held")(self._hold)
        self._thread = threading.Thread(target=self._worker.run, daemon=True)
        self._thread.start()

    def _echo(self, payload: bytes) -> bytes:
        return payload

    def _hold(self, payload: bytes) -> bytes:
        self.runs += 1
        self.started.set()
        assert self.go.wait(PATIENCE)
        return payload.upper()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._worker.stop()
        self._worker.stop()
        self._thread.join(PATIENCE)


# -------------------------------------------------------------------- one broker is killed


@pytest.mark.parametrize("dialect", ["url", "http", "majordomo", "memodb"])
def test_a_client_and_a_worker_go_to_the_other_broker(programs: Programs, dialect: str) -> None:
    one, two = Broker(programs), Broker(programs)
    url = both(getattr(one, dialect), getattr(two, dialect))
    service = "default" if dialect == "majordomo" else "echo"
    worker = programs.dragoman("worker", "--exec", "cat", "--service", service, "--connect", url)
    with Client(url) as client:
        until(lambda: offers(one, service), "the worker is at the first broker")
        assert client.call(service, b"one", timeout=PATIENCE) == b"one"
        assert not offers(two, service)
        one.program.kill()
        until(lambda: offers(two, service), "the worker is at the second broker")
        assert client.call(service, b"two", timeout=PATIENCE) == b"two"
    assert "trying another address" in worker.err or dialect == "http"


def test_a_call_that_may_have_run_is_not_submitted_again(programs: Programs) -> None:
    one, two = Broker(programs), Broker(programs)
    with RunningWorker(both(one.url, two.url)) as worker, Client([one.url, two.url]) as client:
        until(lambda: offers(one, "held"), "the worker is there")
        job = client.submit("held", b"x")
        assert worker.started.wait(PATIENCE)
        one.program.kill()
        with pytest.raises(BrokerUnavailable, match="the job may have run"):
            job.result(PATIENCE)
        worker.go.set()
        until(lambda: offers(two, "held"), "the worker is at the second broker")
        assert client.call("echo", b"next", timeout=PATIENCE) == b"next"
    assert worker.runs == 1


def test_an_enqueue_without_an_answer_continues_at_the_other_broker(programs: Programs) -> None:
    one, two = Broker(programs), Broker(programs)
    with Client(both(one.url, two.url)) as client, ThreadPoolExecutor() as threads:
        client.services()
        one.program.stop()
        enqueued = threads.submit(client.enqueue, "echo", b"x")
        until(lambda: client.engine._connections[0].jobs, "it is sent")
        one.program.kill()
        id = enqueued.result(PATIENCE)
        with Client(two.url) as other:
            assert other.job(id).state == "waiting"


# -------------------------------------------------------------------- the store goes to the other address


def start(programs: Programs, port: int, data: Path, http_port: int) -> Program:
    listeners = (f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{http_port}")
    program = programs.dragoman("serve", *listeners, "--data", data, "--strict")
    program.prints("Try, in two other terminals")
    return program


@pytest.mark.parametrize(("dialect", "worker_dialect"), [("native", "native"), ("native", "http"), ("http", "native")])
def test_a_wait_for_a_background_job_goes_on_at_the_broker_that_has_it_now(
    programs: Programs, tmp_path: Path, dialect: str, worker_dialect: str
) -> None:
    """The second broker has the store of the first one. The worker delivers there what it ran meanwhile."""
    native, http = (free_port(), free_port()), (free_port(), free_port())
    urls = {
        name: f"{scheme}://127.0.0.1:{one},127.0.0.1:{two}"
        for name, scheme, (one, two) in [("native", "tcp", native), ("http", "http", http)]
    }
    one = start(programs, native[0], tmp_path / "data", http[0])
    with (
        RunningWorker(urls[worker_dialect]) as worker,
        Client(urls[dialect]) as client,
        ThreadPoolExecutor() as threads,
    ):
        id = client.enqueue("held", b"x")
        waiting = threads.submit(client.result, id)
        assert worker.started.wait(PATIENCE)
        one.kill()
        start(programs, native[1], tmp_path / "data", http[1])
        worker.go.set()
        assert waiting.result(2 * PATIENCE) == b"X"
        assert len(client.job(id).attempts) == 1
    assert worker.runs == 1


# -------------------------------------------------------------------- addresses without a broker


def test_commands_take_several_addresses(programs: Programs) -> None:
    broker = Broker(programs)
    gone = f"tcp://127.0.0.1:{free_port()}"
    url = both(gone, broker.url)
    programs.dragoman("worker", "--exec", "tr a-z A-Z", "--service", "shout", "--connect", url)
    until(lambda: offers(broker, "shout"), "the worker is there")
    assert programs.run("call", "shout", "hello", "--connect", url).out == "HELLO"
    id = programs.run("enqueue", "shout", "later", DRAGOMAN_URL=url).out.strip()
    assert programs.run("result", id, "--connect", url).out == "LATER"
    pages = both(gone.replace("tcp", "http"), broker.http)
    assert programs.run("job", id, "--connect", pages).ends() == 0
    tail = programs.dragoman("tail", "--connect", pages)
    until(lambda: programs.run("call", "shout", "x", "--connect", url).out == "X" and "shout" in tail.out, "an event")
    nobody = programs.run("services", "--connect", both(gone, f"tcp://127.0.0.1:{free_port()}"))
    assert nobody.ends() != 0
    assert nobody.err.count("no broker answers at") == 2


def test_a_port_with_another_protocol_is_left_for_the_next_address(programs: Programs) -> None:
    broker = Broker(programs)
    url = both(broker.http.replace("http", "tcp"), broker.url)
    with RunningWorker(url), Client(url) as client:
        until(lambda: offers(broker, "echo"), "the worker is at the native port")
        assert client.call("echo", b"x", timeout=PATIENCE) == b"x"


def test_both_are_stopped_and_one_is_back(programs: Programs) -> None:
    one, two = Broker(programs), Broker(programs)
    url = both(one.url, two.url)
    with RunningWorker(url), Client(url, connect_timeout=2 * PATIENCE) as client:
        until(lambda: offers(one, "echo"), "the worker is there")
        assert client.call("echo", b"1", timeout=PATIENCE) == b"1"
        one.program.kill()
        two.program.kill()
        job = client.submit("echo", b"2", wait_for_worker=True)
        back = Broker(programs, two.port)
        assert job.result(PATIENCE) == b"2"
        assert offers(back, "echo")
