"""The broker: verbs in, effects out.

Sessions translate what peers say into these verbs; the broker decides, changes its state, and appends to `effects` what
must now happen. Every verb takes the time as an argument and is called by one owner, one at a time. Nothing here waits.

The way of a job: `submit` lets it in (or answers *refused*), `_place` queues it or hands it out at once, `_give` makes
the attempt, and `succeed`, `fail`, `refuse`, `leave` or `tick` ends that attempt; `_end` ends the job. Verbs that name
an attempt which is no longer the current one change no job (D2): they are late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from dragoman.core.counters import UNNAMED, Counters
from dragoman.core.deadlines import Deadlines
from dragoman.core.door import BEING_DRAINED, GOODBYE, PATIENCE_OVER, STOPPED, is_offer, objection, too_many_names
from dragoman.core.effects import Accept, Answer, Dismiss, Effect, Give, Recall, take_back
from dragoman.core.entropy import Entropy
from dragoman.core.gate import Promise
from dragoman.core.infinity import inf
from dragoman.core.ledger import Ledger
from dragoman.core.lifecycle import move_job, move_worker
from dragoman.core.model import (
    BOOTING,
    CANCELLED,
    DELAYED,
    DETACHED,
    DONE,
    DRAINING,
    ENDED,
    FAILED,
    GONE,
    IDLE,
    LOST,
    REFUSED,
    RUNNING,
    TIMED_OUT,
    WAITING,
    Attempt,
    Farewell,
    Job,
    JobId,
    Outcome,
    Payload,
    Refusal,
    Service,
    Terms,
    Token,
    Wishes,
    Worker,
)
from dragoman.core.owners import Owner, Owners
from dragoman.core.policy import Policy
from dragoman.core.recipients import Caller, Recipient
from dragoman.core.retries import are_spent, back_off, note_ending, remember_tried
from dragoman.core.roster import Roster


class Broker:
    def __init__(
        self, policy: Policy, entropy: Entropy, counters: Counters | None = None, first_worker: int = 1
    ) -> None:
        self.policy = policy
        self.counters = counters if counters is not None else Counters()
        self.roster = Roster(policy.age_step, policy.max_services, first_worker)
        self.is_draining = False
        self.resumed_at = -inf  # when we last came back from a pause of our own (D13)
        self.effects: deque[Effect] = deque()  # the line takes them from the left
        self.entropy = entropy
        self.owners = Owners()
        self._deadlines: Deadlines[Any] = Deadlines()
        self.ledger = Ledger(policy, self.counters, self._deadlines, self.effects)
        self.jobs = self.ledger.jobs
        self.stranded: dict[Token, Attempt] = {}  # given out by an earlier run, and perhaps still under way (R107)

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
        if known is None or self.is_draining or not known.is_known:
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
        if wishes.durable or wishes.delay > 0.0:
            self._welcome(job, now)
        else:
            self._queue(job, now)
        return job

    def withdraw(self, job: Job, now: float, reason: str = "withdrawn") -> bool:
        """Cancel a job in whatever state it is. False if it had ended already."""
        if job.state is ENDED:
            return False
        self._end_early(job, CANCELLED, reason, now)
        return True

    def abandon(self, job: Job, caller: Caller, now: float) -> None:
        """A caller has gone. A call nobody waits for is not started (R18); one that runs may end (R19)."""
        job.callers = tuple(other for other in job.callers if other is not caller)
        if job.callers or job.state is ENDED or job.is_kept:
            return
        if job.state is not RUNNING:
            self.orphan(job, now)
            if job.orphan_due <= now:
                self._end_early(job, CANCELLED, "its caller has gone", now)

    def orphan(self, job: Job, now: float) -> None:
        """Its caller is out of reach and may come back: a call that waits is kept `orphan_grace` for it (R64)."""
        if job.state is not ENDED and not job.is_kept:
            job.orphan_due = now + job.wishes.orphan_grace
            self._deadlines.arm(job, job.due())

    def adopt(self, job: Job) -> None:
        """Its caller is back."""
        job.orphan_due = inf

    def retry(self, job: Job, now: float) -> Job | None:
        """Make a new job of one that is in quarantine; it leaves that. None if it is not there, or there is no room."""
        if not job.quarantined or job.id not in self.jobs or self.is_draining:
            return None
        service = self.roster.restore_service(job.service.name)
        again = self.ledger.admit_again(job, service, self.entropy.job_id(), now)
        if again is not None:
            self._welcome(again, now)
        return again

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
        self.ledger.tell_news("joined", None, worker)
        self._deadlines.arm(worker, worker.due())
        return worker

    def idle(self, worker: Worker, now: float) -> bool:
        """The worker says it is free: so it is, unless a job of ours runs there (D1)."""
        worker.seen = now
        if worker.state is BOOTING:
            move_worker(worker, IDLE)
        elif not worker.unproven:
            return False
        worker.unproven.clear()
        self._freed(worker, now)
        return True

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
            self._freed(worker, now)

    def leave(self, worker: Worker, now: float, reason: str, unseen: Iterable[Attempt] = ()) -> None:
        """The worker has gone. Of what it held, `unseen` cannot have reached it (R8); the rest may have (R9)."""
        if worker.state is GONE:
            return
        self._deadlines.disarm(worker)
        held = self.roster.leave(worker)
        self.ledger.tell_news("left", None, worker)
        never_left = {attempt.token for attempt in unseen}
        for attempt in held:
            if attempt.token in never_left or take_back(attempt, self.effects):
                self._not_started(attempt, now)
            else:
                self._spend(attempt, LOST, reason, now)

    def drain(self, worker: Worker, now: float, *, at_once: bool = False, stays: bool = False) -> None:
        """Give the worker nothing more, and dismiss it once it holds nothing, unless it `stays`; or at once, by D8."""
        if worker.state is GONE:
            return
        if at_once:
            self.effects.append(Dismiss(worker, Farewell.KILLED, "killed by an operator"))
            self.leave(worker, now, "its worker was killed by an operator")
            return
        self.roster.retire(worker, stays)
        self._dismiss_if_drained(worker, now)

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
            self.counters.late_results += 1
            self._prove(attempt, now)
            return False
        if attempt.parts is not None:
            result, problem = self.ledger.whole(attempt, attempt.parts, result)
            if problem:
                return self.fail(attempt, problem, now)
        del worker.running[attempt.token]
        job.service.ran.observe(now - attempt.given)
        self.ledger.end(job, DONE, result, "", now)
        self._freed(worker, now)
        return True

    def fail(self, attempt: Attempt, reason: str, now: float, account: Payload = b"", *, is_lost: bool = False) -> bool:
        """The worker could not do it, and is free again; `account` is its own, if it has one. False if it came late.
        `is_lost`: it died of it, or a part of it did that did the job."""
        worker = attempt.worker
        worker.seen = now
        if attempt.job.attempt is not attempt:
            self.counters.late_results += 1
            self._prove(attempt, now)
            return False
        del worker.running[attempt.token]
        self._spend(attempt, LOST if is_lost else FAILED, reason, now, account)
        self._freed(worker, now)
        return True

    def refuse(self, attempt: Attempt, now: float) -> bool:
        """The worker would not take it, as its terms allow: nothing has started (R8). It gets no job until `idle`."""
        worker = attempt.worker
        worker.seen = now
        worker.refused = attempt.token if worker.terms.may_refuse else None
        if attempt.job.attempt is not attempt:
            self.roster.settle(worker, now)
            return False
        self._doubt(attempt, now)
        if worker.terms.may_refuse:
            self._not_started(attempt, now)
        else:
            self._spend(attempt, FAILED, "its worker refused it", now)
        return True

    def reject(self, attempt: Attempt, reason: str, now: float) -> bool:
        """This worker's wire cannot carry the job: it ends *failed* and was never sent. The worker stays free."""
        if attempt.job.attempt is not attempt:
            return False
        del attempt.worker.running[attempt.token]
        self.ledger.end(attempt.job, FAILED, b"", reason, now)
        self._freed(attempt.worker, now)
        return True

    def undelivered(self, attempt: Attempt, now: float) -> None:
        """The job never left us, so its worker is as free as it was, and another may have the job at once (R8)."""
        worker = attempt.worker
        if attempt.job.attempt is attempt:
            del worker.running[attempt.token]
            self._not_started(attempt, now)
        elif worker.unproven.pop(attempt.token, None) is None:
            return
        self._freed(worker, now)

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
            service.paused, service.paused_by = True, by
        return service

    def resume(self, name: str, now: float) -> None:
        service = self.roster.services.get(name)
        if service is not None and service.paused:
            service.paused, service.paused_by = False, ""
            self._hand_out(service, now)

    def close(self, now: float) -> None:
        """Begin to drain the broker: nothing new comes in, waiting calls are refused, what runs may end."""
        self.is_draining = True
        for job in [j for j in self.jobs.values() if j.state in (WAITING, DELAYED) and not j.wishes.durable]:
            self._end_early(job, REFUSED, BEING_DRAINED, now, Refusal.DRAINING)

    def abort(self, now: float) -> None:
        """The time for draining is over: every attempt that still runs is given up."""
        for worker in list(self.roster.workers.values()):
            self.effects.append(Dismiss(worker, Farewell.STOPPED, GOODBYE))
            self.leave(worker, now, STOPPED)

    # ---------------------------------------------------------------- diary and time

    def saved(self, number: int, now: float, problem: str | None = None) -> None:
        """The diary has committed everything up to this save, or could not: then new jobs are refused."""
        for job, promise, attempt in self.ledger.gate.release(number, problem is None):
            if promise is Promise.GIVE:
                if attempt is not None and job.attempt is attempt:
                    self.effects.append(Give(attempt))
            elif promise is Promise.ANSWER:
                self.ledger.tell(job)
            elif promise is Promise.ACCEPT:
                if problem is None:
                    self.effects.extend(Accept(caller, job) for caller in job.callers)
                elif job.state is not ENDED:
                    self._end_early(job, REFUSED, f"diary: {problem}", now, Refusal.DIARY)

    def shift(self, gap: float, now: float) -> None:
        """We were paused, not they: no lease ran meanwhile (D13, R22)."""
        for worker in self.roster.workers.values():
            worker.excuse(gap, now)
        self.ledger.excuse(gap)
        self.resumed_at = now

    def tick(self, now: float) -> None:
        """Judge everything that is due."""
        most = self.counters.erased + self.policy.max_erasures
        for subject in self._deadlines.due(now):
            if isinstance(subject, Job):
                self._judge_job(subject, now)
            else:
                self._judge_worker(subject, now)
            if self.counters.erased >= most:
                return  # the next turn goes on: a day's outcomes that end together do not hold up anybody (R110)

    def next_deadline(self) -> float:
        return self._deadlines.next()

    # ---------------------------------------------------------------- how a job comes in

    def _turn_away(self, service: str, caller: Caller, refusal: Refusal, reason: str) -> Job | None:
        self.counters.refuse(service if service in self.roster.services else UNNAMED, refusal, reason)
        self.effects.append(Answer(caller, None, REFUSED, b"", f"{refusal}: {reason}", refusal))
        return None

    def _welcome(self, job: Job, now: float) -> None:
        """Delay a new job, give it to a worker, or queue it. A background job takes its place at once; its callers are
        told, and its worker is sent it, when the store has it. One commit serves both if a worker is idle."""
        wishes = job.wishes
        if wishes.durable:
            self.ledger.save(job, Promise.ACCEPT)
        if wishes.delay > 0:
            job.start_at = now + min(wishes.delay, self.policy.max_delay)
            self.ledger.move(job, DELAYED)
            self._deadlines.arm(job, job.due())
            return
        self._queue(job, now)

    def _queue(self, job: Job, now: float) -> None:
        """Let a job that comes for the first time wait, unless a worker is free for it now."""
        service = job.service
        if job.deadline <= now or job.wishes.job_timeout <= 0.0:
            self._end_early(job, TIMED_OUT, PATIENCE_OVER if job.deadline <= now else "it may not run at all", now)
            return
        job.queue_due = now + job.wishes.queue_timeout
        if not service.queue.length and not service.paused and not self.is_draining:
            worker = self.roster.pick(job, now)
            if worker is not None:
                self._give(job, worker, now)
                return
        service.queue.append(job, now)
        self._deadlines.arm(job, min(job.queue_due, job.deadline, job.orphan_due))
        self.ledger.tell_news("waiting", job)

    # ---------------------------------------------------------------- how jobs and workers meet

    def _give(self, job: Job, worker: Worker, now: float) -> bool:
        """Hand the job out. Tells whether the worker has room for more."""
        token = self.entropy.token()
        due = now + worker.run_time(job)
        job.attempt = attempt = Attempt(job, job.spent + 1, token, worker, now, due)
        self.ledger.move(job, RUNNING)
        worker.running[token] = attempt
        has_room = self.roster.occupy(worker)
        self.counters.handed_out += 1
        if not job.spent:
            job.service.waited.observe(now - job.arrival)
        if job.deadline < due:
            due = job.deadline
        if due < worker.alarm:
            self._deadlines.arm(worker, due)
        if job.wishes.durable:
            self.ledger.save(job, Promise.GIVE)  # R108: it leaves when the store has it
        else:
            self.effects.append(Give(attempt))
        return has_room

    def _freed(self, worker: Worker, now: float) -> None:
        """A slot of the worker is free: fill it, or let the worker stand among the idle."""
        if worker.state is DRAINING:
            self._dismiss_if_drained(worker, now)
            return
        if worker.state is DETACHED:
            self._deadlines.arm(worker, worker.due())
            return
        while (job := self._next_job(worker)) is not None:
            job.service.queue.take(job)
            if not self._give(job, worker, now):
                return
        self.roster.settle(worker, now)
        if worker.seen + worker.terms.lease < worker.alarm:  # only its lease can be due earlier than it was
            self._deadlines.arm(worker, worker.due())

    def _next_job(self, worker: Worker) -> Job | None:
        """Of the worker's services, the one whose head has waited longest by its key (R14)."""
        if self.is_draining:
            return None
        if len(worker.services) == 1:
            service = worker.services[0]
            return service.queue.head() if service.queue.length and not service.paused else None
        best: Job | None = None
        for service in worker.services:
            if service.queue.length and not service.paused:
                head = service.queue.head()
                if head is not None and (best is None or head.order < best.order):
                    best = head
        return best

    def _hand_out(self, service: Service, now: float) -> None:
        while service.queue.length and not service.paused and not self.is_draining:
            job = service.queue.head()
            worker = self.roster.pick(job, now) if job is not None else None
            if job is None or worker is None:
                return
            service.queue.take(job)
            self._give(job, worker, now)

    def _dismiss_if_drained(self, worker: Worker, now: float) -> None:
        if not worker.running and not worker.unproven and not worker.stays:
            self.effects.append(Dismiss(worker, Farewell.DRAINED, "drained"))
            self.leave(worker, now, "its worker was drained")

    # ---------------------------------------------------------------- how an attempt ends without a result

    def _doubt(self, attempt: Attempt, now: float) -> None:
        """The attempt is over but its worker may still be at it: that slot is unproven (D11)."""
        worker = attempt.worker
        del worker.running[attempt.token]
        attempt.doubted = now
        worker.unproven[attempt.token] = attempt
        self.roster.settle(worker, now)
        # What else it runs is no sooner due than it was; to ask that again each time would cost a crowd its square.
        self._deadlines.arm(worker, worker.patience_over())

    def _prove(self, attempt: Attempt, now: float) -> None:
        if attempt.worker.unproven.pop(attempt.token, None) is not None:
            self._freed(attempt.worker, now)

    def _not_started(self, attempt: Attempt, now: float) -> None:
        """No worker can have seen it: back to its place in the queue, no attempt spent (R8)."""
        job = attempt.job
        self.ledger.part_with(attempt)
        job.refusals += 1
        remember_tried(job, attempt.worker)
        if self.is_draining and not job.wishes.durable:
            self.ledger.end(job, REFUSED, b"", BEING_DRAINED, now, Refusal.DRAINING)
        elif job.queue_due <= now:
            self.ledger.end(job, TIMED_OUT, b"", f"no worker took it within {job.wishes.queue_timeout:g} s", now)
        elif self._outlives_caller(job, now):
            if job.refusals >= self.policy.max_refusals:
                job.refusals = 0
                self._rest(job, now + self.policy.refusal_rest)
            else:
                self._requeue(job, now)

    def _spend(self, attempt: Attempt, outcome: Outcome, reason: str, now: float, account: Payload = b"") -> None:
        """A worker may have seen it: the attempt counts (R9). While attempts remain, rest and try again (R11)."""
        job = attempt.job
        self.ledger.part_with(attempt)
        job.service.ran.observe(now - attempt.given)
        job.queue_due = inf  # the next attempt may wait as long as the first
        reason = reason.encode("utf-8", "replace")[: self.policy.max_error_bytes].decode("utf-8", "ignore")
        note_ending(job, attempt.worker, outcome, reason)
        is_last = are_spent(job, attempt.worker, self.policy)
        if is_last or (self.is_draining and not job.wishes.durable):
            job.quarantined = job.wishes.durable
            self.ledger.end(job, outcome, account, reason, now)
        elif self._outlives_caller(job, now):
            self._rest(job, now + back_off(job, outcome, self.policy, self.entropy.jitter()))

    def _outlives_caller(self, job: Job, now: float) -> bool:
        """A call whose callers have all gone is not started again (R18), nor is one that they did not come back for."""
        if job.is_kept or (job.callers and job.orphan_due > now):
            return True
        self.ledger.end(job, CANCELLED, b"", "its caller has gone", now)
        return False

    def _rest(self, job: Job, until: float) -> None:
        job.start_at = until
        self.ledger.move(job, DELAYED)
        if job.wishes.durable:
            self.ledger.save(job)
        self._deadlines.arm(job, job.due())

    def _requeue(self, job: Job, now: float) -> None:
        """A job that was out before keeps its place: the key of its arrival."""
        if job.state is not WAITING:
            self.ledger.move(job, WAITING)
        service = job.service
        service.queue.put_back(job, job.arrival - job.wishes.priority * self.policy.age_step)
        self._hand_out(service, now)
        if job.state is WAITING:
            self._deadlines.arm(job, job.due())

    # ---------------------------------------------------------------- how a job ends

    def _end_early(self, job: Job, outcome: Outcome, reason: str, now: float, refusal: Refusal | None = None) -> None:
        """End a job in whatever state it is; a worker that holds it is told, and is unproven until it proves free."""
        attempt = job.attempt
        if job.state is WAITING and job.order != inf:
            job.service.queue.remove(job)
        is_unseen = attempt is not None and take_back(attempt, self.effects)
        if attempt is not None and not is_unseen:
            self._doubt(attempt, now)
            self.effects.append(Recall(attempt, reason))
        self.ledger.end(job, outcome, b"", reason, now, refusal)
        if attempt is not None and is_unseen:
            del attempt.worker.running[attempt.token]
            self._freed(attempt.worker, now)

    # ---------------------------------------------------------------- what is due

    def _judge_job(self, job: Job, now: float) -> None:
        """One that does not run: those that do are judged with their worker."""
        if job.due() > now:
            self._deadlines.arm(job, job.due())
        elif job.state is ENDED:
            self.ledger.erase(job)
        elif job.deadline <= now:
            self._end_early(job, TIMED_OUT, PATIENCE_OVER, now)
        elif job.orphan_due <= now:
            self._end_early(job, CANCELLED, "its caller has gone", now)
        elif job.state is DELAYED:
            self._wake(job, now)
        else:
            self._end_early(job, TIMED_OUT, f"no worker was free within {job.wishes.queue_timeout:g} s", now)

    def _wake(self, job: Job, now: float) -> None:
        """A delayed job's time has come."""
        if not job.tried and not job.spent:
            job.arrival = now
            move_job(job, WAITING)
            self._queue(job, now)
        else:
            if job.queue_due == inf:
                job.queue_due = now + job.wishes.queue_timeout
            self._requeue(job, now)

    def _overrun(self, job: Job, now: float) -> None:
        """The run time is over (R7): the attempt is spent, the worker unproven."""
        attempt = job.attempt
        assert attempt is not None
        if take_back(attempt, self.effects):  # we came late, not the worker
            del attempt.worker.running[attempt.token]
            self._not_started(attempt, now)
            self._freed(attempt.worker, now)
            return
        reason = f"no result within {attempt.worker.run_time(job):g} s"
        self._doubt(attempt, now)
        self.effects.append(Recall(attempt, reason))
        self._spend(attempt, TIMED_OUT, reason, now)

    def _judge_worker(self, worker: Worker, now: float) -> None:
        """What it runs for too long, up to the moment at which its own time was over; then itself."""
        until = min(now, worker.patience_over())
        for attempt in [each for each in worker.running.values() if each.over_at <= until]:
            job = attempt.job
            if job.attempt is not attempt:
                continue  # what came before has taken it back
            if job.deadline <= now:
                self._end_early(job, TIMED_OUT, PATIENCE_OVER, now)
            else:
                self._overrun(job, now)
        if worker.state is GONE:
            return
        if worker.patience_over() > now:
            self._deadlines.arm(worker, worker.due())
            return
        reason = worker.overdue(now)
        self.counters.expired_workers += 1
        self.effects.append(Dismiss(worker, Farewell.EXPIRED, reason))
        if worker.terms.ends_with_connection and worker.unproven_since() + worker.terms.unproven_limit > now:
            worker.seen = now  # its session hangs up in this turn, and says what never left; else we look again
            self.roster.retire(worker)
            self._deadlines.arm(worker, worker.due())
        else:
            self.leave(worker, now, reason)
