"""The transition tables; the only code that assigns a state."""

from __future__ import annotations

from dragoman.core.model import InvariantBroken, Job, JobState, Worker, WorkerState

JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.DELAYED, JobState.RUNNING, JobState.ENDED}),
    JobState.DELAYED: frozenset({JobState.WAITING, JobState.ENDED}),
    JobState.RUNNING: frozenset({JobState.WAITING, JobState.DELAYED, JobState.ENDED}),
    JobState.ENDED: frozenset(),
}

WORKER_MOVES: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.BOOTING: frozenset({WorkerState.IDLE, WorkerState.DRAINING, WorkerState.GONE}),
    WorkerState.IDLE: frozenset({WorkerState.BUSY, WorkerState.DRAINING, WorkerState.GONE}),
    WorkerState.BUSY: frozenset(
        {WorkerState.IDLE, WorkerState.UNPROVEN, WorkerState.DRAINING, WorkerState.GONE},
    ),
    WorkerState.UNPROVEN: frozenset({WorkerState.IDLE, WorkerState.DRAINING, WorkerState.GONE}),
    WorkerState.DRAINING: frozenset({WorkerState.GONE}),
    WorkerState.GONE: frozenset(),
}


def move_job(job: Job, to: JobState) -> None:
    if to not in JOB_MOVES[job.state]:
        raise InvariantBroken(f"job {job.id.hex()} may not go from {job.state} to {to}")
    job.state = to


def move_worker(worker: Worker, to: WorkerState) -> None:
    if to not in WORKER_MOVES[worker.state]:
        raise InvariantBroken(f"worker {worker.id} ({worker.name}) may not go from {worker.state} to {to}")
    worker.state = to


def settle(worker: Worker) -> WorkerState:
    """Bring a working worker's state in line with its slots: idle while one is free."""
    state = worker.state
    if state is WorkerState.BOOTING or state is WorkerState.DRAINING or state is WorkerState.GONE:
        return state
    if len(worker.running) + len(worker.unproven) < worker.terms.capacity:
        fitting = WorkerState.IDLE
    elif worker.running:
        fitting = WorkerState.BUSY
    else:
        fitting = WorkerState.UNPROVEN
    if fitting is not state:
        move_worker(worker, fitting)
    return fitting
