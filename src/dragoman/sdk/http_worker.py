"""A worker that comes by HTTP: asks for one job after the other, and reports what became of each."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
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
from dragoman.dialects.sides import Failure, Outcome
from dragoman.sdk.errors import BrokerUnavailable
from dragoman.sdk.http_exchanges import Exchanges
from dragoman.sdk.job_runner import JobRunner, RunningJob
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff

T = TypeVar("T")

log = logging.getLogger("dragoman.worker")

ANSWER = 60.0  # seconds that a response may take, besides the wait that was asked for
HEARTBEAT = 5.0  # seconds between two, at most, while there are jobs: by their answers we hear what was cancelled
REPORTERS = 4  # reports that are under way at once
LAST_REPORT = 5.0  # seconds in which a report is tried again while we stop
PARTING = 1.0  # seconds that the broker may take to hear that we leave
RECALLED = Failure("", "stopped: nobody waited for its result any more")


class Gone(Exception):
    """The broker does not know this worker any more."""


class HttpWorker:
    """One worker with room for `concurrency` jobs. It holds a job until the broker has acknowledged its report."""

    def __init__(self, target: Target, job_runner: JobRunner, concurrency: int = 1) -> None:
        self._target = target
        self._job_runner = job_runner
        self._concurrency = concurrency
        self._exchanges = Exchanges(target)
        self._loop = asyncio.get_running_loop()
        self._back_off = BackOff(random.uniform, cap=5.0)
        self._member: Membership | None = None
        self._held: dict[str, Held] = {}
        self._reporters = asyncio.Semaphore(REPORTERS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[Response] | None = None
        self._changed = asyncio.Event()  # there is room, or we are told to stop
        self._is_stopping = False
        self._stops_at_once = False
        self._accident: BaseException | None = None

    # ---------------------------------------------------------------- the life of a worker

    async def live(self) -> int:
        """Serve until told to stop; then finish what is in hand, and leave. Returns the exit code."""
        self._begin(self._beat())
        try:
            while not self._is_stopping:
                try:
                    await self._serve()
                except Gone as gone:
                    log.warning("joining again: %s", gone)
                    self._member = None
                except BrokerUnavailable as problem:
                    await self._rest(str(problem))
            await self._leave()
        finally:
            for task in (*self._tasks, *([self._polling] if self._polling is not None else ())):
                task.cancel()
            self._exchanges.close()
        return 0

    def stop(self) -> None:
        """Once: finish what is in hand. Twice: do not wait for it."""
        if self._is_stopping:
            self._stops_at_once = True
        else:
            log.info("stopping%s", " once the work in hand is done" if self._held else "")
            self._is_stopping = True
        self._changed.set()

    async def _serve(self) -> None:
        """Join if that is due, and take one job. Raises BrokerUnavailable and Gone."""
        if self._member is None:
            self._member = await self._join()
            log.info("connected to %s", self._target.place)
        while len(self._held) >= self._concurrency and not self._is_stopping:
            await self._change()
        if self._is_stopping:
            return
        self._polling = self._loop.create_task(self._next(self._member, self._member.wait))
        while not self._polling.done() and not self._is_stopping:
            await self._change(self._polling)
        if self._polling.done():  # else it is still open, and `_leave` looks after it
            polling, self._polling = self._polling, None
            self._take(polling.result(), self._member)
            self._back_off.reset()

    async def _join(self) -> Membership:
        options = self._target.options
        request = write_join(self._target.services, self._concurrency, options.lease)
        response = await self._exchanges.ask(request, ANSWER)
        if response.is_done:
            return _understood(lambda: read_join(response))
        problem = _understood(lambda: read_problem(response))
        raise BrokerUnavailable(f"{self._target.place} does not let us join: {problem.detail}")

    async def _next(self, member: Membership, wait: float) -> Response:
        return await self._exchanges.ask(write_next(member, wait, self._held), wait + ANSWER)

    def _take(self, response: Response, member: Membership) -> None:
        """Begin the job that came, if one did. Raises BrokerUnavailable and Gone."""
        if response.status == 200:
            token, assignment = _understood(lambda: read_job(response))
            held = self._held[token] = Held(token, member)
            held.job = RunningJob(self, held, response.body, assignment)
            self._job_runner.begin(held.job)
        elif response.status == 204:
            self._recall(read_recalls(response))
        else:
            self._check_member(response)
            raise BrokerUnavailable(_understood(lambda: read_problem(response)).detail)

    async def _leave(self) -> None:
        """Take no more jobs, finish those in hand, and say goodbye."""
        member = self._member
        if member is not None and not self._stops_at_once:
            try:
                await self._take_the_last(member)
            except (BrokerUnavailable, Gone) as problem:
                log.warning("the broker was not told that we take no more jobs: %s", problem)
        while self._held and not self._stops_at_once:
            await self._change()
        if member is not None:
            try:
                await self._exchanges.ask(write_leave(member), PARTING)
            except BrokerUnavailable:
                log.warning("the broker was not told that we leave: it finds out after %g s", member.lease)

    async def _take_the_last(self, member: Membership) -> None:
        """After the drain nothing is given to us. A job that was given before, and whose response has not come, is
        given again to the request that names what we hold."""
        await self._exchanges.ask(write_drain(member), ANSWER)
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
        """Until something has changed, or one of these is done. Raises what ended a task that should not end."""
        changing = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait({changing, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changing.cancel()
        self._changed.clear()
        if self._accident is not None:
            raise self._accident

    async def _rest(self, problem: str) -> None:
        delay = self._back_off.next()
        log.warning("%s; trying again in %.1f s", problem, delay)
        until = self._loop.time() + delay
        while not self._is_stopping and self._loop.time() < until:
            resting = self._loop.create_task(asyncio.sleep(until - self._loop.time()))
            await self._change(resting)
            resting.cancel()

    def _begin(self, act: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._look_for_an_accident)

    def _look_for_an_accident(self, task: asyncio.Task[None]) -> None:
        """An error that nobody expected ends this worker, instead of leaving it there without a heartbeat."""
        if not task.cancelled() and task.exception() is not None:
            self._accident = task.exception()
        self._changed.set()

    # ---------------------------------------------------------------- the broker's questions and ours

    async def _beat(self) -> None:
        """Signs of life while there are jobs; a request for a job is one, too."""
        while True:
            member = self._member
            await asyncio.sleep(HEARTBEAT if member is None else min(HEARTBEAT, member.lease / 3))
            if self._held and member is not None and member is self._member:
                try:
                    response = await self._exchanges.ask(write_heartbeat(member), member.lease)
                except BrokerUnavailable as problem:
                    log.warning("a heartbeat was not heard: %s", problem)
                else:
                    self._recall(read_recalls(response))

    def _recall(self, tokens: list[str]) -> None:
        for token in tokens:
            held = self._held.get(token)
            if held is not None and held.job is not None:
                self._job_runner.recall(held.job, "nobody waits for its result any more")

    def _check_member(self, response: Response) -> None:
        if response.status in (403, 410):
            raise Gone(_understood(lambda: read_problem(response)).detail)

    async def _report(self, held: Held, request: Request) -> None:
        """Until the broker has answered: it has the report then, or does not want it."""
        back_off = BackOff(random.uniform, cap=5.0)
        tried_since = self._loop.time()
        while True:
            problem = await self._try_to_report(request)
            if problem is None:
                break
            if self._is_stopping and self._loop.time() - tried_since > LAST_REPORT:
                log.error("the broker is gone, and what it was owed with it: %s", problem)
                break
            delay = back_off.next()
            log.warning("a result was not taken: %s; trying again in %.1f s", problem, delay)
            await asyncio.sleep(delay)
        self._held.pop(held.token, None)
        self._changed.set()

    async def _try_to_report(self, request: Request) -> str | None:
        """The reason why it has to be tried again, or None."""
        try:
            async with self._reporters:
                response = await self._exchanges.ask(request, ANSWER)
            if response.is_done:
                return None
            detail = _understood(lambda: read_problem(response)).detail
        except BrokerUnavailable as problem:
            return str(problem)
        if response.status == 503:
            return detail
        log.info("a result is not wanted: %s", detail)
        return None

    async def _tell_progress(self, held: Held) -> None:
        """One report after the other; of those that come meanwhile, the last."""
        while held.progress is not None and held.token in self._held:
            request = write_progress(held.member, held.token, held.progress)
            held.progress = None
            try:
                response = await self._exchanges.ask(request, ANSWER)
            except BrokerUnavailable:
                break  # progress that is not told does no harm
            self._recall([held.token] if response.status == 409 else read_recalls(response))
        held.is_telling = False

    # ---------------------------------------------------------------- jobs

    def finished(self, job: RunningJob, result: Frame) -> None:
        held: Held = job.job_ref  # type: ignore[assignment]
        self._begin(self._report(held, write_result(held.member, held.token, result)))

    def failed(self, job: RunningJob, outcome: Outcome, reason: str, failure: Failure) -> None:
        held: Held = job.job_ref  # type: ignore[assignment]
        self._begin(self._report(held, write_failure(held.member, held.token, failure)))

    def returned(self, job: RunningJob) -> None:
        """A report about an attempt that is over shows the broker that there is room again."""
        held: Held = job.job_ref  # type: ignore[assignment]
        self._begin(self._report(held, write_failure(held.member, held.token, RECALLED)))

    def reported(self, job: RunningJob, payload: Frame, is_part: bool) -> None:
        held: Held = job.job_ref  # type: ignore[assignment]
        assert not is_part, "this wire has no word for parts"
        held.progress = payload
        if not held.is_telling:
            held.is_telling = True
            self._begin(self._tell_progress(held))


class Held:
    """A job that this worker has, by the token of its attempt."""

    __slots__ = ("is_telling", "job", "member", "progress", "token")

    def __init__(self, token: str, member: Membership) -> None:
        self.token = token
        self.member = member  # under which it was given
        self.job: RunningJob | None = None
        self.progress: Frame | None = None  # the latest report that was not sent
        self.is_telling = False  # a report is under way


def _understood(read: Callable[[], T]) -> T:
    """Raises BrokerUnavailable for what no broker says."""
    try:
        return read()
    except Malformed as problem:
        raise BrokerUnavailable(f"the broker's answer was not understood: {problem.detail}") from None
