"""Worker loop of dialects in which the worker connects to the broker. Jobs run in pools meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Hashable, Sequence
from typing import cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.dialects.sides import (
    MAX_PAYLOAD,
    NOTHING_SAID,
    DeclaringSide,
    Failure,
    JobInfo,
    KeepingSide,
    LimitingSide,
    Outcome,
    PartsKnowingSide,
    ReportingSide,
)
from dragoman.sdk.candidates import Candidates, Round
from dragoman.sdk.connection_log import ConnectionLog
from dragoman.sdk.errors import NOT_ALLOWED, BrokerUnavailable, NotAllowed, WrongDialect
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.recognition import SILENCE_LIMIT, SUSPICIOUS
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0
CLOSE_TIMEOUT = 1.0  # seconds that the broker may take to close the connection after the worker has
JOBS_POLL = 0.02  # seconds
MAX_SUSPICIOUS_SIZE = max(map(len, SUSPICIOUS))


class DiallingWorker:
    """Implements WorkerIO on a connection to the broker, and reconnects when it is lost."""

    def __init__(self, target: Target, job_runner: JobRunner, concurrency: int = 1) -> None:
        self._target = target
        self._job_runner = job_runner
        self._side = target.sides.worker_side(target.options, self, target.services, concurrency)
        if target.requires_parts:
            cast(PartsKnowingSide, self._side).require_parts(target.requires_parts)
        if target.others and target.dialect.workers_keep:
            cast(KeepingSide, self._side).keep_jobs(self._go_elsewhere)
        if target.limits:
            cast(LimitingSide, self._side).declare_limits(target.limits)
        if target.parameters:
            cast(DeclaringSide, self._side).declare_parameters(target.parameters)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._round = Round(Candidates(target, "worker"))
        self._log = ConnectionLog(self._round)
        self._identifying: asyncio.Task[None] | None = None  # identifies the port
        self._link: OutgoingConnection | None = None
        self._jobs: dict[Hashable, RunningJob] = {}
        self._reports = target.dialect.reports
        self._suspect: RunningJob | None = None
        self._refusal = ""  # the reason for which the broker does not allow this worker
        self._has_answered = False  # a valid message has arrived on this connection
        self._is_last_invalid = False  # the last message on this connection was invalid
        self._port_error: WrongDialect | None = None
        self._is_flush_due = False
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()
        self._departs = asyncio.Event()
        self._lost = asyncio.Event()

    # ---------------------------------------------------------------- WorkerIO

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def run(self, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID) -> None:
        job = self._jobs[job_ref] = RunningJob(self, job_ref, payload, assignment)
        if len(payload) <= MAX_SUSPICIOUS_SIZE and not self._round.recognition.is_known and payload in SUSPICIOUS:
            self._start_identifying(0.0, job)
        else:
            self._job_runner.begin(job)

    def recall(self, job_ref: Hashable, reason: str) -> None:
        job = self._jobs.get(job_ref)
        if job is not None:
            self._job_runner.recall(job, reason)

    def reconnect(self, reason: str) -> None:
        self._log.write(logging.WARNING, "reconnecting: %s", reason)
        self._disconnect()

    def refused(self, reason: str) -> None:
        self._refusal = f"the broker at {self._round.place} does not allow this worker: {reason}"
        self._disconnect()

    def _go_elsewhere(self, reason: str) -> None:
        """Go to another broker, because this one wants that. What was sent is delivered first."""
        self._log.write(logging.INFO, "going to another broker: %s", reason)
        self._departs.set()

    def leave(self, reason: str) -> None:
        log.info("leaving: %s", reason)
        if not self._stop.is_set():
            self.stop()

    # ---------------------------------------------------------------- worker loop

    async def serve(self) -> int:
        """Serve until `stop` is called, finish the running jobs and leave. Returns the exit code."""
        while not self._is_done:
            try:
                await self._connect()
            except BrokerUnavailable as problem:
                failure = self._next_address(problem)
                if isinstance(failure, NotAllowed):
                    log.error("stopping: %s", failure)
                    return NOT_ALLOWED
                if failure is not None and self._stop.is_set() and self._side.is_busy:
                    log.error("results dropped, because the broker is unavailable: %s", failure)
                    break
                if failure is not None:
                    await self._wait_before_dial(failure)
                continue
            await self._serve_connection()
            await self._close_connection()
            await self._identify_lost_port()
            reason = self._connection_failure()
            if isinstance(reason, NotAllowed):
                log.error("stopping: %s", reason)
                return NOT_ALLOWED
            if self._jobs and not self._side.is_busy and not self._target.dialect.shares_connections:
                # These jobs came on the lost connection and ended with it, in the broker's view. The worker is not free
                # before their handlers have ended.
                await self._finish_jobs()
            if reason is not None and not self._is_done:
                await self._wait_before_dial(reason)
        return 0

    def _connection_failure(self) -> BrokerUnavailable | str | None:
        """Return the reason for a delay before the next dial, or None if another address is dialled at once."""
        refusal, self._refusal = self._refusal, ""
        if refusal:
            return self._next_address(NotAllowed(refusal))
        if self._port_error is not None:
            return self._next_address(self._port_error)
        if self._departs.is_set() and not self._is_done:
            return self._round.failed(BrokerUnavailable(f"the broker at {self._round.place} stops"))
        if not self._has_answered and not self._is_done:
            return self._next_address(BrokerUnavailable("connection lost"))
        self._round.restart()
        return "connection lost"

    def _next_address(self, problem: BrokerUnavailable) -> BrokerUnavailable | None:
        """Go to the next address. Returns None, or the problem if all have been tried."""
        failure = self._round.failed(problem)
        if failure is None:
            self._log.moved(problem)
        return failure

    def stop(self) -> None:
        """Finish the running jobs on the open connection, then stop; the second call stops at once."""
        if self._stop.is_set():
            self._stop_at_once.set()
        else:
            log.info("stopping%s", " when the running jobs have ended" if self._side.is_busy else "")
            self._stop.set()
            self._side.stop()

    @property
    def _is_done(self) -> bool:
        return self._stop_at_once.is_set() or (self._stop.is_set() and not self._side.is_busy)

    async def _wait_before_dial(self, problem: BrokerUnavailable | str) -> None:
        delay = self._back_off.next()
        self._log.failed(problem, delay)
        stopped = self._stop_at_once if self._stop.is_set() else self._stop
        await first(stopped.wait(), asyncio.sleep(delay))

    async def _connect(self) -> None:
        """Connect, unless `stop` is called meanwhile; then READY is not sent. Raises BrokerUnavailable."""
        self._lost.clear()
        self._departs.clear()
        place = self._round.place
        carrier = self._round.current.target.worker_carrier()
        self._has_answered = False
        link = open_connection(place, carrier, self._received, self._ended, CONNECT_TIMEOUT)
        opening = asyncio.ensure_future(self._round.recognition.open(link))
        await first(opening, self._stop_at_once.wait() if self._side.is_busy else self._stop.wait())
        if not opening.done():
            return
        self._link = opening.result()
        if self._is_done or self._lost.is_set():
            return
        self._log.connected(place)
        self._port_error = None
        self._is_last_invalid = False
        self._side.opened(self._loop.time())
        self._start_identifying(SILENCE_LIMIT)

    async def _serve_connection(self) -> None:
        """Call `tick` when it is due, until the connection is lost or the worker is done."""
        while not self._is_done and not self._lost.is_set() and not self._departs.is_set():
            now = self._loop.time()
            waiting = max(0.001, self._side.tick(now) - now)
            ends = self._lost.wait(), self._departs.wait()
            if not self._stop.is_set():
                await first(self._stop.wait(), *ends, asyncio.sleep(waiting))
            else:
                await first(self._stop_at_once.wait(), *ends, asyncio.sleep(min(0.02, waiting)))

    async def _close_connection(self) -> None:
        """Close the connection, but receive until the broker closes it: it may have sent a job meanwhile."""
        link = self._link
        while link is not None and link.backlog and not self._lost.is_set() and not self._stop_at_once.is_set():
            await first(self._lost.wait(), self._stop_at_once.wait(), asyncio.sleep(0.01))
        if link is not None and not self._lost.is_set():
            link.finish()
            await first(self._lost.wait(), self._stop_at_once.wait(), asyncio.sleep(CLOSE_TIMEOUT))
        self._disconnect()

    def _received(self, message: Message | TooLarge) -> None:
        if self._link is not None or not self._lost.is_set():
            self._back_off.reset()  # not before: a port that sends nothing is dialled with growing delays
            self._side.receive(message, self._loop.time())
            if self._link is None:
                self._is_last_invalid = True
            elif self._suspect is None and not self._has_answered:
                self._has_answered = True
                self._round.recognition.is_known = True
                self._round.succeeded()

    def _start_identifying(self, delay: float, suspect: RunningJob | None = None) -> None:
        """Identify the port after `delay`, unless a valid message arrives first. `suspect`: a message that may be a job
        or the reply of a wrong port."""
        if not self._round.recognition.is_known:
            if self._identifying is not None:
                self._identifying.cancel()
            self._suspect = suspect
            self._identifying = self._loop.create_task(self._identify_port(delay))

    async def _identify_port(self, delay: float) -> None:
        await asyncio.sleep(delay)
        problem = await self._round.recognition.problem(thorough=self._suspect is not None)
        suspect, self._suspect = self._suspect, None
        if problem is not None:
            self._port_error = problem
            if suspect is not None:
                del self._jobs[suspect.job_ref]
            self._disconnect()
        elif suspect is not None:
            self._round.recognition.is_known = True
            self._job_runner.begin(suspect)
        self._log.proven(self._round.place)

    async def _identify_lost_port(self) -> None:
        """Identify the port of the lost connection if its first message was invalid."""
        if self._identifying is not None:
            self._identifying.cancel()
        if self._is_last_invalid and not self._is_done and not self._port_error and not self._refusal:
            self._port_error = await self._round.recognition.problem(thorough=True)

    def _ended(self, problem: str) -> None:
        if not self._lost.is_set():
            if not self._is_done and not self._departs.is_set():
                self._log.write(logging.WARNING, "connection to %s lost: %s", self._round.place, problem)
            self._disconnect()

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._side.lost()
        self._lost.set()

    # ---------------------------------------------------------------- jobs

    @property
    def max_payload(self) -> int:
        return cast(ReportingSide, self._side).max_payload if self._reports else MAX_PAYLOAD

    def finished(self, job: RunningJob, result: Frame) -> None:
        del self._jobs[job.job_ref]
        self._side.finished(job.job_ref, result, self._loop.time())
        if self._reports and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        del self._jobs[job.job_ref]
        self._side.failed(job.job_ref, reason, self._loop.time(), failure, outcome)

    def returned(self, job: RunningJob) -> None:
        del self._jobs[job.job_ref]
        cast(ReportingSide, self._side).returned(job.job_ref, self._loop.time())  # only these sides cancel jobs

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        if self._reports:
            side = cast(ReportingSide, self._side)
            problem = side.report(job.job_ref, payload, self._loop.time(), is_part=is_part)
            if problem is not None and is_part:  # progress may be dropped; a result must not lack a part
                job.fail(Failure("ValueError", f"a part of the result cannot be sent: {problem}"))
                self._job_runner.drop(job)

    def _flush(self) -> None:
        self._is_flush_due = False
        cast(ReportingSide, self._side).flush(self._loop.time())

    async def _finish_jobs(self) -> None:
        while self._jobs and not self._stop.is_set():
            await first(asyncio.sleep(JOBS_POLL), self._stop.wait())


async def first(*awaitables: Awaitable[object]) -> None:
    """Wait until one of these is done, and cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
