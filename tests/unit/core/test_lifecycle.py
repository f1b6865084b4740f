"""The transition tables: every pair of states is either in them or stops the process (I9)."""

from __future__ import annotations

import re
from itertools import product
from math import inf
from pathlib import Path

import pytest

import dragoman.core
from case_tables import check_every_row
from dragoman.core.errors import InvariantBroken
from dragoman.core.lifecycle import JOB_MOVES, WORKER_MOVES, move_job, move_worker, settle
from dragoman.core.model import Attempt, Job, JobId, Service, Token, Worker, WorkerId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.recipients import Recipient
from dragoman.core.states import JobState, WorkerState
from owners import LOCAL_OWNER

JOB_TABLE = {
    JobState.WAITING: {JobState.DEPENDENT, JobState.DELAYED, JobState.RUNNING, JobState.ENDED},
    JobState.DEPENDENT: {JobState.WAITING, JobState.DELAYED, JobState.ENDED},
    JobState.DELAYED: {JobState.WAITING, JobState.ENDED},
    JobState.RUNNING: {JobState.WAITING, JobState.DELAYED, JobState.ENDED},
    JobState.ENDED: set(),
}

WORKING = {WorkerState.IDLE, WorkerState.BUSY, WorkerState.STUCK, WorkerState.BACKING_OFF, WorkerState.DETACHED}
STOPPING = {WorkerState.DRAINING, WorkerState.GONE}
WORKER_TABLE = {
    WorkerState.STARTING: {WorkerState.IDLE} | STOPPING,
    WorkerState.IDLE: WORKING - {WorkerState.IDLE, WorkerState.STUCK, WorkerState.BACKING_OFF} | STOPPING,
    WorkerState.BUSY: WORKING - {WorkerState.BUSY} | STOPPING,
    WorkerState.STUCK: WORKING - {WorkerState.STUCK} | STOPPING,
    WorkerState.BACKING_OFF: WORKING - {WorkerState.BACKING_OFF, WorkerState.STUCK} | STOPPING,
    WorkerState.DETACHED: WORKING - {WorkerState.DETACHED} | STOPPING,
    WorkerState.DRAINING: {WorkerState.GONE},
    WorkerState.GONE: set(),
}


def a_job(state: JobState = JobState.WAITING) -> Job:
    job = Job(JobId(b"j" * 16), Service("s", 60.0), b"", (), JobOptions(), 0.0, LOCAL_OWNER)
    job.state = state
    return job


def a_worker(state: WorkerState, capacity: int = 1, away_since: float = inf) -> Worker:
    worker = Worker(WorkerId(1), Recipient(), None, "w", WorkerProfile(capacity=capacity), 0.0, LOCAL_OWNER)
    worker.state = state
    worker.away_since = away_since
    return worker


def test_job_moves_along_the_table_only() -> None:
    """I9: ended is final."""

    def check(before: JobState, after: JobState) -> None:
        job = a_job(before)
        if after in JOB_TABLE[before]:
            move_job(job, after)
            assert job.state is after
        else:
            with pytest.raises(InvariantBroken, match=f"may not go from {before} to {after}"):
                move_job(job, after)
            assert job.state is before

    check_every_row(check, product(JobState, repeat=2))


def test_job_in_quarantine_may_wait_again() -> None:
    """R135."""
    job = a_job(JobState.ENDED)
    job.quarantined = True
    move_job(job, JobState.WAITING)
    assert job.state is JobState.WAITING


def test_worker_moves_along_the_table_only() -> None:
    def check(before: WorkerState, after: WorkerState) -> None:
        worker = a_worker(before)
        if after in WORKER_TABLE[before]:
            move_worker(worker, after)
            assert worker.state is after
        else:
            with pytest.raises(InvariantBroken, match=f"may not go from {before} to {after}"):
                move_worker(worker, after)
            assert worker.state is before

    check_every_row(check, product(WorkerState, repeat=2))


def test_every_state_has_a_row() -> None:
    assert set(JOB_MOVES) == set(JobState)
    assert set(WORKER_MOVES) == set(WorkerState)


@pytest.mark.parametrize("state", [state for state in WorkerState if state is not WorkerState.GONE])
def test_every_worker_may_go_and_nobody_comes_back(state: WorkerState) -> None:
    assert WorkerState.GONE in WORKER_MOVES[state]
    assert not WORKER_MOVES[WorkerState.GONE]


@pytest.mark.parametrize(
    ("running", "stuck", "fitting"),
    [
        (0, 0, WorkerState.IDLE),
        (1, 0, WorkerState.IDLE),
        (0, 1, WorkerState.IDLE),
        (2, 0, WorkerState.BUSY),
        (1, 1, WorkerState.BUSY),
        (0, 2, WorkerState.STUCK),
    ],
)
def test_state_of_a_working_worker_follows_its_slots(running: int, stuck: int, fitting: WorkerState) -> None:
    """D11: stuck attempts are counted for each slot."""
    worker = a_worker(WorkerState.BUSY, capacity=2)
    for number in range(running + stuck):
        held = worker.running if number < running else worker.stuck
        token = Token(bytes([number]) * 16)
        held[token] = Attempt(a_job(), 1, token, worker, 0.0, 60.0)
    assert settle(worker) is worker.state is fitting


@pytest.mark.parametrize("state", [WorkerState.STARTING, WorkerState.DRAINING, WorkerState.GONE])
def test_worker_that_does_not_work_is_not_settled(state: WorkerState) -> None:
    assert settle(a_worker(state)) is state


@pytest.mark.parametrize("state", [WorkerState.IDLE, WorkerState.BUSY, WorkerState.STUCK, WorkerState.DETACHED])
def test_working_worker_that_is_out_of_reach_is_detached_whatever_it_holds(state: WorkerState) -> None:
    """R64."""
    worker = a_worker(state, away_since=5.0)
    if state in (WorkerState.BUSY, WorkerState.STUCK):
        held = worker.running if state is WorkerState.BUSY else worker.stuck
        held[Token(b"t" * 16)] = Attempt(a_job(), 1, Token(b"t" * 16), worker, 0.0, 60.0)
    assert settle(worker) is worker.state is WorkerState.DETACHED


@pytest.mark.parametrize(
    ("held", "fitting"),
    [(None, WorkerState.IDLE), ("running", WorkerState.BUSY), ("stuck", WorkerState.STUCK)],
)
def test_detached_worker_that_is_within_reach_again_is_what_its_slots_say(
    held: str | None, fitting: WorkerState
) -> None:
    """R64."""
    worker = a_worker(WorkerState.DETACHED)
    if held is not None:
        getattr(worker, held)[Token(b"t" * 16)] = Attempt(a_job(), 1, Token(b"t" * 16), worker, 0.0, 60.0)
    assert settle(worker) is worker.state is fitting


@pytest.mark.parametrize("state", [WorkerState.STARTING, WorkerState.DRAINING, WorkerState.GONE])
def test_worker_that_does_not_work_is_not_detached(state: WorkerState) -> None:
    """R64: a draining worker that is not reachable continues to drain."""
    assert settle(a_worker(state, away_since=5.0)) is state


def test_only_lifecycle_assigns_states() -> None:
    for path in Path(dragoman.core.__file__).parent.glob("*.py"):
        if path.name not in ("lifecycle.py", "model.py"):
            assert not re.search(r"\b\w+\.state = ", path.read_text()), path
