"""R241: brokers that have just started, or that NATS does not reach, deny no job that exists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import PATIENCE, Member, enqueue, initialise, start_members, start_nats, wait_for_balance

from dragoman import BrokerUnavailable, Client, JobRefused, NotFound
from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
JOBS = 8


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


def comes_after(client: Client[bytes], id: str) -> str:
    return client.enqueue("s", b"", after=[id])


def refusals(url: str, ids: list[str]) -> list[JobRefused]:
    """Ask a broker about each job in several ways. Returns the errors."""
    found: list[JobRefused] = []
    with closing(Client(url)) as client:
        for id in ids:
            asks = (
                client.job,
                client.result,
                client.why,
                client.cancel,
                lambda id: client.enqueue("s", b"", after=[id]),
            )
            for ask in asks:
                try:
                    ask(id)
                except JobRefused as problem:
                    found.append(problem)
    return found


def test_a_broker_that_starts_while_nats_is_away_denies_no_job(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    """`404 no job has this id: it never existed, or its outcome was deleted` until NATS was back, and empty lists that
    said that they were complete."""
    initialise(programs, nats.url)
    members = start_members(programs, nats, ("eu1", "eu2"), listeners=LISTENERS)
    wait_for_balance(members)
    ids = [enqueue(members, "unserved", b"x", f"k{number}")[0] for number in range(JOBS)]
    nats.kill()
    late = Member(programs, nats, "eu3", listeners=LISTENERS)
    late.wait()
    problems = refusals(late.url, ids)
    assert len(problems) == 5 * JOBS
    assert all("NATS is not reached" in str(each) for each in problems), problems[0]
    with closing(Client(late.url)) as client, pytest.raises(JobRefused, match="NATS is not reached"):
        list(client.jobs())
    nats.start()

    def is_found() -> bool:
        with closing(Client(late.url)) as client:
            try:
                return [client.job(id).id for id in ids] == ids
            except NotFound:
                raise
            except (JobRefused, BrokerUnavailable):
                return False

    until(is_found, "the jobs are found at the late broker", PATIENCE)
    with closing(Client(late.url)) as client:
        until(lambda: len(list(client.jobs())) == JOBS, "the list has all jobs", PATIENCE)

        def is_denied() -> bool:
            try:
                client.job("ab" * 15 + ids[0][-2:])
            except NotFound:
                return True
            except JobRefused:
                return False
            raise AssertionError("a job that does not exist was found")

        until(is_denied, "a job that does not exist is denied", PATIENCE)
