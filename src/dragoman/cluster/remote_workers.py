"""Workers at other brokers, as this broker's core sees them: one worker for each service of each live broker.

They are chosen last (R38): local workers come first. They pull (R131): this broker sends as many jobs as the other one
has free slots, less those that are on their way. Attempts that it answers *busy* return to the queue and do not count.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final, final

from dragoman.cluster.gossip import Gossip, ServiceGossip
from dragoman.cluster.peers import Peer, RemoteService
from dragoman.cluster.records import Busy, Failed, Free, Give, Progress, Recall, Result
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, RemoveWorker, SendJob
from dragoman.core.extras_text import extras_text
from dragoman.core.failure import unpack_failure
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Job, Token
from dragoman.core.options import WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.states import CANCELLED, GONE, Outcome

OUTCOMES: Final = {each.value: each for each in Outcome}


@final
class RemoteWorkers:
    """Gives jobs to other brokers, and receives what becomes of them. `recipient`: of the effects of these workers."""

    def __init__(self, broker: Broker, recipient: Recipient, owner: Owner, max_payload: int) -> None:
        self._broker = broker
        self._recipient = recipient
        self._owner = owner
        self._max_payload = max_payload
        self.gives: dict[str, int] = {}  # attempts that have ended, by result; `busy`: not started

    # ---------------------------------------------------------------- capacity

    def heard(self, peer: Peer, gossip: Gossip, got: int, now: float) -> None:
        """Update the workers of a broker. `got`: its number of the last packet of this broker that it has counted."""
        for name, offered in gossip.services.items():
            remote = peer.services.get(name)
            if remote is None:
                remote = peer.services[name] = RemoteService(peer, name)
            if offered.workers > 0 and not gossip.draining:
                self._offer(remote, offered, now)
                self._count(remote, offered.idle, got, now)
            else:
                self._withdraw(remote, now)
        for name in [name for name in peer.services if name not in gossip.services]:
            self._withdraw(peer.services[name], now)
            if peer.services[name].worker is None:
                del peer.services[name]

    def _offer(self, remote: RemoteService, offered: ServiceGossip, now: float) -> None:
        worker = remote.worker
        if worker is not None:
            used = len(worker.running) + len(worker.stuck)  # outcomes of workers that have left may still follow
            self._broker.availability.resize(worker, max(1, offered.slots, used), now)
            self._broker.availability.attach(worker, now)
            return
        profile = WorkerProfile(
            is_broker=True,
            pulls=True,
            capacity=max(1, offered.slots),
            detach_timeout=inf,
            max_payload=self._max_payload,
        )
        worker = self._broker.join(
            self._recipient,
            remote,
            remote.peer.name,
            (remote.service,),
            profile,
            now,
            self._owner,
            held_back_until=inf,
            origin=f"broker {remote.peer.name}",
        )
        if worker is not None:  # else too many services are known
            remote.worker = worker
            remote.in_flight.clear()
            self._broker.idle(worker, now)

    def _count(self, remote: RemoteService, idle: int, got: int, now: float) -> None:
        """Request as many jobs as slots are free, less those on their way: in packets after `got`."""
        in_flight = remote.in_flight
        while in_flight and in_flight[0] <= got:
            in_flight.popleft()
        if remote.worker is not None:
            free = 0 if remote.peer.link.is_full else max(0, idle - len(in_flight))
            self._broker.availability.ask(remote.worker, free, now)

    def _withdraw(self, remote: RemoteService, now: float) -> None:
        """The broker has no workers for the service any more. Attempts that it runs may finish."""
        worker = remote.worker
        if worker is None:
            return
        if worker.running or worker.stuck:
            self._broker.availability.ask(worker, 0, now)
        else:
            remote.worker = None
            self._broker.leave(worker, now, f"broker {remote.peer.name} has no worker for it")

    def silent(self, peer: Peer, now: float) -> None:
        """Send no more jobs to a broker that is not heard."""
        for remote in peer.services.values():
            if remote.worker is not None:
                self._broker.availability.detach(remote.worker, now)

    def gone(self, peer: Peer, reason: str, now: float) -> None:
        """Remove the workers of a broker. Its attempts are lost (D8)."""
        for remote in peer.services.values():
            worker, remote.worker = remote.worker, None
            if worker is not None:
                self._broker.leave(worker, now, reason)
        peer.services.clear()
        if peer.attempts:
            self._count_gives("lost", len(peer.attempts))
        peer.attempts.clear()

    # ---------------------------------------------------------------- effects

    def send_job(self, effect: SendJob, now: float) -> None:
        attempt = effect.attempt
        remote = attempt.worker.remote
        assert type(remote) is RemoteService
        job, peer = attempt.job, remote.peer
        if peer.gossip is not None and peer.gossip.draining:  # heard while the attempt waited for its commit
            self._return(attempt, now)
            return
        extras = job.extras
        if extras is not None and (extras.after or extras.group is not None):
            extras = replace(extras, after=(), group=None)  # its links are here
        if extras is not None and extras.needs:
            extras = replace(extras, refused_by="", refusal="")
        peer.attempts[attempt.token] = attempt
        remote.in_flight.append(peer.link.next_number)
        peer.link.add(
            Give(
                attempt.token,
                job.id,
                attempt.number,
                job.service.name,
                bytes(job.payload),
                job.principal.name,
                _tenths(attempt.over_at - now),
                job.priority,
                job.options.streams,
                extras_text(extras) if extras is not None else "",
            )
        )

    def cancel(self, effect: CancelAttempt) -> None:
        remote = effect.attempt.worker.remote
        assert type(remote) is RemoteService
        remote.peer.link.add(Recall(effect.attempt.token, effect.reason))

    def removed(self, effect: RemoveWorker) -> None:
        """The core has removed the worker. The next gossip lets it join again, if it offers the service then."""
        remote = effect.worker.remote
        assert type(remote) is RemoteService
        if remote.worker is effect.worker:
            remote.worker = None

    # ---------------------------------------------------------------- answers

    def busy(self, peer: Peer, record: Busy, now: float) -> None:
        """The job was not started there: it returns to its queue and uses up no attempt (R8)."""
        attempt = self._take(peer, record.token)
        if attempt is None:
            return
        self._count_gives("busy")
        self._return(attempt, now)

    def _return(self, attempt: Attempt, now: float) -> None:
        if attempt.worker.state is not GONE:
            self._broker.availability.ask(attempt.worker, 0, now)  # else it would go there again at once
        self._broker.limiter.not_started(attempt.job.service, now)
        self._broker.attempts.undelivered(attempt, now)
        self.save_returned(attempt.job)

    def save_returned(self, job: Job) -> None:
        """Store that a job waits again. The log names an attempt that has not started, and the next owner of the shard
        would count it as lost."""
        if job.options.durable and job.attempt is None and job.outcome is None:
            self._broker.job_registry.pending_commits.save(job)

    def free(self, peer: Peer, record: Free, acknowledged: int, now: float) -> None:
        """Slots are free there. `acknowledged`: the last packet of this broker that is counted in it."""
        remote = peer.services.get(record.service)
        if remote is not None:
            self._count(remote, record.idle, acknowledged, now)

    def outcome(self, peer: Peer, record: Result | Failed, now: float) -> None:
        attempt = self._take(peer, record.token)
        if attempt is not None:
            self.finish(attempt, record, now)

    def finish(self, attempt: Attempt, record: Result | Failed, now: float) -> None:
        """Report the outcome of an attempt to the core."""
        if isinstance(record, Result):
            self._count_gives("done")
            self._broker.succeed(attempt, record.result, now)
            return
        outcome = OUTCOMES.get(record.outcome, Outcome.FAILED)
        self._count_gives(record.outcome if record.outcome in OUTCOMES else "failed")
        failure = unpack_failure(record.failure) if record.failure else None
        if outcome is CANCELLED and attempt.job.attempt is attempt:  # by an operator of that broker
            self._broker.withdraw(attempt.job, now, record.reason)
        self._broker.fail(attempt, record.reason, now, failure, outcome)

    def progress(self, peer: Peer, record: Progress, now: float) -> None:
        attempt = peer.attempts.get(Token(record.token))
        if attempt is not None:
            self._broker.attempts.progress(attempt, record.payload, now, is_part=record.is_part)

    def _count_gives(self, result: str, count: int = 1) -> None:
        self.gives[result] = self.gives.get(result, 0) + count

    def _take(self, peer: Peer, token: bytes) -> Attempt | None:
        return peer.attempts.pop(Token(token), None)


def _tenths(seconds: float) -> float | None:
    """Return the seconds in tenths, not less: few different values, so that their options are shared."""
    return None if seconds == inf else max(0.0, ceil(10.0 * seconds) / 10.0)
