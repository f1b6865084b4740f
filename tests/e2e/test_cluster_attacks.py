"""Attacks on a cluster: logs that are purged, deleted or restored from an older copy, and rolling restarts."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import (
    PATIENCE,
    Member,
    enqueue,
    enqueue_at,
    initialise,
    start_members,
    start_nats,
    view_of,
    wait_for_balance,
)

from dragoman import Client
from dragoman.operations.cluster_schemas import ShardView
from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0",)
JOBS = 24


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


def shards_at(member: Member) -> list[ShardView]:
    with closing(Client(member.url)) as client:
        return client.cluster().shards


def owned_by(member: Member) -> list[int]:
    return [each.number for each in shards_at(member) if each.state == "owned"]


def purge(nats: NatsServer, shard: int) -> None:
    assert nats.ask(f"$JS.API.STREAM.PURGE.DGM_dragoman_{shard:02}")["success"]


def delete(nats: NatsServer, shard: int) -> None:
    assert nats.ask(f"$JS.API.STREAM.DELETE.DGM_dragoman_{shard:02}")["success"]


@pytest.mark.parametrize(("attack", "reason"), [(purge, "purged"), (delete, "cannot be used")])
def test_a_log_that_was_emptied_or_deleted_is_not_claimed(
    members: list[Member], nats: NatsServer, attack: Callable[[NatsServer, int], None], reason: str
) -> None:
    """C9: its owner dies afterwards. The others say what is wrong, and take the shards that are whole."""
    first, second, third = members
    for number in range(JOBS):
        enqueue(members, "writes", b"x", f"k{number}")
    lost = owned_by(first)[0]
    first.program.kill()
    attack(nats, lost)
    left = [second, third]
    until(lambda: sum(each.shards() for each in left) == 3, "the others are owned", PATIENCE)

    def problems() -> list[str]:
        return [each.problem for member in left for each in shards_at(member) if each.state == "unusable"]

    found = until(problems, "the shard is unusable", PATIENCE)
    assert reason in found[0], found
    assert not [each for member in left for each in owned_by(member) if each == lost]


def test_an_older_copy_of_the_logs_is_not_claimed(members: list[Member], nats: NatsServer, tmp_path: Path) -> None:
    """C9: NATS is started with its files of an hour ago. What was acknowledged since is not there: nobody claims."""
    enqueue(members, "writes", b"x", "before")
    nats.kill()
    shutil.copytree(tmp_path / "nats" / "data", tmp_path / "copy")
    nats.start()
    for member in members:
        until(lambda member=member: member.knows() and member.shards(), f"{member.name} is back", PATIENCE)
    later = [enqueue(members, "writes", b"x", f"later {number}") for number in range(JOBS)]
    owners = {member.name for _, member in later}
    nats.kill()
    shutil.rmtree(tmp_path / "nats" / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "nats" / "data")
    victim = next(each for each in members if each.name in owners)
    victim.program.kill()
    nats.start()
    left = [each for each in members if each is not victim]

    def problems() -> list[str]:
        return [each.problem for member in left for each in shards_at(member) if each.state == "unusable"]

    found = until(problems, "a shard is unusable", PATIENCE)
    assert "it has lost messages" in found[0], found


def test_a_rolling_restart_loses_nothing_and_runs_nothing_twice(
    programs: Programs, members: list[Member], nats: NatsServer, tmp_path: Path
) -> None:
    """All brokers are stopped and started one after the other, while jobs of one attempt arrive and run."""
    folder = tmp_path / "runs"
    folder.mkdir()
    present = list(members)
    for member in present:
        member.worker("writes", "writes")
    jobs: dict[str, str] = {}
    is_over = threading.Event()

    def submit() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            id, _ = enqueue(list(present), "writes", f"{folder}/{number}".encode(), f"k{number}", attempts=1)
            jobs[id] = str(number)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        for index, old in enumerate(members):
            count = len(jobs)
            until(lambda count=count: len(jobs) > count + 5, "jobs arrive", PATIENCE)
            old.program.signal(signal.SIGTERM)
            assert old.program.ends(PATIENCE) == 0
            new = Member(programs, nats, old.name, listeners=LISTENERS)
            new.wait()
            present[index] = new
            new.worker("writes", "writes")
            until(lambda new=new: len(new.knows()) == 3, f"{new.name} is back", PATIENCE)
    finally:
        is_over.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()

    def all_done() -> bool:
        return all(getattr(view_of(present, id), "outcome", None) is not None for id in jobs)

    until(all_done, "all jobs have ended", PATIENCE)
    assert {getattr(view_of(present, id), "outcome", None) for id in jobs} == {"done"}
    runs = {each.name: each.read_text().count("run") for each in folder.iterdir()}
    assert runs == dict.fromkeys(jobs.values(), 1)


def test_a_broker_that_stops_does_not_wait_for_attempts_elsewhere(members: list[Member], tmp_path: Path) -> None:
    """Its job runs at a worker of another broker. The job is handed over, and the broker ends while it still runs."""
    first, second, third = members
    second.worker("waits", "waits")
    until(lambda: first.offers("waits"), "the service is offered", PATIENCE)
    job = enqueue_at(first, "waits", str(tmp_path).encode(), attempts=1)
    until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
    first.program.signal(signal.SIGTERM)
    assert first.program.ends(PATIENCE) == 0
    left = [second, third]
    until(lambda: view_of(left, job) is not None, "another broker has it", PATIENCE)
    view = view_of(left, job)
    assert view is not None
    assert view.state == "running"
    (tmp_path / "go").touch()
    until(lambda: getattr(view_of(left, job), "outcome", None) is not None, "it has ended", PATIENCE)
    view = view_of(left, job)
    assert view is not None
    assert (view.outcome, len(view.attempts), (tmp_path / "started").read_text()) == ("done", 1, "x")
