"""Workers of one listener: their jobs, from JOB to RESULT, FAILED or RETURN.

A worker names attempts by their tokens, which the core's worker keeps: nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge, size_of
from dragoman.carriers.malformed import Malformed
from dragoman.core import recipients
from dragoman.core.admission import BROKER_STOPS, join_refusal
from dragoman.core.broker import Broker
from dragoman.core.effects import RemoveWorker
from dragoman.core.failure import reported_failure
from dragoman.core.model import Attempt, Token, Worker
from dragoman.core.options import WorkerProfile
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import Recipient
from dragoman.core.recording import from_worker, to_worker
from dragoman.core.states import DRAINING, GONE, Outcome, RefusalReason
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.dialects.native.codec import (
    expect_frames,
    read_failed,
    read_list,
    read_name,
    read_names,
    read_report,
    read_result,
    write_bye,
    write_jobs,
    write_move,
    write_recall,
    write_record,
)
from dragoman.dialects.native.job_extras import write_job_extras
from dragoman.dialects.native.messages import (
    BATCH_BYTES,
    DRAIN,
    FAILED,
    PART,
    PROGRESS,
    RESULT,
    RETURN,
    TOO_LARGE,
    Hello,
    name_of,
)
from dragoman.dialects.native.options import ListenerOptions


class RemoteWorker(recipients.RemoteWorker):
    """A worker at the other end of a connection."""

    __slots__ = ("brought", "farewell", "has_extras", "name", "parts", "peer", "unsent", "worker")

    def __init__(self, peer: Connection, name: str, has_extras: bool, parts: tuple[str, ...]) -> None:
        self.peer = peer
        self.name = name
        self.has_extras = has_extras  # it reads extras of jobs
        self.parts = parts  # services whose callers must take parts (R203)
        self.unsent: list[Attempt] = []  # attempts of this iteration, sent at its end in one message
        self.worker: Worker | None = None
        self.brought: tuple[bytes, ...] = ()  # tokens of jobs with which it came, and which run on
        self.farewell = ""  # reason for closing its connection

    def attempt(self, token: bytes) -> Attempt | None:
        """The attempt with this token that was sent and has no result yet, current or not."""
        return self.worker.find(Token(token)) if self.worker is not None else None


class RemoteWorkers:
    """The workers of one listener."""

    __slots__ = ("_broker", "_io", "_max_payload", "_options", "_profile", "_recipient", "_with_jobs", "handlers")

    def __init__(
        self, recipient: Recipient, broker: Broker, io: BrokerIO, options: ListenerOptions, max_payload: int
    ) -> None:
        """`recipient` receives the effects for these workers."""
        self._recipient = recipient
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._profile: dict[tuple[int, bool, bool], WorkerProfile] = {}  # by capacity, `returns` and `moves`
        self._with_jobs: list[RemoteWorker] = []  # workers with jobs to send at the end of this iteration
        self.handlers: Mapping[int, Callable[[RemoteWorker, Message, float], None]] = {
            RESULT: self._result,
            FAILED: self._failed,
            PROGRESS: self._report,
            PART: self._report,
            RETURN: self._return,
            DRAIN: self._drain,
        }

    # ---------------------------------------------------------------- connections

    def enter(self, peer: Connection, hello: Hello, now: float) -> str | None:
        """Add a worker that sent HELLO. It becomes idle when its connection has settled. Returns the reason if its
        principal may not work for its services."""
        remote = RemoteWorker(peer, hello.name or peer.label, hello.extras, hello.parts)
        profile = self._profile.get((hello.capacity, hello.returns, hello.moves)) or self._new_profile(hello)
        worker = self._broker.join(
            self._recipient, remote, remote.name, hello.services, profile, now, peer.owner, origin=peer.label
        )
        if worker is None:
            refusal, reason = join_refusal(peer.owner.principal, hello.services, self._broker.policy)
            if refusal is RefusalReason.FORBIDDEN:
                return reason
            raise Malformed("malformed", reason)
        remote.worker = worker
        peer.remote = remote
        if hello.limits:
            self._broker.limiter.declare(worker, hello.limits, now)
        if hello.parameters:
            self._broker.limiter.declare_parameters(worker, hello.parameters)
        if hello.running:
            remote.brought = self._claim(worker, hello.running, now)
        self._io.when_settled(peer, partial(self._broker.idle, worker))
        return None

    def _new_profile(self, hello: Hello) -> WorkerProfile:
        options = self._options
        profile = WorkerProfile(
            lease=options.lease,
            may_decline=True,
            capacity=hello.capacity,
            stuck_timeout=options.stuck_timeout,
            ends_with_connection=True,
            can_resume=hello.returns,
            can_move=hello.returns and hello.moves,
            max_payload=self._max_payload,
        )
        self._profile[hello.capacity, hello.returns, hello.moves] = profile
        return profile

    def _claim(self, worker: Worker, running: Mapping[str, tuple[bytes, ...]], now: float) -> tuple[bytes, ...]:
        """Let a worker that has just joined go on with jobs that it brings. Returns the tokens of those that run here
        now; the outcomes of the others may still arrive (R107)."""
        claim = self._broker.handover.claim
        return tuple(
            token
            for service, tokens in running.items()
            for token in tokens
            if claim(worker, Token(token), service, now)
        )

    def lost(self, remote: RemoteWorker, unsent: Sequence[object], now: float) -> None:
        """Handle the end of a connection. `unsent` are batches of attempts that were not sent completely."""
        unseen = [attempt for tag in unsent if type(tag) is list for attempt in tag]
        unseen += remote.unsent
        remote.unsent = []
        self.leave(remote, remote.farewell or "its worker's connection ended", now, unseen)

    def leave(self, remote: RemoteWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker, remote.worker = remote.worker, None
        if worker is not None:
            self._broker.leave(worker, now, reason, unseen)

    def remove(self, effect: RemoveWorker) -> None:
        remote = cast(RemoteWorker, effect.worker.remote)
        if effect.worker.state is GONE:
            remote.worker = None
            remote.unsent = []
        remote.farewell = effect.reason  # otherwise `lost` removes it and knows what was not sent (R8)
        self._io.send(remote.peer, write_bye(effect.reason, is_final=effect.farewell.is_final))
        self._io.close(remote.peer, effect.reason)

    def send_away(self, worker: Worker) -> None:
        """Ask a worker to go to another broker. It closes the connection after its last message."""
        remote = cast(RemoteWorker, worker.remote)
        self._io.send(remote.peer, write_move(BROKER_STOPS))

    # ---------------------------------------------------------------- jobs

    def send_job(self, attempt: Attempt) -> None:
        remote = cast(RemoteWorker, attempt.worker.remote)
        if not remote.unsent:
            if not self._with_jobs:
                self._io.call_before_write(self._send_all_jobs)
            self._with_jobs.append(remote)
        remote.unsent.append(attempt)

    def _send_all_jobs(self, now: float) -> None:
        workers, self._with_jobs = self._with_jobs, []
        for remote in workers:
            self._send_jobs(remote, now)

    def _send_jobs(self, remote: RemoteWorker, now: float) -> None:
        """Send a worker the jobs of this iteration: one message per service, unless they are large."""
        unsent, remote.unsent = remote.unsent, []
        may_have_extras = remote.has_extras and (self._broker.job_registry.with_extras.count > 0 or bool(remote.parts))
        while unsent:
            service = unsent[0].job.service
            batch = [attempt for attempt in unsent if attempt.job.service is service]
            if len(batch) < len(unsent):
                unsent = [attempt for attempt in unsent if attempt.job.service is not service]
            else:
                unsent = []
            payloads = [attempt.job.payload for attempt in batch]
            if size_of(payloads) > BATCH_BYTES and len(batch) > 1:
                for attempt in batch:
                    frames = _jobs([attempt], [attempt.job.payload], now, remote, may_have_extras)
                    self._io.send(remote.peer, frames, [attempt])
            else:
                self._io.send(remote.peer, _jobs(batch, payloads, now, remote, may_have_extras), batch)

    def cancel(self, attempt: Attempt, reason: str, now: float) -> None:
        remote = cast(RemoteWorker, attempt.worker.remote)
        if attempt in remote.unsent:  # it was not sent
            remote.unsent.remove(attempt)
            self._broker.attempts.undelivered(attempt, now)
        else:
            frames = write_recall(attempt.token, reason)
            to_worker(attempt, "RECALL", size_of(frames), now)
            self._io.send(remote.peer, frames)

    # ---------------------------------------------------------------- messages

    def receive_large(self, remote: RemoteWorker, kind: int, message: TooLarge, now: float, sentence: str) -> None:
        """Fail the jobs of a message over the limit, which the carrier has dropped except for its leading frame."""
        if kind != RESULT and kind != FAILED:
            raise Malformed(TOO_LARGE, sentence)
        frames = message.frames
        tokens = read_names(frames[0], 1) if kind == RESULT else [read_name(frames[0], 2)]
        self._io.bad_message(remote.peer, TOO_LARGE, sentence)
        reason = over_max_payload("its answer", message.size, self._max_payload)
        for token in tokens:
            attempt = remote.attempt(token) or self._resumable(remote, token)
            if attempt is None:
                self._broker.counters.late_results += 1
            else:
                self._broker.fail(attempt, reason, now)

    def _result(self, remote: RemoteWorker, message: Message, now: float) -> None:
        broker, job_registry = self._broker, self._broker.job_registry
        running: dict[Any, Attempt] = remote.worker.running if remote.worker is not None else {}
        for index, token in enumerate(read_result(message), 1):
            attempt = running.get(token) or remote.attempt(token) or self._resumable(remote, token)
            if attempt is not None:
                if attempt.job.conversation is not None:
                    from_worker(attempt, "RESULT", len(message[index]), now)
                size = len(message[index])
                if size > self._max_payload:
                    broker.fail(attempt, over_max_payload("its result", size, self._max_payload), now)
                else:
                    broker.succeed(attempt, message[index], now)
            elif not job_registry.is_loading or not job_registry.early.keep(
                Token(token), message[index], remote.peer.owner.principal
            ):
                self._broker.counters.late_results += 1

    def _failed(self, remote: RemoteWorker, message: Message, now: float) -> None:
        failed = read_failed(message)
        attempt = remote.attempt(failed.name) or self._resumable(remote, failed.name)
        if attempt is None:
            self._broker.counters.late_results += 1
            return
        from_worker(attempt, "FAILED", size_of(message), now)
        if failed.outcome is Outcome.TIMED_OUT:
            self._broker.attempts.stopped(attempt, now)
            return
        reason = f"{failed.type}: {failed.message}" if failed.type else failed.message
        failure = reported_failure(
            failed.type, failed.message, failed.detail, failed.retry_in, failed.unknown, failed.known
        )
        outcome = Outcome.LOST if failed.outcome is Outcome.LOST else Outcome.FAILED
        self._broker.fail(attempt, reason, now, failure, outcome)

    def _resumable(self, remote: RemoteWorker, token: bytes) -> Attempt | None:
        """Find an attempt of an earlier run of the broker whose worker still runs it (R107)."""
        return self._broker.attempts.claim_resumable(Token(token), remote.peer.owner.principal)

    def _report(self, remote: RemoteWorker, message: Message, now: float) -> None:
        token, payload = read_report(message)
        if len(payload) > self._max_payload:
            raise Malformed(TOO_LARGE, over_max_payload("a report", len(payload), self._max_payload))
        attempt = remote.attempt(token)
        if attempt is not None:
            from_worker(attempt, name_of(message[0][0]), len(payload), now)
            self._broker.attempts.progress(attempt, payload, now, is_part=message[0][0] == PART)

    def _return(self, remote: RemoteWorker, message: Message, now: float) -> None:
        for token in read_list(message):
            attempt = remote.attempt(token)
            if attempt is not None:
                from_worker(attempt, "RETURN", 0, now, can_be_late=False)
                self._broker.attempts.undelivered(attempt, now)

    def _drain(self, remote: RemoteWorker, message: Message, now: float) -> None:
        expect_frames(message, 1)
        if remote.worker is not None and remote.worker.state is not DRAINING:
            self._broker.availability.drain(remote.worker, now)


def _jobs(
    batch: Sequence[Attempt], payloads: Sequence[Frame], now: float, remote: RemoteWorker, may_have_extras: bool
) -> list[Frame]:
    records = []
    for attempt in batch:
        job = attempt.job
        if job.conversation is not None:
            to_worker(attempt, "JOB", len(job.payload), now)
        due = attempt.due if attempt.due < job.deadline else job.deadline
        records.append(write_record(attempt.token, job.id, attempt.number, due - now))
    frames = write_jobs(batch[0].job.service.name, records, payloads)
    extras = write_job_extras(batch, remote.parts) if may_have_extras else b""
    return [*frames, extras] if extras else frames
