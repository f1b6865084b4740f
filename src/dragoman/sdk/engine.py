"""The engine of both clients: sends jobs in batches over its connections and completes their futures.

An engine runs on one event loop. `enter`, `drop` and `cancel` may be called from any thread if `wake` may be. They
append to a deque; the loop is woken only if no wake-up is pending. Many jobs at once therefore cost one wake-up, one
SUBMIT and one write. A job needs no task, timer or callback of its own.

In dialects whose calls share a connection, the engine has one connection. In the others, where a connection carries one
call at a time, it opens up to `connections` of them on demand.

**Several addresses** (R244). A broker that stops refuses jobs as `draining`, and one that is cut off from its cluster
as `partitioned`. Then the job goes to the next address at once, with the same id, and all later ones follow it: the
connection is *left*. It gets nothing more, and ends with the calls that it still has. An operation that has no answer
after some seconds is asked again at the next address, if a second copy makes no second job: it names its jobs by keys
or ids. A call that was sent waits for the first broker, whose worker may run it. So does `run_schedule`. A job that
every address has refused rests for a moment and tries all again, until `connect_timeout` is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic

from dragoman.sdk.candidates import Candidates
from dragoman.sdk.client_connection import ClientConnection, OpenLink, PendingItem
from dragoman.sdk.coarse_timers import CoarseTimers
from dragoman.sdk.errors import BrokerUnavailable, DragomanError, JobCancelled, JobTimeout, NotAllowed, WrongDialect
from dragoman.sdk.outgoing import open_connection
from dragoman.sdk.targets import Target

GRACE = 0.5  # seconds after a job's time-out in which the broker may report the time-out itself
MAX_TIMER = 3600.0  # seconds; an event loop limits the delay of a timer
TICK = 1.0  # seconds between two checks of a connection that has jobs
REST = 0.25  # seconds for which jobs rest that every address has refused; doubles up to the next
LONGEST_REST = 2.0
ANSWER_WITHIN = 5.0  # seconds after which an operation without an answer is asked at the next address
BYTES_A_SECOND = 1 << 20  # of a payload: a larger one may take longer


class Engine:
    """Sends jobs and operations and completes their futures, on one event loop."""

    def __init__(
        self,
        target: Target,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[Callable[[], None]], object],
        *,
        connect_timeout: float,
        connections: int,
        wait_for_broker: bool = True,
        open: OpenLink = open_connection,
    ) -> None:
        self._target = target
        self._loop = loop
        self._wake = wake
        self._connect_timeout = connect_timeout
        self._wait_for_broker = wait_for_broker
        self._open = open
        self.candidates = Candidates(target, "client")
        self._max_connections = 1 if target.dialect.calls_at_once else connections
        self._grace = GRACE if "timeout" in target.dialect.capabilities else 0.0
        self._inbox: deque[PendingItem] = deque()
        self._actions: deque[tuple[Callable[[PendingItem, float], None], PendingItem]] = deque()
        self._is_scheduled = False  # a call of `_run` is scheduled
        self._is_closed = False
        self._waiting: deque[PendingItem] = deque()  # for a connection; some may have ended
        self._connections = [ClientConnection(target, self, connect_timeout, open)]
        self._default_timeout = self._connections[0].side.patience
        self._hint = self._connections[0].side.hint
        self._timers: CoarseTimers[PendingItem] = CoarseTimers()
        self._problem: BrokerUnavailable | None = None
        self._down_since = -inf  # when the last connection was lost
        self._was_up = False
        self._leaving: list[ClientConnection] = []  # their brokers stop, or are cut off
        self._turned: dict[PendingItem, tuple[float, int]] = {}  # jobs that were refused: since when, how often
        self._resting: deque[PendingItem] = deque()  # refused by all addresses
        self._expected: dict[PendingItem, float] = {}  # operations that go on without an answer, and when
        self._answers: CoarseTimers[PendingItem] = CoarseTimers()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf

    # ---------------------------------------------------------------- from any thread

    def enter(self, job: PendingItem) -> None:
        self._inbox.append(job)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._wake(self._run)

    def drop(self, job: PendingItem) -> None:
        """Drop a job whose future has already ended."""
        self._add_action(self._drop, job)

    def cancel(self, job: PendingItem) -> None:
        """Send a cancel request; the job's outcome follows in any case."""
        self._add_action(self._cancel, job)

    def is_sent(self, job: PendingItem) -> bool:
        """Return whether the broker may have received the job."""
        connection = job.connection
        return connection is not None and connection.side.is_sent(job.job_id)

    def _add_action(self, act: Callable[[PendingItem, float], None], job: PendingItem) -> None:
        self._actions.append((act, job))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._wake(self._run)

    # ---------------------------------------------------------------- on the loop

    def _run(self) -> None:
        self._is_scheduled = False  # first, so that later entries schedule another call
        if self._is_closed:
            self.cancel_unsent()
            return
        now = monotonic()
        inbox, waiting = self._inbox, self._waiting
        while inbox:
            job = inbox.popleft()
            if job.is_over:
                continue
            job.entered = now
            timeout = job.submit_options.timeout
            limit = self._default_timeout if timeout is None else timeout + self._grace
            if limit < inf:
                job.due = self._timers.add(job, limit, now)
            waiting.append(job)
        self._run_actions(now)
        self._assign(now)
        self._run_due(now)

    def _run_actions(self, now: float) -> None:
        """Withdraw and cancel the jobs for which that was requested."""
        while self._actions:
            act, job = self._actions.popleft()
            act(job, now)

    def _assign(self, now: float) -> None:
        """Pass waiting jobs to connections that have room."""
        waiting = self._waiting
        for connection in self._connections:
            while waiting and connection.has_room:
                job = waiting.popleft()
                if not job.is_over:
                    connection.take(job, now)
                    if job.operation is not None and len(self.candidates) > 1:
                        self._expect_answer(job, now)
            connection.flush(now)
        if waiting:
            self._dial_more()

    def _dial_more(self) -> None:
        """Dial one connection for each waiting job, up to the limit."""
        dialling = sum(each.dialling is not None for each in self._connections)
        for connection in self._connections:
            if not connection.is_ready and connection.dialling is None and dialling < len(self._waiting):
                connection.dial()
                dialling += connection.dialling is not None
        while dialling < len(self._waiting) and len(self._connections) < self._max_connections:
            connection = ClientConnection(self._target, self, self._connect_timeout, self._open)
            self._connections.append(connection)
            connection.dial()
            dialling += 1

    def _drop(self, job: PendingItem, now: float) -> None:
        if not job.is_over:
            connection = job.connection
            self.ended(job)
            if connection is not None and job in connection.jobs:
                connection.drop(job, now)

    def _cancel(self, job: PendingItem, now: float) -> None:
        if job.connection is not None and not job.is_over:
            job.connection.side.cancel(job.job_id, now)

    # ---------------------------------------------------------------- several addresses

    def turned_away(self, job: PendingItem, connection: ClientConnection) -> bool:
        count = len(self.candidates)
        if count == 1:
            return False
        now = monotonic()
        since, refusals = self._turned.get(job, (now, 0))
        if now - since >= self._connect_timeout:
            return False
        self._turned[job] = since, refusals + 1
        self._forget_answer(job)
        job.connection = None
        job.entered = now
        self._leave(connection, now)
        rounds, is_within = divmod(refusals + 1, count)
        if is_within:
            self._waiting.append(job)
        else:
            if not self._resting:
                self._loop.call_later(min(REST * 2.0 ** (rounds - 1), LONGEST_REST), self._try_again)
            self._resting.append(job)
        return True

    def _try_again(self) -> None:
        """Try all addresses once more for jobs that each has refused."""
        if not self._is_closed:
            self._waiting.extend(self._resting)
            self._resting.clear()
            self._assign(monotonic())

    def _leave(self, connection: ClientConnection, now: float, is_silent: bool = False) -> None:
        """Go to the next address with everything that another broker may do. `is_silent`: operations have no answer."""
        if connection not in self._connections:
            return
        self.candidates.avoid(connection.candidate)
        for each in [each for each in self._connections if each.candidate is connection.candidate]:
            self._connections.remove(each)
            self._leaving.append(each)
            each.leave()
            for job in each.take_back(now, is_silent):
                self._forget_answer(job)
                job.entered = now
                self._waiting.append(job)
        if not self._connections:
            self._connections.append(ClientConnection(self._target, self, self._connect_timeout, self._open))

    def _expect_answer(self, job: PendingItem, now: float) -> None:
        """Note when an operation is asked at the next address, if it has no answer."""
        operation = job.operation
        if operation is None or job in self._expected:
            return
        _, refusals = self._turned.get(job, (0.0, 0))
        limit = ANSWER_WITHIN * (1 + refusals) + operation.wait + len(job.payload) // BYTES_A_SECOND
        self._expected[job] = self._answers.add(job, limit, now)

    def _forget_answer(self, job: PendingItem) -> None:
        due = self._expected.pop(job, None)
        if due is not None:
            self._answers.discard(job, due)

    def _go_on_without(self, job: PendingItem, now: float) -> None:
        """Ask the next address: an operation has no answer."""
        self._expected.pop(job, None)
        connection = job.connection
        if job.is_over or connection is None:
            return
        if not connection.is_ready:  # it is sent on the next connection, wherever that is
            self._expect_answer(job, now)
            return
        since, refusals = self._turned.get(job, (now, 0))
        self._turned[job] = since, refusals + 1
        self._leave(connection, now, is_silent=True)

    def _tick_leaving(self, now: float) -> float:
        """End the connections that were left, when their calls have ended. Returns the time of the next look."""
        due = inf
        for connection in list(self._leaving):
            if connection.jobs and now >= connection.lost_at + self._connect_timeout:
                connection.fail_all(self._no_broker)
            if not connection.jobs:
                self._leaving.remove(connection)
                connection.close()
                continue
            due = min(due, now + TICK)
            if connection.is_open:
                due = min(due, connection.side.tick(now))
        return due

    # ---------------------------------------------------------------- calls from connections

    def batch_done(self, connection: ClientConnection) -> None:
        now = monotonic()
        if self._waiting or self._actions:
            self._run_actions(now)  # first: a job that is already withdrawn is not sent
            self._assign(now)
        else:
            connection.flush(now)
        if self._leaving:
            self._run_due(now)
        if self._down_since != inf and connection.is_ready:
            self._was_up = True
            self._down_since = inf
            self._run_due(now)

    def ended(self, job: PendingItem) -> None:
        job.is_over = True
        job.connection = None
        job.payload = b""
        if job.due:
            self._timers.discard(job, job.due)
        if self._turned or self._expected:
            self._turned.pop(job, None)
            self._forget_answer(job)

    def is_wanted(self, connection: ClientConnection) -> bool:
        return bool(connection.jobs) or any(not job.is_over for job in self._waiting)

    def unreachable(self, problem: BrokerUnavailable) -> None:
        self._problem = problem
        if (not self._wait_for_broker and not self._was_up) or isinstance(problem, WrongDialect | NotAllowed):
            self._fail_waiting(inf, problem)

    def lost(self, connection: ClientConnection) -> None:
        now = monotonic()
        if self._is_closed:
            return
        if not any(each.is_ready for each in self._connections):
            if self._down_since == inf:
                self._down_since = now
        if self._max_connections > 1 and connection.dialling is None and connection in self._connections:
            self._connections.remove(connection)
            connection.abandon()
        if self._waiting:
            self._dial_more()
        self._run_due(now)

    # ---------------------------------------------------------------- timers

    def _run_due(self, now: float) -> None:
        """Handle everything that is due and set the timer for the next deadline."""
        due = inf
        is_up = False
        for connection in list(self._connections):
            if connection.is_open or connection.jobs:
                due = min(due, connection.side.tick(now))
            if connection.jobs:
                due = min(due, now + TICK)
            is_up = is_up or connection.is_ready
        for job in self._timers.overdue(now):
            self._time_out(job, now)
        if self._expected:
            for job in self._answers.overdue(now):
                self._go_on_without(job, now)
            if self._waiting:
                self._assign(now)
            due = min(due, self._answers.next_due())
        if self._leaving:
            due = min(due, self._tick_leaving(now))
        if not is_up:
            due = min(due, self._fail_waiting(now), self._fail_sent(now))
        due = min(due, self._timers.next_due())
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer = None
        self._timer_due = due
        if due < inf:
            self._timer = self._loop.call_later(min(max(0.001, due - now), MAX_TIMER), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_due = inf
        if not self._is_closed:
            self._run_due(monotonic())

    def _time_out(self, job: PendingItem, now: float) -> None:
        seconds = job.submit_options.timeout or self._default_timeout
        hint = f"; {self._hint}" if self._hint else ""
        if job.connection is None and not any(each.is_ready for each in self._connections):
            hint = (
                f"; the job was not sent: {self._problem or f'{self._target.places} has not completed the handshake'}"
            )
        self._drop(job, now)
        job.fail(JobTimeout(f"timed out: no answer within {seconds:g} s{hint}"))

    def _fail_waiting(self, now: float, problem: BrokerUnavailable | None = None) -> float:
        """Fail the jobs that have waited too long for a connection. Returns the deadline of the next job."""
        waiting = self._waiting
        while waiting:
            job = waiting[0]
            if not job.is_over:
                due = max(job.entered, self._down_since if self._down_since < inf else 0.0) + self._connect_timeout
                if due > now:
                    return due
                self.ended(job)
                job.fail(problem or self._no_broker())
            waiting.popleft()
        return inf

    def _fail_sent(self, now: float) -> float:
        """Fail the sent jobs whose connection has been lost for too long. Returns their deadline."""
        due = self._down_since + self._connect_timeout
        loaded = [each for each in self._connections if each.jobs]
        if not loaded or self._down_since == inf:
            return inf
        if due > now:
            return due
        for connection in loaded:
            connection.fail_all(self._no_broker)
        return inf

    def _no_broker(self) -> BrokerUnavailable:
        problem = str(self._problem or f"the connection to {self._target.places} was lost")
        return BrokerUnavailable(f"{problem}; no connection within {self._connect_timeout:g} s (connect_timeout)")

    # ---------------------------------------------------------------- closing

    async def close(self) -> None:
        """Disconnect. Jobs that have not ended end as cancelled; the broker cancels them, too."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.cancel_unsent()
        connections = [*self._connections, *self._leaving]
        tasks = [task for each in connections for task in each.tasks]
        for connection in connections:
            jobs, connection.jobs = connection.jobs, {}
            connection.close()
            for job in jobs:
                self.ended(job)
                job.fail(_closed())
            connection.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cancel_unsent(self) -> None:
        """End all jobs that were not sent as cancelled. May be called from any thread once the loop has stopped."""
        for jobs in (self._waiting, self._inbox, self._resting):
            while jobs:
                try:
                    job = jobs.popleft()
                except IndexError:  # another thread took it
                    break
                if not job.is_over:
                    self.ended(job)
                    job.fail(_closed())


def _closed() -> DragomanError:
    return JobCancelled("cancelled: the client was closed")
