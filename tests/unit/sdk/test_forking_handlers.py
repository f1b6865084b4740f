"""Handlers that fork: the forked process has copies of the worker's sockets, and must not use them."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from dragoman.dialects.sides import Failure, JobInfo, Outcome
from dragoman.sdk.async_pool import AsyncPool
from dragoman.sdk.child_main import ChildSettings, HandlerSpec
from dragoman.sdk.context import Context
from dragoman.sdk.handlers import describe
from dragoman.sdk.job_runner import JobRunner, Pool, RunningJob
from dragoman.sdk.loading import ObjectReference
from dragoman.sdk.pipes import DONE, FAILED, PART, SHORT_HEAD
from dragoman.sdk.process_pool import ProcessPool
from dragoman.sdk.thread_pool import ThreadPool

JOBS = 200
PATIENCE = 60.0
SERVICES = ("forks", "returns", "raises", "emits", "looks", "echo")


def forks(payload: bytes) -> bytes:
    if os.fork() == 0:
        os.execvp("no-such-program", ["no-such-program"])
    return payload


def exit_code_of(forked: int) -> bytes:
    return b"%d" % os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


def returns(payload: bytes) -> bytes:
    forked = os.fork()
    return exit_code_of(forked) if forked else b"a copy's answer"


def raises(payload: bytes) -> bytes:
    forked = os.fork()
    if forked == 0:
        raise ValueError("a copy's failure")
    return exit_code_of(forked)


def emits(payload: bytes, ctx: Context) -> bytes:
    forked = os.fork()
    if forked == 0:
        ctx.emit(b"a copy's part")
        os._exit(0)
    return exit_code_of(forked)


def looks(payload: bytes, ctx: Context) -> bytes:
    forked = os.fork()
    if forked == 0:
        os._exit(7 if ctx.cancelled else 0)
    return exit_code_of(forked)


async def returns_async(payload: bytes) -> bytes:
    return returns(payload)


def echo(payload: bytes) -> bytes:
    return payload


class FakeOwner:
    def __init__(self) -> None:
        self.received: dict[Any, list[tuple[str, bytes | str]]] = {}
        self.over = 0

    def finished(self, job: RunningJob, result: Any) -> None:
        self._note(job, "done", bytes(result))

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        self._note(job, "failed", reason)

    def returned(self, job: RunningJob) -> None:
        self._note(job, "returned", "")

    def reported(self, job: RunningJob, payload: Any, is_part: bool) -> None:
        self.received.setdefault(job.job_ref, []).append(("report", bytes(payload)))

    def _note(self, job: RunningJob, outcome: str, result: bytes | str) -> None:
        self.received.setdefault(job.job_ref, []).append((outcome, result))
        self.over += 1


def children(count: int = 1) -> ProcessPool:
    offers = tuple(HandlerSpec(name, "bytes", ObjectReference(__name__, name)) for name in SERVICES)
    return ProcessPool(ChildSettings(offers), count)


async def outcomes(pool: Pool, jobs: list[tuple[str, bytes]]) -> dict[Any, list[tuple[str, bytes | str]]]:
    """Return the outcome of each job, all started at once."""
    job_owner = FakeOwner()
    job_runner = JobRunner(dict.fromkeys((service for service, _ in jobs), pool), 1.0)
    await job_runner.start()
    try:
        for number, (service, payload) in enumerate(jobs):
            job_runner.begin(RunningJob(job_owner, number, payload, JobInfo(service, "", 1, PATIENCE)))
        async with asyncio.timeout(PATIENCE):
            while job_owner.over < len(jobs):
                await asyncio.sleep(0.01)
    finally:
        await job_runner.close()
    return job_owner.received


def test_a_handler_that_forks_and_cannot_execute_mixes_up_no_results() -> None:
    """The copy came back from the handler, answered on the worker's pipe and took jobs from it: later calls got the
    results of others."""
    jobs = [("forks" if number % 4 == 0 else "echo", b"job %d" % number) for number in range(JOBS)]
    received = asyncio.run(outcomes(children(2), jobs))
    assert received == {number: [("done", payload)] for number, (_, payload) in enumerate(jobs)}


@pytest.mark.parametrize("service", ["returns", "raises", "emits"])
def test_a_forked_copy_ends_without_a_word_to_the_worker(service: str) -> None:
    received = asyncio.run(outcomes(children(), [(service, b""), ("echo", b"next")]))
    assert received == {0: [("done", b"1")], 1: [("done", b"next")]}


def test_a_forked_copy_does_not_read_the_worker_s_messages() -> None:
    assert asyncio.run(outcomes(children(), [("looks", b"")])) == {0: [("done", b"1")]}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("function", [returns, raises])
def test_a_copy_that_is_forked_in_a_thread_ends_as_well(function: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """A bug: it waited for jobs that never came, and kept the worker's connection open."""
    pool = ThreadPool({"forks": describe("forks", function)}, 1)
    assert asyncio.run(outcomes(pool, [("forks", b"")])) == {0: [("done", b"1")]}
    assert "was forked by a handler, continued with the worker's own code and was ended" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_copy_that_is_forked_by_a_coroutine_ends_as_well() -> None:
    pool = AsyncPool({"forks": describe("forks", returns_async)})
    assert asyncio.run(outcomes(pool, [("forks", b"")])) == {0: [("done", b"1")]}


@pytest.mark.parametrize("kind", [DONE, FAILED, PART])
def test_an_answer_with_another_job_s_number_is_dropped(kind: int, caplog: pytest.LogCaptureFixture) -> None:
    """A bug: an answer had no job number, so every answer of a child was taken for the result of its current job."""

    async def main() -> dict[Any, list[tuple[str, bytes | str]]]:
        pool, job_owner = children(), FakeOwner()
        job_runner = JobRunner({"echo": pool}, 1.0)
        await job_runner.start()
        [child] = pool._children
        job_runner.begin(RunningJob(job_owner, "ours", b"right", JobInfo("echo", "", 1, PATIENCE)))
        child._received([[SHORT_HEAD.pack(kind, 0, 2), b"wrong\0wrong\0wrong"]])
        async with asyncio.timeout(PATIENCE):
            while not job_owner.over:
                await asyncio.sleep(0.01)
        child._received([[SHORT_HEAD.pack(kind, 0, 1), b"again\0again\0again"]])  # it has no job any more
        await job_runner.close()
        return job_owner.received

    with caplog.at_level(logging.ERROR, "dragoman.worker"):
        assert asyncio.run(main()) == {"ours": [("done", b"right")]}
    assert [each.getMessage().partition(" does ")[2] for each in caplog.records] == [
        "not hold the job that it names"
    ] * 2
