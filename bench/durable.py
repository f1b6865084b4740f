"""Background jobs inside one process, without sockets: stored jobs a second, and the start of a broker with a million
jobs. Run as a program by the Python of the measured product; prints one line of JSON.

    python -m bench.durable submits CALLERS SECONDS     through broker, runner and store
    python -m bench.durable jobs CALLERS SECONDS SLOTS  to the end: run by a worker with SLOTS slots
    python -m bench.durable bare CALLERS SECONDS        through nothing but a thread with the same statements
    python -m bench.durable restart JOBS                time to index them, memory, and what a call takes meanwhile
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from dragoman.core.effects import DeliverOutcome, Effect, SendJob
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import Attempt, Caller, Job, JobId, Service
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ALL_RIGHTS, LOCAL, Principal
from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.server.event_loop import loop_factory
from dragoman.server.serve import Server
from dragoman.server.tuning import tune_process
from dragoman.store import schema
from dragoman.store.checksums import sealed_job
from dragoman.store.file_names import NAME
from dragoman.store.rows import RowEncoder
from dragoman.store.statements import ADD_JOBS

BODY = b"x" * 512
WISHES = JobOptions(durable=True, waits=True, attempts=3)
CALL = JobOptions(waits=True)
WARMUP = 0.3
OWNER = Owner(Principal(LOCAL, ALL_RIGHTS), is_limited=False)
EVERY = 0.02  # seconds between two calls while jobs are restored
INSERT = ADD_JOBS[1]


class Quiet:
    """A log that discards everything."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words, **fields: None


def make_server(folder: Path) -> Server:
    config = Config(listen=("native+tcp://127.0.0.1:0",))
    return Server(asyncio.get_running_loop(), config, 1, Quiet(), folder=folder)


class Callers(Recipient):
    """Callers that each submit a job when the one before is stored."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.caller = Caller(self, OWNER)
        self.accepted = 0

    def execute(self, effect: Effect, now: float) -> None:
        assert isinstance(effect, Acknowledge), effect
        self.accepted += 1
        self.hand_in(now)

    def hand_in(self, now: float) -> None:
        self.server.broker.submit("s", BODY, self.caller, WISHES, now)


async def submits(callers: int, seconds: float, folder: Path) -> dict[str, float]:
    server = make_server(folder)
    server.listen()
    tune_process()
    responder = Callers(server)
    for _ in range(callers):
        responder.hand_in(clock.now())
    server.runner.run_once()
    await asyncio.sleep(WARMUP)
    figures = await measure(seconds, lambda: responder.accepted, lambda: sum(server.store.commits.counts))
    server.close()
    return figures


class Finishers(Callers):
    """Callers that wait for the outcome, and the worker that finishes their jobs at once."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.given: list[Attempt] = []

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, SendJob):
            self.given.append(effect.attempt)
            if len(self.given) == 1:
                asyncio.get_running_loop().call_soon(self.finish)
        elif isinstance(effect, DeliverOutcome):
            self.accepted += 1
            self.hand_in(now)

    def finish(self) -> None:
        """Deliver results in a later iteration, as from a socket."""
        attempts, self.given = self.given, []
        for attempt in attempts:
            self.server.broker.succeed(attempt, b"", clock.now())
        self.server.runner.run_once()

    def join(self, slots: int) -> None:
        broker, now = self.server.broker, clock.now()
        worker = broker.join(self, None, "w", ("s",), WorkerProfile(capacity=slots), now, OWNER)
        assert worker is not None
        broker.idle(worker, now)


async def jobs(callers: int, seconds: float, slots: int, folder: Path) -> dict[str, float]:
    server = make_server(folder)
    server.listen()
    tune_process()
    both = Finishers(server)
    both.join(slots)
    for _ in range(callers):
        both.hand_in(clock.now())
    server.runner.run_once()
    await asyncio.sleep(WARMUP)
    figures = await measure(seconds, lambda: both.accepted, lambda: sum(server.store.commits.counts))
    server.close()
    return figures


