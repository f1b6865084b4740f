"""The broker's side of HTTP: callers and workers.

It is a broker side like any dialect's, but without connections of the runner: request handlers call it on the runner's
thread, and each waits for a future that it resolves.

A worker gets jobs only while one of its `next` requests waits. A job belongs to it until it reports the outcome. If the
response with a job is lost, the job is sent again, under the same attempt (R124).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from dragoman.core.admission import DEADLINE_PASSED
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.failure import Failure
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import LimitValues
from dragoman.core.model import Attempt, Job, Payload, Token, WorkerId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import TimedRecipient
from dragoman.core.recording import from_worker, record_heartbeat, submitted, to_caller, to_worker
from dragoman.core.rights import Principal
from dragoman.core.shares import Shares, holder_of
from dragoman.core.states import STARTING, TIMED_OUT
from dragoman.http.call_headers import CallHeadersCache
from dragoman.http.options import ListenerOptions
from dragoman.http.remote_worker import PendingCall, PendingPoll, RemoteHttpWorker, UnsentJob
from dragoman.http.sse import Streams
from dragoman.http.subscribers import Subscribers
from dragoman.operations.recorded_requests import status_line, status_of

MOST_STREAMS: Final = 64
FETCH: Final = 1.0  # seconds that a job waits for its worker's next request; then another worker may get it (R8)


class RunnerAccess(Protocol):
    """The runner's method that this class calls."""

    def request_iteration(self) -> None: ...


