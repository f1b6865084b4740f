"""Clients for people who write Python, with a real broker and a worker by hand."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import itertools
import re
import socket
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from native_worker import Cutter, HandWorker

import dragoman.sdk.client
from dragoman import (
    AsyncClient,
    BrokerUnavailable,
    Client,
    JobCancelled,
    JobFailed,
    JobTimeout,
    NoSuchService,
    PayloadTooLarge,
    Unsupported,
)
from dragoman.sdk.address import AddressError
from programs import DRAGOMAN, PATIENCE, Program, Programs, until

LISTEN = (
    "tcp://127.0.0.1:{port}?max_payload=1MiB",
    "pingpong+tcp://127.0.0.1:0?frontend=0&service=echo",
    "powerhose+tcp://127.0.0.1:0?frontend=0&service=echo",
    "memodb+tcp://127.0.0.1:0",
    "majordomo+tcp://127.0.0.1:0",
)


OTHERS = ["pingpong", "powerhose", "memodb", "majordomo"]


class Broker:
    """A broker process that listens for everybody."""

    def __init__(self, programs: Programs, port: int = 0) -> None:
        urls = [url.format(port=port) for url in LISTEN]
        self.program: Program = programs.start(DRAGOMAN, "serve", *urls, "--data", "memory", "--strict")
        self.place = {
            name: self.program.prints(rf"{name} +(tcp://\S+) +(?:both|callers)")
            for name in ("native", "pingpong", "powerhose", "memodb", "majordomo")
        }
        self.url = self.place["native"]
        self.port = int(self.url.rpartition(":")[2])
        self.pingpong = f"pingpong+{self.place['pingpong']}?service=echo"
        self.powerhose = f"powerhose+{self.place['powerhose']}?service=echo"
        self.memodb = f"memodb+{self.place['memodb']}"
        self.majordomo = f"majordomo+{self.place['majordomo']}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    programs = Programs(tmp_path_factory.mktemp("broker"))
    yield Broker(programs)
    programs.end_all()


@pytest.fixture
def worker(broker: Broker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.url, "echo", "default")
    yield worker
    worker.stop()


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(broker: Broker, worker: HandWorker) -> Iterator[Client]:
    with Client(broker.url) as client:
        yield client


@pytest.fixture
def on_loop(loop_name: str) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a coroutine on the loop of this name."""
    factory = uvloop.new_event_loop if loop_name == "uvloop" else asyncio.new_event_loop

    def run(main: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(2 * PATIENCE):
                await main()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return run


# -------------------------------------------------------------------- call, submit


def test_a_call_gives_its_result_on_both_loops(
    broker: Broker, worker: HandWorker, loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    monkeypatch.setattr(dragoman.sdk.client, "_new_loop", loops[loop_name])
    with Client(broker.url) as client:
        assert client.call("echo", b"hello", timeout=10) == b"hello"
        assert client.call("echo", "text") == b"text"
        assert client.call("echo") == b""
        assert client.call("echo", bytes(900_000)) == bytes(900_000)


def test_a_codec_makes_payloads_of_objects(client: Client) -> None:
    assert client.call("echo", {"a": [1, None]}, codec="json") == {"a": [1, None]}
    assert client.call("echo", {"b": b"\0"}, codec="cbor") == {"b": b"\0"}
    assert client.call("echo", {3 + 4j}, codec="pickle") == {3 + 4j}
    with pytest.raises(ValueError, match="no codec 'yaml'"):
        client.call("echo", b"", codec="yaml")
    with pytest.raises(TypeError, match="choose codec='json'"):
        client.call("echo", {"a": 1})


def test_a_result_that_the_codec_cannot_read_fails_here(client: Client, worker: HandWorker) -> None:
    job = client.submit("echo", "hold", codec="json")
    worker.release(worker.held.get(timeout=PATIENCE)[1], b"{")
    with pytest.raises(JobFailed, match="the result of echo cannot be read as json") as told:
        job.result(PATIENCE)
    assert isinstance(told.value.__cause__, ValueError)


def test_a_failure_says_what_and_where(client: Client) -> None:
    with pytest.raises(JobFailed, match="failed: ValueError: no picture") as told:
        client.call("echo", b"fail no picture")
    assert told.value.remote_type == "ValueError"
    assert told.value.remote_message == "no picture"
    assert told.value.remote_traceback == "Traceback: here"


def test_refusals_have_errors_of_their_own(client: Client) -> None:
    with pytest.raises(NoSuchService):
        client.call("nobody", b"")
    with pytest.raises(PayloadTooLarge, match="max_payload 1048576"):
        client.call("echo", bytes((1 << 20) + 1))


def test_wait_waits_for_a_worker(broker: Broker, client: Client) -> None:
    job = client.submit("later", b"x", wait=True)
    late = HandWorker(broker.url, "later")
    try:
        assert job.result(PATIENCE) == b"x"
    finally:
        late.stop()


def test_a_timeout_is_told_by_the_broker_and_the_worker_hears_of_it(client: Client, worker: HandWorker) -> None:
    with pytest.raises(JobTimeout) as told:
        client.call("echo", b"hold", timeout=0.2)
    assert isinstance(told.value, TimeoutError)
    assert worker.held.get(timeout=PATIENCE)[1] == worker.recalled.get(timeout=PATIENCE)


def test_options_travel_to_the_worker(client: Client, worker: HandWorker) -> None:
    client.call("echo", b"x", job_timeout=7.0, attempts=3, priority=9, queue_timeout=5.0)
    ((number, milliseconds),) = worker.attempts
    assert number == 1
    assert 6000 < milliseconds <= 7001
    for wrong in ({"priority": 10}, {"attempts": 0}, {"timeout": 0}, {"timeout": float("nan")}, {"job_timeout": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            client.call("echo", b"x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(AddressError):
        client.call("a\nb")


def test_a_job_has_an_id_and_ends_its_future(client: Client, worker: HandWorker) -> None:
    ended: list[concurrent.futures.Future[Any]] = []
    job = client.submit("echo", b"hold x")
    job.add_done_callback(ended.append)
    assert re.fullmatch(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", job.id)
    _, token = worker.held.get(timeout=PATIENCE)
    assert not job.done()
    with pytest.raises(TimeoutError):
        job.result(0.01)
    worker.release(token, b"r")
    assert job.result(PATIENCE) == b"r"
    assert job.exception() is None
    until(lambda: ended == [job], "the callback was called")


def test_as_completed_and_wait_take_jobs(client: Client, worker: HandWorker) -> None:
    held = client.submit("echo", b"hold")
    others = [client.submit("echo", b"%d" % number) for number in range(5)]
    coming = client.as_completed([held, *others], timeout=PATIENCE)
    assert {job.result() for job in itertools.islice(coming, 5)} == {b"0", b"1", b"2", b"3", b"4"}
    worker.release(worker.held.get(timeout=PATIENCE)[1], b"last")
    assert [job.result() for job in coming] == [b"last"]
    assert not concurrent.futures.wait([held, *others], timeout=PATIENCE).not_done


def test_many_threads_share_a_client(client: Client, worker: HandWorker) -> None:
    def hammer(thread: int) -> bool:
        payloads = [b"%d/%d" % (thread, number) for number in range(100)]
        jobs = [client.submit("echo", payload, timeout=20) for payload in payloads]
        called = [client.call("echo", payload + b"c", timeout=20) for payload in payloads[:10]]
        return [job.result(PATIENCE) for job in jobs] == payloads and called == [each + b"c" for each in payloads[:10]]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(pool.map(hammer, range(6)))
    assert set(worker.seen.values()) == {1}


# -------------------------------------------------------------------- map


def test_map_keeps_the_order_and_takes_no_end(client: Client) -> None:
    pulled = 0

    def numbers() -> Iterator[bytes]:
        nonlocal pulled
        for number in itertools.count():
            pulled = number + 1
            yield b"%d" % number

    results = client.map("echo", numbers(), window=20)
    for number in range(300):
        assert next(results) == b"%d" % number
        assert pulled <= number + 20
    results.close()  # type: ignore[attr-defined]
    assert pulled < 330
    assert list(client.map("echo", [])) == []
    assert list(client.map("echo", [1, 2], codec="json")) == [1, 2]


def test_a_window_larger_than_the_brokers_is_no_trouble(broker: Broker, worker: HandWorker) -> None:
    with Client(f"{broker.url}?window=8") as client:
        payloads = [b"%d" % number for number in range(200)]
        assert list(client.map("echo", payloads, window=100)) == payloads


def test_an_error_in_a_map_is_raised_in_its_place_and_cancels_the_rest(client: Client, worker: HandWorker) -> None:
    results = client.map("echo", [b"a", b"b", b"fail here", b"hold rest"], window=10)
    assert [next(results), next(results)] == [b"a", b"b"]
    with pytest.raises(JobFailed, match="here"):
        next(results)
    assert worker.recalled.get(timeout=PATIENCE) == worker.held.get(timeout=PATIENCE)[1]


def test_closing_a_map_cancels_what_is_under_way(client: Client, worker: HandWorker) -> None:
    results = client.map("echo", [b"a", b"hold 1", b"hold 2"], window=3)
    assert next(results) == b"a"
    tokens = {worker.held.get(timeout=PATIENCE)[1] for _ in range(2)}
    results.close()  # type: ignore[attr-defined]
    assert {worker.recalled.get(timeout=PATIENCE) for _ in range(2)} == tokens


# -------------------------------------------------------------------- cancel, progress, parts


def test_a_job_that_runs_is_cancelled_by_the_broker(client: Client, worker: HandWorker) -> None:
    job = client.submit("echo", b"hold")
    _, token = worker.held.get(timeout=PATIENCE)
    assert job.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        job.result(PATIENCE)
    assert job.cancelled()
    assert job.cancel()
    assert worker.recalled.get(timeout=PATIENCE) == token
    assert not concurrent.futures.wait([job], PATIENCE).not_done


def test_a_job_that_was_not_sent_is_cancelled_at_once(broker: Broker, worker: HandWorker) -> None:
    with Client(f"{broker.url}?window=1") as client:
        first = client.submit("echo", b"hold 1")
        second = client.submit("echo", b"hold 2")
        _, token = worker.held.get(timeout=PATIENCE)
        assert second.cancel()
        assert second.cancelled()
        worker.release(token, b"done")
        assert first.result(PATIENCE) == b"done"
        assert client.call("echo", b"after") == b"after"
    assert b"hold 2" not in worker.seen


def test_a_job_that_has_ended_cannot_be_cancelled(client: Client) -> None:
    job = client.submit("echo", b"x")
    job.result(PATIENCE)
    assert not job.cancel()
    assert not job.cancelled()


def test_progress_is_seen_while_it_runs(client: Client) -> None:
    reports: list[Any] = []
    job = client.submit("later", b"report 3", wait=True)
    job.on_progress(reports.append)
    assert job.progress is None
    late = HandWorker(client.url, "later")
    try:
        assert job.result(PATIENCE) == b"report 3"
    finally:
        late.stop()
    assert reports == [{"done": 1}, {"done": 2}, {"done": 3}]
    assert job.progress == {"done": 3}
    assert job.attempt == 1


def test_parts_come_ahead_of_the_rest(client: Client, worker: HandWorker) -> None:
    job = client.submit("echo", b"parts 3")
    assert list(job.parts()) == [b"part 0", b"part 1", b"part 2"]
    assert job.result() == b"parts 3"
    assert list(job.parts()) == []
    failing = client.submit("echo", b"hold")
    _, token = worker.held.get(timeout=PATIENCE)
    worker.say(b"\x23" + token, b"one")
    parts = failing.parts()
    assert next(parts) == b"one"
    worker.say(b"\x21\x01" + token, b"E", b"broke", b"")
    with pytest.raises(JobFailed, match="broke"):
        next(parts)


def test_a_callback_may_submit_but_not_wait(client: Client) -> None:
    told: list[Any] = []

    def then(job: concurrent.futures.Future[Any]) -> None:
        told.append(client.submit("echo", b"next"))
        try:
            client.call("echo", b"x")
        except RuntimeError as error:
            told.append(str(error))

    client.submit("echo", b"x").add_done_callback(then)
    until(lambda: len(told) == 2, "the callback ran")
    assert told[0].result(PATIENCE) == b"next"
    assert "share a thread" in told[1]


# -------------------------------------------------------------------- executor


def test_an_executor_runs_the_service(client: Client, worker: HandWorker) -> None:
    with client.executor("echo", timeout=20) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        assert list(pool.map(None, [b"a", b"b"])) == [b"a", b"b"]  # type: ignore[arg-type]
        assert pool.submit(None, b"c").result(PATIENCE) == b"c"
        with pytest.raises(TypeError, match="say None for fn"):
            pool.submit(len, b"abc")
        with pytest.raises(TypeError, match="one payload"):
            pool.submit(None, 1, 2)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(None, b"d")


def test_an_executor_that_is_shut_down_cancels_if_it_is_told_to(client: Client, worker: HandWorker) -> None:
    pool = client.executor("echo")
    job = pool.submit(None, b"hold")
    worker.held.get(timeout=PATIENCE)
    pool.shutdown(wait=False)
    assert not job.done()
    pool.shutdown(cancel_futures=True)
    assert job.cancelled()


def test_functions_run_on_workers_that_run_functions(programs: Programs, broker: Broker) -> None:
    words = ("dragoman.sdk.pickled_calls:run", "--service", "python", "--connect", f"native+{broker.url}")
    programs.dragoman("worker", *words)
    with Client(broker.url) as client, client.executor("python", codec="pickle", wait=True, timeout=20) as pool:
        assert list(pool.map(pow, [2, 3], [5, 2])) == [32, 9]
        assert asyncio.run(_in_executor(pool)) == "0b101"
        for kind in (JobFailed, ValueError):  # what was written for ProcessPoolExecutor catches the latter
            with pytest.raises(kind, match="ValueError: invalid literal"):
                pool.submit(int, "no number").result(PATIENCE)


def test_an_async_client_has_executors_too(broker: Broker, worker: HandWorker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url) as client:
            assert await client.call("echo", b"here", timeout=20) == b"here"
            pool = client.executor("echo", timeout=20)
            results = await asyncio.to_thread(lambda: list(pool.map(None, [b"1", b"2"])))
            assert results == [b"1", b"2"]
        with pytest.raises(RuntimeError, match="closed"):
            client.executor("echo")

    asyncio.run(main())


async def _in_executor(pool: concurrent.futures.Executor) -> str:
    return await asyncio.get_running_loop().run_in_executor(pool, bin, 5)


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
        with pytest.raises(BrokerUnavailable, match="it may have run"):
            job.result(PATIENCE)
        worker = HandWorker(second.url, "echo")
        assert client.call("echo", b"x", timeout=10) == b"x"
        worker.stop()


def test_without_a_broker_a_job_waits_as_long_as_it_is_told(worker: HandWorker) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        with Client(f"tcp://{where}", connect_timeout=0.3) as client:
            told = rf"no broker answers at {where}: nobody listens there; gave up after 0.3 s"
            with pytest.raises(BrokerUnavailable, match=told) as error:
                client.call("echo", b"x")
            assert isinstance(error.value, ConnectionError)
        with Client(f"tcp://{where}", patient=False) as client, pytest.raises(BrokerUnavailable, match=where):
            client.call("echo", b"x")
        with Client(f"tcp://{where}") as client, pytest.raises(JobTimeout, match=r"no answer within 0\.1 s"):
            client.call("echo", b"x", timeout=0.1)


def test_a_broker_that_comes_late_is_waited_for(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"tcp://127.0.0.1:{port}") as client:
        job = client.submit("echo", b"x", wait=True)
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
        with pytest.raises(BrokerUnavailable, match=r"gave up after 0\.3 s"):
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
    """And the interpreter ends although a job is under way and nobody has closed the client."""
    program = programs.start(sys.executable, "-c", SCRIPT, broker.url)
    assert program.ends() == 0, program.err
    assert program.out.count("make a new Client after the fork") == 3
    assert "b'of the child'" in program.out
    assert "b'of the parent'" in program.out
    assert program.err == ""


@pytest.mark.parametrize("dialect", OTHERS)
def test_background_jobs_need_the_native_dialect(broker: Broker, dialect: str) -> None:
    with Client(getattr(broker, dialect)) as client:
        for ask in (lambda: client.enqueue("echo", b"x", delay=60), lambda: client.result("00" * 16), client.services):
            with pytest.raises(
                Unsupported, match=f"{dialect} has no word for background jobs: .* tcp://127.0.0.1:7400"
            ):
                ask()


# -------------------------------------------------------------------- other dialects


@pytest.mark.parametrize("dialect", OTHERS)
def test_every_dialect_with_callers_is_spoken(broker: Broker, worker: HandWorker, dialect: str) -> None:
    url = getattr(broker, dialect)
    with Client(url, connections=4) as client:
        assert client.call("echo", b"hello", timeout=10) == b"hello"
        payloads = [b"%d" % number for number in range(60)]
        assert list(client.map("echo", payloads, window=20)) == payloads
        jobs = [client.submit("echo", b"hold %d" % number) for number in range(3)]
        for _ in jobs:
            payload, token = worker.held.get(timeout=PATIENCE)
            worker.release(token, payload.upper())
        assert [job.result(PATIENCE) for job in jobs] == [b"HOLD 0", b"HOLD 1", b"HOLD 2"]
        assert client.call("echo", [1], codec="json") == [1]


@pytest.mark.parametrize("dialect", OTHERS)
def test_what_a_wire_has_no_word_for_is_unsupported(broker: Broker, worker: HandWorker, dialect: str) -> None:
    with Client(getattr(broker, dialect)) as client:
        for option in ({"priority": 9}, {"attempts": 2}, {"queue_timeout": 1.0}, {"wait": True}):
            with pytest.raises(Unsupported, match=f"{dialect} has no word for {next(iter(option))}"):
                client.call("echo", b"", **option)  # type: ignore[arg-type]
        job = client.submit("echo", b"hold")
        _, token = worker.held.get(timeout=PATIENCE)
        assert not job.cancel()
        for word in ("id", "progress"):
            with pytest.raises(Unsupported, match=word):
                getattr(job, word)
        if dialect != "majordomo":
            with pytest.raises(Unsupported, match="parts"):
                job.parts()
        worker.release(token, b"r")
        assert job.result(PATIENCE) == b"r"


def test_a_pool_opens_no_more_connections_than_it_may(broker: Broker, worker: HandWorker) -> None:
    with Client(broker.pingpong, connections=2) as client:
        jobs = [client.submit("echo", b"hold %d" % number) for number in range(5)]
        for number in range(5):
            payload, token = worker.held.get(timeout=PATIENCE)
            if number == 0:
                assert sum(worker.seen.values()) <= 2
            worker.release(token, payload)
        assert {job.result(PATIENCE) for job in jobs} == {b"hold %d" % number for number in range(5)}
        waiting = [client.submit("echo", b"hold") for _ in range(3)]
        held = [worker.held.get(timeout=PATIENCE) for _ in range(2)]
        cancelled = [job for job in waiting if job.cancel()]
        assert len(cancelled) == 1
        for _, token in held:
            worker.release(token, b"")
        for job in waiting:
            if job not in cancelled:
                assert job.result(PATIENCE) == b""


@pytest.mark.parametrize("dialect", ["pingpong", "majordomo"])
def test_a_timeout_where_the_wire_has_none_is_kept_here(broker: Broker, worker: HandWorker, dialect: str) -> None:
    with Client(getattr(broker, dialect), connections=1) as client:
        with pytest.raises(JobTimeout, match=r"no answer within 0\.2 s"):
            client.call("echo", b"hold", timeout=0.2)
        assert client.call("echo", b"next", timeout=10) == b"next"


def test_a_service_that_cannot_be_there_is_an_address_error(broker: Broker) -> None:
    with Client(broker.pingpong) as client, pytest.raises(AddressError, match="service=resize"):
        client.call("resize", b"")
    with pytest.raises(AddressError, match="has workers but no callers"):
        Client("controller+unix:///run/controller")


# -------------------------------------------------------------------- asyncio


def test_the_same_awaited(broker: Broker, worker: HandWorker, on_loop: Any) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url) as client:
            assert await client.call("echo", b"hello", timeout=10) == b"hello"
            job = client.submit("echo", b"parts 2")
            assert [part async for part in job.parts()] == [b"part 0", b"part 1"]
            assert await job == b"parts 2"
            assert re.fullmatch("[0-9a-f]{32}", job.id)
            assert (await client.submit("echo", b"report 2")) == b"report 2"
            with pytest.raises(JobFailed, match="ValueError: no"):
                await client.call("echo", b"fail no")
            payloads = [b"%d" % number for number in range(500)]
            assert [result async for result in client.map("echo", payloads, window=50)] == payloads
            jobs = [client.submit("echo", payload) for payload in payloads[:10]]
            assert {job.result() async for job in client.as_completed(jobs, timeout=PATIENCE)} == set(payloads[:10])
            assert await asyncio.gather(*(client.call("echo", each) for each in payloads[:20])) == payloads[:20]

    on_loop(main)


def test_whoever_stops_waiting_cancels_the_job(broker: Broker, worker: HandWorker, on_loop: Any) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call("echo", b"hold")
            job = client.submit("echo", b"hold too")
            await asyncio.to_thread(worker.held.get, timeout=PATIENCE)
            _, token = await asyncio.to_thread(worker.held.get, timeout=PATIENCE)
            await asyncio.to_thread(worker.recalled.get, timeout=PATIENCE)
            assert job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert await asyncio.to_thread(worker.recalled.get, timeout=PATIENCE) == token

    on_loop(main)


def test_a_map_over_what_comes_now_and_then_does_not_keep_results_back(
    broker: Broker, worker: HandWorker, on_loop: Any
) -> None:
    async def main() -> None:
        answered = asyncio.Event()

        async def payloads() -> Any:
            yield b"first"
            await answered.wait()
            yield b"second"

        async with AsyncClient(broker.url) as client:
            results = []
            async for result in client.map("echo", payloads()):
                results.append(result)
                answered.set()
            assert results == [b"first", b"second"]

    on_loop(main)


def test_closing_an_async_client_ends_what_is_under_way(broker: Broker, worker: HandWorker, on_loop: Any) -> None:
    async def main() -> None:
        client = AsyncClient(broker.url)
        job = client.submit("echo", b"hold")
        await asyncio.to_thread(worker.held.get, timeout=PATIENCE)
        await client.close()
        with pytest.raises(JobCancelled, match="the client was closed"):
            await job
        with pytest.raises(RuntimeError, match="closed"):
            await client.call("echo", b"x")
        with pytest.raises(RuntimeError, match="closed"):
            await client.enqueue("echo")

    on_loop(main)


@pytest.mark.parametrize("dialect", OTHERS)
def test_every_dialect_is_spoken_there_too(broker: Broker, worker: HandWorker, dialect: str) -> None:
    async def main() -> None:
        async with AsyncClient(getattr(broker, dialect), connections=3) as client:
            payloads = [b"%d" % number for number in range(30)]
            assert [result async for result in client.map("echo", payloads, window=10)] == payloads
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call("echo", b"hold")
            assert await client.call("echo", b"after", timeout=10) == b"after"

    asyncio.run(main())


# -------------------------------------------------------------------- the page


def test_the_examples_of_the_page_do_what_they_say(
    programs: Programs, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    calling = re.split(r"^## ", page, flags=re.MULTILINE)[1]
    assert calling.startswith("Calling")
    examples = re.findall(r"^```python\n(.*?)^```$", calling, re.MULTILINE | re.DOTALL)
    assert len(examples) == 7
    python = ("dragoman.sdk.pickled_calls:run", "--service", "python", "--connect", broker.url)
    programs.dragoman("worker", *python).prints("connected")
    worker = HandWorker(broker.url, "resize", "describe", "render")
    try:
        for example in examples:
            names = {"big": b"big", "images": [b"1", b"22"], "scenes": [b"a", b"b"]}
            exec(example.replace("tcp://127.0.0.1:7400", broker.url), names)
    finally:
        worker.stop()
    said = capsys.readouterr().out
    for each in ("b'big'", "{'picture': 42}", "b'scene 1'", "[32, 9]", "[1, 2]"):
        assert each in said
