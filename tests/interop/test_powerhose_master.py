"""The master inside a program, with workers from the Powerhose document, on libzmq, and with Dragoman's own."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
from broker_setup import open_descriptors

from dragoman.core.effects import DeliverOutcome
from dragoman.powerhose import Master, _Call
from dragoman.sdk.address import AddressError
from dragoman.sdk.errors import BrokerUnavailable, JobError, JobFailed, JobLost, JobTimeout, PayloadTooLarge
from dragoman.streams.sockets import AddressInUse
from programs import PATIENCE, Program, Programs, until

HANDLERS = """
def upper(payload):
    return payload.upper()

def raises(payload):
    raise ValueError("this payload is bad")
"""


class Worker:
    """A bound REP, a REQ that pings with its endpoint, and one job at a time. `do` returns the whole answer to a JOB,
    or None to close the connection."""

    def __init__(self, master: str, endpoint: str, do: Callable[[bytes, bytes], bytes | None]) -> None:
        self.orders: list[bytes] = []
        self._master, self._endpoint, self._do = master, endpoint, do
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="stranger")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _live(self) -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
            rep.linger = req.linger = 0
            req.ipv6 = True
            rep.bind(self._endpoint)
            req.connect(self._master)
            due = 0.0
            is_asking = False
            while not self._over.is_set():
                if not is_asking and time.monotonic() >= due:
                    req.send(b"PING:::" + self._endpoint.encode())
                    is_asking, due = True, time.monotonic() + 0.2
                if req.poll(0) and req.recv() == b"PONG":
                    is_asking = False
                if rep.poll(10) and not self._answer(rep):
                    return

    def _answer(self, rep: Any) -> bool:
        order = rep.recv()
        self.orders.append(order)
        word, *fields = order.split(b":::", 2)
        answer = b"GIVE" if word == b"WAKE" else self._do(*fields)
        if answer is not None:
            rep.send(answer)
        return answer is not None


def echo(id: bytes, data: bytes) -> bytes:
    return b"JOBRES:::" + id + b":::did " + data


@pytest.fixture
def ends() -> Iterator[list[Any]]:
    """Closes objects at the end of the test, last first."""
    made: list[Any] = []
    yield made
    for each in reversed(made):
        each.close()


@pytest.fixture
def make(tmp_path: Path, ends: list[Any]) -> Callable[..., Master]:
    def make(endpoint: str = "", **options: Any) -> Master:
        ends.append(Master(endpoint or f"ipc://{tmp_path}/m.ipc", **options))
        return ends[-1]

    return make


@pytest.fixture
def hire(tmp_path: Path, ends: list[Any]) -> Callable[..., Worker]:
    def hire(master: Master, do: Callable[[bytes, bytes], bytes | None] = echo) -> Worker:
        ends.append(Worker(master.endpoint, f"ipc://{tmp_path}/w{len(ends)}.ipc", do))
        return ends[-1]

    return hire


Make = Callable[..., Master]
Hire = Callable[..., Worker]


# -------------------------------------------------------------------- jobs


@pytest.mark.parametrize("endpoint", ["", "tcp://127.0.0.1:*", "tcp://[::1]:0"])
def test_a_job_goes_to_a_plain_worker_under_the_id_it_was_given(endpoint: str, make: Make, hire: Hire) -> None:
    master = make(endpoint)
    worker = hire(master)
    assert master.execute("order 42", b"some:::data", timeout=PATIENCE) == b"did some:::data"
    assert worker.orders == [b"WAKE", b"JOB:::order 42:::some:::data"]
    assert master.execute("ä", b"") == b"did "
    assert worker.orders[2:] == [b"WAKE", "JOB:::ä:::".encode()]


def test_the_example_of_the_module_works(tmp_path: Path, hire: Hire) -> None:
    with Master(f"ipc://{tmp_path}/master-routing.ipc") as master:
        hire(master)
        assert master.execute("42", b"data", timeout=60) == b"did data"


def test_a_worker_that_leaves_the_id_out_is_understood(make: Make, hire: Hire) -> None:
    """The C++ workers."""
    master = make()
    hire(master, lambda _, data: b"JOBRES:::a:::" + data)
    assert master.execute("42", b"b") == b"a:::b"


def test_answer_that_cannot_be_delivered_is_told_as_a_failure_of_the_broker(
    make: Make, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R27. A bug: an internal error while an outcome was delivered left the caller waiting."""
    master = make()
    hire(master)
    answer, failed = _Call.answer, []

    def fails_once(self: _Call, told: DeliverOutcome) -> None:
        if not failed:
            failed.append(told)
            raise ZeroDivisionError
        answer(self, told)

    monkeypatch.setattr(_Call, "answer", fails_once)
    with pytest.raises(JobFailed, match="an internal error of the broker"):
        master.execute("1", b"hello", timeout=PATIENCE)


