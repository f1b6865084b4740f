"""The transition tables; the only code that assigns a state."""

from __future__ import annotations

from typing import Final

from dragoman.core.errors import InvariantBroken
from dragoman.core.infinity import inf
from dragoman.core.job_counting import count_job
from dragoman.core.model import Job, Worker
from dragoman.core.states import (
    BACKING_OFF,
    BUSY,
    DELAYED,
    DEPENDENT,
    DETACHED,
    DRAINING,
    ENDED,
    GONE,
    IDLE,
    RUNNING,
    STARTING,
    STUCK,
    WAITING,
    JobState,
    WorkerState,
)

JOB_MOVES: Final[dict[JobState, frozenset[JobState]]] = {
    WAITING: frozenset({DEPENDENT, DELAYED, RUNNING, ENDED}),
    DEPENDENT: frozenset({WAITING, DELAYED, ENDED}),  # `core/dependencies.py`
    DELAYED: frozenset({WAITING, ENDED}),
    RUNNING: frozenset({WAITING, DELAYED, ENDED}),
    ENDED: frozenset({WAITING}),  # only a quarantined job, which is released (R135)
}

WORKER_MOVES: Final[dict[WorkerState, frozenset[WorkerState]]] = {
    STARTING: frozenset({IDLE, DRAINING, GONE}),
    IDLE: frozenset({BUSY, DETACHED, DRAINING, GONE}),
    BUSY: frozenset({IDLE, STUCK, BACKING_OFF, DETACHED, DRAINING, GONE}),
    STUCK: frozenset({IDLE, BUSY, BACKING_OFF, DETACHED, DRAINING, GONE}),
    BACKING_OFF: frozenset({IDLE, BUSY, DETACHED, DRAINING, GONE}),
    DETACHED: frozenset({IDLE, BUSY, STUCK, BACKING_OFF, DRAINING, GONE}),
    DRAINING: frozenset({GONE}),
    GONE: frozenset(),
}


def move_job(job: Job, to: JobState) -> None:
    """Change the state of a registered job, and the counts of its principal and its service."""
    state = job.state
    principal = job.owner.principal
    is_plain = job.service.limits is None and job.options.is_limited
    if state is WAITING and to is RUNNING and is_plain:  # shortcut past the table: nearly all jobs make these two moves
        principal.waiting -= 1
        principal.waiting_bytes -= len(job.payload)
        principal.running += 1
        job.state = to
        return
    if state is RUNNING and to is ENDED and is_plain:
        principal.running -= 1
        job.state = to
        return
    if to not in JOB_MOVES[state] or (state is ENDED and not job.quarantined):
        raise InvariantBroken(f"job {job.id.hex()} may not go from {job.state} to {to}")
    job.state = to
    count_job(job, state, -1)
    count_job(job, to, 1)


def move_worker(worker: Worker, to: WorkerState) -> None:
    if to not in WORKER_MOVES[worker.state]:
        raise InvariantBroken(f"worker {worker.id} ({worker.name}) may not go from {worker.state} to {to}")
    worker.state = to


def settle(worker: Worker) -> WorkerState:
    """Set the worker's state from its slots. It is idle if a slot is free, it is not detached, and it requests jobs.
    The slots of a worker that is behind count as taken (R206)."""
    state = worker.state
    if state is BUSY and not worker.running and not worker.stuck and worker.away_since == inf and worker.asked > 0:
        worker.state = IDLE  # shortcut past the table for the most frequent move
        return IDLE
    if state is STARTING or state is DRAINING or state is GONE:
        return state
    if worker.away_since != inf:
        new_state = DETACHED
    elif len(worker.running) + len(worker.stuck) < worker.profile.capacity:
        new_state = IDLE if worker.asked > 0 else BUSY if worker.is_behind else DETACHED
    elif worker.running:
        new_state = BUSY
    else:
        new_state = BACKING_OFF if list(worker.stuck) == [worker.refused] else STUCK
    if new_state is not state:
        move_worker(worker, new_state)
    return new_state
