"""Jobs that a worker cancels, in every pool: who cancels decides the outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any
from unittest.mock import patch

import pytest

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import MAX_PAYLOAD, Failure, JobInfo, Outcome
from dragoman.sdk.async_pool import AsyncPool
from dragoman.sdk.child_main import ChildSettings, HandlerSpec
from dragoman.sdk.context import Context
from dragoman.sdk.errors import PermanentFailure
from dragoman.sdk.handlers import describe
from dragoman.sdk.job_runner import JobRunner, Pool, RunningJob
from dragoman.sdk.loading import ObjectReference
from dragoman.sdk.process_pool import ChildProcess, ProcessPool
from dragoman.sdk.program_pool import Program, ProgramPool
from dragoman.sdk.thread_pool import ThreadPool
from programs import PATIENCE

STUMP = b"a stump"
TIMED_OUT = (Outcome.TIMED_OUT, "TimeoutError: stopped after 0.01 s, the attempt's time-out")


class FakeOwner:
    max_payload = MAX_PAYLOAD

    def __init__(self) -> None:
        self.received: list[Any] = []

    def finished(self, job: RunningJob, result: Frame) -> None:
        self.received.append(bytes(result))

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        self.received.append((outcome, reason))

    def returned(self, job: RunningJob) -> None:
        self.received.append("returned")

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        self.received.append(("reported", bytes(payload)))


def _wait(ctx: Context) -> None:
    ctx.progress(0)
    while not ctx.cancelled:
        time.sleep(0.001)


def returns(payload: bytes, ctx: Context) -> bytes:
    _wait(ctx)
    return STUMP


def raises(payload: bytes, ctx: Context) -> bytes:
    _wait(ctx)
    raise PermanentFailure("I was cancelled")


def exits(payload: bytes, ctx: Context) -> bytes:
    _wait(ctx)
    os._exit(0)


def exits_by_exception(payload: bytes, ctx: Context) -> bytes:
    _wait(ctx)
    sys.exit(3)


async def returns_async(payload: bytes, ctx: Context) -> bytes:
    ctx.progress(0)
    while not ctx.cancelled:
        await asyncio.sleep(0.001)
    return STUMP


async def swallows_async(payload: bytes, ctx: Context) -> bytes:
    ctx.progress(0)
    try:
        await asyncio.sleep(PATIENCE)
    except asyncio.CancelledError:
        pass
    return STUMP


def echo(payload: bytes) -> bytes:
    return payload


async def echo_async(payload: bytes) -> bytes:
    return payload


def processes(handler: Callable[..., Any]) -> Pool:
    spec = HandlerSpec("x", "bytes", ObjectReference(__name__, handler.__name__))
    return ProcessPool(ChildSettings((spec,)), 1)


def threads(handler: Callable[..., Any]) -> Pool:
    return ThreadPool({"x": describe("x", handler)}, 1)


def event_loop(handler: Callable[..., Any]) -> Pool:
    return AsyncPool({"x": describe("x", handler)})


# The end of a cancelled handler: it returns, raises or exits, with and without looking at `ctx.cancelled`.
ENDINGS: list[tuple[str, Callable[[], Pool]]] = [
    ("a child returns", lambda: processes(returns)),
    ("a child raises", lambda: processes(raises)),
    ("a child exits", lambda: processes(exits)),
    ("a child raises SystemExit", lambda: processes(exits_by_exception)),
    ("a thread returns", lambda: threads(returns)),
    ("a thread raises", lambda: threads(raises)),
    ("a coroutine returns", lambda: event_loop(returns_async)),
    ("a coroutine that was cancelled returns", lambda: event_loop(swallows_async)),
    (
        "a program succeeds",
        lambda: ProgramPool("sh -c 'trap \"echo stump; exit 0\" TERM; while :; do sleep 0.01; done'"),
    ),
    ("a program fails", lambda: ProgramPool("sh -c 'trap \"exit 3\" TERM; while :; do sleep 0.01; done'")),
    ("a program is killed", lambda: ProgramPool("sh -c 'trap \"\" TERM; while :; do sleep 0.01; done'")),
]


async def _ended(job_owner: FakeOwner) -> None:
    async with asyncio.timeout(PATIENCE):
        while all(each[0] == "reported" for each in job_owner.received):
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_recalled", [False, True])
def test_whatever_a_cancelled_handler_does_the_job_was_cancelled(is_recalled: bool) -> None:
    """R220. A handler that obeyed `ctx.cancelled` returned a stump, and the job was *done* with it: its caller took it
    for the result. One that raised, or a program that exited with 3 after SIGTERM, had *failed*."""
    wrong = {}

    async def outcome_of(make: Callable[[], Pool]) -> list[Any]:
        job_owner = FakeOwner()
        job_runner = JobRunner({"x": make()}, 0.05)
        await job_runner.start()
        job = RunningJob(job_owner, "A", b"", JobInfo("x", "", 1, PATIENCE if is_recalled else 0.01))
        job_runner.begin(job)
        if is_recalled:
            job_runner.recall(job, "a test")
        await _ended(job_owner)
        await job_runner.close()
        return [each for each in job_owner.received if each[0] != "reported"]

    for name, make in ENDINGS:
        received = asyncio.run(outcome_of(make))
        if received != (["returned"] if is_recalled else [TIMED_OUT]):
            wrong[name] = received
    assert not wrong


def _child_has_answered(pool: Any, job: RunningJob) -> None:
    assert isinstance(job.performer, ChildProcess)
    assert wait([job.performer._stream._socket], PATIENCE)


def _thread_has_answered(pool: Any, job: RunningJob) -> None:
    until = time.monotonic() + PATIENCE
    mailbox = pool._worker_mailbox if isinstance(pool, AsyncPool) else pool._mailbox
    while not mailbox._posted and time.monotonic() < until:
        time.sleep(0.001)


def _program_has_exited(pool: Any, job: RunningJob) -> None:
    assert isinstance(job.performer, Program)
    try:
        os.waitid(os.P_PID, job.performer._process.pid, os.WEXITED | os.WNOWAIT)  # type: ignore[union-attr]
    except ChildProcessError:  # its end has been seen
        pass


BEFORE: list[tuple[str, Callable[[], Pool], Callable[[Any, RunningJob], None]]] = [
    ("a child", lambda: processes(echo), _child_has_answered),
    ("a thread", lambda: threads(echo), _thread_has_answered),
    ("a coroutine", lambda: event_loop(echo_async), _thread_has_answered),
    ("a program", lambda: ProgramPool("cat"), _program_has_exited),
]


def test_a_result_that_is_there_before_the_cancellation_is_the_outcome() -> None:
    """R220. The other side of the moment: the handler had ended in time, and its worker was too busy to see it."""
    wrong = {}

    async def outcome_of(make: Callable[[], Pool], has_answered: Callable[[Any, RunningJob], None]) -> list[Any]:
        pool, job_owner = make(), FakeOwner()
        job_runner = JobRunner({"x": pool}, 0.05)
        await job_runner.start()
        job = RunningJob(job_owner, "A", b"whole", JobInfo("x", "", 1, PATIENCE))
        job_runner.begin(job)
        async with asyncio.timeout(PATIENCE):
            while isinstance(pool, ProgramPool) and (job.performer is None or job.performer._ends.get("input")):  # type: ignore[attr-defined]
                await asyncio.sleep(0)  # a program is started on this loop, and reads its input from it
        has_answered(pool, job)  # while the loop stands still
        job_runner.recall(job, "a test")
        await _ended(job_owner)
        await job_runner.close()
        return job_owner.received

    for name, make, has_answered in BEFORE:
        received = asyncio.run(outcome_of(make, has_answered))
        if received != [b"whole"]:
            wrong[name] = received
    assert not wrong


def test_program_that_is_killed_while_it_is_started_does_not_go_on() -> None:
    """A bug: to start a program takes longer than the grace period in a large process, and the kill was lost. A program
    that ignores SIGTERM then ran on, and its job had no outcome."""

    async def main() -> list[Any]:
        job_owner, pool = FakeOwner(), ProgramPool("sh -c 'trap \"\" TERM; while :; do sleep 0.01; done'")
        job_runner = JobRunner({"x": pool}, 0.0)
        await job_runner.start()
        job = RunningJob(job_owner, "A", b"", JobInfo("x", "", 1, PATIENCE))
        job_runner.begin(job)
        job_runner.recall(job, "a test")
        with patch.object(Program, "signal", lambda self, number: number == signal.SIGKILL and _signal(self, number)):
            await _ended(job_owner)
        await job_runner.close()
        return job_owner.received

    _signal = Program.signal
    assert len(asyncio.run(main())) == 1