@pytest.mark.parametrize("data", [b"x", bytearray(b"x"), memoryview(b"x"), b"x" * (8 << 20)])
def test_data_may_be_anything_with_bytes_in_it(make: Make, hire: Hire, data: bytes) -> None:
    master = make()
    hire(master)
    result = master.execute("1", data)
    assert result == b"did " + data
    assert type(result) is bytes


def test_threads_may_call_at_once_and_each_has_its_own_answer(make: Make, hire: Hire) -> None:
    master = make()
    workers = [hire(master) for _ in range(3)]
    with ThreadPoolExecutor(10) as threads:
        names = [str(number) for number in range(200)]
        results = list(threads.map(lambda name: master.execute(name, name.encode(), PATIENCE), names))
    assert results == [f"did {name}".encode() for name in names]
    assert sum(len(worker.orders) for worker in workers) == 400
    assert all(worker.orders for worker in workers)


def test_two_masters_in_one_program_do_not_disturb_each_other(make: Make, hire: Hire) -> None:
    first, second = make(), make("tcp://127.0.0.1:*")
    hire(first, lambda id, _: b"JOBRES:::" + id + b":::first")
    hire(second, lambda id, _: b"JOBRES:::" + id + b":::second")
    assert (first.execute("1", b""), second.execute("1", b"")) == (b"first", b"second")


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_our_own_worker_serves_it(
    make: Make, programs: Programs, tmp_path: Path, ends: list[Any], transport: str
) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    programs.environment["TMPDIR"] = str(tmp_path)
    master = make("tcp://127.0.0.1:*" if transport == "tcp" else "", base=str(tmp_path))
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:upper", "--connect", f"powerhose+{master.endpoint}"
    )
    assert master.execute("1", b"hello", timeout=PATIENCE) == b"HELLO"
    worker.terminate()
    assert worker.ends() == 0


def test_a_job_that_our_own_worker_cannot_do_is_lost(make: Make, programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    programs.environment["TMPDIR"] = str(tmp_path)
    master = make(attempts=1)
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:raises", "--connect", f"powerhose+{master.endpoint}"
    )
    with pytest.raises(JobLost, match="connection ended"):
        master.execute("1", b"hello", timeout=PATIENCE)
    worker.prints("ValueError: this payload is bad")


def test_callers_of_other_programs_may_have_a_frontend(
    make: Make, hire: Hire, programs: Programs, tmp_path: Path
) -> None:
    master = make(frontend=f"ipc://{tmp_path}/f.ipc")
    hire(master)
    made = programs.run("call", "default", "hello", "--connect", f"powerhose+ipc://{tmp_path}/f.ipc")
    assert (made.ends(), made.out) == (0, "did hello")


# -------------------------------------------------------------------- jobs that end otherwise


def test_patience_that_ends_is_a_timeout(make: Make) -> None:
    master = make()
    began = time.monotonic()
    with pytest.raises(JobTimeout) as raised:
        master.execute("1", b"x", timeout=0.3)
    assert 0.25 < time.monotonic() - began < PATIENCE
    assert isinstance(raised.value, TimeoutError)


def test_without_patience_of_its_own_a_job_waits_queue_timeout(make: Make) -> None:
    """The document: if all are busy it waits a bit before it times out."""
    master = make(queue_timeout=0.2)
    with pytest.raises(JobTimeout):
        master.execute("1", b"x")
    with pytest.raises(JobTimeout):
        master.execute("1", b"x", timeout=PATIENCE)


def test_with_patience_a_job_waits_for_a_worker_as_long_as_that(make: Make, hire: Hire) -> None:
    """And the worker that comes late serves it."""
    master = make()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(master.execute, "1", b"x", PATIENCE)
        with pytest.raises(JobTimeout):
            master.execute("2", b"x", timeout=0.1)
        hire(master)
        assert waiting.result(PATIENCE) == b"did x"


