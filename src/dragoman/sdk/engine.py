"""What both kinds of client stand on: jobs come in from anywhere, are sent in batches, and their futures are told.

An engine lives on one event loop. `enter`, `withdraw` and `cancel` may be called from any thread if `wake` may be: what
they bring lies in a deque until the loop looks, and the loop is woken only if it is not about to look already. So many
jobs that come at once cost one wake-up, one SUBMIT and one write. There is no task, no timer and no callback for a job.

Where calls share a connection there is one conversation. Where a connection carries one call at a time there are up to
`connections`, opened when they are needed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic

from dragoman.sdk.client_connection import ClientConnection, OpenLink, PendingItem
from dragoman.sdk.coarse_timers import CoarseTimers
from dragoman.sdk.errors import BrokerUnavailable, DragomanError, JobCancelled, JobTimeout, WrongDialect
from dragoman.sdk.outgoing import open_connection
from dragoman.sdk.recognition import Recognition
from dragoman.sdk.targets import Target

GRACE = 0.5  # seconds that the broker is given to say itself that a deadline has passed
LONGEST_NAP = 3600.0  # seconds; what a loop can count has an end
TICK = 1.0  # while anything is under way, conversations are looked after at least so often


class Engine:
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
        self.recognition = Recognition(target, "client")
        self._most = 1 if target.dialect.calls_at_once else connections
        self._grace = GRACE if "timeout" in target.dialect.capabilities else 0.0
        self._inbox: deque[PendingItem] = deque()
        self._asides: deque[tuple[Callable[[PendingItem, float], None], PendingItem]] = deque()
        self._is_awake = False  # it will look, whatever comes in before that
        self._is_closed = False
        self._waiting: deque[PendingItem] = deque()  # for a connection; some may be over by now
        self._connections = [ClientConnection(target, self, connect_timeout, open)]
        self._patience = self._connections[0].side.patience
        self._hint = self._connections[0].side.hint
        self._guards: CoarseTimers[PendingItem] = CoarseTimers()
        self._problem: BrokerUnavailable | None = None
        self._down_since = -inf  # when the last connection was lost
        self._was_up = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf

    # ---------------------------------------------------------------- from anywhere

    def enter(self, job: PendingItem) -> None:
        self._inbox.append(job)
        if not self._is_awake:
            self._is_awake = True
            self._wake(self._look)

    def withdraw(self, job: PendingItem) -> None:
        """Its future has ended by itself: nobody waits for an outcome."""
        self._aside(self._withdraw, job)

    def cancel(self, job: PendingItem) -> None:
        """Ask for its end; its outcome comes in any case."""
        self._aside(self._cancel, job)

    def is_sent(self, job: PendingItem) -> bool:
        """Whether the broker may have it."""
        connection = job.connection
        return connection is not None and connection.side.is_sent(job.job_id)

    def _aside(self, act: Callable[[PendingItem, float], None], job: PendingItem) -> None:
        self._asides.append((act, job))
        if not self._is_awake:
            self._is_awake = True
            self._wake(self._look)

    # ---------------------------------------------------------------- on the loop

    def _look(self) -> None:
        self._is_awake = False  # before we look: whoever comes after that wakes us again
        if self._is_closed:
            self.refuse_the_rest()
            return
        now = monotonic()
        inbox, waiting = self._inbox, self._waiting
        while inbox:
            job = inbox.popleft()
            if job.is_over:
                continue
            job.entered = now
            timeout = job.submit_options.timeout
            patience = self._patience if timeout is None else timeout + self._grace
            if patience < inf:
                job.due = self._guards.add(job, patience, now)
            waiting.append(job)
        self._take_asides(now)
        self._place(now)
        self._look_again(now)

    def _take_asides(self, now: float) -> None:
        """Withdraw and cancel the jobs for which that was requested."""
        while self._asides:
            act, job = self._asides.popleft()
            act(job, now)

    def _place(self, now: float) -> None:
        """Give what waits to whoever has room for it."""
        waiting = self._waiting
        for connection in self._connections:
            while waiting and connection.has_room:
                job = waiting.popleft()
                if not job.is_over:
                    connection.take(job, now)
            connection.flush(now)
        if waiting:
            self._dial_more()

    def _dial_more(self) -> None:
        """As many connections as there are jobs without one, within the limit."""
        on_their_way = sum(each.dialling is not None for each in self._connections)
        for connection in self._connections:
            if not connection.is_ready and connection.dialling is None and on_their_way < len(self._waiting):
                connection.dial()
                on_their_way += connection.dialling is not None
        while on_their_way < len(self._waiting) and len(self._connections) < self._most:
            connection = ClientConnection(self._target, self, self._connect_timeout, self._open)
            self._connections.append(connection)
            connection.dial()
            on_their_way += 1

    def _withdraw(self, job: PendingItem, now: float) -> None:
        if not job.is_over:
            connection = job.connection
            self.ended(job)
            if connection is not None and job in connection.jobs:
                connection.drop(job, now)

    def _cancel(self, job: PendingItem, now: float) -> None:
        if job.connection is not None and not job.is_over:
            job.connection.side.cancel(job.job_id, now)

    # ---------------------------------------------------------------- what conversations say

    def paused(self, connection: ClientConnection) -> None:
        now = monotonic()
        if self._waiting or self._asides:
            self._take_asides(now)  # first: a job that was withdrawn before this call is not sent
            self._place(now)
        else:
            connection.flush(now)
        if self._down_since != inf and connection.is_ready:
            self._was_up = True
            self._down_since = inf
            self._look_again(now)

    def ended(self, job: PendingItem) -> None:
        job.is_over = True
        job.connection = None
        job.payload = b""
        if job.due:
            self._guards.discard(job, job.due)

    def is_wanted(self, connection: ClientConnection) -> bool:
        return bool(connection.jobs) or any(not job.is_over for job in self._waiting)

    def unreachable(self, problem: BrokerUnavailable) -> None:
        self._problem = problem
        if (not self._wait_for_broker and not self._was_up) or isinstance(problem, WrongDialect):
            self._fail_waiting(inf, problem)

    def lost(self, connection: ClientConnection) -> None:
        now = monotonic()
        if self._is_closed:
            return
        if not any(each.is_ready for each in self._connections):
            if self._down_since == inf:
                self._down_since = now
        if self._most > 1 and connection.dialling is None and connection in self._connections:
            self._connections.remove(connection)
        if self._waiting:
            self._dial_more()
        self._look_again(now)

    # ---------------------------------------------------------------- time

    def _look_again(self, now: float) -> None:
        """Do what is due, and come again when the next is."""
        due = inf
        is_up = False
        for connection in list(self._connections):
            if connection.is_open or connection.jobs:
                due = min(due, connection.side.tick(now))
            if connection.jobs:
                due = min(due, now + TICK)
            is_up = is_up or connection.is_ready
        for job in self._guards.overdue(now):
            self._time_out(job, now)
        if not is_up:
            due = min(due, self._fail_waiting(now), self._fail_carried(now))
        due = min(due, self._guards.next_due())
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer = None
        self._timer_due = due
        if due < inf:
            self._timer = self._loop.call_later(min(max(0.001, due - now), LONGEST_NAP), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_due = inf
        if not self._is_closed:
            self._look_again(monotonic())

    def _time_out(self, job: PendingItem, now: float) -> None:
        seconds = job.submit_options.timeout or self._patience
        hint = f"; {self._hint}" if self._hint else ""
        if job.connection is None and not any(each.is_ready for each in self._connections):
            hint = f"; it was not sent: {self._problem or f'{self._target.place} has not welcomed us yet'}"
        self._withdraw(job, now)
        job.fail(JobTimeout(f"timed out: no answer within {seconds:g} s{hint}"))

    def _fail_waiting(self, now: float, problem: BrokerUnavailable | None = None) -> float:
        """Those that have waited for a connection for too long; returns when the next will have."""
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

    def _fail_carried(self, now: float) -> float:
        """Those that were under way when the connection was lost."""
        due = self._down_since + self._connect_timeout
        carrying = [each for each in self._connections if each.jobs]
        if not carrying or self._down_since == inf:
            return inf
        if due > now:
            return due
        for connection in carrying:
            connection.fail_all(self._no_broker)
        return inf

    def _no_broker(self) -> BrokerUnavailable:
        told = str(self._problem or f"the connection to {self._target.place} was lost")
        return BrokerUnavailable(f"{told}; gave up after {self._connect_timeout:g} s")

    # ---------------------------------------------------------------- the end

    async def close(self) -> None:
        """Say goodbye. What is under way ends as cancelled, for the broker withdraws it."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.refuse_the_rest()
        tasks = [task for each in self._connections for task in each.tasks]
        for connection in self._connections:
            jobs, connection.jobs = connection.jobs, {}
            connection.close()
            for job in jobs:
                self.ended(job)
                job.fail(_closed())
        await asyncio.gather(*tasks, return_exceptions=True)

    def refuse_the_rest(self) -> None:
        """What came in too late to be sent. Once the loop is over, from any thread."""
        for jobs in (self._waiting, self._inbox):
            while jobs:
                try:
                    job = jobs.popleft()
                except IndexError:  # another thread was faster
                    break
                if not job.is_over:
                    self.ended(job)
                    job.fail(_closed())


def _closed() -> DragomanError:
    return JobCancelled("cancelled: the client was closed")
