"""A worker that dials its broker: keeps the conversation going while jobs run elsewhere."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Hashable, Sequence
from typing import cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.dialects.sides import NOTHING_SAID, Failure, JobInfo, Outcome, ReportingSide
from dragoman.sdk.errors import BrokerUnavailable
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.recognition import FIRST_SIGN, SUSPICIOUS, Recognition
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff

log = logging.getLogger("dragoman.worker")

CONNECT_TIMEOUT = 5.0
PARTING = 1.0  # how long the broker may take to hang up when we have
JOBS_POLL = 0.02
LONGEST_SUSPICIOUS = max(map(len, SUSPICIOUS))


class DiallingWorker:
    """Implements the worker's port of its dialect on a real connection, and on the next when that is lost."""

    def __init__(self, target: Target, job_runner: JobRunner, concurrency: int = 1) -> None:
        self._target = target
        self._job_runner = job_runner
        self._side = target.sides.worker_side(target.options, self, target.services, concurrency)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._recognition = Recognition(target, "worker")
        self._looking: asyncio.Task[None] | None = None  # whether this is the right port
        self._link: OutgoingConnection | None = None
        self._jobs: dict[Hashable, RunningJob] = {}
        self._reports = target.dialect.reports
        self._suspect: RunningJob | None = None
        self._is_misunderstood = False  # what came last on this connection
        self._trouble = ""  # what is wrong with the port
        self._is_flush_due = False
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()
        self._lost = asyncio.Event()

    # ---------------------------------------------------------------- the port

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def run(self, job_ref: Hashable, payload: Frame, assignment: JobInfo = NOTHING_SAID) -> None:
        job = self._jobs[job_ref] = RunningJob(self, job_ref, payload, assignment)
        if len(payload) <= LONGEST_SUSPICIOUS and not self._recognition.is_known and payload in SUSPICIOUS:
            self._look_at_port(0.0, job)
        else:
            self._job_runner.begin(job)

    def recall(self, job_ref: Hashable, reason: str) -> None:
        job = self._jobs.get(job_ref)
        if job is not None:
            self._job_runner.recall(job, reason)

    def reconnect(self, reason: str) -> None:
        log.warning("reconnecting: %s", reason)
        self._hang_up()

    def leave(self, reason: str) -> None:
        log.info("leaving: %s", reason)
        if not self._stop.is_set():
            self.stop()

    # ---------------------------------------------------------------- the life of a worker

    async def live(self) -> int:
        """Serve until told to stop; then finish what is in hand, and leave. Returns the exit code."""
        while not self._is_done:
            try:
                await self._connect()
            except BrokerUnavailable as problem:
                if self._stop.is_set() and self._side.is_busy:
                    log.error("the broker is gone, and what it was owed with it: %s", problem)
                    break
                await self._rest(str(problem))
                continue
            await self._serve()
            await self._part()
            await self._name_lost_port()
            if self._jobs and not self._side.is_busy and not self._target.dialect.shares_connections:
                # Taken on a connection that is gone, on a wire where that ends them: nobody waits for them any more,
                # but we are not free before they end.
                await self._finish_jobs()
            if not self._is_done:
                await self._rest(self._trouble or "the connection is gone")
        return 0

    def stop(self) -> None:
        """Once: finish what is in hand, the conversation going on. Twice: do not wait for it."""
        if self._stop.is_set():
            self._stop_at_once.set()
        else:
            log.info("stopping%s", " once the work in hand is done" if self._side.is_busy else "")
            self._stop.set()
            self._side.stop()

    @property
    def _is_done(self) -> bool:
        return self._stop_at_once.is_set() or (self._stop.is_set() and not self._side.is_busy)

    async def _rest(self, problem: str) -> None:
        delay = self._back_off.next()
        log.warning("%s; trying again in %.1f s", problem, delay)
        told = self._stop_at_once if self._stop.is_set() else self._stop
        await first(told.wait(), asyncio.sleep(delay))

    async def _connect(self) -> None:
        """Raises BrokerUnavailable. If we are told to stop meanwhile, nobody hears READY from us."""
        self._lost.clear()
        place = self._target.place
        carrier = self._target.sides.worker_carrier(place)
        link = open_connection(place, carrier, self._heard, self._ended, CONNECT_TIMEOUT)
        opening = asyncio.ensure_future(self._recognition.open(link))
        await first(opening, self._stop_at_once.wait() if self._side.is_busy else self._stop.wait())
        if not opening.done():
            return
        self._link = opening.result()
        if self._is_done or self._lost.is_set():
            return
        log.info("connected to %s", place)
        self._trouble = ""
        self._is_misunderstood = False
        self._side.opened(self._loop.time())
        self._look_at_port(FIRST_SIGN)

    async def _serve(self) -> None:
        """One connection's life: tick until it is lost or we are done."""
        while not self._is_done and not self._lost.is_set():
            now = self._loop.time()
            waiting = max(0.001, self._side.tick(now) - now)
            if not self._stop.is_set():
                await first(self._stop.wait(), self._lost.wait(), asyncio.sleep(waiting))
            else:
                await first(self._stop_at_once.wait(), self._lost.wait(), asyncio.sleep(min(0.02, waiting)))

    async def _part(self) -> None:
        """Hang up, with a good ear: what the broker sent us before it noticed may be a job."""
        link = self._link
        while link is not None and link.backlog and not self._lost.is_set() and not self._stop_at_once.is_set():
            await first(self._lost.wait(), self._stop_at_once.wait(), asyncio.sleep(0.01))
        if link is not None and not self._lost.is_set():
            link.finish()
            await first(self._lost.wait(), self._stop_at_once.wait(), asyncio.sleep(PARTING))
        self._hang_up()

    def _heard(self, message: Message | TooLarge) -> None:
        if self._link is not None or not self._lost.is_set():
            self._back_off.reset()  # only a broker that speaks to us is worth coming back to at once
            self._side.receive(message, self._loop.time())
            if self._link is None:
                self._is_misunderstood = True
            elif self._suspect is None:
                self._recognition.is_known = True

    def _look_at_port(self, delay: float, suspect: RunningJob | None = None) -> None:
        """Find out what this port is, unless something was understood by then. `suspect`: a job that may be none."""
        if not self._recognition.is_known:
            if self._looking is not None:
                self._looking.cancel()
            self._suspect = suspect
            self._looking = self._loop.create_task(self._name_port(delay))

    async def _name_port(self, delay: float) -> None:
        await asyncio.sleep(delay)
        problem = await self._recognition.problem(thorough=self._suspect is not None)
        suspect, self._suspect = self._suspect, None
        if problem is not None:
            self._trouble = str(problem)
            if suspect is not None:
                del self._jobs[suspect.job_ref]
            self._hang_up()
        elif suspect is not None:
            self._recognition.is_known = True
            self._job_runner.begin(suspect)

    async def _name_lost_port(self) -> None:
        """The connection is gone. If the first message was not understood, find out what is there."""
        if self._looking is not None:
            self._looking.cancel()
        if self._is_misunderstood and not self._is_done and not self._trouble:
            problem = await self._recognition.problem(thorough=True)
            self._trouble = str(problem or "")

    def _ended(self, problem: str) -> None:
        if not self._lost.is_set():
            if not self._is_done:
                log.warning("the connection to %s ended: %s", self._target.place, problem)
            self._hang_up()

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._side.lost()
        self._lost.set()

    # ---------------------------------------------------------------- jobs

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
        cast(ReportingSide, self._side).returned(job.job_ref, self._loop.time())  # who recalls has a word for it

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        if self._reports:
            side = cast(ReportingSide, self._side)
            problem = side.report(job.job_ref, payload, self._loop.time(), is_part=is_part)
            if problem is not None and is_part:  # progress that is not told does no harm; a result with a hole does
                job.fail(Failure("ValueError", f"a part of the result cannot be sent: {problem}"))
                self._job_runner.drop(job)

    def _flush(self) -> None:
        self._is_flush_due = False
        cast(ReportingSide, self._side).flush(self._loop.time())

    async def _finish_jobs(self) -> None:
        while self._jobs and not self._stop.is_set():
            await first(asyncio.sleep(JOBS_POLL), self._stop.wait())


async def first(*ways: Awaitable[object]) -> None:
    """Wait for whichever comes first, and drop the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