def test_a_worker_that_hangs_up_loses_the_job_or_another_does_it(make: Make, hire: Hire) -> None:
    master = make()
    dying = hire(master, lambda *_: None)
    until(lambda: _is_known(master, 1), "it has joined")
    hire(master)
    until(lambda: _is_known(master, 2), "it has joined")
    assert master.execute("1", b"x", timeout=PATIENCE) == b"did x"
    assert dying.orders == [b"WAKE", b"JOB:::1:::x"]


def test_a_job_of_one_attempt_whose_worker_hangs_up_is_lost(make: Make, hire: Hire) -> None:
    master = make(attempts=1)
    hire(master, lambda *_: None)
    with pytest.raises(JobLost):
        master.execute("1", b"x", timeout=PATIENCE)


def test_a_laggy_worker_is_left_and_another_is_asked(make: Make, hire: Hire) -> None:
    """The document, Performing a task."""
    master = make(job_timeout=0.3)
    go_on = threading.Event()

    def lag(id: bytes, data: bytes) -> bytes:
        go_on.wait(PATIENCE)
        return echo(id, b"too late")

    try:
        laggy = hire(master, lag)
        until(lambda: _is_known(master, 1), "it has joined")
        hire(master)
        until(lambda: _is_known(master, 2), "it has joined")
        assert master.execute("1", b"x", timeout=PATIENCE) == b"did x"
        assert laggy.orders == [b"WAKE", b"JOB:::1:::x"]
    finally:
        go_on.set()


def _is_known(master: Master, count: int) -> bool:
    return len(master._thread.server.broker.worker_registry.workers) == count


@pytest.mark.parametrize("job_id", ["", ":", ":::", "a:::b", "a:", "a::", "\ud800"])
def test_an_id_that_the_wire_cannot_carry_is_an_error(make: Make, job_id: str) -> None:
    """Of `a:` a worker would read `a`, and data with a colon before it."""
    with pytest.raises(ValueError, match=r"cannot be sent|surrogates not allowed"):
        make().execute(job_id, b"x", timeout=1)


