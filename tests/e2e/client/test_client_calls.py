"""Python clients with a real broker and a hand-written worker: calls, maps, progress, executors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop
from client_broker import Broker
from native_worker import HandWorker

import dragoman.sdk.client
from dragoman import AsyncClient, Client, JobFailed, JobTimeout, NoSuchService, PayloadTooLarge
from dragoman.sdk.address import AddressError
from programs import PATIENCE, Programs, until

# -------------------------------------------------------------------- call, submit


def test_a_call_gives_its_result_on_both_loops(
    broker: Broker, worker: HandWorker, loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    monkeypatch.setattr(dragoman.sdk.client, "new_loop", loops[loop_name])
    with Client(broker.url) as client:
        assert client.call("echo", b"hello", timeout=10) == b"hello"
        assert client.call("echo", "text") == b"text"
        assert client.call("echo") == b""
        assert client.call("echo", bytes(900_000)) == bytes(900_000)


def test_a_codec_makes_payloads_of_objects(client: Client) -> None:
    assert client.call("echo", {"a": [1, None]}, codec="json") == {"a": [1, None]}
    assert client.call("echo", {"b": b"\0"}, codec="cbor") == {"b": b"\0"}
    assert client.call("echo", {3 + 4j}, codec="pickle") == {3 + 4j}
    with pytest.raises(ValueError, match="unknown codec 'yaml'"):
        client.call("echo", b"", codec="yaml")
    with pytest.raises(TypeError, match="use codec='json'"):
        client.call("echo", {"a": 1})


def test_a_result_that_the_codec_cannot_read_fails_here(client: Client, worker: HandWorker) -> None:
    job = client.submit("echo", "hold", codec="json")
    worker.release(worker.held.get(timeout=PATIENCE)[1], b"{")
    with pytest.raises(JobFailed, match="the result of echo is not valid json") as told:
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
    job = client.submit("later", b"x", wait_for_worker=True)
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
    job = client.submit("later", b"report 3", wait_for_worker=True)
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
        with pytest.raises(TypeError, match="pass None for fn"):
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
    with (
        Client(broker.url) as client,
        client.executor("python", codec="pickle", wait_for_worker=True, timeout=20) as pool,
    ):
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
