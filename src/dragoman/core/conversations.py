"""Conversations: chooses the jobs whose messages are recorded, and keeps the conversations of jobs that have ended.

Every job is recorded while fewer than `PER_SECOND` arrive in a second; of more, about that many. So are retries, and
jobs whose conversation is requested. A job that was not recorded keeps *milestones* if it did not end *done*, or if its
last attempt was among the slowest of its service: the conversation that follows from its history. So do at most
`PER_SECOND` jobs in a second: if all jobs fail or become slow, recording them must not make it worse.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.conversation import GONE, RECEIVED, SENT, AttemptEntry, Conversation, Entry, Room, WorkerConversation
from dragoman.core.histogram import BOUNDS, Histogram
from dragoman.core.infinity import inf
from dragoman.core.link_reasons import nameless
from dragoman.core.model import Attempt, Job, JobId, Worker
from dragoman.core.policy import Policy
from dragoman.core.recipients import dialect_of
from dragoman.core.recording import CALLER, NEVER_SENT, WORKER, caller_facts, worker_lane
from dragoman.core.retries import most_attempts
from dragoman.core.states import DONE, ENDED, LOST, AttemptRecord, Outcome

PER_SECOND: Final = 50
INTERVAL: Final = 1.0 / PER_SECOND
MOST_KEPT: Final = 5_000  # conversations, of present jobs and of ended ones
MOST_MILESTONES: Final = 5_000
WATCHED_FOR: Final = 30.0  # seconds for which a worker is recorded after each request for its conversation

# Names of milestones. The dialect of the lane has the names of the messages that they stand for.
SUBMITTED: Final = "\0submitted"
ENQUEUED: Final = "\0enqueued"
GIVEN: Final = "\0given"
FINISHED: Final = "\0finished"
ANSWERED: Final = "\0answered"
UNANSWERED: Final = "\0unanswered"


class Conversations:
    """The conversations of all jobs. It is off until `start`."""

    __slots__ = (
        "_ended",
        "_milestones",
        "_milestones_at",
        "_policy",
        "_present",
        "_reasons_at",
        "_room",
        "is_on",
        "most_kept",
        "next_at",
    )

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.is_on = False
        self.most_kept = MOST_KEPT
        self.next_at = inf  # time from which the next job is recorded
        self._room = Room()
        self._present: dict[JobId, Conversation] = {}  # of jobs that have not ended, oldest first
        self._ended: dict[JobId, Conversation] = {}  # of ended jobs, in the order of their ends
        self._milestones: dict[JobId, Conversation] = {}
        self._milestones_at = -inf  # time from which the next job keeps milestones
        self._reasons_at = -inf  # time from which the reason of the next job is counted

    def start(self) -> None:
        """Record the jobs that follow."""
        self.is_on = True
        self.next_at = -inf

    # ---------------------------------------------------------------- requests

    def find(self, id: JobId) -> Conversation | None:
        """Return the conversation of a job, if there is one."""
        return self._present.get(id) or self._ended.get(id) or self._milestones.get(id)

    def watch_job(self, job: Job, now: float) -> Conversation | None:
        """Return the conversation of a job. From now on it is recorded, if it has not ended."""
        found = self.find(job.id)
        if found is not None or not self.is_on:
            return found
        history = self._from_history(job, job.attempt, job.outcome, job.reason, now)
        if job.state is not ENDED:  # otherwise it can be made again
            self._enter(job, history)
        return history

    def watch_worker(self, worker: Worker, now: float) -> WorkerConversation | None:
        """Return the conversation of a worker. It is recorded for a while; None if ladders are off."""
        conversation = worker.conversation
        if not self.is_on:
            return None
        if conversation is None or conversation.until < now:
            conversation = worker.conversation = WorkerConversation(now, now)
        conversation.until = now + WATCHED_FOR
        return conversation

    # ---------------------------------------------------------------- a recorded job, from beginning to end

    def begin(self, job: Job, now: float) -> None:
        """Record a new job. It uses up a part of the budget."""
        self.next_at = max(self.next_at, now - 1.0) + INTERVAL
        job.service.slow_run = slowest_runs(job.service.ran)
        if job.caller_dialect:
            if job.options.is_limited:  # else its own broker in the cluster counts it
                job.service.sampled().add_caller(job.caller_dialect)
        self._enter(job, self._new(job, now))

    def begin_retry(self, job: Job, now: float) -> None:
        """Record a retry, whatever the budget is."""
        if job.conversation is None and self.is_on:
            self._enter(job, self._new(job, now))

    def given(self, attempt: Attempt, now: float) -> None:
        """Record the start of an attempt. The jobs of a worker whose conversation is requested are recorded, too."""
        job = attempt.job
        if job.conversation is None and self.is_on:
            self._enter(job, self._from_history(job, None, None, "", now))
        conversation = job.conversation
        if conversation is not None:
            most = most_attempts(job, attempt.worker, self._policy)
            conversation.begin_attempt(AttemptEntry(now, worker_lane(attempt), attempt.number, most))

    def attempt_ended(self, attempt: Attempt, outcome: Outcome, reason: str, now: float) -> None:
        """Record the end of an attempt that does not end with a result."""
        conversation = attempt.job.conversation
        if conversation is None:
            return
        lane = worker_lane(attempt)
        conversation.show_attempt()
        if outcome is LOST:
            conversation.add(Entry(now, GONE, lane, of_worker(reason)))
        conversation.end_attempt(lane, attempt.number, outcome.value, now)
        conversation.outcome = outcome.value
        conversation.end = outcome.value if outcome is LOST else told(outcome, reason)

    def returned(self, attempt: Attempt, now: float) -> None:
        """Record that a job returns to the queue: its attempt does not count."""
        conversation = attempt.job.conversation
        if conversation is not None:
            lane = worker_lane(attempt)
            conversation.not_sent(lane, NEVER_SENT)
            conversation.end_attempt(lane, attempt.number, "returned", now)
            conversation.note("returned to the queue; the attempt does not count", now)

    def ended(self, job: Job, attempt: Attempt | None, outcome: Outcome, reason: str, now: float) -> None:
        """Record the end of a job, or keep its milestones. A job whose outcome is kept has its history."""
        conversation = job.conversation
        if outcome is not DONE and self.is_on and now >= self._reasons_at:
            self._reasons_at = max(self._reasons_at, now - 1.0) + INTERVAL
            if job.options.is_limited:
                job.service.sampled().add_reason(job.id, outcome, nameless(reason), now)
        if conversation is None or not conversation.is_kept:
            if self.is_on and now >= self._milestones_at and not (job.is_kept and job.outlives_end):
                self._milestones_at = max(self._milestones_at, now - 1.0) + INTERVAL
                self._keep_milestones(job, self._from_history(job, attempt, outcome, reason, now))
            return
        if attempt is not None:
            conversation.end_attempt(worker_lane(attempt), attempt.number, outcome.value, now)
        text = told(outcome, reason)
        if outcome is DONE and not job.callers and not job.is_kept:
            text += "; the result is dropped: no caller waits for it (R19)"
        conversation.outcome = ""
        conversation.note(text, now, outcome.value)
        conversation.is_over = True
        self._present.pop(job.id, None)
        self._ended[job.id] = conversation
        self._make_room()

    def forget(self, job: Job) -> None:
        """Drop the conversation of a job that is treated as not submitted."""
        conversation = self._present.pop(job.id, None)
        if conversation is not None:
            conversation.drop()

    # ---------------------------------------------------------------- memory

    def _new(self, job: Job, now: float, *, is_whole: bool = True) -> Conversation:
        owner = job.owner.principal.name
        return Conversation(job.id, job.service.name, owner, now, self._room, is_whole=is_whole)

    def _enter(self, job: Job, conversation: Conversation) -> None:
        if not conversation.is_whole:
            conversation.is_whole = True
            conversation.note("messages are recorded from here on", conversation.began)
        job.conversation = conversation
        self._ended.pop(job.id, None)  # of a quarantined job that is released, or an id that is used again
        self._milestones.pop(job.id, None)
        self._present[job.id] = conversation
        self._make_room()

    def _make_room(self) -> None:
        """Drop the conversations of the oldest ended jobs; if there are none, of the oldest jobs."""
        while len(self._present) + len(self._ended) > self.most_kept or (self._room.is_full and self._ended):
            some = self._ended or self._present
            some.pop(next(iter(some))).drop()

    def _keep_milestones(self, job: Job, conversation: Conversation) -> None:
        self._milestones[job.id] = conversation
        if len(self._milestones) > MOST_MILESTONES:
            self._milestones.pop(next(iter(self._milestones))).drop()

    # ---------------------------------------------------------------- milestones

    def _from_history(
        self, job: Job, attempt: Attempt | None, outcome: Outcome | None, reason: str, now: float
    ) -> Conversation:
        """Return the conversation that follows from the history of a job."""
        conversation = self._new(job, job.created, is_whole=False)
        caller = ""
        if job.caller_dialect:
            facts = caller_facts(job.callers[0]) if job.callers else (job.owner.address, job.caller_dialect)
            caller = conversation.lane(CALLER, "", *facts)
            text = ENQUEUED if job.options.durable else SUBMITTED
            conversation.add(Entry(job.created, RECEIVED, caller, text, len(job.payload)))
        records = job.history or []
        most = job.options.attempts or 1
        for record in records:
            began, ended = record.started or job.created, record.ended or now
            lane = conversation.lane(WORKER, _lane_of(record, records), record.worker, record.dialect)
            conversation.add(AttemptEntry(began, lane, record.number, most))
            conversation.add(Entry(began, SENT, lane, GIVEN))
            if record.outcome is LOST:
                conversation.add(Entry(ended, GONE, lane, of_worker(record.reason)))
            elif record.outcome is DONE:
                conversation.add(Entry(ended, RECEIVED, lane, FINISHED))
            conversation.end_attempt(lane, record.number, record.outcome.value, ended)
            if outcome is None or record is not records[-1]:
                conversation.note(told(record.outcome, record.reason), ended, record.outcome.value)
        if attempt is not None and not (records and records[-1].number == attempt.number):
            lane = f"w{attempt.worker.id}"
            conversation.lane(WORKER, lane, attempt.worker.name, dialect_of(attempt.worker.recipient))
            most = most_attempts(job, attempt.worker, self._policy)
            conversation.add(AttemptEntry(attempt.given, lane, attempt.number, most))
            conversation.add(Entry(attempt.given, SENT, lane, GIVEN))
            if outcome is DONE:
                conversation.add(Entry(now, RECEIVED, lane, FINISHED))
            if outcome is not None:
                conversation.end_attempt(lane, attempt.number, outcome.value, now)
        if outcome is not None:
            conversation.is_over = True
            conversation.note(told(outcome, reason), job.ended or now, outcome.value)
            if caller and not job.options.durable:
                conversation.add(Entry(now, SENT, caller, ANSWERED if outcome is DONE else UNANSWERED))
        return conversation


def slowest_runs(ran: Histogram) -> float:
    """Return a duration that at most 1 % of these attempts exceed, to the precision of the histogram."""
    counts = ran.counts
    rest = sum(counts) // 100
    if not rest:
        return inf  # too few
    for index in range(len(counts) - 1, -1, -1):
        rest -= counts[index]
        if rest < 0:
            return BOUNDS[index] if index < len(BOUNDS) else inf
    return inf


def told(outcome: Outcome, reason: str) -> str:
    """Return an outcome and its reason in one line."""
    return reason if reason.startswith(outcome.value) else f"{outcome.value}: {reason}" if reason else outcome.value


def of_worker(reason: str) -> str:
    """Return a reason without its subject, which is the worker beside it."""
    return reason.removeprefix("its worker's ").removeprefix("its worker ")


def _lane_of(record: AttemptRecord, records: list[AttemptRecord]) -> str:
    """Return the key of the worker's lane. A worker whose number is not known any more is known by name and dialect."""
    if record.worker_id is not None:
        return f"w{record.worker_id}"
    for each in records:
        if each.worker_id is None and each.worker == record.worker and each.dialect == record.dialect:
            return f"a{each.number}"
    return f"a{record.number}"
