"""Limits of a service over all brokers of a cluster, with a real NATS server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_members import PATIENCE, initialise, start_members, start_nats, wait_for_owners

from dragoman import Client
from nats_servers import NatsServer
from programs import Programs, until

MOST = 3
JOBS = 12  # of each broker


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


def test_limit_holds_over_three_brokers(programs: Programs, nats: NatsServer, tmp_path: Path) -> None:
    initialise(programs, nats.url)
    members = start_members(programs, nats, listeners=("tcp://127.0.0.1:0",))
    wait_for_owners(members)
    folder = tmp_path / "runs"
    folder.mkdir()
    clients = [Client(member.url) for member in members]
    try:
        clients[0].limit("counts", max_running=MOST)
        for client in clients:
            until(lambda client=client: _limit_of(client) == MOST, "the limit is known", PATIENCE)
        for member in members:
            member.worker("counts", "counts", threads=6)
        for member in members:
            until(lambda member=member: member.offers("counts"), "the service is offered", PATIENCE)
        jobs = [client.submit("counts", str(folder).encode()) for client in clients for _ in range(JOBS)]
        until(lambda: _waits_for_cluster(clients), "a job waits for the limit of the cluster", PATIENCE)
        (folder / "go").touch()
        seen = [int(job.result(PATIENCE)) for job in jobs]
    finally:
        for client in clients:
            client.close()
    assert len(seen) == 3 * JOBS
    assert max(seen) == MOST


def _limit_of(client: Client[bytes]) -> int | None:
    services = {each.name: each for each in client.services()}
    limits = services["counts"].limits if "counts" in services else None
    return None if limits is None else limits.max_running


def _waits_for_cluster(clients: list[Client[bytes]]) -> bool:
    for client in clients:
        for job in client.jobs(service="counts"):
            if f"runs {MOST} of {MOST} jobs in the cluster" in client.why(job.id):
                return True
    return False
