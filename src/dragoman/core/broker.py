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
from typing import Any

from dragoman.core.attempts import Attempts
from dragoman.core.counters import Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.dispatch import Dispatch
from dragoman.core.door import BEING_DRAINED, CALLER_GONE, GOODBYE, STOPPED, is_offer, objection, too_many_names
from dragoman.core.effects import Accept, Answer, Dismiss, Effect, Give
from dragoman.core.entropy import Entropy
from dragoman.core.events import (
    BROKER_DRAINING,
    SERVICE_PAUSED,
    SERVICE_RESUMED,
    WORKER_DRAINING,
    WORKER_JOINED,
    Events,
)
from dragoman.core.expiry import Expiry
from dragoman.core.failure import Failure
from dragoman.core.gate import Promise
from dragoman.core.infinity import inf
from dragoman.core.ledger import Ledger
from dragoman.core.model import Attempt, Caller, Job, JobId, Payload, Reservation, Service, Worker
from dragoman.core.options import Terms, Wishes
from dragoman.core.owners import Owner, Owners
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.reservations import QUICK, Reservations
from dragoman.core.roster import Roster
from dragoman.core.states import (
    BOOTING,
    CANCELLED,
    DELAYED,
    DETACHED,
    DONE,
    DRAINING,
    ENDED,
    FAILED,
    GONE,
    REFUSED,
    RUNNING,
    WAITING,
    Farewell,
    Outcome,
    Refusal,
)