async def bare(callers: int, seconds: float, folder: Path) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    connection = schema.open_file(folder / "diary.db")
    schema.bring_up_to_date(connection)
    queue: SimpleQueue[Any] = SimpleQueue()
    accepted = commits = 0

    def work() -> None:
        nonlocal commits
        while (row := queue.get()) is not None:
            rows = [row]
            try:
                while len(rows) < 5_000:
                    row = queue.get_nowait()
                    if row is None:
                        return
                    rows.append(row)
            except Empty:
                pass
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT, [sealed_job(row) for row in rows])
            connection.execute("COMMIT")
            commits += 1
            loop.call_soon_threadsafe(tell, len(rows))

    def tell(number: int) -> None:
        nonlocal accepted
        for _ in range(number):
            accepted += 1
            hand_in()

    entropy = clock.SystemEntropy()
    last = 0

    def hand_in() -> None:
        nonlocal last
        last += 1
        queue.put((last, entropy.job_id(), "s", "{}", time.time(), None, None, None, None, BODY))

    thread = threading.Thread(target=work)
    thread.start()
    tune_process()
    for _ in range(callers):
        hand_in()
    await asyncio.sleep(WARMUP)
    figures = await measure(seconds, lambda: accepted, lambda: commits)
    queue.put(None)
    thread.join()
    connection.close()
    return figures


async def measure(seconds: float, accepted: Callable[[], int], commits: Callable[[], int]) -> dict[str, float]:
    """Return jobs a second, CPU of this process per job, and jobs per commit."""
    jobs, groups, start, used = accepted(), commits(), time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    jobs, groups = accepted() - jobs, commits() - groups
    took, used = time.perf_counter() - start, time.process_time() - used
    return {"rate": jobs / took, "us_per_job": used * 1e6 / max(jobs, 1), "group": jobs / max(groups, 1)}


class Watch(Recipient):
    """A caller that calls a service repeatedly, its worker, and a worker that takes the first restored job."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.caller = Caller(self, OWNER)
        self.began = 0.0
        self.longest = 0.0
        self.calls = 0
        self.first_out = inf
        self._asked = 0.0

    def join(self) -> None:
        broker, now = self.server.broker, clock.now()
        for service in ("call", "s"):
            worker = broker.join(self, None, service, (service,), WorkerProfile(), now, OWNER)
            assert worker is not None
            broker.idle(worker, now)

    def call(self) -> None:
        self._asked = time.perf_counter()
        self.server.broker.submit("call", b"x", self.caller, CALL, clock.now())
        self.server.runner.connections.call_before_write(lambda now: None)

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, SendJob):
            if effect.attempt.job.service.name == "call":
                self.server.broker.succeed(effect.attempt, b"", now)
            else:
                self.first_out = min(self.first_out, time.perf_counter() - self.began)
        elif isinstance(effect, DeliverOutcome):
            self.calls += 1
            self.longest = max(self.longest, time.perf_counter() - self._asked)


async def restart(jobs: int, folder: Path) -> dict[str, float]:
    fill(folder, jobs)
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    server = make_server(folder)
    server.listen()
    tune_process()
    listening = time.perf_counter() - start
    watch = Watch(server)
    watch.began = start
    watch.join()
    due = loop.time()
    stall = 0.0
    while server.is_loading:
        watch.call()
        due += EVERY
        await asyncio.sleep(due - loop.time())
        stall = max(stall, loop.time() - due)
        due = max(due, loop.time())
    indexed = time.perf_counter() - start
    while watch.first_out == inf:
        await asyncio.sleep(0.01)
    figures = {
        "jobs": float(server.broker.job_registry.present),
        "listening": listening,
        "indexed": indexed,
        "first_out": watch.first_out,
        "longest_call": watch.longest,
        "longest_stall": stall,
        "calls": float(watch.calls),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    server.close()
    return figures


def fill(folder: Path, jobs: int) -> None:
    """Write a store as left by a broker that was killed with this many waiting jobs."""
    connection = schema.open_file(folder / NAME)
    schema.bring_up_to_date(connection)
    scribe, service, entropy, now = RowEncoder(), Service("s", 60.0), clock.SystemEntropy(), clock.now()
    connection.execute("BEGIN IMMEDIATE")
    for number in range(1, jobs + 1):
        job = Job(JobId(entropy.job_id()), service, BODY, (), WISHES, now + number * 1e-6, OWNER)
        job.number = number
        connection.execute(INSERT, sealed_job(scribe.job_row(job, clock.wall_offset())))
    connection.execute("COMMIT")
    connection.close()
    gc.collect()


def main() -> None:
    kind, *numbers = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-", dir=".") as name:
        folder = Path(name)
        with asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
            if kind == "restart":
                figures = runner.run(restart(int(numbers[0]), folder))
            elif kind == "jobs":
                figures = runner.run(jobs(int(numbers[0]), float(numbers[1]), int(numbers[2]), folder))
            else:
                load = submits if kind == "submits" else bare
                figures = runner.run(load(int(numbers[0]), float(numbers[1]), folder))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
