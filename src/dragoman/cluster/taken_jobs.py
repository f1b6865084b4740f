"""Jobs of other brokers that run at workers of this one.

Such a job is given to a local worker at once, or answered *busy*: it never waits here, and never goes to a third broker
(C7). It has one attempt. The other broker counts attempts, retries, and owns the job.

Background jobs outlive the broker that sent them: another one adopts them. Their outcome goes to whoever owns them then
(`held_outcomes.py`). They outlive this broker, too, if their workers can go to another one (R119).
"""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.capacity import idle_slots
from dragoman.cluster.held_outcomes import HeldOutcomes
from dragoman.cluster.link import Link
from dragoman.cluster.peers import Peer, TakenJob
from dragoman.cluster.records import Busy, Failed, Free, Give, Held, Left, Outcome, Progress, Recall, Result, Returned
from dragoman.cluster.shard_bytes import CALL, shard_of
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome
from dragoman.core.extras_text import extras_of
from dragoman.core.failure import pack_failure
from dragoman.core.handover import Arrivals
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Attempt, JobId, Service, Token, Worker, WorkerId
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.states import DONE, LOST, REFUSED, TIMED_OUT

MAX_CACHED_OPTIONS: Final = 256
_DONE: Final[str] = DONE.value  # the value of a member of an enum is computed by interpreted code each time


