"""Callers and workers that speak HTTP.

A session like any dialect's, but nobody comes to it by a wire of the line's: handlers of requests call it on the line's
own thread, and what it has to say to them ends a future each.

A worker is within reach while a `next` of its waits here, and only then is it given jobs. What it was given is its own
until it says what became of it; an answer that got lost on the way is given again, under the same attempt (R124).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from dragoman.core.admission import DEADLINE_PASSED
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.failure import Failure
from dragoman.core.model import Attempt, Payload, Token, WorkerId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import TimedRecipient
from dragoman.core.states import STARTING, TIMED_OUT
from dragoman.http.call_headers import CallHeadersCache
from dragoman.http.options import ListenerOptions
from dragoman.http.remote_worker import HttpWorker, PendingCall, PendingPoll, UnsentJob
from dragoman.http.sse import Streams
from dragoman.http.subscribers import Subscribers

MOST_STREAMS: Final = 64
FETCH: Final = 1.0  # so long a job waits for its worker to ask for it; then another may have it (R8)


class RunnerAccess(Protocol):
    """What this session asks of the line."""

    def request_iteration(self) -> None: ...


class HttpBrokerSide(TimedRecipient):
    dialect = "http"

    def __init__(
        self, broker: Broker, runner: RunnerAccess, options: ListenerOptions, streams: Streams | None = None
    ) -> None:
        self.options = options
        self.plans = CallHeadersCache(options)
        self.streams = streams or Streams(MOST_STREAMS)
        self.listeners = Subscribers(broker.events)
        self.is_closed = False
        self._broker = broker
        self._runner = runner
        self._remotes: dict[WorkerId, HttpWorker] = {}
        self._waiting: Deadlines[PendingCall | PendingPoll | UnsentJob] = Deadlines()

    # ---------------------------------------------------------------- callers

    def call(
        self,
        service: str,
        payload: Payload,
        job_options: JobOptions,
        answer: Future[DeliverOutcome | None],
        now: float,
        *,
        deadline: float,
        key: str | None,
        owner: Owner | None = None,
    ) -> PendingCall:
        call = PendingCall(self, answer)
        self._broker.submit(service, payload, call, job_options, now, deadline=deadline, key=key, owner=owner)
        if call.job is not None and call.job.deadline > deadline:  # it has joined another's
            self._waiting.arm(call, deadline)
        self._runner.request_iteration()
        return call

    def hang_up(self, call: PendingCall, now: float) -> None:
        """Nobody waits any more: a call that waits is withdrawn, one that runs may end (R122)."""
        _tell(call.answer, None)
        self._waiting.disarm(call)
        self._broker.caller_gone(call, now)
        self._runner.request_iteration()

    # ---------------------------------------------------------------- workers

    def __len__(self) -> int:
        """How many workers are here."""
        return len(self._remotes)

    def join(
        self, name: str, services: Collection[str], capacity: int, lease: float, origin: str, now: float
    ) -> HttpWorker | None:
        """A worker comes. It gets nothing before it asks. None: there are too many names of services."""
        remote = HttpWorker(self._broker.entropy.token().hex())
        profile = _profile(capacity, lease, self.options.stuck_timeout)
        worker = self._broker.join(self, remote, name, services, profile, now, origin=origin)
        if worker is None:
            return None
        remote.worker = worker
        self._remotes[worker.id] = remote
        self._runner.request_iteration()
        return remote

    def remote(self, id: int) -> HttpWorker | None:
        return self._remotes.get(WorkerId(id))

    def leave(self, remote: HttpWorker, now: float) -> None:
        """It goes: what it was given follows D8."""
        unseen = [offer.attempt for offer in remote.offers.values()]
        self._forget(remote, "it has left")
        self._broker.leave(remote.worker, now, "its worker left", unseen)
        self._runner.request_iteration()

    def poll(
        self,
        remote: HttpWorker,
        wait: float,
        held: Collection[str] | None,
        answer: Future[Attempt | str | None],
        now: float,
    ) -> PendingPoll:
        """A worker asks for a job. `held`: what it says it holds, by tokens; None if it does not say."""
        worker = remote.worker
        self._broker.seen(worker, now)
        poll = PendingPoll(remote, answer, now + min(wait, self.options.long_poll, worker.profile.lease / 2))
        owed = self._owed(remote, held, now)
        if owed is not None:
            self._hand_over(poll, owed)
        elif self.is_closed:
            answer.set_result(None)
        else:
            remote.polls.append(poll)
            self._waiting.arm(poll, poll.due)
            self._ask(remote, now)
            if worker.state is STARTING:
                self._broker.idle(worker, now)
            elif worker.free <= 0 and worker.stuck:  # it would not ask if it were still at it (D11)
                self._broker.undelivered(next(iter(worker.stuck.values())), now)
        self._runner.request_iteration()
        return poll

    def drop(self, poll: PendingPoll, now: float) -> None:
        """The worker hung up on its `next`. If that has an answer, it may be lost (R124)."""
        remote, attempt = poll.remote, poll.attempt
        _tell(poll.answer, None)
        if attempt is None:
            self._take_away(poll, now)
        elif attempt.token in remote.worker.running:
            if poll.is_read:
                remote.again[attempt.token] = attempt
            else:
                self._offer(remote, attempt, now)
        self._runner.request_iteration()

    def succeed(self, remote: HttpWorker, attempt: Attempt, result: Payload, now: float) -> bool:
        """False if it came too late."""
        self._ask(remote, now)
        self._runner.request_iteration()
        return self._broker.succeed(attempt, result, now)

    def fail(self, remote: HttpWorker, attempt: Attempt, reason: str, failure: Failure | None, now: float) -> bool:
        self._ask(remote, now)
        self._runner.request_iteration()
        return self._broker.fail(attempt, reason, now, failure)

    def progress(self, attempt: Attempt, payload: Payload, now: float) -> bool:
        self._runner.request_iteration()
        return self._broker.progress(attempt, payload, now)

    def close(self) -> None:
        """The broker is about to stop: nobody waits here for jobs or events any more."""
        self.is_closed = True
        self.streams.end()
        for remote in self._remotes.values():
            while remote.polls:
                poll = remote.polls.popleft()
                self._waiting.disarm(poll)
                _tell(poll.answer, None)

    # ---------------------------------------------------------------- as a session

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is DeliverOutcome:
            call = effect.caller
            assert isinstance(call, PendingCall)
            call.remove_job(effect.job)
            self._waiting.disarm(call)
            _tell(call.answer, effect)
        elif type(effect) is SendJob:
            self._give(effect.attempt, now)
        elif isinstance(effect, CancelAttempt):
            self._recall(effect.attempt, now)
        elif isinstance(effect, RemoveWorker):
            remote = cast(HttpWorker, effect.worker.remote)
            self._forget(remote, effect.reason)
        # Accept: background jobs are the desk's. Progress: a response cannot tell it; whoever wants it watches.

    def tick(self, now: float) -> float:
        for each in self._waiting.due(now):
            if isinstance(each, PendingPoll):
                self._broker.seen(each.remote.worker, now)
                _tell(each.answer, None)
                self._take_away(each, now)
            elif isinstance(each, PendingCall):
                job = each.job
                self._broker.caller_gone(each, now)
                _tell(each.answer, DeliverOutcome(each, job, TIMED_OUT, b"", DEADLINE_PASSED))
            else:
                del each.remote.offers[each.attempt.token]
                self._ask(each.remote, now)
                self._broker.undelivered(each.attempt, now)
        return self._waiting.next()

    # ---------------------------------------------------------------- inside

    def _give(self, attempt: Attempt, now: float) -> None:
        remote = cast(HttpWorker, attempt.worker.remote)
        if remote.polls:
            poll = remote.polls.popleft()
            self._waiting.disarm(poll)
            self._hand_over(poll, attempt)
        else:
            self._offer(remote, attempt, now)

    def _hand_over(self, poll: PendingPoll, attempt: Attempt) -> None:
        poll.attempt = poll.remote.latest = attempt
        poll.payload = attempt.job.payload
        _tell(poll.answer, attempt)

    def _offer(self, remote: HttpWorker, attempt: Attempt, now: float) -> None:
        offer = remote.offers[attempt.token] = UnsentJob(remote, attempt)
        self._waiting.arm(offer, now + FETCH)

    def _owed(self, remote: HttpWorker, held: Collection[str] | None, now: float) -> Attempt | None:
        """What a worker that asks for a job should have already."""
        worker = remote.worker
        while remote.again:
            token, attempt = remote.again.popitem()
            if token in worker.running:
                return attempt
        for token, offer in remote.offers.items():
            del remote.offers[token]
            self._waiting.disarm(offer)
            self._broker.begin(offer.attempt, now)
            return offer.attempt
        if held is not None:
            sent = (each for each in worker.running.values() if each.is_sent)
            return next((each for each in sent if each.token.hex() not in held), None)
        latest = remote.latest
        if latest is not None and worker.profile.capacity == 1 and latest.token in worker.running:
            return latest
        return None

    def _recall(self, attempt: Attempt, now: float) -> None:
        """A worker hears of it when it next speaks of it. What never left us is nobody's."""
        remote = cast(HttpWorker, attempt.worker.remote)
        remote.again.pop(attempt.token, None)
        offer = remote.offers.pop(attempt.token, None)
        if offer is not None:
            self._waiting.disarm(offer)
            self._ask(remote, now)
            self._broker.undelivered(attempt, now)

    def _take_away(self, poll: PendingPoll, now: float) -> None:
        """It has its answer, or nobody waits for one."""
        self._waiting.disarm(poll)
        if poll in poll.remote.polls:
            poll.remote.polls.remove(poll)
        self._ask(poll.remote, now)

    def _ask(self, remote: HttpWorker, now: float) -> None:
        """It asks for a job by each `next` that waits. Without one it is given nothing, however free it is (R131)."""
        self._broker.ask(remote.worker, len(remote.polls), now)

    def _forget(self, remote: HttpWorker, reason: str) -> None:
        self._remotes.pop(remote.worker.id, None)
        while remote.polls:
            poll = remote.polls.popleft()
            self._waiting.disarm(poll)
            _tell(poll.answer, reason)
        for offer in remote.offers.values():
            self._waiting.disarm(offer)
        remote.offers.clear()


@lru_cache(maxsize=1024)
def _profile(capacity: int, lease: float, stuck_timeout: float) -> WorkerProfile:
    return WorkerProfile(
        lease=lease, capacity=capacity, stuck_timeout=stuck_timeout, can_resume=True, comes_back=True, pulls=True
    )


def _tell(answer: Future[Any], word: Any) -> None:
    """End the wait, unless it has ended: whoever waited may have been stopped by the server."""
    if not answer.done():
        answer.set_result(word)


def token_of(word: str) -> Token | None:
    """An attempt's token as it is written in headers: 32 hex digits."""
    try:
        token = bytes.fromhex(word)
    except ValueError:
        return None
    return Token(token) if len(token) == 16 else None
