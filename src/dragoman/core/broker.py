"""The broker: verbs in, effects out.

Sessions translate what peers say into these verbs; the broker decides, changes its state, and appends to `effects` what
must now happen. Every verb takes the time as an argument and is called by one owner, one at a time. Nothing here waits.

The way of a job: `submit` lets it in (or answers *refused*), `core/dispatch.py` queues it or gives it to a worker (an
attempt), and `succeed` ends the attempt and the job. `core/attempts.py` ends attempts without a result (`fail`,
`refuse`, `leave`), and `core/expiry.py` judges what is due (`tick`). Verbs that name an attempt which is no longer the
current one change no job (D2): they are late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dragoman.core.admission import CALLER_GONE, can_offer, refusal_for, too_many_services
from dragoman.core.effects import DeliverOutcome
from dragoman.core.events import WORKER_JOINED
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.leases import worker_deadline
from dragoman.core.model import Attempt, Caller, Job, JobId, Payload, Worker
from dragoman.core.optional_verbs import OptionalVerbs
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient, RemoteWorker
from dragoman.core.states import CANCELLED, DONE, ENDED, FAILED, REFUSED, RUNNING, Outcome, RefusalReason


class Broker(OptionalVerbs):
    """Decides what happens to jobs and workers. Has one method for each request of peers, operators, store or clock.
    This class has the verbs of every dialect; those it inherits are for operators, or for some dialects only."""

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
        owner: Owner | None = None,
    ) -> Job | None:
        """Let a job in. None means that it was refused, and an Answer says why. `id`: if it brought one."""
        known = self.worker_registry.services.get(service)
        if known is None or self.dispatch.is_draining or not known.is_known:
            refusal = refusal_for(service, known, job_options, self.policy, self.is_draining, owner)
            if refusal is not None:
                return self._turn_away(service, caller, *refusal)
            known = self.worker_registry.service(service)
            if known is None:
                return self._turn_away(service, caller, *too_many_services(len(self.worker_registry.services)))
        if key is not None:
            first = self.job_registry.first_with(known, key)
            misuse = self.job_registry.misuse(key, first, payload, job_options)
            if misuse is not None:
                return self._turn_away(service, caller, *misuse)
            if first is not None:
                self.job_registry.join_first(first, caller)
                return first
        if id is None:
            id = self.entropy.job_id()
        elif (clash := self.job_registry.clash(id, job_options)) is not None:
            return self._turn_away(service, caller, *clash)
        job = self.job_registry.admit(id, known, payload, (caller,), job_options, now, key, owner)
        if job is None:
            return self._turn_away(
                service, caller, RefusalReason.BUSY, self.job_registry.lack_of_room(known, key, owner)
            )
        job.deadline = deadline
        caller.add_job(job)
        if job_options.durable or job_options.delay > 0.0:
            self.delays.welcome(job, now)
        else:
            self.dispatch.queue(job, now)
        return job

    def withdraw(self, job: Job, now: float, reason: str = "withdrawn") -> bool:
        """Cancel a job in whatever state it is. False if it had ended already."""
        if job.state is ENDED:
            return False
        self.attempts.end_early(job, CANCELLED, reason, now)
        return True

    def caller_gone(self, caller: Caller, now: float, reason: str = CALLER_GONE) -> None:
        """The caller has gone for good, and is told nothing more. Of its calls, those that wait end at once (R18) and
        those that run may end (R19). A job that is kept, or that others wait for, goes on."""
        for job in caller.open_jobs():
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
        *,
        held_back_until: float = 0.0,
        origin: str = "",
    ) -> Worker | None:
        """A worker comes. It is *booting* until it says that it is idle. None: it offers more names than we keep.
        `origin`: the label of its connection, for those who follow events."""
        offered = (
            self.worker_registry.services_for(dict.fromkeys(services)) if can_offer(services, self.policy) else None
        )
        if offered is None:
            return None
        worker = Worker(self.worker_registry.next_id(), recipient, remote, name, profile, now)
        worker.held_back_until = held_back_until
        worker.origin = origin
        self.worker_registry.enter(worker, offered)
        if self.events.wanted & WORKER_JOINED:
            self.events.worker_changed(WORKER_JOINED, worker)
        self._deadlines.arm(worker, worker_deadline(worker))
        return worker

    def idle(self, worker: Worker, now: float) -> bool:
        """The worker says it is free: so it is, unless a job of ours runs there (D1)."""
        worker.seen = now
        return self.dispatch.idle(worker, now)

    def seen(self, worker: Worker, now: float) -> None:
        """A life sign: it extends the lease and nothing else (D1, R6)."""
        worker.seen = now

    def leave(self, worker: Worker, now: float, reason: str, unseen: Iterable[Attempt] = ()) -> None:
        """The worker has gone. Of what it held, `unseen` cannot have reached it (R8); the rest may have (R9)."""
        self.attempts.leave(worker, now, reason, unseen)

    # ---------------------------------------------------------------- attempts

    def succeed(self, attempt: Attempt, result: Payload, now: float) -> bool:
        """The attempt's result. False if it came too late: it then only proves the worker free (D2, D11)."""
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
        job.service.ran.observe(now - attempt.given)
        self.job_registry.end(job, DONE, result, "", now)
        self.dispatch.freed(worker, now)
        return True

    def fail(
        self,
        attempt: Attempt,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = FAILED,
    ) -> bool:
        """End an attempt that its worker could not do; the worker is free again. False if it came late.
        `outcome` is LOST if the worker died of the job, or a part of it that ran the job."""
        worker = attempt.worker
        worker.seen = now
        if attempt.job.attempt is not attempt:
            self.attempts.late_result(attempt, now)
            return False
        del worker.running[attempt.token]
        self.attempts.spend(attempt, outcome, reason, now, failure)
        self.dispatch.freed(worker, now)
        return True

    def reject(self, attempt: Attempt, reason: str, now: float) -> bool:
        """This worker's wire cannot carry the job: it ends *failed* and was never sent. The worker stays free."""
        if attempt.job.attempt is not attempt:
            return False
        del attempt.worker.running[attempt.token]
        self.job_registry.end(attempt.job, FAILED, b"", reason, now)
        self.dispatch.freed(attempt.worker, now)
        return True

    def undelivered(self, attempt: Attempt, now: float) -> None:
        """The job never left us, so its worker is as free as it was, and another may have the job at once (R8)."""
        self.attempts.undelivered(attempt, now)

    # ---------------------------------------------------------------- time

    def tick(self, now: float) -> None:
        """Judge everything that is due."""
        self._expiry.tick(now)

    def next_deadline(self) -> float:
        return self._deadlines.next()

    def _turn_away(self, service: str, caller: Caller, refusal: RefusalReason, reason: str) -> Job | None:
        self.counters.refuse(self.worker_registry.counted_as(service), refusal, reason)
        self.effects.append(DeliverOutcome(caller, None, REFUSED, b"", f"{refusal}: {reason}", refusal))
        return None