@final
class TakenJobs(Arrivals):
    """Takes jobs of other brokers, and sends what becomes of them. `myself`: stands for this broker."""

    def __init__(self, broker: Broker, recipient: Recipient, myself: Peer) -> None:
        self._broker = broker
        self._recipient = recipient
        self._myself = myself
        self._sent_away: dict[WorkerId, None] = {}  # workers that were asked to go to another broker
        self.outcomes: HeldOutcomes | None = None  # until the layout of the cluster is known
        self.background: dict[Token, TakenJob] = {}  # background attempts that run here, of any broker
        self._options: dict[tuple[float, int, bool], JobOptions] = {}
        self.ended: dict[str, dict[str, int]] = {}  # by service and outcome; their own broker counts them, too

    def give(self, peer: Peer, record: Give, now: float) -> None:
        """Start a job of another broker, or answer that no slot is free."""
        broker, token, name = self._broker, Token(record.token), record.service
        if self.has(token):
            return  # it is here already
        service = broker.worker_registry.services.get(name)
        if service is None or broker.dispatch.is_draining or not idle_slots(service, self._recipient, 1):
            peer.link.add(Busy(token))
            peer.freed[name] = None
            return
        extras = _extras_of(record.extras) if record.extras else None
        if extras is not None and extras.needs and not broker.worker_registry.has_knowing(service, extras.needs):
            peer.link.add(Busy(token))
            return
        owner = broker.owners.of_stored(broker.principals.named(record.owner))
        taken = TakenJob(self._recipient, owner, peer, token, name)
        peer.taken[token] = taken
        is_background = shard_of(token) != CALL
        if is_background:
            self.background[token] = taken
        id = JobId(record.job)
        job = broker.submit(
            name,
            record.payload,
            taken,
            self._options_of(record),
            now,
            id=id if id not in broker.jobs else None,  # an attempt that the other broker gave up may still be here
            extras=extras,
        )
        attempt = job.attempt if job is not None else None
        if attempt is not None and is_background:
            broker.handover.name(attempt, token)  # its worker may take it to another broker
        if attempt is not None and record.attempt > 1:
            broker.handover.renumber(attempt, record.attempt)

    def _options_of(self, record: Give) -> JobOptions:
        """Without a place in the queue: a job that no worker takes at once is answered *busy*."""
        run_time = inf if record.run_time is None else record.run_time
        key = (run_time, record.priority, record.streams)
        options = self._options.get(key)
        if options is None:
            if len(self._options) >= MAX_CACHED_OPTIONS:
                self._options.clear()
            options = self._options[key] = JobOptions(
                queue_timeout=0.0,
                job_timeout=run_time,
                attempts=1,
                priority=record.priority,
                streams=record.streams,
                is_limited=False,  # its own broker counts it
            )
        return options

    def recall(self, peer: Peer, record: Recall, now: float) -> None:
        """Stop a job that has ended at its own broker."""
        token = Token(record.token)
        taken = peer.taken.get(token) or self.background.get(token)
        if taken is not None and taken.job is not None:
            self._broker.withdraw(taken.job, now, record.reason)

    def gone(self, peer: Peer, now: float) -> None:
        """The other broker is gone: nobody waits for its jobs. Those that run may finish (R19)."""
        for taken in list(peer.taken.values()):
            if shard_of(taken.token) != CALL:
                continue  # it is a background job: whoever adopts it needs the outcome
            self._broker.caller_gone(taken, now, f"broker {peer.name} is gone")
        peer.taken.clear()

    def has(self, token: Token) -> bool:
        """True if a background attempt runs here, or has ended and its outcome is not acknowledged."""
        return token in self.background or (self.outcomes is not None and token in self.outcomes)

    def heir(self, attempt: Attempt) -> TakenJob:
        """Take a background attempt of this broker's own as a job of another broker: its shard has moved."""
        owner = attempt.job.owner
        taken = TakenJob(self._recipient, owner, self._myself, attempt.token, attempt.job.service.name)
        self.background[attempt.token] = taken
        return taken

    # ---------------------------------------------------------------- workers that go from broker to broker (R119)

    def take(self, worker: Worker, token: Token, service: Service, now: float) -> bool:
        """Take a background attempt with which a worker has come here, and tell the owner of its shard."""
        broker, outcomes = self._broker, self.outcomes
        if shard_of(token) == CALL or outcomes is None or broker.dispatch.is_draining or self.has(token):
            return False  # nobody waits for a call but the broker that the worker has left
        owner = broker.owners.of_stored(broker.principals.local)
        taken = TakenJob(self._recipient, owner, self._myself, token, service.name)
        self.background[token] = taken
        broker.handover.arrive(worker, token, service, taken, now)
        outcomes.announce(Held(token, service.name), now)
        return True

    def send_away(self) -> None:
        """Ask workers to take their background jobs to another broker: this one stops. A worker that also runs calls is
        asked when they have ended: nobody but this broker waits for them."""
        for taken in self.background.values():
            attempt = taken.job.attempt if taken.job is not None else None
            if attempt is None or not attempt.worker.profile.can_resume:
                continue
            taken.is_leaving = True
            worker = attempt.worker
            if worker.profile.can_move and worker.id not in self._sent_away and self._has_only_background(worker):
                self._sent_away[worker.id] = None
                self._broker.handover.send_away(worker)

    def send_idle_away(self) -> None:
        """Ask workers that run nothing to go to another broker: this one gives them no more jobs."""
        for worker in self._broker.worker_registry.workers.values():
            if worker.profile.can_move and not worker.running and worker.id not in self._sent_away:
                self._sent_away[worker.id] = None
                self._broker.handover.send_away(worker)

    def _has_only_background(self, worker: Worker) -> bool:
        return all(token in self.background for token in worker.running)

    def seek(self, peer: Peer, token: Token) -> None:
        """Answer a broker that has adopted the job of an attempt, if that is not here. Else its outcome will follow."""
        if not self.has(token):
            peer.link.add(Failed(token, LOST.value, "its broker never received it"))

    def add_free(self, peer: Peer) -> None:
        """Tell the other broker how many slots are free in the services of which it has lost or freed some."""
        services = self._broker.worker_registry.services
        for name in peer.freed:
            service = services.get(name)
            is_open = service is not None and not self._broker.dispatch.is_draining
            peer.link.add(Free(name, idle_slots(service, self._recipient) if is_open and service is not None else 0))
        peer.freed.clear()

    # ---------------------------------------------------------------- effects

    def outcome(self, effect: DeliverOutcome, now: float) -> None:
        taken = effect.caller
        assert type(taken) is TakenJob
        job, token, link = effect.job, taken.token, taken.peer.link
        taken.remove_job(job)
        taken.peer.taken.pop(token, None)
        taken.peer.freed[taken.service] = None
        if job is not None:
            self._count(taken.service, _DONE if effect.outcome is DONE else effect.outcome.value)
        is_background = self.background.pop(token, None) is not None
        if effect.outcome is DONE:
            self._tell(Result(token, bytes(effect.result)), link, is_background, now)
        elif effect.outcome is REFUSED or (effect.outcome is TIMED_OUT and job is not None and not job.spent):
            if is_background and not self._is_giver(taken):
                self._tell(Returned(token), link, is_background, now)
            else:
                link.add(Busy(token))
        elif effect.outcome is LOST and taken.is_leaving:
            self._tell(Left(token), link, is_background, now)
        else:
            failure = pack_failure(effect.failure) if effect.failure is not None else b""
            self._tell(Failed(token, effect.outcome.value, effect.reason, failure), link, is_background, now)

    def _count(self, service: str, outcome: str) -> None:
        ended = self.ended.get(service)
        if ended is None:
            ended = self.ended[service] = {}
        ended[outcome] = ended.get(outcome, 0) + 1

    def _is_giver(self, taken: TakenJob) -> bool:
        """True if the broker that sent the job still owns it."""
        peer, outcomes = taken.peer, self.outcomes
        if peer is self._myself or outcomes is None:
            return False
        return outcomes.has_owner(taken.token, peer.name, peer.incarnation)

    def _tell(self, record: Outcome, link: Link, is_background: bool, now: float) -> None:
        if is_background and self.outcomes is not None:
            self.outcomes.hold(record, now)
        else:
            link.add(record)

    def progress(self, effect: DeliverProgress, now: float) -> None:
        taken = effect.caller
        assert type(taken) is TakenJob
        record = Progress(taken.token, bytes(effect.payload), effect.is_part)
        if taken.peer is not self._myself:
            taken.peer.link.add(record)
        elif self.outcomes is not None:
            self.outcomes.report(record, now)


def _extras_of(text: str) -> JobExtras:
    """Return the extras that a worker gets. The job waits for no others here and is in no group: its broker decides."""
    extras = extras_of(text)
    return JobExtras(extras.parent, extras.traceparent, extras.tenant, needs=extras.needs)
