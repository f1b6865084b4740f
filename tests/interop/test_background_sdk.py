"""Background jobs and operations in Python, with a broker for each test."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dragoman import (
    AsyncClient,
    BrokerUnavailable,
    Busy,
    Client,
    JobCancelled,
    JobFailed,
    JobRefused,
    JobTimeout,
    LocalBroker,
    NoSuchJob,
    NoSuchService,
    NotFound,
    PayloadTooLarge,
)
from dragoman.testing.local import VirtualClock
from programs import PATIENCE, until

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from native_worker import Cutter, HandWorker

UNKNOWN = "0" * 32


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[Client]:
    with broker.client() as client:
        yield client


@pytest.fixture
def worker(broker: LocalBroker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.url.removeprefix("native+"), "echo")
    yield worker
    worker.stop()


# -------------------------------------------------------------------- jobs


def test_a_job_waits_for_a_worker_and_its_result_for_whoever_asks(broker: LocalBroker, client: Client) -> None:
    job = client.enqueue("echo", b"hello")
    assert client.why(job) == "It waits: no worker offers 'echo'."
    with pytest.raises(JobTimeout, match="is still waiting"):
        client.result(job, timeout=0)
    worker = HandWorker(broker.url.removeprefix("native+"), "echo")
    with broker.client() as another:
        assert another.result(job, timeout=PATIENCE) == b"hello"
    view = client.job(job)
    assert (view.state, view.outcome, view.result, view.background) == ("ended", "done", "hello", True)
    worker.stop()


def test_who_waits_is_told_as_soon_as_it_has_ended(client: Client, worker: HandWorker) -> None:
    job = client.enqueue("echo", b"hold on")
    _, token = worker.held.get(timeout=PATIENCE)
    threading.Timer(0.05, lambda: worker.release(token, b"done")).start()
    assert client.result(job) == b"done"


def test_payloads_and_results_go_through_the_codec(broker: LocalBroker, worker: HandWorker) -> None:
    with broker.client(codec="json") as client:
        job = client.enqueue("echo", {"a": [1, 2]})
        assert client.result(job, timeout=PATIENCE) == {"a": [1, 2]}
        assert client.result(job, codec="bytes") == b'{"a":[1,2]}'
        with pytest.raises(JobFailed, match="is not valid json"):
            client.result(client.enqueue("echo", b"{", codec="bytes"), timeout=PATIENCE)


def test_the_same_key_is_the_same_job(client: Client, worker: HandWorker) -> None:
    first = client.enqueue("echo", b"once", key="42")
    assert client.enqueue("echo", b"once", key="42") == first
    assert client.result(first, timeout=PATIENCE) == b"once"
    assert client.enqueue("echo", b"once", key="42") == first
    assert worker.seen[b"once"] == 1
    with pytest.raises(JobRefused, match="another payload"):
        client.enqueue("echo", b"twice", key="42")


def test_a_failure_says_what_its_worker_said_and_can_be_tried_again(client: Client, worker: HandWorker) -> None:
    job = client.enqueue("echo", b"fail for good", attempts=2, retry_first=0.01, retry_jitter=0.0)
    with pytest.raises(JobFailed, match="ValueError: for good") as caught:
        client.result(job, timeout=PATIENCE)
    assert (caught.value.remote_type, caught.value.remote_message) == ("ValueError", "for good")
    assert caught.value.remote_traceback == "Traceback: here"
    assert [number for number, _ in worker.attempts] == [1, 2]
    assert [view.id for view in client.jobs(quarantined=True)] == [job]
    again = client.retry(job)
    assert client.job(again).retry_of == job
    with pytest.raises(JobFailed):
        client.result(again, timeout=PATIENCE)


def test_a_job_that_is_cancelled_stays_so(client: Client, worker: HandWorker) -> None:
    waiting, running = client.enqueue("nobody's"), client.enqueue("echo", b"hold")
    worker.held.get(timeout=PATIENCE)
    for job in (waiting, running, running):
        assert client.cancel(job)
    assert worker.recalled.get(timeout=PATIENCE)
    with pytest.raises(JobCancelled):
        client.result(running)
    done = client.enqueue("echo", b"x")
    client.result(done, timeout=PATIENCE)
    assert not client.cancel(done)
    with pytest.raises(JobRefused, match="quarantine"):
        client.retry(done)


def test_what_nobody_knows_is_an_error_of_its_own(client: Client) -> None:
    for ask in (client.result, client.job, client.cancel, client.retry, client.why):
        with pytest.raises(NoSuchJob) as caught:
            ask(UNKNOWN)
        assert isinstance(caught.value, LookupError)
    for about in (client.resume, client.purge):
        with pytest.raises(NoSuchService):
            about("nobody's")
    with pytest.raises(NotFound):
        client.drain(77)
    for name in (client.delete_schedule, client.pause_schedule, client.resume_schedule):
        with pytest.raises(NotFound):
            name("nothing")


def test_what_makes_no_sense_is_a_value_error_and_what_is_no_option_a_type_error(client: Client) -> None:
    with pytest.raises(ValueError, match="priority"):
        client.enqueue("echo", priority=10)
    with pytest.raises(ValueError, match="zone"):
        client.enqueue("echo", not_before=datetime(2030, 1, 1))
    with pytest.raises(ValueError, match="id"):
        client.job("no id")
    with pytest.raises(ValueError, match="cron"):
        client.set_schedule("r", "echo")
    with pytest.raises(TypeError, match="patience"):
        client.enqueue("echo", patience=3)  # type: ignore[call-arg]


def test_nan_is_a_value_error_and_not_no_limit(client: Client) -> None:
    """A bug: JSON has no NaN, so that it was written as null."""
    with pytest.raises(ValueError, match="timeout=nan"):
        client.enqueue("echo", b"", timeout=float("nan"))
    with pytest.raises(ValueError, match="timeout=nan"):
        client.set_schedule("tick", "echo", b"", every=60, timeout=float("nan"))


def test_a_payload_that_is_too_large_is_refused() -> None:
    with LocalBroker("tcp://127.0.0.1:0?max_payload=1000") as broker, broker.client() as client:
        for _ in range(2):  # the broker says so; then the client knows
            with pytest.raises(PayloadTooLarge):
                client.enqueue("echo", bytes(70_000))
        client.enqueue("echo", bytes(900))


def test_time_that_must_pass_first() -> None:
    clock = VirtualClock()
    with LocalBroker(clock=clock) as broker, broker.client() as client:
        worker = HandWorker(broker.url.removeprefix("native+"), "echo")
        delayed = client.enqueue("echo", b"later", delay=3600)
        dated = client.enqueue("echo", b"at noon", not_before=datetime.now(UTC) + timedelta(hours=10))
        assert client.job(delayed).state == "delayed"
        broker.advance(3601)
        assert client.result(delayed, timeout=PATIENCE) == b"later"
        assert client.job(dated).state == "delayed"
        broker.advance(9 * 3600 + 1)
        assert client.result(dated, timeout=PATIENCE) == b"at noon"
        worker.stop()


def test_lists_go_on_where_they_stopped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.sdk.operation_steps.PAGE", 3)
    ids = [client.enqueue("echo", b"%d" % number) for number in range(8)]
    assert [view.id for view in client.jobs()] == ids[::-1]
    assert [view.id for view in client.jobs(limit=5)] == ids[:2:-1]
    assert [view.id for view in client.jobs(after=ids[1])] == ids[:1]
    assert client.jobs(service="another", state="waiting") == []


# -------------------------------------------------------------------- services, workers, recurring jobs


def test_a_service_is_paused_and_goes_on(client: Client, worker: HandWorker) -> None:
    view = client.pause("echo", by="the night shift")
    assert (view.paused, view.paused_by, view.workers) == (True, "the night shift", 1)
    job = client.enqueue("echo", b"x")
    assert "paused by the night shift" in client.why(job)
    assert [(each.name, each.waiting) for each in client.services()] == [("echo", 1)]
    assert not client.resume("echo").paused
    assert client.result(job, timeout=PATIENCE) == b"x"


def test_one_thing_is_shown_by_its_name(client: Client, worker: HandWorker) -> None:
    until(lambda: len(client.workers()) == 1, "it has joined")
    (listed,) = client.workers()
    assert client.service("echo").workers == 1
    assert client.worker(listed.id).services == ["echo"]
    client.set_schedule("tick", "echo", every=60)
    assert client.schedule("tick").every == 60
    for show, name, error in (
        (client.service, "nothing", NoSuchService),
        (client.worker, 12345, NotFound),
        (client.schedule, "nothing", NotFound),
    ):
        with pytest.raises(error):
            show(name)  # type: ignore[operator]


def test_what_waits_is_purged(client: Client) -> None:
    jobs = [client.enqueue("echo", b"x", delay=delay) for delay in (0, 0, 60)]
    assert client.purge("echo", states=["delayed"]) == 1
    assert client.purge("echo") == 2
    assert {client.job(job).outcome for job in jobs} == {"cancelled"}
    assert client.purge("echo", states=["ended"]) == 3
    with pytest.raises(NoSuchJob):
        client.job(jobs[0])


def test_a_worker_is_drained(client: Client, worker: HandWorker) -> None:
    until(lambda: client.workers()[0].state == "idle", "it is idle")
    (view,) = client.workers()
    assert (view.services, view.dialect) == (["echo"], "native")
    client.drain(view.id)
    until(lambda: client.workers() == [], "it has gone")


def test_jobs_that_recur() -> None:
    clock = VirtualClock()
    with LocalBroker(clock=clock) as broker, broker.client(codec="json") as client:
        worker = HandWorker(broker.url.removeprefix("native+"), "echo")
        view = client.set_schedule("tick", "echo", {"n": 1}, every=60, attempts=1)
        assert (view.name, view.every, view.runs) == ("tick", 60, 0)
        broker.advance(61)
        until(lambda: worker.seen[b'{"n":1}'] == 1, "it has run once")
        (view,) = client.schedules()
        assert (view.runs, view.last_job is not None) == (1, True)
        assert client.pause_schedule("tick").paused
        broker.advance(600)
        assert not client.resume_schedule("tick").paused
        client.delete_schedule("tick")
        assert client.schedules() == []
        assert worker.seen[b'{"n":1}'] == 1
        worker.stop()


# -------------------------------------------------------------------- connections


def test_what_was_asked_is_asked_again_on_a_new_connection(broker: LocalBroker, worker: HandWorker) -> None:
    cutter = Cutter(int(broker.url.rpartition(":")[2]))
    with Client(f"tcp://127.0.0.1:{cutter.port}") as client, broker.client() as other:
        job = client.enqueue("echo", b"hold")
        _, token = worker.held.get(timeout=PATIENCE)
        told: list[bytes] = []
        waiting = threading.Thread(target=lambda: told.append(client.result(job)))
        waiting.start()
        for count in (2, 3):
            until(lambda: _who_waits(broker) == 1, "it waits at the operations")
            cutter.cut()
            until(lambda count=count: cutter.count == count, "it has come back")  # type: ignore[misc]
        until(lambda: _who_waits(broker) == 1, "it waits again, once")
        assert other.job(job).state == "running"
        worker.release(token, b"done")
        waiting.join(PATIENCE)
        assert told == [b"done"]
    cutter.close()


def _who_waits(broker: LocalBroker) -> int:
    server = broker._thread.server
    return broker._thread.run(lambda: sum(len(job.callers) for job in server.broker.jobs.values()))


def test_a_broker_that_reads_its_store_is_asked_again(broker: LocalBroker, client: Client) -> None:
    job_registry = broker._thread.server.broker.job_registry
    client.services()
    broker._thread.run(lambda: setattr(job_registry, "is_loading", True))
    threading.Timer(0.15, lambda: broker._thread.post(lambda: setattr(job_registry, "is_loading", False))).start()
    job = client.enqueue("echo", b"x")
    assert client.job(job).state == "waiting"


def test_a_broker_that_reads_for_ever_is_unavailable(
    broker: LocalBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.sdk.operation_steps.LOADING_TIMEOUT", 0.1)
    broker._thread.run(lambda: setattr(broker._thread.server.broker.job_registry, "is_loading", True))
    with pytest.raises(BrokerUnavailable, match="still being read"):
        client.job(UNKNOWN)


def test_more_questions_than_the_window_wait_for_their_turn(worker: HandWorker, broker: LocalBroker) -> None:
    """They would be objected to as too many (Busy) otherwise."""
    with Client(f"{broker.url}?window=2") as client:
        jobs = [client.enqueue("echo", b"hold %d" % number) for number in range(5)]
        held = dict(worker.held.get(timeout=PATIENCE) for _ in jobs)
        told: list[bytes | Busy] = []

        def wait(job: str) -> None:
            try:
                told.append(client.result(job))
            except Busy as error:
                told.append(error)

        threads = [threading.Thread(target=wait, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for payload, token in held.items():
            worker.release(token, payload)
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(map(str, told)) == sorted(map(str, held))


def test_whoever_is_gone_is_a_broker_unavailable() -> None:
    with LocalBroker() as broker:
        url = broker.url
        client = Client(url, connect_timeout=0.3)
        job = client.enqueue("echo", b"x")
    with client, pytest.raises(BrokerUnavailable):
        client.result(job)


def test_a_closed_client_asks_nothing(client: Client) -> None:
    client.enqueue("echo")
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.services()


# -------------------------------------------------------------------- the same, awaited


def test_all_of_it_can_be_awaited(broker: LocalBroker, worker: HandWorker) -> None:
    asyncio.run(all_of_it(broker))


async def all_of_it(broker: LocalBroker) -> None:
    async with AsyncClient(broker.url, codec="json") as client:
        job = await client.enqueue("echo", [1], key="k")
        assert await client.result(job, timeout=PATIENCE) == [1]
        assert await client.result(job, codec="bytes") == b"[1]"
        assert (await client.job(job)).outcome == "done"
        assert [view.id for view in await client.jobs()] == [job]
        assert await client.why(job) == "It is done."
        assert not await client.cancel(job)
        with pytest.raises(JobRefused):
            await client.retry(job)
        assert (await client.pause("echo")).paused
        assert not (await client.resume("echo")).paused
        assert await client.purge("echo") == 0
        assert [view.name for view in await client.services()] == ["echo"]
        assert (await client.set_schedule("r", "echo", 1, cron="0 0 1 1 *")).cron == "0 0 1 1 *"
        assert (await client.pause_schedule("r")).paused
        assert not (await client.resume_schedule("r")).paused
        assert [view.name for view in await client.schedules()] == ["r"]
        await client.delete_schedule("r")
        (view,) = await client.workers()
        await client.drain(view.id)


def test_who_stops_waiting_leaves_the_job_alone(broker: LocalBroker, worker: HandWorker) -> None:
    asyncio.run(stop_waiting(broker, worker))


async def stop_waiting(broker: LocalBroker, worker: HandWorker) -> None:
    async with AsyncClient(broker.url) as client:
        job = await client.enqueue("echo", b"hold")
        _, token = await asyncio.to_thread(worker.held.get, True, PATIENCE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.result(job)
        worker.release(token, b"done")
        assert await client.result(job, timeout=PATIENCE) == b"done"


# -------------------------------------------------------------------- keys


def test_fixed_key_makes_one_job_each_night(client: Client, worker: HandWorker) -> None:
    """R24: with unique="unfinished" the key is free when the job has ended, also for another payload."""
    first = client.enqueue("echo", b"hold monday", key="nightly", unique="unfinished")
    assert client.enqueue("echo", b"hold monday", key="nightly", unique="unfinished") == first
    _, token = worker.held.get(timeout=PATIENCE)
    assert client.enqueue("echo", b"hold monday", key="nightly", unique="unfinished") == first
    with pytest.raises(JobRefused, match="came with another payload"):
        client.enqueue("echo", b"tuesday", key="nightly", unique="unfinished")
    worker.release(token, b"done")
    client.result(first, timeout=PATIENCE)
    second = client.enqueue("echo", b"tuesday", key="nightly", unique="unfinished")
    assert second != first
    assert client.result(second, timeout=PATIENCE) == b"tuesday"
    assert client.find_job("echo", "nightly").id == second


def test_key_of_a_waiting_job_is_free_when_it_starts(broker: LocalBroker, client: Client) -> None:
    """R24: a change that comes while the job runs makes a second job, and only one."""
    first = client.enqueue("echo", b"hold", key="index", unique="waiting")
    assert client.enqueue("echo", b"hold", key="index", unique="waiting") == first
    worker = HandWorker(broker.url.removeprefix("native+"), "echo", capacity=1)
    _, token = worker.held.get(timeout=PATIENCE)
    second = client.enqueue("echo", b"hold", key="index", unique="waiting")
    assert second != first
    assert client.enqueue("echo", b"hold", key="index", unique="waiting") == second
    worker.release(token, b"done")
    worker.release(worker.held.get(timeout=PATIENCE)[1], b"done")
    client.result(second, timeout=PATIENCE)
    worker.stop()


def test_request_that_is_repeated_after_a_lost_connection_makes_one_job(broker: LocalBroker) -> None:
    """R24: the first copy made a job that has started, so it does not hold the key any more. A bug would make two."""
    worker = HandWorker(broker.url.removeprefix("native+"), "echo")
    cutter = Cutter(int(broker.url.rpartition(":")[2]))
    with Client(f"tcp://127.0.0.1:{cutter.port}") as client, broker.client() as other:
        client.health()
        cutter.drop_answers()
        enqueued: list[str] = []
        thread = threading.Thread(
            target=lambda: enqueued.append(client.enqueue("echo", b"hold", key="index", unique="waiting"))
        )
        thread.start()
        _, token = worker.held.get(timeout=PATIENCE)
        cutter.cut()
        thread.join(PATIENCE)
        assert enqueued == [each.id for each in other.jobs()]
        worker.release(token, b"done")
    worker.stop()
    cutter.close()


def test_job_is_found_by_its_key(client: Client) -> None:
    job = client.enqueue("echo", b"x", key="order-42", unique="waiting", keep=60)
    found = client.find_job("echo", "order-42")
    assert (found.id, found.key, found.unique, found.keep) == (job, "order-42", "waiting", 60.0)
    for service, key in (("echo", "order-43"), ("other", "order-42")):
        with pytest.raises(NoSuchJob, match="has key"):
            client.find_job(service, key)


def test_unique_without_a_key_is_an_error(client: Client) -> None:
    with pytest.raises(ValueError, match="unique='waiting' is about the key of a job"):
        client.enqueue("echo", b"x", unique="waiting")


# -------------------------------------------------------------------- outcomes


async def result_after_release(url: str, job: str, worker: HandWorker, token: bytes) -> bytes:
    """Request a result, and let the worker end the job when the broker has the request."""
    async with AsyncClient(url) as client:
        await client.health()
        requested = asyncio.ensure_future(client.result(job))
        await asyncio.sleep(0)  # it is sent
        await client.health()  # sent behind it on the same connection
        worker.release(token, b"done")
        return await requested


def test_outcome_is_kept_for_the_time_of_the_job(broker: LocalBroker, client: Client, worker: HandWorker) -> None:
    """R136: until it is deleted, for a number of seconds, or not at all."""
    views = {}
    for keep in ("forever", 3_600.0, 0.0):
        job = client.enqueue("echo", b"hold", keep=keep)  # type: ignore[arg-type]
        _, token = worker.held.get(timeout=PATIENCE)
        assert asyncio.run(result_after_release(broker.url, job, worker, token)) == b"done"
        views[keep] = [each for each in client.jobs() if each.id == job]
    assert [len(each) for each in views.values()] == [1, 1, 0]
    forever, hour = views["forever"][0], views[3_600.0][0]
    assert (forever.keep, forever.kept_until, client.result(forever.id)) == ("forever", None, b"done")
    assert hour.kept_until is not None
    assert hour.ended is not None
    assert abs((hour.kept_until - hour.ended).total_seconds() - 3_600.0) < 1.0


# -------------------------------------------------------------------- many jobs


def test_many_jobs_are_retried_cancelled_and_deleted(client: Client, worker: HandWorker) -> None:
    for number in range(120):
        client.enqueue("echo", b"fail row %d" % number, attempts=1)
    until(lambda: client.job_counts("echo").quarantined == 120, "all have failed")
    counted = client.retry_jobs(service="echo", reason="row 11", dry_run=True)
    assert (counted.of, counted.done, counted.over, len(counted.jobs)) == (11, 0, True, 10)
    retried = client.retry_jobs(service="echo", since=datetime.now(UTC) - timedelta(hours=1))
    assert (retried.of, retried.done, retried.left_out, retried.over) == (120, 120, 0, True)
    until(lambda: client.job_counts("echo").quarantined == 120, "the retries have failed, too")
    group = client.quarantine()[0]
    assert client.retry_group(group.group, 1_000).of == 120
    until(lambda: client.job_counts("echo").undone == 360, "and so have theirs")
    assert client.delete_jobs(all=True, quarantined=False).done == 240
    waiting = client.enqueue("nobody", b"x")
    assert client.cancel_jobs(service="nobody", state="waiting").done == 1
    assert client.delete(waiting) == waiting
    with pytest.raises(ValueError, match="the request has no filter"):
        client.delete_jobs()
    assert client.purge("echo", states=("ended",)) == 120
    with pytest.raises(NotFound, match="no act on many jobs"):
        client.bulk_act(UNKNOWN)


def test_many_jobs_are_awaited(broker: LocalBroker) -> None:
    async def acts() -> None:
        async with AsyncClient(broker.url) as client:
            for _ in range(3):
                await client.enqueue("echo", b"x")
            view = await client.cancel_jobs(service="echo")
            assert (view.done, (await client.stop_bulk_act(view.id)).over) == (3, True)
            assert (await client.delete_jobs(outcome="cancelled")).done == 3

    asyncio.run(acts())
