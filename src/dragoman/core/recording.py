"""Recording: functions that add messages to the conversation of a job, or of a worker.

Nearly all jobs have no conversation. So their callers check first, where they know the job anyway:
`if job.conversation is not None: to_worker(attempt, "JOB", size, now)`.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.conversation import GONE, RECEIVED, SENT, Entry, WorkerEntry
from dragoman.core.model import Attempt, Caller, Job, Worker
from dragoman.core.recipients import dialect_of

CALLER: Final = "caller"
WORKER: Final = "worker"
LATE: Final = "late: dropped (D2)"
NEVER_SENT: Final = "never sent (R8)"


def from_caller(job: Job, caller: Caller, text: str, size: int, now: float) -> None:
    """Record a message of a caller about its job."""
    conversation = job.conversation
    if conversation is not None:
        conversation.add(Entry(now, RECEIVED, caller_lane(job, caller), text, size))


def submitted(job: Job, caller: Caller, text: str, size: int, now: float) -> None:
    """Record the message of a caller that submitted a job. The first one begins the conversation, although the broker
    may have given the job to a worker in the meantime."""
    conversation = job.conversation
    if conversation is not None:
        is_first = not conversation.lanes or conversation.lanes[0].role != CALLER
        conversation.add(Entry(now, RECEIVED, caller_lane(job, caller), text, size), is_first=is_first)


def to_caller(job: Job, caller: Caller, text: str, size: int, now: float) -> None:
    """Record a message to a caller. Without a text, its dialect has no message for it."""
    conversation = job.conversation
    if conversation is None:
        return
    lane = caller_lane(job, caller)
    if text:
        conversation.add(Entry(now, SENT, lane, text, size))
    else:
        conversation.add(Entry(now, SENT, lane, "no message", 0, "not sent: the dialect has no message for it"))


def record_caller_gone(job: Job, caller: Caller, now: float) -> None:
    """Record that a caller has disconnected. Clients of operations do so after each response."""
    conversation = job.conversation
    if conversation is not None and dialect_of(caller.recipient) != "operations":
        conversation.add(Entry(now, GONE, caller_lane(job, caller), "disconnected"))


def to_worker(attempt: Attempt, text: str, size: int, now: float) -> None:
    """Record a message to the worker of an attempt."""
    _of_worker(attempt, Entry(now, SENT, worker_lane(attempt), text, size))


def from_worker(attempt: Attempt, text: str, size: int, now: float, *, can_be_late: bool = True) -> None:
    """Record a message of a worker about its attempt. If the attempt has ended, the message changes no job (D2)."""
    mark = LATE if can_be_late and attempt.job.attempt is not attempt else ""
    _of_worker(attempt, Entry(now, RECEIVED, worker_lane(attempt), text, size, mark))


def record_heartbeat(worker: Worker, text: str, now: float) -> None:
    """Record a heartbeat of a worker whose conversation is requested, and the reply to it."""
    conversation = worker.conversation
    if conversation is not None:
        if now > conversation.until:
            worker.conversation = None
        else:
            conversation.add_heartbeat(f"w{worker.id}", text, now)


def note(job: Job, text: str, now: float) -> None:
    """Record an action of the broker."""
    conversation = job.conversation
    if conversation is not None:
        conversation.note(text, now)


def _of_worker(attempt: Attempt, entry: Entry) -> None:
    job, worker = attempt.job, attempt.worker
    conversation = job.conversation
    if conversation is not None:
        conversation.flush(entry.time)
        conversation.show_attempt()
        conversation.add(entry)
    watched = worker.conversation
    if watched is not None:
        if entry.time > watched.until:
            worker.conversation = None
        else:
            watched.add(WorkerEntry(entry, job.id, job.service.name, job.owner.principal.name))


def caller_lane(job: Job, caller: Caller) -> str:
    """Return the lane of a caller in the conversation of its job."""
    assert job.conversation is not None
    return job.conversation.lane(CALLER, "", *caller_facts(caller))


def caller_facts(caller: Caller) -> tuple[str, str]:
    """Return the address of a caller, and its dialect. The client of an operation has the dialect of its request."""
    asker = getattr(caller, "responder", caller)
    name = getattr(asker, "label", "") or getattr(getattr(asker, "peer", None), "label", "") or caller.owner.label
    return address_of(str(name)), getattr(asker, "dialect", "") or dialect_of(caller.recipient)


def address_of(label: str) -> str:
    """Return the label of an owner or a connection as the name of a lane."""
    return "this machine" if label.startswith(("this ", "HTTP on this ")) else label.removeprefix("address ")


def worker_lane(attempt: Attempt) -> str:
    """Return the lane of a worker, which is added to the conversation of its job."""
    worker = attempt.worker
    key = f"w{worker.id}"
    conversation = attempt.job.conversation
    if conversation is not None:
        conversation.lane(WORKER, key, worker.name, dialect_of(worker.recipient))
    return key