class HttpBrokerSide(TimedRecipient):
    dialect = "http"

    def __init__(
        self, broker: Broker, runner: RunnerAccess, options: ListenerOptions, streams: Streams | None = None
    ) -> None:
        self.options = options
        self.call_headers = CallHeadersCache(options)
        self.streams = Streams(MOST_STREAMS) if streams is None else streams
        self.subscribers = Subscribers(broker, shows_progress=options.payloads)
        self.is_closed = False
        self._broker = broker
        self._runner = runner
        self.shares = Shares(options.max_workers)  # of workers (R254)
        self._remotes: dict[WorkerId, RemoteHttpWorker] = {}
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
        owner: Owner,
        extras: JobExtras | None = None,
    ) -> PendingCall:
        call = PendingCall(self, owner, answer)
        job = self._broker.submit(service, payload, call, job_options, now, deadline=deadline, key=key, extras=extras)
        if job is not None and job.conversation is not None:
            submitted(job, call, f"POST /v1/call/{service}", len(payload), now)
        if call.job is not None and call.job.deadline > deadline:  # it has joined a job of another caller
            self._waiting.arm(call, deadline)
        self._runner.request_iteration()
        return call

    def caller_left(self, call: PendingCall, now: float) -> None:
        """Handle the disconnect of a caller: a waiting call is cancelled, a running one may end (R122)."""
        call.resolve(None)
        self._waiting.disarm(call)
        self._broker.caller_gone(call, now)
        self._runner.request_iteration()

    # ---------------------------------------------------------------- workers

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self._remotes)

    def join(
        self,
        name: str,
        services: Collection[str],
        capacity: int,
        lease: float,
        owner: Owner,
        origin: str,
        now: float,
        limits: Mapping[str, LimitValues] | None = None,
        parameters: Mapping[str, dict[str, Any]] | None = None,
    ) -> RemoteHttpWorker | None:
        """Add a worker. It gets jobs from its first request for one on. Returns None if there are too many services."""
        remote = RemoteHttpWorker(self._broker.entropy.token().hex())
        profile = _profile(capacity, lease, self.options.stuck_timeout)
        worker = self._broker.join(self, remote, name, services, profile, now, owner, origin=origin)
        if worker is None:
            return None
        remote.worker = worker
        self._remotes[worker.id] = remote
        remote.holder = holder_of(owner.principal, owner.address)
        self.shares.enter(remote.holder)
        if limits:
            self._broker.limiter.declare(worker, limits, now)
        if parameters:
            self._broker.limiter.declare_parameters(worker, parameters)
        self._runner.request_iteration()
        return remote

    def remote(self, id: int) -> RemoteHttpWorker | None:
        return self._remotes.get(WorkerId(id))

    def seen(self, remote: RemoteHttpWorker, now: float) -> None:
        """Renew the worker's lease: it has sent a request."""
        self._broker.seen(remote.worker, now)

    def attempt(self, remote: RemoteHttpWorker, token: Token) -> Attempt | None:
        """Return the attempt that the worker names, if it has no result yet."""
        return remote.attempt(token)

    def leave(self, remote: RemoteHttpWorker, now: float, reason: str = "it has left") -> None:
        """Remove a worker; its jobs follow D8."""
        unseen = [unsent.attempt for unsent in remote.unsent.values()]
        self._forget(remote, reason)
        self._broker.leave(remote.worker, now, "its worker left", unseen)
        remote.worker.forget_remote()
        self._runner.request_iteration()

    def end_revoked(self, now: float) -> int:
        """Remove the workers of principals that have lost their access. Returns their number."""
        principals = self._broker.principals
        built_in = (principals.local, principals.anyone)
        owned = [(remote, remote.worker.owner.principal) for remote in self._remotes.values()]
        revoked = [remote for remote, principal in owned if not principal.is_listed and principal not in built_in]
        for remote in revoked:
            self.leave(remote, now, "its access was revoked")
        return len(revoked)

    def poll(
        self,
        remote: RemoteHttpWorker,
        wait: float,
        held: Collection[str] | None,
        answer: Future[Attempt | str | None],
        now: float,
    ) -> PendingPoll:
        """Handle a request for a job. `held`: tokens of the attempts that the worker has; None if it does not tell."""
        worker = remote.worker
        self._broker.seen(worker, now)
        poll = PendingPoll(remote, answer, now + min(wait, self.options.long_poll, worker.profile.lease / 2))
        undelivered = self._undelivered(remote, held, now)
        if undelivered is not None:
            self._respond_with(poll, undelivered, now)
        elif self.is_closed:
            answer.set_result(None)
        else:
            remote.polls.append(poll)
            self._waiting.arm(poll, poll.due)
            self._ask(remote, now)
            if worker.state is STARTING:
                self._broker.idle(worker, now)
            elif worker.free <= 0 and worker.stuck:  # it would not ask for a job if it were still busy (D11)
                self._broker.attempts.undelivered(next(iter(worker.stuck.values())), now)
        self._runner.request_iteration()
        return poll

    def drop(self, poll: PendingPoll, now: float) -> None:
        """Handle the disconnect of a worker during `next`. If that had a response, it may be lost (R124)."""
        remote, attempt = poll.remote, poll.attempt
        _resolve(poll.answer, None)
        if attempt is None:
            self._remove_poll(poll, now)
        elif attempt.token in remote.worker.running:
            if poll.is_read:
                remote.again[attempt.token] = attempt
            else:
                self._hold_job(remote, attempt, now)
        self._runner.request_iteration()

    def succeed(self, remote: RemoteHttpWorker, attempt: Attempt, result: Payload, now: float) -> bool:
        """End an attempt with a result. Returns False if it came too late."""
        if attempt.job.conversation is not None:
            from_worker(attempt, "POST …/result", len(result), now)
        self._ask(remote, now)
        self._runner.request_iteration()
        return self._broker.succeed(attempt, result, now)

    def fail(
        self,
        remote: RemoteHttpWorker,
        attempt: Attempt,
        reason: str,
        failure: Failure | None,
        now: float,
        *,
        is_stopped: bool = False,
    ) -> bool:
        """End an attempt without a result. `is_stopped`: its worker has stopped it at the time limit. Returns False if
        it came too late."""
        from_worker(attempt, f"POST …/result?outcome={'timed-out' if is_stopped else 'failed'}", len(reason), now)
        self._ask(remote, now)
        self._runner.request_iteration()
        return self._failed(attempt, reason, failure, now, is_stopped)

    def succeed_resumed(self, token: Token, principal: Principal, result: Payload, now: float) -> tuple[Job, bool]:
        """End an attempt that was dispatched before the broker restarted (R107). False: it came too late."""
        attempt = self._broker.attempts.claim_resumable(token, principal)
        assert attempt is not None, "call `is_resumable` first"
        self._runner.request_iteration()
        return attempt.job, self._broker.succeed(attempt, result, now)

    def fail_resumed(
        self,
        token: Token,
        principal: Principal,
        reason: str,
        failure: Failure | None,
        now: float,
        *,
        is_stopped: bool = False,
    ) -> tuple[Job, bool] | None:
        """As `succeed_resumed`, without a result. None: there is no such attempt."""
        attempt = self._broker.attempts.claim_resumable(token, principal)
        if attempt is None:
            return None
        self._runner.request_iteration()
        return attempt.job, self._failed(attempt, reason, failure, now, is_stopped)

    def _failed(self, attempt: Attempt, reason: str, failure: Failure | None, now: float, is_stopped: bool) -> bool:
        if is_stopped:
            return self._broker.attempts.stopped(attempt, now)
        return self._broker.fail(attempt, reason, now, failure)

    def progress(self, attempt: Attempt, payload: Payload, now: float) -> bool:
        from_worker(attempt, "POST …/progress", len(payload), now)
        self._runner.request_iteration()
        return self._broker.attempts.progress(attempt, payload, now)

    def close(self) -> None:
        """End all waits for jobs and events, because the broker stops."""
        self.is_closed = True
        self.streams.end()
        for remote in self._remotes.values():
            while remote.polls:
                poll = remote.polls.popleft()
                self._waiting.disarm(poll)
                _resolve(poll.answer, None)

    # ---------------------------------------------------------------- calls from the runner

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is DeliverOutcome:
            call = effect.caller
            assert isinstance(call, PendingCall)
            call.remove_job(effect.job)
            self._waiting.disarm(call)
            if effect.job is not None and effect.job.conversation is not None:
                to_caller(effect.job, call, status_line(status_of(effect.outcome)), len(effect.result), now)
            call.resolve(effect)
        elif type(effect) is SendJob:
            self._send_job(effect.attempt, now)
        elif isinstance(effect, CancelAttempt):
            self._cancel(effect.attempt, now)
        elif isinstance(effect, RemoveWorker):
            remote = cast(RemoteHttpWorker, effect.worker.remote)
            self._forget(remote, effect.reason)
            remote.worker.forget_remote()
        # Acknowledge: background jobs are submitted by operations. DeliverProgress: only event streams show it.

    def tick(self, now: float) -> float:
        for each in self._waiting.due(now):
            if isinstance(each, PendingPoll):
                self._broker.seen(each.remote.worker, now)
                record_heartbeat(each.remote.worker, "POST …/next, 204 No Content", now)
                _resolve(each.answer, None)
                self._remove_poll(each, now)
            elif isinstance(each, PendingCall):
                job = each.job
                self._broker.caller_gone(each, now)
                each.resolve(DeliverOutcome(each, job, TIMED_OUT, b"", DEADLINE_PASSED))
            else:
                del each.remote.unsent[each.attempt.token]
                self._ask(each.remote, now)
                self._broker.attempts.undelivered(each.attempt, now)
        return self._waiting.next()

    # ---------------------------------------------------------------- helpers

    def _send_job(self, attempt: Attempt, now: float) -> None:
        remote = cast(RemoteHttpWorker, attempt.worker.remote)
        if remote.polls:
            poll = remote.polls.popleft()
            self._waiting.disarm(poll)
            self._respond_with(poll, attempt, now)
        else:
            self._hold_job(remote, attempt, now)

    def _respond_with(self, poll: PendingPoll, attempt: Attempt, now: float) -> None:
        if attempt.job.conversation is not None:
            to_worker(attempt, "200 OK", len(attempt.job.payload), now)
        poll.attempt = poll.remote.latest = attempt
        poll.payload = attempt.job.payload
        _resolve(poll.answer, attempt)

    def _hold_job(self, remote: RemoteHttpWorker, attempt: Attempt, now: float) -> None:
        unsent = remote.unsent[attempt.token] = UnsentJob(remote, attempt)
        self._waiting.arm(unsent, now + FETCH)

    def _undelivered(self, remote: RemoteHttpWorker, held: Collection[str] | None, now: float) -> Attempt | None:
        """Return an attempt that a worker should have, but may not have received."""
        worker = remote.worker
        while remote.again:
            token, attempt = remote.again.popitem()
            if token in worker.running:
                return attempt
        for token, unsent in remote.unsent.items():
            del remote.unsent[token]
            self._waiting.disarm(unsent)
            self._broker.attempts.begin(unsent.attempt, now)
            return unsent.attempt
        if held is not None:
            sent = (each for each in worker.running.values() if each.is_sent)
            return next((each for each in sent if each.token.hex() not in held), None)
        latest = remote.latest
        if latest is not None and worker.profile.capacity == 1 and latest.token in worker.running:
            return latest
        return None

    def _cancel(self, attempt: Attempt, now: float) -> None:
        """Cancel an attempt. Its worker learns of it from the next response about it, unless the job was never sent."""
        remote = cast("RemoteHttpWorker | None", attempt.worker.remote)
        if remote is None:  # it has left meanwhile
            return
        remote.again.pop(attempt.token, None)
        unsent = remote.unsent.pop(attempt.token, None)
        if unsent is not None:
            self._waiting.disarm(unsent)
            self._ask(remote, now)
            self._broker.attempts.undelivered(attempt, now)

    def _remove_poll(self, poll: PendingPoll, now: float) -> None:
        """Remove a request that has its response, or whose worker has disconnected."""
        self._waiting.disarm(poll)
        if poll in poll.remote.polls:
            poll.remote.polls.remove(poll)
        self._ask(poll.remote, now)

    def _ask(self, remote: RemoteHttpWorker, now: float) -> None:
        """Set the number of jobs that the worker may get: one per waiting `next`, however free it is (R131)."""
        self._broker.availability.ask(remote.worker, len(remote.polls), now)

    def _forget(self, remote: RemoteHttpWorker, reason: str) -> None:
        if self._remotes.pop(remote.worker.id, None) is not None:
            self.shares.leave(remote.holder)
        while remote.polls:
            poll = remote.polls.popleft()
            self._waiting.disarm(poll)
            _resolve(poll.answer, reason)
        for unsent in remote.unsent.values():
            self._waiting.disarm(unsent)
        remote.unsent.clear()


@lru_cache(maxsize=1024)
def _profile(capacity: int, lease: float, stuck_timeout: float) -> WorkerProfile:
    return WorkerProfile(
        lease=lease, capacity=capacity, stuck_timeout=stuck_timeout, can_resume=True, comes_back=True, pulls=True
    )


def _resolve(answer: Future[Any], value: Any) -> None:
    """Resolve a future, unless the server has cancelled it."""
    if not answer.done():
        answer.set_result(value)


def token_of(value: str) -> Token | None:
    """Parse an attempt's token from a header: 32 hex digits."""
    try:
        token = bytes.fromhex(value)
    except ValueError:
        return None
    return Token(token) if len(token) == 16 else None
