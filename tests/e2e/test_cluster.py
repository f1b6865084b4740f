"""Brokers of one cluster, with a real NATS server: jobs run wherever a worker is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import PATIENCE, Member, enqueue_at, initialise, start_members, start_nats, wait_for_balance

from dragoman import Client, JobRefused
from nats_servers import NatsServer
from programs import Programs, until


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
def members(programs: Programs, nats: NatsServer) -> list[Member]:
    initialise(programs, nats.url)
    return start_members(programs, nats)


def test_callers_of_every_dialect_reach_workers_of_every_dialect_at_another_broker(
    programs: Programs, members: list[Member]
) -> None:
    first, second, third = members
    workers = {"native": "from-native", "majordomo": "from-majordomo", "memodb": "from-memodb", "pingpong": "pingpong"}
    for dialect, service in workers.items():
        second.worker("upper", service, dialect)
    for member in (first, third):
        for service in workers.values():
            until(lambda member=member, service=service: member.offers(service), f"{service} is offered", PATIENCE)
    for member in (first, third):
        for dialect in ("native", "http", "majordomo", "memodb"):
            for service in workers.values():
                done = programs.run("call", service, "hello", "--connect", member.urls[dialect])
                assert (done.ends(), done.out_bytes) == (0, b"HELLO"), (dialect, service, done.err)


def test_progress_and_cancel_travel(members: list[Member], tmp_path: Path) -> None:
    first, second, _ = members
    second.worker("waits", "waits")
    second.worker("reports", "reports")
    until(lambda: first.offers("waits") and first.offers("reports"), "both services are offered", PATIENCE)
    with closing(Client(first.url)) as client:
        job = client.submit("reports", b"x")
        assert job.result(PATIENCE) == b"x"
        cancelled = client.submit("waits", str(tmp_path).encode())
        until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
        assert cancelled.cancel()
        with pytest.raises(CancelledError):
            cancelled.result(PATIENCE)
        until(lambda: (tmp_path / "cancelled").exists(), "its handler is told", PATIENCE)


def test_a_job_at_a_broker_that_is_killed_is_tried_again_elsewhere(members: list[Member], tmp_path: Path) -> None:
    first, second, third = members
    second.worker("waits", "waits")
    until(lambda: first.offers("waits"), "the service is offered", PATIENCE)
    wait_for_balance(members)
    payload = str(tmp_path).encode()
    with closing(Client(first.url)) as client:
        job = enqueue_at(first, "waits", payload, attempts=2, retry_first=0.1)
        until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
        second.program.kill()
        (tmp_path / "go").touch()
        third.worker("waits", "waits")
        assert client.result(job, PATIENCE) == b"went"
        view = client.job(job)
    assert [(each.worker, each.outcome, each.reason) for each in view.attempts] == [
        ("eu2", "lost", "broker eu2 is gone"),
        ("eu3", "done", ""),
    ]


def test_local_work_goes_on_without_nats(members: list[Member], nats: NatsServer) -> None:
    first, second, _ = members
    first.worker("upper", "mine")
    second.worker("upper", "theirs")
    until(lambda: first.offers("mine") and first.offers("theirs"), "both services are offered", PATIENCE)
    with closing(Client(first.url)) as client:
        assert (client.call("mine", b"a"), client.call("theirs", b"b")) == (b"A", b"B")
        nats.kill()
        until(lambda: not client.cluster().connected, "the connection ended", PATIENCE)
        assert client.call("mine", b"a") == b"A"
        with pytest.raises(JobRefused, match="partitioned: workers for 'theirs' are at brokers that are not heard"):
            client.call("theirs", b"b")
        nats.start()
        until(lambda: first.offers("theirs"), "it is offered again", PATIENCE)
        assert client.call("theirs", b"b") == b"B"


def test_a_broker_that_stops_finishes_the_jobs_of_others(members: list[Member], tmp_path: Path) -> None:
    first, second, _ = members
    second.worker("waits", "waits")
    until(lambda: first.offers("waits"), "the service is offered", PATIENCE)
    with closing(Client(first.url)) as client:
        job = client.submit("waits", str(tmp_path).encode())
        until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
        second.program.signal(signal.SIGTERM)
        second.program.prints("draining")
        (tmp_path / "go").touch()
        assert job.result(PATIENCE) == b"went"
    assert second.program.ends(PATIENCE) == 0
