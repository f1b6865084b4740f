"""Worker loop of HTTP: requests jobs by long polling and sends their results."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.oversize import over_max_payload
from dragoman.dialects.http.codec import (
    Membership,
    Request,
    Response,
    read_job,
    read_join,
    read_problem,
    read_recalls,
    write_drain,
    write_failure,
    write_heartbeat,
    write_join,
    write_leave,
    write_next,
    write_progress,
    write_result,
)
from dragoman.dialects.sides import FORBIDDEN, MAX_PAYLOAD, Failure, Outcome
from dragoman.sdk.connection_log import ConnectionLog
from dragoman.sdk.errors import NOT_ALLOWED, BrokerUnavailable, NotAllowed
from dragoman.sdk.http_exchanges import HttpExchanges
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff

T = TypeVar("T")

log = logging.getLogger("dragoman.worker")

RESPONSE_TIMEOUT = 60.0  # seconds that a response may take, in addition to the requested wait
HEARTBEAT = 5.0  # maximum seconds between heartbeats while jobs run; their responses name the cancelled jobs
REPORTERS = 4  # concurrent requests that send results
LAST_REPORT_TIMEOUT = 5.0  # seconds for which sending a result is retried while the worker stops
LEAVE_TIMEOUT = 1.0  # seconds that the broker may take to respond when the worker leaves
CANCELLED = Failure("", "cancelled by the broker")


class Gone(Exception):
    """The broker has removed this worker."""


class HttpWorker:
    """A worker that runs up to `concurrency` jobs. It holds a job until the broker has acknowledged its result."""

    def __init__(self, target: Target, job_runner: JobRunner, concurrency: int = 1) -> None:
        self._target = target
        self._job_runner = job_runner
        self._concurrency = concurrency
        self._exchanges = HttpExchanges(target)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._log = ConnectionLog(self._exchanges.round)
        self._member: Membership | None = None
        self._held: dict[str, Held] = {}
        self._reporters = asyncio.Semaphore(REPORTERS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[Response] | None = None
        self._changed = asyncio.Event()  # a slot is free, `stop` was called, or a task failed
        self._is_stopping = False
        self._stops_at_once = False
        self._task_error: BaseException | None = None

    # ---------------------------------------------------------------- worker loop

    async def serve(self) -> int:
        """Serve until `stop` is called, finish the running jobs and leave. Returns the exit code."""
        self._begin(self._send_heartbeats())
        try:
            while not self._is_stopping:
                try:
                    await self._take_one_job()
                except Gone as gone:
                    log.warning("joining again: %s", gone)
                    self._member = None
                except NotAllowed:
                    raise
                except BrokerUnavailable as problem:
                    await self._wait_before_retry(problem)
            await self._leave()
        except NotAllowed as problem:
            log.error("stopping: %s", problem)
            return NOT_ALLOWED
        finally:
            for task in (*self._tasks, *([self._polling] if self._polling is not None else ())):
                task.cancel()
            self._exchanges.close()
        return 0

    def stop(self) -> None:
        """Finish the running jobs, then stop; the second call stops at once."""
        if self._is_stopping:
            self._stops_at_once = True
        else:
            log.info("stopping%s", " when the running jobs have ended" if self._held else "")
            self._is_stopping = True
        self._changed.set()

    async def _take_one_job(self) -> None:
        """Join if necessary, and take one job. Raises BrokerUnavailable and Gone."""
        if self._member is None:
            self._member = await self._join()
            self._exchanges.round.succeeded()
            log.info("connected to %s", self._exchanges.round.place)
        while len(self._held) >= self._concurrency and not self._is_stopping:
            await self._change()
        if self._is_stopping:
            return
        self._polling = self._loop.create_task(self._next(self._member, self._member.wait))
        while not self._polling.done() and not self._is_stopping:
            await self._change(self._polling)
        if self._polling.done():  # else `_leave` handles the open request
            polling, self._polling = self._polling, None
            self._take(polling.result(), self._member)
            self._back_off.reset()

    async def _join(self) -> Membership:
        options = self._target.options
        request = write_join(
            self._target.services, self._concurrency, options.lease, self._target.limits, self._target.parameters
        )
        response = await self._exchanges.send(request, RESPONSE_TIMEOUT)
        if response.is_done:
            return _parsed(lambda: read_join(response))
        problem = _parsed(lambda: read_problem(response))
        if problem.kind == FORBIDDEN:
            place = self._exchanges.round.place
            refusal = NotAllowed(f"the broker at {place} does not allow this worker: {problem.detail}")
            failure = self._exchanges.round.failed(refusal)
            if failure is not None:
                raise failure
            self._log.moved(refusal)
            return await self._join()
        rejected = BrokerUnavailable(f"{self._exchanges.round.place} rejected this worker: {problem.detail}")
        failure = self._exchanges.round.failed(rejected)
        if failure is not None:
            raise failure
        self._log.moved(rejected)
        return await self._join()

    async def _next(self, member: Membership, wait: float) -> Response:
        return await self._exchanges.send(write_next(member, wait, self._held), wait + RESPONSE_TIMEOUT)

    def _take(self, response: Response, member: Membership) -> None:
        """Start the job of a response, if it has one. Raises BrokerUnavailable and Gone."""
        if response.status == 200:
            token, assignment = _parsed(lambda: read_job(response))
            held = self._held[token] = Held(token, member)
            held.job = RunningJob(self, held, response.body, assignment)
            self._job_runner.begin(held.job)
        elif response.status == 204:
            self._recall(read_recalls(response))
        else:
            self._check_member(response)
            raise BrokerUnavailable(_parsed(lambda: read_problem(response)).detail)

    async def _leave(self) -> None:
        """Take no more jobs, finish the running ones, and leave the broker."""
        member = self._member
        if member is not None and not self._stops_at_once:
            try:
                await self._drain(member)
            except (BrokerUnavailable, Gone) as problem:
                log.warning("drain request failed: %s", problem)
        while self._held and not self._stops_at_once:
            await self._change()
        if member is not None:
            try:
                await self._exchanges.send(write_leave(member), LEAVE_TIMEOUT)
            except BrokerUnavailable:
                log.warning("leave request failed; the broker removes this worker after %g s (lease)", member.lease)

    async def _drain(self, member: Membership) -> None:
        """Drain, and take a job that was dispatched before. If its response has not arrived, the broker sends the job
        again in response to a request that lists the held jobs."""
        await self._exchanges.send(write_drain(member), RESPONSE_TIMEOUT)
        polling, self._polling = self._polling, None
        if polling is None:
            return
        if polling.done():
            self._take(polling.result(), member)
        else:
            polling.cancel()
            self._take(await self._next(member, 0.0), member)

    # ---------------------------------------------------------------- waiting

    async def _change(self, *others: asyncio.Task[Any]) -> None:
        """Wait for a change, or until one of `others` is done. Raises the error of a failed background task."""
        changing = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait({changing, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changing.cancel()
        self._changed.clear()
        if self._task_error is not None:
            raise self._task_error

    async def _wait_before_retry(self, problem: BrokerUnavailable) -> None:
        delay = self._back_off.next()
        self._log.failed(problem, delay)
        until = self._loop.time() + delay
        while not self._is_stopping and self._loop.time() < until:
            sleeping = self._loop.create_task(asyncio.sleep(until - self._loop.time()))
            await self._change(sleeping)
            sleeping.cancel()

    def _begin(self, act: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._check_task)

    def _check_task(self, task: asyncio.Task[None]) -> None:
        """End the worker after an unexpected error; otherwise it would go on without heartbeats."""
        if not task.cancelled() and task.exception() is not None:
            self._task_error = task.exception()
        self._changed.set()

    # ---------------------------------------------------------------- requests

    async def _send_heartbeats(self) -> None:
        """Send heartbeats while jobs run. A request for a job renews the lease, too."""
        while True:
            member = self._member
            await asyncio.sleep(HEARTBEAT if member is None else min(HEARTBEAT, member.lease / 3))
            if self._held and member is not None and member is self._member:
                try:
                    response = await self._exchanges.send(write_heartbeat(member), member.lease)
                except NotAllowed:
                    raise  # ends the worker
                except BrokerUnavailable as problem:
                    log.warning("heartbeat failed: %s", problem)
                else:
                    self._recall(read_recalls(response))

    def _recall(self, tokens: list[str]) -> None:
        for token in tokens:
            held = self._held.get(token)
            if held is not None and held.job is not None:
                self._job_runner.recall(held.job, "cancelled by the broker")

    def _check_member(self, response: Response) -> None:
        if response.status in (403, 410):
            raise Gone(_parsed(lambda: read_problem(response)).detail)

    async def _report(self, held: Held, request: Request) -> None:
        """Send a result, and retry until the broker has accepted or rejected it."""
        back_off = BackOff(random.uniform, cap=5.0)
        tried_since = self._loop.time()
        while True:
            problem = await self._try_to_report(request)
            if problem is None:
                break
            if self._is_stopping and self._loop.time() - tried_since > LAST_REPORT_TIMEOUT:
                log.error("results dropped, because the broker is unavailable: %s", problem)
                break
            delay = back_off.next()
            log.warning("sending a result failed: %s; trying again in %.1f s", problem, delay)
            await asyncio.sleep(delay)
        self._held.pop(held.token, None)
        held.job = None  # which refers to it
        self._changed.set()

    async def _try_to_report(self, request: Request) -> str | None:
        """Send a result once. Returns None, or the reason for a retry. Raises NotAllowed."""
        try:
            async with self._reporters:
                response = await self._exchanges.send(request, RESPONSE_TIMEOUT)
            if response.is_done:
                return None
            detail = _parsed(lambda: read_problem(response)).detail
        except NotAllowed:
            raise  # ends the worker
        except BrokerUnavailable as problem:
            return str(problem)
        if response.status == 503:
            return detail
        log.info("result rejected: %s", detail)
        return None

    async def _send_progress(self, held: Held) -> None:
        """Send progress reports one at a time; of several that are pending, only the latest is sent."""
        while held.progress is not None and held.token in self._held:
            request = write_progress(held.member, held.token, held.progress)
            held.progress = None
            try:
                response = await self._exchanges.send(request, RESPONSE_TIMEOUT)
            except BrokerUnavailable:
                break  # progress may be dropped
            self._recall([held.token] if response.status == 409 else read_recalls(response))
        held.is_sending_progress = False

    # ---------------------------------------------------------------- jobs

    @property
    def max_payload(self) -> int:
        return self._member.max_payload if self._member is not None else MAX_PAYLOAD

    def finished(self, job: RunningJob, result: Frame) -> None:
        held: Held = job.job_ref  # type: ignore[assignment]
        request = write_result(held.member, held.token, result)
        if len(result) > held.member.max_payload:  # the broker would close the connection before it is sent
            reason = over_max_payload("its result", len(result), held.member.max_payload)
            request = write_failure(held.member, held.token, Failure("", reason))
        self._begin(self._report(held, request))

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        held: Held = job.job_ref  # type: ignore[assignment]
        self._begin(self._report(held, write_failure(held.member, held.token, failure, outcome)))

    def returned(self, job: RunningJob) -> None:
        """Send a failure: a report about an attempt that has ended shows the broker that the slot is free."""
        held: Held = job.job_ref  # type: ignore[assignment]
        self._begin(self._report(held, write_failure(held.member, held.token, CANCELLED)))

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        held: Held = job.job_ref  # type: ignore[assignment]
        assert not is_part, "HTTP does not support parts"
        held.progress = payload
        if not held.is_sending_progress:
            held.is_sending_progress = True
            self._begin(self._send_progress(held))


class Held:
    """A job that this worker holds, with the token of its attempt."""

    __slots__ = ("is_sending_progress", "job", "member", "progress", "token")

    def __init__(self, token: str, member: Membership) -> None:
        self.token = token
        self.member = member  # the membership at the time of its dispatch
        self.job: RunningJob | None = None
        self.progress: Frame | None = None  # latest unsent report
        self.is_sending_progress = False  # a report is being sent


def _parsed(read: Callable[[], T]) -> T:
    """Parse a response. Raises BrokerUnavailable if it is invalid."""
    try:
        return read()
    except Malformed as problem:
        raise BrokerUnavailable(f"invalid response from the broker: {problem.detail}") from None
