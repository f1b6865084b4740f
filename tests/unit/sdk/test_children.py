"""Child processes from the parent's side: jobs whose child process dies at a bad moment."""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing.connection import wait
from typing import Any

import pytest

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import Failure, JobInfo, Outcome
from dragoman.sdk import process_pool
from dragoman.sdk.child_main import ChildSettings, HandlerSpec
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.loading import HandlerLoadError, ObjectReference
from dragoman.sdk.process_pool import ProcessPool
from programs import PATIENCE


def echo(payload: bytes) -> bytes:
    return payload


class FakeOwner:
    def __init__(self) -> None:
        self.received: list[tuple[Any, ...]] = []

    def finished(self, job: RunningJob, result: Frame) -> None:
        self.received.append((job.job_ref, bytes(result)))

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        self.received.append((job.job_ref, reason))

    def returned(self, job: RunningJob) -> None:
        self.received.append((job.job_ref, "returned"))

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        self.received.append((job.job_ref, bytes(payload), is_part))


def make_pool() -> ProcessPool:
    return ProcessPool(ChildSettings((HandlerSpec("echo", "bytes", ObjectReference(__name__, "echo")),)), 1)


def kill_unseen(pool: ProcessPool, answers: bool) -> None:
    """Kill the child while the loop stands still, so that its results, its end and its exit code arrive together."""
    [child] = pool._children
    if answers:
        assert wait([child._stream._socket], PATIENCE)
    os.kill(child.pid, signal.SIGKILL)
    assert wait([child._process.sentinel], PATIENCE)


def test_a_job_that_never_reached_its_dying_child_goes_to_the_next() -> None:
    """A bug: it was sent to a child that had answered and died, and was reported as lost although it had never
    started."""

    async def main() -> list[tuple[Any, ...]]:
        pool, job_owner = make_pool(), FakeOwner()
        job_runner = JobRunner({"echo": pool}, 1.0)
        await job_runner.start()
        for job_ref in ("A", "B"):
            job_runner.begin(RunningJob(job_owner, job_ref, job_ref.encode(), JobInfo("echo", "", 1, 30.0)))
        await asyncio.sleep(0)
        kill_unseen(pool, answers=True)
        async with asyncio.timeout(10.0):
            while len(job_owner.received) < 2:
                await asyncio.sleep(0.01)
        await job_runner.close()
        return job_owner.received

    assert asyncio.run(main()) == [("A", b"A"), ("B", b"B")]


def test_a_child_that_is_gone_is_not_killed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: if its exit was seen before the end of its pipe, a timer killed its pid five seconds later, even if
    another process had that pid by then."""
    monkeypatch.setattr(process_pool, "EXIT_TIMEOUT", 0.05)

    async def main() -> list[Any]:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        pool = make_pool()
        await pool.start()
        kill_unseen(pool, answers=False)
        await asyncio.sleep(0.3)
        await pool.close()
        return problems

    assert asyncio.run(main()) == []


class FailingStarts:
    """Replaces `ProcessPool._add`: the first `failures` starts fail. `tries` counts all starts."""

    def __init__(self, pool: ProcessPool, failures: int) -> None:
        self.tries = 0
        self._pool = pool
        self._failures = failures
        self._add = pool._add

    def __call__(self) -> Any:
        self.tries += 1
        if self.tries <= self._failures:
            raise HandlerLoadError("no room")
        return self._add()


async def outcomes_after(failures: int, jobs: int, starts: list[FailingStarts]) -> list[tuple[Any, ...]]:
    """Return the outcomes of jobs, each started when the one before has ended, if this many starts of child processes
    fail."""
    pool, job_owner = make_pool(), FakeOwner()
    job_runner = JobRunner({"echo": pool}, 1.0)
    await job_runner.start()
    starts.append(FailingStarts(pool, failures))
    pool._add = starts[0]  # type: ignore[method-assign]
    kill_unseen(pool, answers=False)
    async with asyncio.timeout(10.0):
        for job_ref in range(jobs):
            job_runner.begin(RunningJob(job_owner, job_ref, b"%d" % job_ref, JobInfo("echo", "", 1, 30.0)))
            while len(job_owner.received) <= job_ref:
                await asyncio.sleep(0.001)
    await job_runner.close()
    return job_owner.received


def test_jobs_wait_for_a_child_that_cannot_be_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: after the fork server had been killed, a worker failed all jobs that it could get for a whole second."""
    monkeypatch.setattr(process_pool, "RETRY_DELAY", 0.1)
    assert asyncio.run(outcomes_after(1, 20, [])) == [(job_ref, b"%d" % job_ref) for job_ref in range(20)]


def test_where_no_child_can_be_started_each_job_costs_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that cannot do anything is no place where jobs are spent by the thousand."""
    monkeypatch.setattr(process_pool, "RETRY_DELAY", 0.02)
    starts: list[FailingStarts] = []
    received = asyncio.run(outcomes_after(1000, 5, starts))
    assert received == [(job_ref, "the worker cannot start a child process: no room") for job_ref in range(5)]
    assert starts[0].tries >= 5
