"""Operations in a cluster: asked at any broker, they are answered by the broker that has the object."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import PATIENCE, Member, enqueue_at, initialise, start_members, start_nats, wait_for_balance

from dragoman import Client, JobFailed, JobRefused, NewJob, NotFound
from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.table import JOBS
from nats_servers import NatsServer
from programs import Programs, until

LARGE = 3 << 20  # bytes: more than NATS takes in one message


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
def members(programs: Programs, nats: NatsServer) -> list[Member]:
    initialise(programs, nats.url)
    made = start_members(programs, nats, ("eu1", "eu2"))
    wait_for_balance(made)
    return made


def test_every_operation_about_a_job_is_answered_at_the_other_broker(members: list[Member], tmp_path: Path) -> None:
    first, second = members
    first.worker("upper", "upper")
    first.worker("waits", "waits")
    first.worker("fails", "fails")
    with closing(Client(first.url)) as near, closing(Client(second.url)) as far:
        until(lambda: all(map(first.offers, ("upper", "waits", "fails"))), "the services are offered", PATIENCE)
        payload = b"a" * LARGE
        done = enqueue_at(first, "upper", payload, delay=2.0)
        assert far.payload(done) == payload
        assert "submitted with a delay" in far.why(done)
        assert far.result(done, PATIENCE) == payload.upper()  # waits at the other broker
        assert (far.job(done).broker, near.job(done).broker, far.job(done).outcome) == ("eu1", "eu1", "done")

        cancelled = enqueue_at(first, "nobody", b"x")
        assert far.job(cancelled).state == "waiting"
        far.cancel(cancelled)
        assert near.job(cancelled).outcome == "cancelled"

        failed = enqueue_at(first, "fails", b"x", attempts=1)
        with pytest.raises(JobFailed, match="it fails"):
            far.result(failed, PATIENCE)
        [cause] = far.quarantine()
        assert (cause.count, cause.example, cause.brokers) == (1, failed, ["eu1"])
        again = far.retry(failed)
        assert near.job(failed).retried_as == again
        assert far.ladder(done).job == done

        group = near.enqueue_group("upper", [b"a", b"b", b"c"])
        assert far.group_results(group, PATIENCE) == [b"A", b"B", b"C"]
        assert far.group(group).done == 3
        open_group = near.enqueue_group("nobody", [b"a", b"b"])
        assert far.cancel_group(open_group).outcomes == {"cancelled": 2}

        chain = [one := NewJob("upper", b"x"), NewJob("upper", after=[one], input="result")]
        assert near.result(near.enqueue_jobs(chain)[1], PATIENCE) == b"X"

        running = near.submit("waits", str(tmp_path).encode())
        until(lambda: (tmp_path / "started").exists(), "the call runs", PATIENCE)
        [call] = [each for each in far.jobs(service="waits") if each.state == "running"]
        assert (call.broker, far.job(call.id).background) == ("eu1", False)
        (tmp_path / "go").touch()
        assert running.result(PATIENCE) == b"went"

        with pytest.raises(NotFound, match="no job has id"):
            far.job("0" * 32)


def test_lists_show_the_whole_cluster(members: list[Member], programs: Programs, tmp_path: Path) -> None:
    first, second = members
    first.worker("upper", "upper")
    second.worker("upper", "upper")
    second.worker("waits", "waits")
    with closing(Client(first.url)) as near, closing(Client(second.url)) as far:
        until(lambda: len(near.workers()) == 3 and first.offers("waits"), "all workers have joined", PATIENCE)
        ids = []
        for number in range(6):
            ids.append(enqueue_at(members[number % 2], "upper", b"%d" % number, attempts=1))
        for id in ids:
            near.result(id, PATIENCE)
        for client in (near, far):
            listed = client.jobs(service="upper")
            assert [each.id for each in listed] == sorted(ids, reverse=True)
            assert {each.broker for each in listed} == {"eu1", "eu2"}
            pages = pages_of(client, "upper", 2)
            assert [id for page in pages for id in page] == sorted(ids, reverse=True)
            assert [len(page) for page in pages] == [2, 2, 2]
            assert [each.broker for each in client.workers()].count("eu2") == 2
            assert {each.dialect for each in client.workers()} == {"native"}
            [service] = [each for each in client.services() if each.name == "upper"]
            assert (service.workers, service.brokers) == (2, ["eu1", "eu2"])
            assert service.ended == {"done": 6}
            assert (client.service("upper").workers, client.job_counts().done) == (2, 6)

        job = enqueue_at(first, "waits", str(tmp_path).encode())  # its worker is at eu2
        until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
        for client in (near, far):
            assert [(each.id, each.broker) for each in client.jobs(state="running")] == [(job, "eu1")]
            assert client.job_counts().running == 1
            assert client.service("waits").running == 1
            assert client.job(job).background
        (tmp_path / "go").touch()
        assert far.result(job, PATIENCE) == b"went"

        [worker] = [each for each in near.workers() if each.services == ["waits"]]
        assert near.worker(worker.id).broker == "eu2"
        near.drain(worker.id)
        until(lambda: "waits" not in [name for each in far.workers() for name in each.services], "it left", PATIENCE)

        near.set_schedule("nightly", "upper", every=3600.0)
        [schedule] = far.schedules()
        assert schedule.broker == near.schedule("nightly").broker == far.schedule("nightly").broker
        far.delete_schedule("nightly")
        assert near.schedules() == []

        assert far.purge("upper", states=("ended",)) == 6
        assert near.jobs(service="upper") == []

    done = programs.run("workers", "--connect", first.url)
    assert done.ends() == 0
    assert "BROKER" in done.out
    listed = programs.run("jobs", "--json", "--connect", first.urls["http"])
    assert listed.ends() == 0
    assert [json.loads(line)["broker"] for line in listed.out.splitlines()] == ["eu1"]


def test_a_broker_that_does_not_answer_is_named_and_its_jobs_move(members: list[Member], programs: Programs) -> None:
    first, second = members
    with closing(Client(first.url)) as near, closing(Client(second.url)) as far:
        job = enqueue_at(second, "nobody", b"x")
        assert near.job(job).broker == "eu2"
        second.program.signal(signal.SIGSTOP)
        try:
            done = programs.run("jobs", "--connect", first.url)
            assert done.ends() == 0
            assert "Broker eu2 has not answered" in done.err
            until(lambda: broker_of(near, job) == "eu1", "its shard has moved", PATIENCE)
        finally:
            second.program.signal(signal.SIGCONT)
        until(lambda: broker_of(far, job) == broker_of(near, job) is not None, "both know who has it", PATIENCE)


def broker_of(client: Client[bytes], job: str) -> str | None:
    """Return the broker that has a job; None while its shard moves."""
    try:
        return str(client.job(job).broker)
    except JobRefused:
        return None


def pages_of(client: Client[bytes], service: str, limit: int) -> list[list[str]]:
    """Return the ids of all jobs of a service, page by page."""
    request = ListJobsRequest(service=service, limit=limit)
    pages = []
    while True:
        view = client.operation(JOBS, request)
        pages.append([each.id for each in view.jobs])
        if view.after is None:
            return pages
        request = ListJobsRequest(service=service, limit=limit, after=view.after)