@pytest.mark.parametrize("job_id", ["a:b", ":a", "a::b"])
def test_other_colons_do_no_harm(make: Make, hire: Hire, job_id: str) -> None:
    master = make()
    worker = hire(master)
    assert master.execute(job_id, b":x:") == b"did :x:"
    assert worker.orders[1] == f"JOB:::{job_id}::::x:".encode()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_patience_that_is_none_is_an_error(make: Make, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        make().execute("1", b"x", timeout)


def test_text_is_no_data(make: Make) -> None:
    with pytest.raises(TypeError):
        make().execute("1", "text")  # type: ignore[arg-type]


def test_data_over_max_payload_is_refused(make: Make, hire: Hire) -> None:
    master = make(max_payload=1000)
    hire(master)
    with pytest.raises(PayloadTooLarge, match="1001 bytes is over max_payload 1000"):
        master.execute("1", bytes(1001))
    assert master.execute("2", b"x" * 900) == b"did " + b"x" * 900


# -------------------------------------------------------------------- beginning and end


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_place_that_is_taken_is_an_error_that_says_so(make: Make, transport: str) -> None:
    first = make("tcp://127.0.0.1:*" if transport == "tcp" else "")
    before = threading.active_count(), open_descriptors()
    with pytest.raises(AddressInUse, match="is taken: another program listens there"):
        Master(first.endpoint)
    assert threading.active_count() == before[0]
    until(lambda: open_descriptors() == before[1], "the first has noticed that it was only looked at")


@pytest.mark.parametrize(
    ("endpoint", "options", "complaint"),
    [
        ("ipc:///tmp/x.ipc", {"worker_expires": 1}, "did you mean 'worker_expire'"),
        ("ipc:///tmp/x.ipc", {"worker_expire": 0}, "must be 0.001 or more"),
        ("ipc:///tmp/x.ipc", {"attempts": "many"}, "must be a whole number"),
        ("inproc://x", {}, "unknown transport 'inproc'"),
        ("tcp://127.0.0.1", {}, "the port is missing"),
        ("nonsense", {}, "'://' is missing"),
        ("tcp://*:0", {}, "insecure=true"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_says_why(endpoint: str, options: dict[str, Any], complaint: str) -> None:
    before = threading.active_count()
    with pytest.raises(AddressError, match=complaint):
        Master(endpoint, **options)
    assert threading.active_count() == before


def test_off_loopback_it_listens_if_that_is_what_was_wanted(make: Make) -> None:
    assert make("tcp://*:*", insecure=True).endpoint.startswith("tcp://0.0.0.0:")


def test_a_relative_endpoint_lies_in_the_working_directory(
    make: Make, hire: Hire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    master = make("ipc://here %41?.ipc")
    assert master.endpoint == f"ipc://{tmp_path}/here %41?.ipc"
    hire(master)
    assert master.execute("1", b"x") == b"did x"


def test_close_ends_the_thread_and_the_sockets(tmp_path: Path) -> None:
    Master(f"ipc://{tmp_path}/m.ipc").close()  # what is made once and stays is made now
    before = threading.active_count(), open_descriptors()
    for _ in range(3):
        master = Master(f"ipc://{tmp_path}/m.ipc", frontend=f"ipc://{tmp_path}/f.ipc")
        assert (tmp_path / "m.ipc").is_socket()
        master.close()
        master.close()
        assert list(tmp_path.iterdir()) == []
    assert (threading.active_count(), open_descriptors()) == before


def test_jobs_under_way_end_with_close_and_later_ones_are_refused(make: Make, hire: Hire) -> None:
    master = make()
    go_on = threading.Event()

    def lag(id: bytes, data: bytes) -> bytes:
        go_on.wait()  # the calls cannot end by a result
        return echo(id, data)

    worker = hire(master, lag)
    try:
        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(master.execute, str(number), b"x", 4 * PATIENCE) for number in range(4)]
            until(lambda: len(worker.orders) == 2, "one of them runs")
            master.close()
            for call in calls:  # long before it times out
                with pytest.raises((JobError, BrokerUnavailable)):
                    call.result(PATIENCE)
    finally:
        go_on.set()
    with pytest.raises(BrokerUnavailable, match="the master was closed"):
        master.execute("9", b"x")


def test_a_master_that_breaks_tells_whoever_waits(make: Make, hire: Hire, tmp_path: Path) -> None:
    master = make()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(master.execute, "1", b"x", PATIENCE)
        until(lambda: master._thread.server.broker.jobs, "it waits")
        master._thread.post(lambda: master._thread.server.stopped.set_result(70))  # as an invariant that is broken does
        with pytest.raises(BrokerUnavailable):
            call.result(PATIENCE)
    with pytest.raises(BrokerUnavailable):
        master.execute("2", b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_the_broker_has_to_say_goes_to_logging(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.powerhose")
    master = make()
    with zmq.Context() as context, context.socket(zmq.REQ) as stranger:
        stranger.linger, stranger.rcvtimeo = 0, int(PATIENCE * 1000)
        stranger.connect(master.endpoint)
        stranger.send(b"NONSENSE")
        assert stranger.recv() == b"ERROR"
    master.close()
    [line] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "bad message" in line.message
    assert "unknown word" in line.message
    assert "NONSENSE" not in caplog.text


SCRIPT = """
import signal, sys
from dragoman.powerhose import Master

def interrupt(*_, heard=[]):
    heard.append(1)
    if len(heard) == 1:
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
master = Master(sys.argv[1])
try:
    print("listens", flush=True)
    master.execute("1", b"x", timeout=60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    {}
"""


@pytest.mark.parametrize("last_line", ["master.close()", "pass  # and close is forgotten"])
def test_an_interrupted_program_ends_and_leaves_no_socket(programs: Programs, tmp_path: Path, last_line: str) -> None:
    program = programs.start(sys.executable, "-c", SCRIPT.format(last_line), f"ipc://{tmp_path}/m.ipc")
    program.prints("listens")
    until(lambda: is_interrupted(program), "it is interrupted")
    assert program.ends() == 0
    assert program.err == ""
    assert not (tmp_path / "m.ipc").exists()


def is_interrupted(program: Program) -> bool:
    """Interrupt the program, a second time if nothing happens.

    Python misses a signal that arrives between its last check and a wait for a lock.
    """
    os.kill(program.pid, signal.SIGINT)
    with suppress(AssertionError):
        return until(lambda: "interrupted" in program.out, "it notices", patience=3.0)
    return False
