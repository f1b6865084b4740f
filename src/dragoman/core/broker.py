"""The broker: method calls in, effects out.

Broker sides translate messages into these calls. The broker decides, changes its state, and appends effects. Every
method takes the time as an argument, and one owner calls them, one at a time. Nothing here waits.

A job's path: `submit` accepts it or appends a refusal, `core/dispatch.py` queues it or sends it to a worker (an
attempt), and `succeed` ends the attempt and the job. `core/attempts.py` ends attempts without a result (`fail`,
`refuse`, `leave`), and `core/expiry.py` handles time-outs (`tick`). A call that names an attempt which is no longer
current is late: it changes no job (D2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dragoman.core.admission import CALLER_GONE, can_offer, forbidden_work, refusal_for, too_many_services
from dragoman.core.attempts import Attempts
from dragoman.core.availability import Availability
from dragoman.core.bulk import BulkSubmits
from dragoman.core.counters import Counters
from dragoman.core.delays import Delays
from dragoman.core.dependencies import Dependencies
from dragoman.core.dispatch import Dispatch
from dragoman.core.effects import DeliverOutcome
from dragoman.core.entropy import Entropy
from dragoman.core.events import WORKER_JOINED
from dragoman.core.eviction import Eviction
from dragoman.core.expiry import Expiry
from dragoman.core.failure import Failure, final_failure
from dragoman.core.finished_work import record_done
from dragoman.core.handover import Handover
from dragoman.core.infinity import inf
from dragoman.core.job_extras import JobExtras
from dragoman.core.job_limits import id_conflict, limit_reached
from dragoman.core.leases import worker_deadline
from dragoman.core.model import Attempt, Caller, Job, JobId, Payload, Worker
from dragoman.core.operator import Operator
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner, Owners
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient, RemoteWorker, dialect_of
from dragoman.core.recording import record_caller_gone
from dragoman.core.rights import CALL, WORK, Principals
from dragoman.core.shared_state import SharedState
from dragoman.core.states import CANCELLED, DONE, ENDED, FAILED, REFUSED, RUNNING, Outcome, RefusalReason
from dragoman.core.store_reports import StoreReports


class Broker:
    """Decides about jobs and workers. It has the methods that every dialect uses. Its parts have the others: those of
    some dialects (`availability`, `attempts`), of operators (`operator`) and of the store (`store_reports`)."""

    def __init__(
        self, policy: Policy, entropy: Entropy, counters: Counters | None = None, first_worker: int = 1
    ) -> None:
        self.policy = policy
        self.entropy = entropy
        self.counters = counters if counters is not None else Counters()
        state = SharedState(policy, entropy, self.counters, first_worker)
        self.effects = state.effects
        self.events = state.events
        self.refused_rights = state.refused_rights
        self.worker_registry = state.worker_registry
        self.job_registry = state.job_registry
        self.jobs = state.job_registry.jobs
        self.principals = Principals()
        self.owners = Owners()
        self.resumed_at = -inf  # time at which the last pause of the broker ended (D13)
        self.dispatch = Dispatch(state)
        self.limiter = self.dispatch.limiter
        self.delays = Delays(state, self.dispatch)
        self.attempts = Attempts(state, self.dispatch, self.delays)
        self.dependencies = Dependencies(state, self.delays, self.attempts)
        self.bulk = BulkSubmits(state, self.dispatch, self.delays, self.dependencies)
        self.availability = Availability(state, self.dispatch, self.attempts)
        self.operator = Operator(state, self.dispatch, self.delays, self.attempts, self.principals)
        self.store_reports = StoreReports(state, self.dispatch, self.delays, self.attempts)
        self.eviction = Eviction(state, self.dispatch, self.attempts)
        self.handover = Handover(state, self.dispatch, self.attempts)
        self._expiry = Expiry(state, self.dispatch, self.delays, self.attempts, self.dependencies)
        self._deadlines = state.deadlines

    # ---------------------------------------------------------------- callers

    def submit(
        self,
        service: str,
        payload: Payload,
        caller: Caller,
        job_options: JobOptions,
        now: float,
        *,
        deadline: float = inf,
        key: str | None = None,
        id: JobId | None = None,
        extras: JobExtras | None = None,
    ) -> Job | None:
        """Accept a job. None: it was refused, and a DeliverOutcome has the reason. `id`: chosen by the caller."""
        owner = caller.owner
        if not (owner.principal.rights.calls_all or owner.principal.may(CALL, service)):
            return self._refuse(service, caller, RefusalReason.FORBIDDEN, self.refused_rights.call(caller, service))
        known = self.worker_registry.services.get(service)
        if known is None or self.dispatch.is_draining or not known.is_known:
            refusal = refusal_for(service, known, job_options, self.policy, self.dispatch.is_draining, owner)
            if refusal is not None:
                return self._refuse(service, caller, *refusal, "max_services_per_caller")
            known = self.worker_registry.names.service(service, owner)
            if known is None:
                reason = too_many_services(self.worker_registry.names, owner)
                return self._refuse(service, caller, *reason, "max_services")
        if key is not None or job_options.keep is not None:
            first, refused = self.job_registry.kept.judge(owner, known, key, payload, job_options)
            if refused is not None:
                return self._refuse(service, caller, *refused)
            if first is not None:
                self.job_registry.kept.join_first(first, caller)
                return first
        if id is None:
            id = self.entropy.job_id()
        elif (conflict := id_conflict(self.job_registry, id, job_options)) is not None:
            return self._refuse(service, caller, *conflict)
        job = self.job_registry.admit(id, known, payload, (caller,), job_options, now, key, owner)
        if job is None:
            reached = limit_reached(self.job_registry, self.policy, known, len(payload), key, owner)
            return self._refuse(service, caller, reached.refusal, reached.text, reached.name)
        job.deadline = deadline
        if extras is not None:
            self.job_registry.with_extras.add(job, extras)
        caller.add_job(job)
        if extras is not None and extras.after:
            self.dependencies.add(job, now)
        elif job_options.durable or job_options.delay > 0.0:
            self.delays.add(job, now)
        else:
            self.dispatch.queue(job, now)
        return job

    def withdraw(self, job: Job, now: float, reason: str = "withdrawn") -> bool:
        """Cancel a job in any state. False if it had already ended."""
        if job.state is ENDED:
            return False
        self.attempts.end_early(job, CANCELLED, reason, now)
        return True

    def caller_gone(self, caller: Caller, now: float, reason: str = CALLER_GONE) -> None:
        """Remove a caller that left for good. Its waiting calls end at once (R18); its running calls may finish (R19).
        A job that is kept, or that other callers wait for, continues."""
        for job in caller.open_jobs():
            if job.conversation is not None:
                record_caller_gone(job, caller, now)
            caller.remove_job(job)
            job.callers = tuple(other for other in job.callers if other is not caller)
            if not job.callers and not job.is_kept and job.state is not RUNNING and job.state is not ENDED:
                self.attempts.end_early(job, CANCELLED, reason, now)

    # ---------------------------------------------------------------- workers

    def join(
        self,
        recipient: Recipient,
        remote: RemoteWorker | None,
        name: str,
        services: Collection[str],
        profile: WorkerProfile,
        now: float,
        owner: Owner,
        *,
        held_back_until: float = 0.0,
        origin: str = "",
    ) -> Worker | None:
        """Add a worker. It is *starting* until `idle` is called. None: too many or invalid service names, or its
        principal may not work for them; `join_refusal` has the reason. `origin`: the label of its connection."""
        if not can_offer(services, self.policy):
            return None
        if forbidden_work(owner.principal, services) is not None:
            self.refused_rights.note(owner.principal, WORK, services, dialect_of(recipient))
            return None
        offered = self.worker_registry.names.services_for(dict.fromkeys(services), owner)
        if offered is None:
            return None
        worker = Worker(self.worker_registry.next_id(), recipient, remote, name, profile, now, owner)
        worker.held_back_until, worker.origin = held_back_until, origin
        self.dispatch.removal.appeared(owner.principal, dialect_of(recipient), name, now)
        self.worker_registry.enter(worker, offered)
        if self.events.wanted & WORKER_JOINED:
            self.events.worker_changed(WORKER_JOINED, worker)
        self._deadlines.arm(worker, worker_deadline(worker))
        return worker

    def idle(self, worker: Worker, now: float) -> bool:
        """Mark the worker as free, unless a current attempt runs there (D1)."""
        worker.seen = now
        return self.dispatch.idle(worker, now)

    def seen(self, worker: Worker, now: float) -> None:
        """A heartbeat: renews the lease and nothing else (D1, R6)."""
        worker.seen = now

    def leave(self, worker: Worker, now: float, reason: str, unseen: Iterable[Attempt] = ()) -> None:
        """Remove a worker that left. The attempts in `unseen` cannot have reached it (R8); the others may have (R9)."""
        self.attempts.leave(worker, now, reason, unseen)
        worker.last_held = None  # no late result can come; the attempt refers to its worker

    # ---------------------------------------------------------------- attempts

    def succeed(self, attempt: Attempt, result: Payload, now: float) -> bool:
        """Finish an attempt with its result. False if it came late: it then only frees the worker's slot (D2, D11)."""
        worker = attempt.worker
        worker.seen = now
        job = attempt.job
        if job.attempt is not attempt:
            self.attempts.late_result(attempt, now)
            return False
        if attempt.parts is not None:
            result, problem = attempt.parts.join(result, worker.profile.max_payload)
            if problem:
                return self.fail(attempt, problem, now)
        del worker.running[attempt.token]
        record_done(attempt, self.counters, now)
        self.job_registry.end(job, DONE, result, "", now)
        self.dispatch.freed(worker, now)
        return True

    def fail(
        self, attempt: Attempt, reason: str, now: float, failure: Failure | None = None, outcome: Outcome = FAILED
    ) -> bool:
        """End an attempt that failed; the worker is free again. False if it came late. `outcome` is LOST if the worker,
        or the process that ran the job, died."""
        worker = attempt.worker
        worker.seen = now
        if attempt.job.attempt is not attempt:
            self.attempts.late_result(attempt, now)
            return False
        if failure is not None and failure.unknown and attempt.job.options.durable:
            if self.attempts.refused(attempt, failure, now):
                return True
            failure = final_failure(failure)
        del worker.running[attempt.token]
        self.attempts.spend(attempt, outcome, reason, now, failure)
        self.dispatch.freed(worker, now)
        return True

    # ---------------------------------------------------------------- time

    def tick(self, now: float) -> None:
        """Handle everything that is due."""
        self._expiry.tick(now)

    def next_deadline(self) -> float:
        return self._deadlines.next()

    def extend_leases(self, gap: float, now: float) -> None:
        """Extend every lease by `gap` seconds, because the broker itself was paused (D13, R22)."""
        self._expiry.extend_leases(gap, now)
        self.resumed_at = now

    def _refuse(self, service: str, caller: Caller, refusal: RefusalReason, reason: str, limit: str = "") -> Job | None:
        """`limit`: the one that is reached if the reason is `busy` or `too large`."""
        self.counters.refuse(self.worker_registry.names.counted_as(service), refusal, reason, limit)
        self.effects.append(DeliverOutcome(caller, None, REFUSED, b"", f"{refusal}: {reason}", refusal))
        return None
