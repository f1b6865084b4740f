"""Dispatch: gives waiting jobs to idle workers.

A job enters by `queue` (or later, by `core/delays.py`), waits in `core/queues.py`, and leaves by `give`, which starts
the attempt. A worker enters by `freed` when a slot becomes free; idle workers are listed in `core/worker_registry.py`.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.admission import DEADLINE_PASSED
from dragoman.core.commits import AfterCommit
from dragoman.core.effects import SendJob
from dragoman.core.events import JOB_RUNNING, JOB_WAITING
from dragoman.core.knowing_workers import JobsForKnowingWorkers
from dragoman.core.leases import worker_deadline
from dragoman.core.lifecycle import move_job, move_worker
from dragoman.core.limiter import Limiter
from dragoman.core.model import Attempt, Job, JobId, Service, Token, Worker
from dragoman.core.options import BEHIND
from dragoman.core.running_limits import RunningLimits, may_take
from dragoman.core.set_aside import SetAsideJobs
from dragoman.core.shared_state import SharedState
from dragoman.core.states import DETACHED, DRAINING, GONE, IDLE, RUNNING, STARTING, TIMED_OUT, WAITING
from dragoman.core.turns import Turns
from dragoman.core.worker_removal import WorkerRemoval

COUNTED: Final = 16 << 10  # bytes; the slots of a worker bound smaller payloads
FULL: Final = 4 << 20  # unsent bytes from which on a worker is behind and gets no job
LOW: Final = 1 << 20  # unsent bytes down to which it remains behind


class Dispatch(RunningLimits):
    """Matches jobs and workers. Runs for every job, so it calls the registries directly."""

    def __init__(self, state: SharedState) -> None:
        self.is_draining = False  # the broker is shutting down and dispatches no more jobs
        self.marks_shards = False  # tokens of background jobs end with the byte of their shard, as their ids do
        self.loaded: dict[Worker, None] = {}  # workers whose unsent bytes must be measured: they were given large jobs
        self.home_bytes: dict[JobId, bytes] = {}  # of jobs and groups whose ids name another shard: they were imported
        self._policy = state.policy
        self._entropy = state.entropy
        self._counters = state.counters
        super().__init__(state.worker_registry, state.deadlines)
        self._job_registry = state.job_registry
        self._effects = state.effects
        self._turns = Turns()
        self._events = state.events
        self._pending_commits = state.job_registry.pending_commits
        self.for_knowing = JobsForKnowingWorkers(state.job_registry.jobs)
        self._served_knowing = False  # the last free slot of a worker went to one of these jobs
        self.limiter = Limiter(state)
        self.set_aside = SetAsideJobs(state)
        self.removal = WorkerRemoval(state, self.limiter)
        state.job_registry.unblocker = self

    # ---------------------------------------------------------------- jobs

    def queue(self, job: Job, now: float) -> None:
        """Dispatch a new job to an idle worker, or append it to its queue."""
        service = job.service
        if job.deadline <= now or job.options.job_timeout <= 0.0:
            reason = DEADLINE_PASSED if job.deadline <= now else "its job_timeout allows no run time"
            self._job_registry.end(job, TIMED_OUT, b"", reason, now)
            return
        job.queue_due = now + job.options.queue_timeout
        if self._pending_commits.unwritable and self.set_aside.take(job, now):
            return
        principal = job.owner.principal
        if now >= self.lease_until:
            self.lapse(self.limiter.limited.values(), now)
        if (
            not service.queue.length
            and principal.running < principal.max_running
            and not service.closed
            and not self.is_draining
            and (service.limits is None or service.limits.has_room(principal.name, job.tenant))
        ) or (not job.options.is_limited and not self.is_draining and may_take(job)):
            worker = self._worker_registry.pick(job, now)
            if worker is not None:
                self.give(job, worker, now)
                return
        service.queue.append(job, now)
        if job.conversation is not None:
            job.conversation.note("waits in the queue", now)
        self._deadlines.arm(job, min(min(job.queue_due, job.deadline), job.orphan_due))  # two-argument min is compiled
        if self._events.wanted & JOB_WAITING:
            self._events.job_moved(job)
        if service.idle.length or service.held_back.length:  # the jobs before it must wait because of a limit
            self.dispatch_waiting(service, now)

    # ---------------------------------------------------------------- attempts

    def shard_byte(self, job: Job) -> bytes:
        """Return the last byte of tokens in the shard of a job. No byte of a token is zero (`FIRST` of shard_bytes)."""
        byte = self.home_bytes.get(job.id) or job.id[-1:]
        return byte.replace(b"\0", b"\xfe")

    def give(self, job: Job, worker: Worker, now: float) -> bool:
        """Start an attempt: send the job to the worker. Returns whether the worker has room for more."""
        token = self._entropy.token()
        if self.marks_shards and job.options.durable:
            token = Token(token[:-1] + self.shard_byte(job))
        due = now + worker.run_time(job)
        job.attempt = attempt = Attempt(job, job.spent + 1, token, worker, now, due)
        move_job(job, RUNNING)
        if job.service.limits is not None and job.options.is_limited:
            self.started(job.service, now)
        if self._events.wanted & JOB_RUNNING:
            self._events.job_moved(job)
        if job.conversation is not None or worker.conversation is not None:
            self._job_registry.conversations.given(attempt, now)
        worker.running[token] = attempt
        has_room = self._worker_registry.take_slot(worker)
        if len(job.payload) > COUNTED:
            self.load(worker, len(job.payload), now)
            has_room = has_room and not worker.is_behind
        self._counters.dispatched += 1
        if not job.spent:
            job.service.waited.observe(now - job.arrival)
        due = min(due, job.deadline)
        if due < worker.alarm:
            self._deadlines.arm(worker, due)
        if job.options.durable:
            self._pending_commits.save(job, AfterCommit.SEND)  # R108: sent after the commit
        else:
            self._effects.append(SendJob(attempt))
        return has_room

    def load(self, worker: Worker, size: int, now: float) -> None:
        """Count a large payload that is to be sent to a worker. What waits for it together is bounded (R206): with too
        much, its slots count as taken until `measured` finds that it has read."""
        worker.unsent += size
        self.loaded[worker] = None
        if worker.unsent >= FULL and not worker.is_behind:
            worker.is_behind = True
            worker.asked -= BEHIND
            self._worker_registry.settle(worker, now)

    def load_late(self, attempt: Attempt, now: float) -> None:
        """Count a payload that was not in memory when its attempt began."""
        size = len(attempt.job.payload)
        if size > COUNTED and attempt.worker.state is not GONE:
            self.load(attempt.worker, size, now)

    def measured(self, worker: Worker, unsent: int) -> bool:
        """Update the unsent bytes of a worker. True if it is not behind any more."""
        for attempt in worker.running.values():
            if not attempt.is_sent:  # it waits for a commit, or for its payload
                unsent += len(attempt.job.payload)
        worker.unsent = unsent
        if unsent <= LOW or worker.state is GONE:
            self.loaded.pop(worker, None)
        if unsent > LOW or not worker.is_behind:
            return False
        worker.is_behind = False
        worker.asked += BEHIND
        return True

    def dispatch_waiting(self, service: Service, now: float) -> None:
        """Dispatch waiting jobs of this service while there are idle workers."""
        if now >= self.lease_until:
            self.lapse(self.limiter.limited.values(), now)
        while service.queue.length and not service.closed and not self.is_draining:
            if self._pending_commits.unwritable and not self.set_aside.skip([service], now):
                return  # the rest follows in the next iteration
            job = service.queue.head()
            worker = self._worker_registry.pick(job, now) if job is not None else None
            if job is None or worker is None:
                return
            service.queue.take(job)
            self.give(job, worker, now)

    # ---------------------------------------------------------------- workers

    def freed(self, worker: Worker, now: float) -> None:
        """Fill a free slot of the worker with the next job, or list the worker as idle."""
        if worker.state is DRAINING:
            self.removal.remove_if_drained(worker, now)
            return
        if worker.state is DETACHED or worker.asked <= 0:
            self._worker_registry.settle(worker, now)
            self._deadlines.arm(worker, worker_deadline(worker))
            return
        if now >= self.lease_until:
            self.lapse(self.limiter.limited.values(), now)
        if self.for_knowing.count and not self._serve_knowing(worker, now):
            return
        while (job := self._next_job(worker, now)) is not None:
            job.service.queue.take(job)
            if not self.give(job, worker, now):
                return
        self._worker_registry.settle(worker, now)
        if worker.seen + worker.profile.lease < worker.alarm:  # only the lease can be due earlier than before
            self._deadlines.arm(worker, worker_deadline(worker))

    def _serve_knowing(self, worker: Worker, now: float) -> bool:
        """Give the worker a job that waits for one that knows its parameters (R269). These jobs and those in queues
        take turns. Returns whether the worker has room for more."""
        if self._served_knowing and self._has_queued(worker):
            self._served_knowing = False
            return True
        for job in self.for_knowing.known_by(worker):
            if self._may_start(job):
                self._served_knowing = True
                return self._begin(job, worker, now)
        return True

    def _has_queued(self, worker: Worker) -> bool:
        return any(service.queue.length and not service.closed for service in worker.services)

    def offer(self, job: Job, now: float) -> bool:
        """Give a job that needs parameters to an idle worker that knows them. False: there is none, or a limit is
        reached."""
        worker = self._worker_registry.pick(job, now) if self._may_start(job) else None
        if worker is None:
            return False
        self._begin(job, worker, now)
        return True

    def _may_start(self, job: Job) -> bool:
        """True if a job that is in no queue may start, as one at the head of its queue may."""
        service, principal = job.service, job.owner.principal
        if self.is_draining or service.closed or principal.running >= principal.max_running:
            return False
        if service.limits is not None and not service.limits.has_room(principal.name, job.tenant):
            return False
        return not self._pending_commits.unwritable or not self.set_aside.concerns(job)

    def _begin(self, job: Job, worker: Worker, now: float) -> bool:
        """Start a job that is in no queue. Returns whether the worker has room for more."""
        self.for_knowing.remove(job)
        if job.state is not WAITING:
            move_job(job, WAITING)
        return self.give(job, worker, now)

    def idle(self, worker: Worker, now: float) -> bool:
        """Free the slots of ended attempts. False: there was none."""
        if worker.state is STARTING:
            move_worker(worker, IDLE)
            if worker.running and worker.free <= 0:  # it has come with running jobs (R119)
                self._worker_registry.settle(worker, now)
                return True
        elif not worker.stuck:
            return False
        worker.stuck.clear()
        self.freed(worker, now)
        return True

    def _next_job(self, worker: Worker, now: float) -> Job | None:
        """Return the job that the worker is to have next (R14)."""
        if self.is_draining:
            return None
        if self._pending_commits.unwritable and not self.set_aside.skip(worker.services, now):
            return None
        if len(worker.services) == 1:
            service = worker.services[0]
            return service.queue.head() if service.queue.length and not service.closed else None
        return self._turns.next_job(worker.services)
