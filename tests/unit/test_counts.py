"""The hot path by numbers that do not depend on the machine: calls, objects and system calls of a job.

They hold on the sources only: compiled functions are not seen by a profiler.
"""

from __future__ import annotations

import gc
import sys

from call_counts import counting
from dragoman.core.broker import Broker
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Caller, Job
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

# Allocated blocks of one job: what was counted, and a tenth more.
MOST_BLOCKS_RUNNING = 7 * 1.1
MOST_BLOCKS_WAITING = 5 * 1.1


def test_a_crowd_of_held_back_workers_is_walked_once_and_not_by_every_job() -> None:
    """R38. A bug: each job looked at every one of them, to see whether its time was over."""
    broker = Broker(Policy(), SeededEntropy())
    for number in range(1_000):
        worker = broker.join(
            Recipient(), None, f"w{number}", ("s",), WorkerProfile(), 0.0, LOCAL_OWNER, held_back_until=60.0
        )
        assert worker is not None
        broker.idle(worker, 0.0)
    service = broker.worker_registry.services["s"]

    def walks(now: float) -> int:
        with counting() as calls:
            for _ in range(50):
                broker.succeed(
                    _attempt(broker.submit("s", b"x", Caller(Recipient(), LOCAL_OWNER), JobOptions(), now)), b"", now
                )
        return calls["core.hold_back", "end_hold_back"]

    assert (walks(now=1.0), service.held_back_until) == (0, 60.0)
    assert (walks(now=60.0), service.held_back_until) == (1, float("inf"))
    assert (len(service.idle), len(service.held_back)) == (1_000, 0)
    broker.effects.clear()
    check(broker)


def _attempt(job: Job | None) -> Attempt:
    assert job is not None
    assert job.attempt is not None
    return job.attempt


def test_objects_of_a_running_and_of_a_waiting_job() -> None:
    """Memory of a job, in blocks that Python allocates. Afterwards nothing is left, not even for the collector."""
    broker = Broker(Policy(), SeededEntropy())
    worker = broker.join(Recipient(), None, "w", ("s",), WorkerProfile(capacity=10_000), 0.0, LOCAL_OWNER)
    assert worker is not None
    broker.idle(worker, 0.0)
    caller, job_options, jobs = Caller(Recipient(), LOCAL_OWNER), JobOptions(), list[Job]()

    def blocks_a_job(service: str, count: int = 1_000) -> float:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(count):
            job = broker.submit(service, b"x", caller, job_options, 1.0)
            assert job is not None
            jobs.append(job)
        broker.effects.clear()
        gc.collect()
        return (sys.getallocatedblocks() - before) / count

    gc.disable()
    try:
        blocks_a_job("s")  # tables grow once
        running = blocks_a_job("s")
        broker.operator.pause("s")
        waiting = blocks_a_job("s")
        broker.operator.resume("s", 1.0)
        while jobs:
            broker.succeed(_attempt(jobs.pop()), b"", 2.0)
        broker.effects.clear()
        assert (running <= MOST_BLOCKS_RUNNING, waiting <= MOST_BLOCKS_WAITING) == (True, True), (running, waiting)
        assert gc.collect() == 0
        assert (len(broker.jobs), len(worker.running)) == (0, 0)
    finally:
        gc.enable()
