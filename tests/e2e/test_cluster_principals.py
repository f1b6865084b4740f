"""Limits of a principal over all brokers of a cluster, with a real NATS server and an access folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from cluster_members import PATIENCE, Member, initialise, start_members, start_nats, wait_for_owners

from dragoman import Client, JobRefused
from nats_servers import NatsServer
from programs import Programs, until

TOKEN = "dgm_" + "k" * 43
MOST = 3
JOBS = 8  # of each broker
RATE = 10  # submits a second
SECONDS = 10.0
WAITING = 60


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


def start(programs: Programs, nats: NatsServer, folder: Path, limits: str) -> list[Member]:
    """Start three brokers with the principal `web`. The first listener is that of `local`, the second needs a token."""
    access = folder / "access"
    access.mkdir(mode=0o700)
    file = access / "web.toml"
    file.write_text(f'token = ["sha256:{sha256(TOKEN.encode()).hexdigest()}"]\ncall = ["*"]\n{limits}\n')
    file.chmod(0o600)
    initialise(programs, nats.url)
    listeners = ("tcp://127.0.0.1:0?auth=token", "tcp://127.0.0.1:0")
    members = start_members(programs, nats, listeners=listeners, flags=("--set", f"access={access}"))
    wait_for_owners(members)
    return members


def clients_of(members: list[Member]) -> list[Client[bytes]]:
    return [Client(member.places[0], token=TOKEN) for member in members]


def test_running_jobs_of_a_principal_are_limited_over_three_brokers(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    members = start(programs, nats, tmp_path, f"max_running = {MOST}")
    folder = tmp_path / "runs"
    folder.mkdir()
    for member in members:
        member.worker("counts", "counts", threads=6)
    for member in members:
        until(lambda member=member: member.offers("counts"), "the service is offered", PATIENCE)
    clients = clients_of(members)
    try:
        jobs = [client.submit("counts", str(folder).encode()) for client in clients for _ in range(JOBS)]
        until(lambda: _waits_for_cluster(members[0]), "a job waits for the limit of the cluster", PATIENCE)
        (folder / "go").touch()
        seen = [int(job.result(PATIENCE)) for job in jobs]
    finally:
        for client in clients:
            client.close()
    assert len(seen) == 3 * JOBS
    assert max(seen) == MOST


def test_submits_of_a_principal_are_limited_over_three_brokers(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    members = start(programs, nats, tmp_path, f"max_rate = {RATE}")
    clients = clients_of(members)
    try:
        begin = time.monotonic()
        tried = accepted = 0
        while time.monotonic() < begin + SECONDS:
            tried += 3
            accepted += sum(_is_accepted(client) for client in clients)
        elapsed = time.monotonic() - begin
    finally:
        for client in clients:
            client.close()
    assert accepted <= 1.1 * RATE * (elapsed + 1.0), (accepted, elapsed)  # one second's submits may come at once
    assert accepted >= 0.8 * min(tried, RATE * elapsed), (accepted, tried, elapsed)


def test_waiting_jobs_of_a_principal_are_limited_over_three_brokers(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    members = start(programs, nats, tmp_path, f"max_waiting = {WAITING}")
    clients = clients_of(members)
    accepted = 0

    def is_full() -> bool:
        """Submit at every broker, until each has refused 20 in turn, and the limit is reached."""
        nonlocal accepted
        more = sum(_is_accepted(client) for client in clients for _ in range(20))
        accepted += more
        return not more and accepted >= WAITING

    try:
        until(is_full, "no more may wait", PATIENCE)
    finally:
        for client in clients:
            client.close()
    assert accepted <= 1.1 * WAITING


def _is_accepted(client: Client[bytes]) -> bool:
    try:
        client.enqueue("nobody", b"x")
    except JobRefused as refusal:
        if "of web)" not in str(refusal):
            raise  # it is not for a limit of the principal
        return False
    return True


def _waits_for_cluster(member: Member) -> bool:
    client = Client(member.places[1])
    try:
        whys = [client.why(job.id) for job in client.jobs(service="counts")]
    finally:
        client.close()
    return any(f"web runs {MOST} of {MOST} jobs in the cluster (max_running of web)" in each for each in whys)
