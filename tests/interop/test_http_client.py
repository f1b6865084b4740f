"""Dragoman's clients over HTTP: every method behaves as over the native dialect, including errors and their texts."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from case_tables import check_every_row
from dragoman import (
    AsyncClient,
    BrokerUnavailable,
    Client,
    JobCancelled,
    JobTimeout,
    LocalBroker,
    NewJob,
    NoSuchService,
    Unsupported,
)
from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.schemas import (
    ScheduleRef,
)
from dragoman.operations.table import JOBS, SCHEDULE
from dragoman.sdk import operation_steps
from dragoman.sdk.codecs import codec
from dragoman.testing.local import VirtualClock
from programs import PATIENCE, until

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from native_worker import Cutter, HandWorker

LISTEN = ("tcp://127.0.0.1:0?max_payload=1MiB&lease=1e8", "http://127.0.0.1:0?max_payload=1MiB")
UNKNOWN = "0" * 32
VARYING = {
    "created",
    "started",
    "ended",
    "idle",
    "kept_until",
    "key",
    "silent",
    "oldest",
    "next",
    "last",
    "lease",
    "peers",
    "paused_at",
    "since",
    "waited",
    "worker_id",
    "caller",
    # Rates of services are null until the first sample.
    "arrived",
    "done",
    "undone",
    "wait",
    "run",
    "need",
}


class World:
    """A broker with listeners for both, a hand-written worker, and a client of one of them."""

    def __init__(self, dialect: str) -> None:
        self.broker = LocalBroker(*LISTEN)
        self.worker = HandWorker(self.broker.urls["native"].removeprefix("native+"), "echo")
        self.client = Client(self.broker.urls[dialect])

    def close(self) -> None:
        self.client.close()
        self.worker.stop()
        self.broker.close()

    def hold(self) -> tuple[str, bytes]:
        """Start a background job that runs until its token is released."""
        job = self.client.enqueue("echo", b"hold")
        _, token = self.worker.held.get(timeout=PATIENCE)
        return job, token

    def ended(self, payload: bytes, **options: Any) -> str:
        job = self.client.enqueue("echo", payload, **options)
        until(lambda: self.client.job(job).state == "ended", "the job ends")
        return job

    def set_schedule(self, **options: Any) -> Any:
        return self.client.set_schedule("nightly", "echo", b"\xff", cron="0 3 * * *", **options)


Act = Callable[[World], Any]


def outcome(act: Act, dialect: str) -> Any:
    """Return the result, or type and text of the exception, without values that differ between two runs."""
    world = World(dialect)
    try:
        return seen(act(world))
    except Exception as error:
        return type(error), seen(str(error))
    finally:
        world.close()


def seen(value: Any) -> Any:
    if isinstance(value, str):
        value = re.sub(r"\b[0-9a-f]{32}\b", "<id>", value)
        return re.sub(r"[a-z+/:]*127\.0\.0\.1:\d+", "<place>", value)
    if isinstance(value, msgspec.Struct):
        return seen(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return {
            name: seen(each) for name, each in value.items() if name not in VARYING and not is_number_of(name, each)
        }
    if isinstance(value, list | tuple):
        return [seen(each) for each in value]
    return value


def is_number_of(name: str, value: Any) -> bool:
    return name == "id" and isinstance(value, int)  # of a worker


def cancelled_on_the_way(world: World) -> bool:
    job = world.client.submit("echo", b"hold")
    world.worker.held.get(timeout=PATIENCE)
    asked = job.cancel()
    with pytest.raises(CancelledError):
        job.result(PATIENCE)
    return asked and job.cancelled()


def released(world: World) -> Any:
    job, token = world.hold()
    world.worker.release(token, b"done")
    return world.client.result(job, timeout=PATIENCE)


def idle_workers(world: World) -> Any:
    until(lambda: [view.state for view in world.client.workers()] == ["idle"], "the worker is idle")
    return world.client.workers()


def worker_number(world: World) -> int:
    (view,) = idle_workers(world)
    number: int = view.id
    return number


ACTS: dict[str, Act] = {
    # calls
    "call": lambda world: world.client.call("echo", b"hello"),
    "call, nothing": lambda world: world.client.call("echo"),
    "call, any bytes": lambda world: world.client.call("echo", bytes(range(256)) * 2000),
    "call, json": lambda world: world.client.call("echo", {"ä": [1]}, codec="json"),
    "call, all options": lambda world: world.client.call(
        "echo", b"x", timeout=30, job_timeout=20.5, priority=9, attempts=2, wait_for_worker=True
    ),
    "call, no limits": lambda world: world.client.call("echo", b"x", timeout=None, job_timeout=None),
    "call, parts": lambda world: world.client.call("echo", b"parts 3"),
    "call, reports": lambda world: world.client.call("echo", b"report 3"),
    "call, fails": lambda world: world.client.call("echo", b"fail no cat in it"),
    "call, not json": lambda world: (
        world.client.call("echo", b"{", codec="bytes") and world.client.call("echo", b"fail", codec="json")
    ),
    "call, too late": lambda world: world.client.call("echo", b"hold", timeout=0.2),
    "call, runs too long": lambda world: world.client.call("echo", b"hold", job_timeout=0.2),
    "call, nobody": lambda world: world.client.call("nobody"),
    "call, too large": lambda world: world.client.call("echo", bytes(2 << 20)),
    "call, no name": lambda world: world.client.call("tab\t"),
    "call, no priority": lambda world: world.client.call("echo", priority=10),
    "submit_whole": lambda world: world.client.submit_whole("echo", b"hello", codec=codec("bytes")).result(PATIENCE),
    "submit": lambda world: world.client.submit("echo", b"hello").result(PATIENCE),
    "submit, failure": lambda world: vars(world.client.submit("echo", b"fail so").exception(PATIENCE)),  # type: ignore[arg-type]
    "submit, cancel": cancelled_on_the_way,
    "map": lambda world: list(world.client.map("echo", [b"%d" % each for each in range(50)])),
    "map, fails": lambda world: list(world.client.map("echo", [b"1", b"fail two", b"3"])),
    "as_completed": lambda world: sorted(
        job.result()
        for job in world.client.as_completed([world.client.submit("echo", b"%d" % each) for each in range(9)])
    ),
    "executor": lambda world: list(world.client.executor("echo").map(None, [b"a", b"b"])),  # type: ignore[arg-type]
    # background jobs
    "enqueue": lambda world: world.client.enqueue("echo", b"hello"),
    "enqueue, all options": lambda world: world.client.job(
        world.client.enqueue(
            "later",
            b"\xff",
            key="k & ü",
            not_before=datetime(2040, 1, 1, tzinfo=UTC),
            priority=7,
            attempts=9,
            timeout=None,
            retry_first=1.5,
            retry_cap=20,
            retry_jitter=0.5,
        )
    ),
    "enqueue, same key": lambda world: [
        world.client.enqueue("later", b"x", key="k") == world.client.enqueue("later", b"x", key="k")
    ],
    "enqueue, key reused": lambda world: [world.client.enqueue("later", each, key="k") for each in (b"x", b"y")],
    "enqueue, no priority": lambda world: world.client.enqueue("echo", priority=11),
    "enqueue, no service": lambda world: world.client.enqueue(""),
    "enqueue, no seconds": lambda world: world.client.enqueue("echo", timeout=-1),
    "enqueue, nan": lambda world: world.client.enqueue("echo", delay=float("nan")),
    "enqueue, too large": lambda world: world.client.enqueue("echo", bytes(2 << 20)),
    "enqueue_many": lambda world: [
        world.client.result(each, timeout=PATIENCE) for each in world.client.enqueue_many("echo", [b"a", b"b"])
    ],
    "enqueue_many, too large": lambda world: world.client.enqueue_many("echo", [b"", bytes(2 << 20)]),
    "enqueue_jobs": lambda world: world.client.result(
        world.client.enqueue_jobs([first := NewJob("echo", b"x"), NewJob("echo", after=[first], input="result")])[1],
        timeout=PATIENCE,
    ),
    "enqueue_jobs, unknown": lambda world: world.client.enqueue_jobs([NewJob("echo", after=[UNKNOWN])]),
    "enqueue_group": lambda world: world.client.enqueue_group("later", []),
    "group": lambda world: world.client.group(world.client.enqueue_group("later", [b"a", b"b"])),
    "group, unknown": lambda world: world.client.group(UNKNOWN),
    "group_results": lambda world: world.client.group_results(
        world.client.enqueue_group("echo", [b"\xff", b"fail so", b"b"], attempts=1), PATIENCE, errors="return"
    )[::2],
    "group_results, not yet": lambda world: world.client.group_results(world.client.enqueue_group("later", [b""]), 0),
    "cancel_group": lambda world: world.client.cancel_group(world.client.enqueue_group("later", [b"a", b"b"])),
    "result": lambda world: world.client.result(world.client.enqueue("echo", b"\xff\0"), timeout=PATIENCE),
    "result, waits": released,
    "result, json": lambda world: world.client.result(world.client.enqueue("echo", [1], codec="json"), codec="json"),
    "result, not json": lambda world: world.client.result(world.client.enqueue("echo", b"{"), codec="json"),
    "result, parts": lambda world: world.client.result(world.client.enqueue("echo", b"parts 2")),
    "result, fails": lambda world: world.client.result(world.client.enqueue("echo", b"fail so", attempts=1)),
    "result, not yet": lambda world: world.client.result(world.client.enqueue("later"), timeout=0),
    "result, unknown": lambda world: world.client.result(UNKNOWN),
    "result, no id": lambda world: world.client.result("x"),
    "result, cancelled": lambda world: (
        world.client.cancel(job := world.client.enqueue("later")) and world.client.result(job)
    ),
    "job": lambda world: world.client.job(world.ended(b"hello")),
    "job, any bytes": lambda world: world.client.job(world.ended(b"\xff")),
    "job, failed": lambda world: world.client.job(world.ended(b"fail so", attempts=1)),
    "job, unknown": lambda world: world.client.job(UNKNOWN),
    "find_job": lambda world: world.client.enqueue("later", key="k ü") and world.client.find_job("later", "k ü"),
    "find_job, unknown": lambda world: world.client.find_job("later", "k"),
    "job, no id": lambda world: world.client.job("ä/?"),
    "job, empty": lambda world: world.client.job(""),
    "jobs": lambda world: (
        [world.client.enqueue("later", b"%d" % each) for each in range(3)] and world.client.jobs(limit=2)
    ),
    "jobs, filtered": lambda world: (
        [world.ended(b"fail so", attempts=1)]
        and world.client.jobs(service="echo", state="ended", outcome="failed", quarantined=True)
    ),
    "jobs, after": lambda world: world.client.jobs(after=[world.client.enqueue("later") for _ in range(3)][-1]),
    "jobs, after unknown": lambda world: world.client.jobs(after=UNKNOWN),
    "jobs, no state": lambda world: world.client.jobs(state="asleep"),  # type: ignore[arg-type]
    "jobs, text": lambda world: (
        [world.client.enqueue("later", key=each) for each in ("a b", "c")]
        and [each.key for each in world.client.jobs(text="A B", kind="background")]
    ),
    "job_counts": lambda world: [
        world.ended(b"hello") and world.client.enqueue("later") and world.client.job_counts("later"),
        world.client.job_counts().waiting,
        world.client.job_counts("echo").done,
    ],
    "cancel": lambda world: world.client.cancel(world.client.enqueue("later")),
    "cancel, ended": lambda world: world.client.cancel(world.ended(b"hello")),
    "cancel, unknown": lambda world: world.client.cancel(UNKNOWN),
    "retry": lambda world: world.client.job(world.client.retry(world.ended(b"fail so", attempts=1))).retry_of,
    "retry, done": lambda world: world.client.retry(world.ended(b"hello")),
    "delete": lambda world: [world.client.delete(job := world.ended(b"x")), world.client.job(job)],
    "delete, not ended": lambda world: world.client.delete(world.client.enqueue("later")),
    "retry_jobs": lambda world: (
        world.ended(b"fail so", attempts=1) and world.client.retry_jobs(service="echo", reason="so")
    ),
    "retry_jobs, no filter": lambda world: world.client.retry_jobs(),
    "cancel_jobs": lambda world: world.client.enqueue("later") and world.client.cancel_jobs(service="later"),
    "delete_jobs": lambda world: world.ended(b"x") and world.client.delete_jobs(all=True, dry_run=True).of,
    "bulk_act": lambda world: world.client.bulk_act(world.client.cancel_jobs(service="later").id),
    "bulk_act, unknown": lambda world: world.client.bulk_act(UNKNOWN),
    "stop_bulk_act": lambda world: world.client.stop_bulk_act(world.client.cancel_jobs(service="later").id).over,
    "cluster": lambda world: world.client.cluster(),
    "release_shards": lambda world: world.client.release_shards("eu1"),
    "health": lambda world: idle_workers(world) and world.client.health(),
    "reload_access": lambda world: world.client.reload_access(),
    "why": lambda world: world.client.why(world.client.enqueue("later")),
    "ladder": lambda world: [each.role for each in world.client.ladder(world.ended(b"hello")).lanes],
    "ladder, unknown": lambda world: world.client.ladder(UNKNOWN),
    "worker_ladder": lambda world: world.client.worker_ladder(worker_number(world)).messages,
    "why, unknown": lambda world: world.client.why(UNKNOWN),
    # services and workers
    "services": lambda world: idle_workers(world) and world.client.services(),
    "services, pages": lambda world: (
        [world.client.enqueue(name) for name in ("x/y", "ä")]
        and [each.name for each in world.client.services(sort="name", limit=3)]
    ),
    "services, no page": lambda world: world.client.services(sort="need", after="x"),
    "service": lambda world: world.client.service("echo").name,
    "service, unknown": lambda world: world.client.service("nobody"),
    "pause": lambda world: world.client.pause("a/b ä", by="Ada"),
    "pause, nobody says": lambda world: idle_workers(world) and world.client.pause("echo"),
    "pause, no name": lambda world: world.client.pause("tab\t"),
    "pause, long name": lambda world: world.client.pause("ä" * 100),
    "resume": lambda world: idle_workers(world) and [world.client.pause("echo"), world.client.resume("echo")],
    "resume, unknown": lambda world: world.client.resume("nobody"),
    "resume, empty": lambda world: world.client.resume(""),
    "limit": lambda world: idle_workers(world) and world.client.limit("echo", max_running=4, rate="100/min").limits,
    "limit, no rate": lambda world: world.client.limit("echo", rate="often"),
    "purge": lambda world: [world.client.enqueue("later") for _ in range(3)] and world.client.purge("later"),
    "purge, ended": lambda world: [world.ended(b"x")] and world.client.purge("echo", states=["ended"]),
    "purge, no state": lambda world: world.client.purge("echo", states=["running"]),  # type: ignore[list-item]
    "purge, unknown": lambda world: world.client.purge("nobody"),
    "workers": idle_workers,
    "workers, filtered": lambda world: [
        each.services for each in world.client.workers(service="echo", sort="need", limit=5)
    ],
    "workers, no state": lambda world: world.client.workers(state="asleep"),  # type: ignore[arg-type]
    "fleet": lambda world: idle_workers(world) and world.client.fleet().states,
    "overview": lambda world: idle_workers(world) and world.client.overview("1h").series.step,
    "service_series": lambda world: idle_workers(world) and world.client.service_series("echo").step,
    "listeners": lambda world: [each.dialect for each in world.client.listeners()],
    "broker": lambda world: [each.name for each in world.client.broker().limits],
    "worker": lambda world: world.client.worker(worker_number(world)).services,
    "worker, unknown": lambda world: world.client.worker(123456),
    "drain": lambda world: world.client.drain(worker_number(world)),
    "drain, now": lambda world: world.client.drain(worker_number(world), now=True).services,
    "drain, unknown": lambda world: world.client.drain(123456),
    "drain, no number": lambda world: world.client.drain(-1),
    # recurring jobs
    "payload": lambda world: world.client.payload(world.client.enqueue("echo", b"\xff\0", delay=60)),
    "payload, unknown": lambda world: world.client.payload(UNKNOWN),
    "payload, of an ended job": lambda world: [
        world.client.result(job := world.client.enqueue("echo", b"x"), timeout=30),
        world.client.payload(job),
    ],
    "set_schedule": lambda world: world.set_schedule(timezone="Europe/Vienna", overlap=True, paused=True, timeout=None),
    "set_schedule, no cron": lambda world: world.client.set_schedule("nightly", "echo", cron="no"),
    "set_schedule, both": lambda world: world.set_schedule(every=5.0),
    "set_schedule, no name": lambda world: world.client.set_schedule("", "echo", every=5.0),
    "schedules": lambda world: [world.set_schedule(), world.client.schedules()],
    "schedule": lambda world: [world.set_schedule(), world.client.schedule("nightly")],
    "recurrence, unknown": lambda world: world.client.schedule("nightly"),
    "operation": lambda world: [world.set_schedule(), world.client.operation(SCHEDULE, ScheduleRef(name="nightly"))],
    "run_schedule": lambda world: [world.set_schedule(), world.client.run_schedule("nightly").runs],
    "run_schedule, unknown": lambda world: world.client.run_schedule("nightly"),
    "quarantine": lambda world: world.ended(b"fail so", attempts=1) and len(world.client.quarantine()),
    "retry_group": lambda world: (
        world.ended(b"fail so", attempts=1) and world.client.retry_group(world.client.quarantine()[0].group).of
    ),
    "retry_group, unknown": lambda world: world.client.retry_group("0" * 16),
    "retry_group, no id": lambda world: world.client.retry_group("all"),
    "pages": lambda world: (
        [world.client.enqueue("later") for _ in range(3)]
        and list(world.client.pages(JOBS, ListJobsRequest(service="later", limit=2)))
    ),
    "pause_schedule": lambda world: [world.set_schedule(), world.client.pause_schedule("nightly")],
    "resume_schedule": lambda world: [world.set_schedule(paused=True), world.client.resume_schedule("nightly")],
    "delete_schedule": lambda world: [
        world.set_schedule(),
        world.client.delete_schedule("nightly"),
        world.client.schedules(),
    ],
    "delete_schedule, unknown": lambda world: world.client.delete_schedule("nightly"),
}


def test_every_method_gives_the_same_by_http_as_by_the_native_dialect() -> None:
    def check(name: str) -> None:
        assert outcome(ACTS[name], "http") == outcome(ACTS[name], "native")

    check_every_row(check, [(name,) for name in ACTS])
    methods = {name for name, each in vars(Client).items() if callable(each) and not name.startswith("_")}
    inherited = {name for base in Client.__mro__[1:] for name, each in vars(base).items() if callable(each)}
    tried = {name.partition(",")[0] for name in ACTS}
    not_asked = {"close", "check_process", "check_may_wait", "submit_for_executor", "codec_of"}
    assert {each for each in methods | inherited if not each.startswith("_")} - not_asked <= tried


@pytest.mark.parametrize(("limit", "sizes"), [(10**30, [2, 2, 1]), (4, [2, 2]), (3, [2, 1]), (1, [1])])
@pytest.mark.parametrize("dialect", ["native", "http"])
def test_a_list_comes_page_by_page(monkeypatch: pytest.MonkeyPatch, dialect: str, limit: int, sizes: list[int]) -> None:
    monkeypatch.setattr(operation_steps, "PAGE", 2)
    request = ListJobsRequest(service="later", limit=limit)

    async def pages(url: str) -> list[list[Any]]:
        async with AsyncClient(url) as client:
            return [page async for page in client.pages(JOBS, request)]

    with LocalBroker(*LISTEN) as broker, Client(broker.urls[dialect]) as client:
        ids = [client.enqueue("later") for _ in range(5)][::-1]
        found = list(client.pages(JOBS, request))
        assert [len(page) for page in found] == sizes
        assert [job.id for page in found for job in page] == ids[:limit]
        assert client.jobs(service="later", limit=limit) == [job for page in found for job in page]
        assert asyncio.run(pages(broker.urls[dialect])) == found


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(*LISTEN) as broker:
        yield broker


@pytest.fixture
def worker(broker: LocalBroker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.urls["native"].removeprefix("native+"), "echo")
    yield worker
    worker.stop()


def test_what_http_cannot_carry_is_refused_with_the_name_of_a_native_address(
    broker: LocalBroker, worker: HandWorker
) -> None:
    with Client(broker.urls["http"]) as client:
        with pytest.raises(Unsupported, match=r"http does not support queue_timeout; .* tcp://127\.0\.0\.1:7400"):
            client.call("echo", queue_timeout=3)
        job = client.submit("echo", b"x")
        for act in (lambda: job.id, lambda: job.progress, lambda: job.on_progress(print), lambda: job.parts()):
            with pytest.raises(Unsupported, match="native URL"):
                act()
        assert job.result(PATIENCE) == b"x"


def test_all_of_it_can_be_awaited(broker: LocalBroker, worker: HandWorker) -> None:
    async def all_of_it() -> None:
        async with AsyncClient(broker.urls["http"]) as client:
            assert await client.call("echo", b"hello") == b"hello"
            assert [each async for each in client.map("echo", [b"1", b"2"])] == [b"1", b"2"]
            with pytest.raises(NoSuchService):
                await client.call("nobody")
            job = await client.enqueue("echo", b"later")
            assert await client.result(job, timeout=PATIENCE) == b"later"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.call("echo", b"hold")
            assert await client.call("echo", b"still there") == b"still there"

    asyncio.run(all_of_it())


def test_a_caller_that_does_not_wait_any_more_withdraws_its_call(broker: LocalBroker) -> None:
    """Its job waits for a worker, and is not there any more once the caller has hung up."""
    with Client(broker.urls["http"]) as client:
        waiting = client.submit("later", b"x", wait_for_worker=True)
        until(lambda: [view.waiting for view in client.services()] == [1], "the call waits")
        assert waiting.cancel()
        until(lambda: [view.waiting for view in client.services()] in ([0], []), "the call is withdrawn")
        assert waiting.cancelled()


def test_no_more_connections_are_open_than_there_may_be(broker: LocalBroker, worker: HandWorker) -> None:
    port = int(broker.urls["http"].rpartition(":")[2])
    cutter = Cutter(port)
    with Client(f"http://127.0.0.1:{cutter.port}", connections=3) as client:
        jobs = [client.submit("echo", b"hold %d" % number) for number in range(7)]
        for _ in jobs:
            payload, token = worker.held.get(timeout=PATIENCE)
            worker.release(token, payload)
        assert [job.result(PATIENCE) for job in jobs] == [b"hold %d" % number for number in range(7)]
        assert cutter.count <= 3
    cutter.close()


def test_an_operation_outlives_its_connection_and_a_call_does_not(broker: LocalBroker, worker: HandWorker) -> None:
    cutter = Cutter(int(broker.urls["http"].rpartition(":")[2]))
    with Client(f"http://127.0.0.1:{cutter.port}") as client:
        job = client.enqueue("echo", b"hold")
        _, token = worker.held.get(timeout=PATIENCE)
        call = client.submit("echo", b"hold")
        worker.held.get(timeout=PATIENCE)
        cutter.cut()
        with pytest.raises(BrokerUnavailable, match="ended before the response"):
            call.result(PATIENCE)
        worker.release(token, b"done")
        assert client.result(job, timeout=PATIENCE) == b"done"
    cutter.close()


def test_a_client_that_is_closed_cancels_what_is_under_way(broker: LocalBroker, worker: HandWorker) -> None:
    client = Client(broker.urls["http"])
    job = client.submit("echo", b"hold")
    worker.held.get(timeout=PATIENCE)
    client.close()
    with pytest.raises(JobCancelled):
        job.result(PATIENCE)


def test_a_unix_socket_will_do(tmp_path: Path) -> None:
    with LocalBroker(f"http+unix://{tmp_path}/broker.sock") as broker, Client(broker.url) as client:
        assert client.services() == []


def test_deadlines_are_the_brokers() -> None:
    clock = VirtualClock()
    with LocalBroker("http://127.0.0.1:0", clock=clock) as broker, Client(broker.url) as client:
        job = client.submit("later", wait_for_worker=True, timeout=3000)
        until(lambda: bool(client.services()), "the call is there")
        begun = time.monotonic()
        broker.advance(3001)
        with pytest.raises(JobTimeout, match="its deadline passed"):
            job.result(PATIENCE)
        assert time.monotonic() - begun < PATIENCE