class Broker:
    """Decides what happens to jobs and workers. One method for each thing that peers, operators, store or clock say."""

    def __init__(
        self, policy: Policy, entropy: Entropy, counters: Counters | None = None, first_worker: int = 1
    ) -> None:
        self.policy = policy
        self.entropy = entropy
        self.counters = counters = counters if counters is not None else Counters()
        self.effects: list[Effect] = []  # the runner walks through them in order
        self.owners = Owners()
        self.resumed_at = -inf  # when we last came back from a pause of our own (D13)
        self.roster = roster = Roster(policy.age_step, policy.max_services, first_worker)
        deadlines: Deadlines[Any] = Deadlines()
        self.events = Events(self.effects)
        self.ledger = ledger = Ledger(policy, counters, deadlines, self.effects, self.events)
        self._reservations = reservations = Reservations(entropy, ledger)
        self.dispatch = dispatch = Dispatch(
            policy, entropy, counters, roster, ledger, deadlines, self.effects, reservations
        )
        self.attempts = Attempts(policy, entropy, counters, roster, ledger, deadlines, self.effects, dispatch)
        self._expiry = Expiry(policy, counters, roster, ledger, deadlines, self.effects, dispatch, self.attempts)
        self._deadlines = deadlines
        self.jobs = ledger.jobs
        self.stranded = self.attempts.stranded

    @property
    def is_draining(self) -> bool:
        """Whether the broker is about to stop: it accepts no job and gives none to a worker."""
        return self.dispatch.is_draining

    @is_draining.setter
    def is_draining(self, value: bool) -> None:
        self.dispatch.is_draining = value

    # ---------------------------------------------------------------- callers

    def submit(
        self,
        service: str,
        payload: Payload,
        caller: Caller,
        wishes: Wishes,
        now: float,
        *,
        deadline: float = inf,
        key: str | None = None,
        id: JobId | None = None,
        owner: Owner | None = None,
    ) -> Job | None:
        """Let a job in. None means that it was refused, and an Answer says why. `id`: if it brought one."""
        known = self.roster.services.get(service)
        if known is None or self.dispatch.is_draining or not known.is_known:
            refusal = objection(service, known, wishes, self.policy, self.is_draining, owner)
            if refusal is not None:
                return self._turn_away(service, caller, *refusal)
            known = self.roster.service(service)
            if known is None:
                return self._turn_away(service, caller, *too_many_names(len(self.roster.services)))
        if key is not None:
            first = self.ledger.first_with(known, key)
            misuse = self.ledger.misuse(key, first, payload, wishes)
            if misuse is not None:
                return self._turn_away(service, caller, *misuse)
            if first is not None:
                self.ledger.join_first(first, caller)
                return first
        if id is None:
            id = self.entropy.job_id()
        elif (clash := self.ledger.clash(id, wishes)) is not None:
            return self._turn_away(service, caller, *clash)
        job = self.ledger.admit(id, known, payload, (caller,), wishes, now, key, owner)
        if job is None:
            return self._turn_away(service, caller, Refusal.BUSY, self.ledger.lack_of_room(known, key, owner))
        job.deadline = deadline
        caller.add_job(job)
        if wishes.durable or wishes.delay > 0.0:
            self.dispatch.welcome(job, now)
        else:
            self.dispatch.queue(job, now)
        return job

    def withdraw(self, job: Job, now: float, reason: str = "withdrawn") -> bool:
        """Cancel a job in whatever state it is. False if it had ended already."""
        if job.state is ENDED:
            return False
        self.attempts.end_early(job, CANCELLED, reason, now)
        return True

    def caller_away(self, caller: Caller, now: float) -> None:
        """The caller is out of reach and may come back: a call of it that waits is kept `orphan_grace` for it (R64)."""
        for job in caller.open_jobs():
            if job.state is not ENDED and not job.is_kept:
                job.orphan_due = now + job.wishes.orphan_grace
                self._deadlines.arm(job, job.due())

    def caller_back(self, caller: Caller) -> None:
        """The caller is within reach again."""
        for job in caller.open_jobs():
            job.orphan_due = inf

    def caller_gone(self, caller: Caller, now: float, reason: str = CALLER_GONE) -> None:
        """The caller has gone for good, and is told nothing more. Of its calls, those that wait end at once (R18) and
        those that run may end (R19). A job that is kept, or that others wait for, goes on."""
        for job in caller.open_jobs():
            caller.remove_job(job)
            job.callers = tuple(other for other in job.callers if other is not caller)
            if not job.callers and not job.is_kept and job.state is not RUNNING and job.state is not ENDED:
                self.attempts.end_early(job, CANCELLED, reason, now)

    def retry(self, job: Job, now: float) -> Job | None:
        """Make a new job of one that is in quarantine; it leaves that. None if it is not there, or there is no room."""
        if not job.quarantined or job.id not in self.jobs or self.is_draining:
            return None
        service = self.roster.restore_service(job.service.name)
        again = self.ledger.admit_again(job, service, self.entropy.job_id(), now)
        if again is not None:
            self.dispatch.welcome(again, now)
        return again

    def release(self, job: Job, now: float) -> bool:
        """Queue a quarantined job again under the same id: its attempts start anew, its history stays (R135). False if
        it is not in quarantine, or there is no room."""
        if not job.quarantined or self.jobs.get(job.id) is not job or self.is_draining:
            return False
        if not self.ledger.readmit(job, self.roster.restore_service(job.service.name), now):
            return False
        self.dispatch.queue(job, now)
        return True

    # ---------------------------------------------------------------- workers

    def join(
        self,
        recipient: Recipient,
        party: Any,
        name: str,
        services: Collection[str],
        terms: Terms,
        now: float,
        *,
        held_back_until: float = 0.0,
    ) -> Worker | None:
        """A worker comes. It is *booting* until it says that it is idle. None: it offers more names than we keep."""
        offered = self.roster.services_for(dict.fromkeys(services)) if is_offer(services, self.policy) else None
        if offered is None:
            return None
        worker = Worker(self.roster.next_id(), recipient, party, name, terms, now)
        worker.held_back_until = held_back_until
        self.roster.enter(worker, offered)
        if self.events.wanted & WORKER_JOINED:
            self.events.worker_changed(WORKER_JOINED, worker)
        self._deadlines.arm(worker, worker.due())
        return worker

    def idle(self, worker: Worker, now: float) -> bool:
        """The worker says it is free: so it is, unless a job of ours runs there (D1)."""
        worker.seen = now
        return self.dispatch.idle(worker, now)

    def seen(self, worker: Worker, now: float) -> None:
        """A life sign: it extends the lease and nothing else (D1, R6)."""
        worker.seen = now

    def detach(self, worker: Worker, now: float) -> None:
        """The worker is out of reach for the moment: it is given nothing, and its lease runs on (R64)."""
        if worker.away_since == inf and worker.state is not BOOTING and worker.state is not GONE:
            worker.away_since = now
            self.roster.settle(worker, now)
            self._deadlines.arm(worker, worker.due())

    def attach(self, worker: Worker, now: float) -> None:
        """It is within reach again."""
        worker.seen = now
        worker.away_since = inf
        if worker.state is DETACHED and self.roster.settle(worker, now):
            self.dispatch.freed(worker, now)

    def ask(self, worker: Worker, count: int, now: float) -> None:
        """A worker that pulls asks for up to so many jobs, in place of what it asked for before (R131). 0: for none. An
        attempt that it is given uses up one."""
        if worker.terms.pulls:
            if count > 0:
                worker.seen = now
            self.dispatch.ask(worker, count, now)

    def offer(self, worker: Worker, services: Collection[str], now: float) -> bool:
        """The worker offers these services from now on, or none; what it holds is not touched (R132). False: it has
        gone, or these are too many, or not names."""
        if worker.state is GONE or not (is_offer(services, self.policy) or not services):
            return False
        offered = self.roster.services_for(dict.fromkeys(services))
        if offered is not None:
            self.dispatch.offer(worker, offered, now)
        return offered is not None

    def leave(self, worker: Worker, now: float, reason: str, unseen: Iterable[Attempt] = ()) -> None:
        """The worker has gone. Of what it held, `unseen` cannot have reached it (R8); the rest may have (R9)."""
        self.attempts.leave(worker, now, reason, unseen)

    def drain(self, worker: Worker, now: float, *, at_once: bool = False, stays: bool = False) -> None:
        """Give the worker nothing more, and dismiss it once it holds nothing, unless it `stays`; or at once, by D8."""
        if worker.state is GONE:
            return
        if at_once:
            self.effects.append(Dismiss(worker, Farewell.KILLED, "killed by an operator"))
            self.leave(worker, now, "its worker was killed by an operator")
            return
        if worker.state is not DRAINING and self.events.wanted & WORKER_DRAINING:
            self.events.worker_changed(WORKER_DRAINING, worker)
        self.roster.retire(worker, stays)
        self.dispatch.dismiss_if_drained(worker)

    # ---------------------------------------------------------------- attempts

    def begin(self, attempt: Attempt, now: float) -> None:
        """The job goes to its worker only now, for that was asked first: its run time begins."""
        attempt.begin(now)
        if attempt.job.attempt is attempt:
            self._deadlines.arm(attempt.worker, attempt.over_at)

    def succeed(self, attempt: Attempt, result: Payload, now: float) -> bool:
        """The attempt's result. False if it came too late: it then only proves the worker free (D2, D11)."""
        worker = attempt.worker
        worker.seen = now
        job = attempt.job
        if job.attempt is not attempt:
            self.attempts.late_result(attempt, now)
            return False
        if attempt.parts is not None:
            result, problem = attempt.parts.join(result, worker.terms.max_payload)
            if problem:
                return self.fail(attempt, problem, now)
        del worker.running[attempt.token]
        took = now - attempt.given
        job.service.ran.observe(took)
        if took < QUICK and job.wishes.durable:
            self._reservations.note_quick(job.service)
        self.ledger.end(job, DONE, result, "", now)
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

    def refuse(self, attempt: Attempt, now: float) -> bool:
        """The worker would not take it, as its terms allow: nothing has started (R8). It gets no job until `idle`."""
        attempt.worker.seen = now
        return self.attempts.refuse(attempt, now)

    def reject(self, attempt: Attempt, reason: str, now: float) -> bool:
        """This worker's wire cannot carry the job: it ends *failed* and was never sent. The worker stays free."""
        if attempt.job.attempt is not attempt:
            return False
        del attempt.worker.running[attempt.token]
        self.ledger.end(attempt.job, FAILED, b"", reason, now)
        self.dispatch.freed(attempt.worker, now)
        return True

    def undelivered(self, attempt: Attempt, now: float) -> None:
        """The job never left us, so its worker is as free as it was, and another may have the job at once (R8)."""
        self.attempts.undelivered(attempt, now)

    def give_back(
        self, attempt: Attempt, now: float, *, delay: float = 0.0, priority: int | None = None, spends: bool = False
    ) -> bool:
        """The worker gives the job back and is free: it waits again, after `delay` and with another `priority` if that
        is said (R133). `spends`: the attempt counts. False if it was over already. ValueError: no such priority."""
        attempt.worker.seen = now
        return self.attempts.give_back(attempt, min(delay, self.policy.max_delay), priority, spends, now)

    def extend(self, attempt: Attempt, seconds: float, now: float) -> bool:
        """The worker needs more time: its run time ends in so many seconds (R134). False if the attempt is over."""
        attempt.worker.seen = now
        if attempt.job.attempt is not attempt:
            return False
        attempt.extend(seconds, now)
        self._deadlines.arm(attempt.worker, attempt.over_at)
        return True

    def progress(self, attempt: Attempt, payload: Payload, now: float, *, is_part: bool = False) -> bool:
        """What a running job reports of itself, or a part of its result that is ready before the rest."""
        attempt.worker.seen = now
        if attempt.job.attempt is not attempt:
            return False
        self.ledger.report(attempt, payload, is_part)
        return True

    # ---------------------------------------------------------------- operators

    def pause(self, name: str, by: str = "an operator") -> Service | None:
        """Hand out no jobs of this service; they go on arriving."""
        service = self.roster.service(name)
        if service is not None:
            was_paused = service.paused
            service.paused, service.paused_by = True, by
            if not was_paused and self.events.wanted & SERVICE_PAUSED:
                self.events.service_changed(SERVICE_PAUSED, service)
        return service

    def resume(self, name: str, now: float) -> None:
        service = self.roster.services.get(name)
        if service is not None and service.paused:
            service.paused, service.paused_by = False, ""
            if self.events.wanted & SERVICE_RESUMED:
                self.events.service_changed(SERVICE_RESUMED, service)
            self.dispatch.hand_out(service, now)

    def close(self, now: float) -> None:
        """Begin to drain the broker: nothing new comes in, waiting calls are refused, what runs may end."""
        if not self.is_draining and self.events.wanted & BROKER_DRAINING:
            self.events.broker_draining(sum(len(worker.running) for worker in self.roster.workers.values()))
        self.is_draining = True
        self._reservations.take_back_all()
        for job in [j for j in self.jobs.values() if j.state in (WAITING, DELAYED) and not j.wishes.durable]:
            self.attempts.end_early(job, REFUSED, BEING_DRAINED, now, Refusal.DRAINING)

    def abort(self, now: float) -> None:
        """The time for draining is over: every attempt that still runs is given up."""
        for worker in list(self.roster.workers.values()):
            self.effects.append(Dismiss(worker, Farewell.STOPPED, GOODBYE))
            self.leave(worker, now, STOPPED)

    # ---------------------------------------------------------------- diary and time

    def saved(self, number: int, now: float, problem: str | None = None) -> None:
        """The diary has committed everything up to this save, or could not: then new jobs are refused."""
        for job, promise, waited in self.ledger.gate.release(number, problem is None):
            if promise is Promise.GIVE:
                if isinstance(waited, Attempt) and job.attempt is waited:
                    if waited.worker.away_since == inf:
                        self.effects.append(Give(waited))
                    else:  # it came out of reach during the commit
                        self.undelivered(waited, now)
            elif promise is Promise.RESERVE:
                if isinstance(waited, Reservation):
                    self._reservations.committed(job, waited, problem is None)
            elif promise is Promise.ANSWER:
                self.ledger.tell(job)
                if not job.outlives_end:
                    self.ledger.erase(job)
            elif promise is Promise.ACCEPT:
                if problem is None:
                    self.effects.extend(Accept(caller, job) for caller in job.callers)
                elif job.state is not ENDED:
                    self.attempts.end_early(job, REFUSED, f"diary: {problem}", now, Refusal.DIARY)
        if problem is None and not self.is_draining:
            self._reservations.reserve(now)

    def shift(self, gap: float, now: float) -> None:
        """We were paused, not they: no lease ran meanwhile (D13, R22)."""
        self._expiry.excuse(gap, now)
        self.resumed_at = now

    def tick(self, now: float) -> None:
        """Judge everything that is due."""
        self._expiry.tick(now)
        if self._reservations.due <= now:
            self._reservations.expire(now)

    def next_deadline(self) -> float:
        return min(self._deadlines.next(), self._reservations.due)

    def _turn_away(self, service: str, caller: Caller, refusal: Refusal, reason: str) -> Job | None:
        self.counters.refuse(self.roster.counted_as(service), refusal, reason)
        self.effects.append(Answer(caller, None, REFUSED, b"", f"{refusal}: {reason}", refusal))
        return None
