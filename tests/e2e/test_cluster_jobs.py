"""Background jobs of a cluster, on real NATS servers: none is lost, and none has two outcomes, whatever is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_members import (
    PATIENCE,
    Member,
    enqueue,
    initialise,
    start_members,
    start_nats,
    view_of,
    wait_for_balance,
)

from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
JOBS = 200


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
def members(programs: Programs, nats: NatsServer) -> list[Member]:
    initialise(programs, nats.url)
    made = start_members(programs, nats, listeners=LISTENERS)
    wait_for_balance(made)
    return made


def enqueue_many(members: list[Member], folder: Path, count: int = JOBS) -> dict[str, str]:
    """Enqueue jobs that write a line when they run. Returns their names by id."""
    return {
        enqueue(members, "writes", f"{folder}/{number}".encode(), f"k{number}", attempts=20)[0]: str(number)
        for number in range(count)
    }


def all_done(members: list[Member], jobs: dict[str, str]) -> bool:
    views = [view_of(members, id) for id in jobs]
    return all(view is not None and view.outcome == "done" for view in views)


def test_another_broker_adopts_the_jobs_of_an_owner_that_is_killed(members: list[Member], tmp_path: Path) -> None:
    first, second, third = members
    folder = tmp_path / "runs"
    folder.mkdir()
    jobs = enqueue_many(members, folder)
    assert len(jobs) == JOBS
    first.program.kill()
    left = [second, third]
    second.worker("writes", "writes")
    until(lambda: all_done(left, jobs), "all jobs are done", PATIENCE)
    runs = Counter(each.name for each in folder.iterdir())
    assert sorted(runs) == sorted(jobs.values())
