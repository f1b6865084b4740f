"""Workers that go from one broker of a cluster to another with their running jobs: nothing is lost or run twice."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import (
    NAMES,
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
from nats_servers import NatsServer, free_ports
from programs import Program, Programs, until

LISTENERS = ("tcp://127.0.0.1:0",)
SOON = 15.0  # seconds; half of the default of drain_timeout, for busy machines


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


def roaming_worker(programs: Programs, members: list[Member], threads: int = 2) -> Program:
    """Start a worker at the first of these brokers, with the addresses of all."""
    worker = start_worker(programs, url_of_all(members), threads)
    until(lambda: members[0].offers("waits"), "the service is offered", PATIENCE)
    return worker


def start_worker(programs: Programs, url: str, threads: int, function: str = "waits") -> Program:
    words = (f"cluster_handlers:{function}", "--service", function, "--threads", threads, "--connect", url)
    return programs.dragoman("worker", *words)


def job_folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def runs_in(folder: Path) -> str:
    return (folder / "started").read_text() if (folder / "started").exists() else ""


def wait_for_start(folder: Path) -> None:
    until(lambda: runs_in(folder), f"the job {folder.name} runs", PATIENCE)


def has_running(holder: Member) -> bool:
    """True if a worker of this broker runs a job."""
    with closing(Client(holder.url)) as client:
        return any(each.broker == holder.name and each.running for each in client.workers())


def wait_for_end(members: list[Member], job: str) -> tuple[str | None, int]:
    until(lambda: getattr(view_of(members, job), "outcome", None) is not None, "it has ended", PATIENCE)
    view = view_of(members, job)
    assert view is not None
    return view.outcome, len(view.attempts)


def url_of_all(members: list[Member], first: int = 0) -> str:
    """Return the address of one broker, followed by those of the others."""
    places = [each.url.partition("://")[2] for each in members[first:] + members[:first]]
    return "native+tcp://" + ",".join(places)


def stop(member: Member) -> float:
    """Stop a broker. Returns the seconds that it took."""
    began = time.monotonic()
    member.program.signal(signal.SIGTERM)
    assert member.program.ends(PATIENCE) == 0
    return time.monotonic() - began


def members_on_fixed_ports(programs: Programs, nats: NatsServer) -> tuple[list[Member], list[tuple[str]]]:
    """Start brokers whose addresses stay when they are started again. Returns them, and their listeners."""
    initialise(programs, nats.url)
    listeners = [(f"tcp://127.0.0.1:{port}",) for port in free_ports(3)]
    present = [Member(programs, nats, name, listeners=each) for name, each in zip(NAMES, listeners, strict=True)]
    for member in present:
        member.wait()
    wait_for_balance(present)
    return present, listeners


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_broker_that_stops_does_not_wait_for_jobs_that_their_worker_takes_along(
    programs: Programs, members: list[Member], tmp_path: Path, is_owner: bool
) -> None:
    """The worker is at the broker that stops. The job is that broker's own, or another one's."""
    first, second, third = members
    roaming_worker(programs, members)
    folder = job_folder(tmp_path, "job")
    until(lambda: second.offers("waits"), "the second broker knows it", PATIENCE)
    job = enqueue_at(first if is_owner else second, "waits", str(folder).encode(), attempts=1)
    wait_for_start(folder)
    assert stop(first) < SOON
    left = [second, third]
    until(lambda: any(map(has_running, left)), "another broker has the worker", PATIENCE)
    (folder / "go").touch()
    assert wait_for_end(left, job) == ("done", 1)
    assert (runs_in(folder), (folder / "cancelled").exists()) == ("x", False)


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_worker_goes_on_with_its_job_at_another_broker_when_its_broker_is_killed(
    programs: Programs, members: list[Member], tmp_path: Path, is_owner: bool
) -> None:
    first, second, third = members
    roaming_worker(programs, members)
    folder = job_folder(tmp_path, "job")
    until(lambda: second.offers("waits"), "the second broker knows it", PATIENCE)
    job = enqueue_at(first if is_owner else second, "waits", str(folder).encode(), attempts=1)
    wait_for_start(folder)
    first.program.kill()
    left = [second, third]
    until(lambda: any(map(has_running, left)), "another broker has the worker", PATIENCE)
    until(lambda: first.name not in second.knows() and first.name not in third.knows(), "the first is gone", PATIENCE)
    until(lambda: view_of(left, job) is not None, "another broker has the job", PATIENCE)
    (folder / "go").touch()
    assert wait_for_end(left, job) == ("done", 1)
    assert (runs_in(folder), (folder / "cancelled").exists()) == ("x", False)


def test_all_brokers_stop_while_jobs_run(programs: Programs, nats: NatsServer, tmp_path: Path) -> None:
    """The last broker with a worker waited until `drain_timeout` had passed, because no other one was left to take the
    outcomes, and the jobs ran again."""
    initialise(programs, nats.url, shards=3)
    present = start_members(programs, nats, listeners=LISTENERS)
    wait_for_balance(present, shards=3)
    start_worker(programs, present[0].url, threads=3)
    for member in present:
        until(lambda member=member: member.offers("waits"), "the service is offered", PATIENCE)
    folders = [job_folder(tmp_path, f"job{number}") for number in range(3)]
    jobs = [enqueue_at(each, "waits", str(path).encode()) for each, path in zip(present, folders, strict=True)]
    for folder in folders:
        wait_for_start(folder)
    for member in present:
        member.program.signal(signal.SIGTERM)
    for member in present[1:]:
        assert member.program.ends(PATIENCE) == 0
    began = time.monotonic()
    for folder in folders:
        (folder / "go").touch()
    assert present[0].program.ends(PATIENCE) == 0
    assert time.monotonic() - began < SOON, present[0].program.err
    again = start_members(programs, nats, listeners=LISTENERS)
    assert [wait_for_end(again, job) for job in jobs] == [("done", 1)] * 3
    assert [runs_in(each) for each in folders] == ["x"] * 3


def test_a_rolling_restart_does_not_wait_for_running_jobs_and_each_runs_once(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    """Jobs run from before the first stop until after the last start. Their workers go from broker to broker."""
    present, listeners = members_on_fixed_ports(programs, nats)
    for first in range(3):
        start_worker(programs, url_of_all(present, first), threads=2)
    for member in present:
        until(lambda member=member: member.offers("waits"), "the service is offered", PATIENCE)
    folders = [job_folder(tmp_path, f"job{number}") for number in range(6)]
    jobs = [enqueue(present, "waits", str(each).encode(), each.name, attempts=1)[0] for each in folders]
    for folder in folders:
        wait_for_start(folder)
    for index, name in enumerate(NAMES):
        assert stop(present[index]) < SOON
        present[index] = Member(programs, nats, name, listeners=listeners[index])
        present[index].wait()
        until(lambda: all(len(each.knows()) == 3 for each in present), f"{name} is back", PATIENCE)
        wait_for_balance(present)
        assert {getattr(view_of(present, job), "state", None) for job in jobs} == {"running"}
    for folder in folders:
        (folder / "go").touch()
    assert [wait_for_end(present, job) for job in jobs] == [("done", 1)] * 6
    assert [runs_in(each) for each in folders] == ["x"] * 6
    assert not any((each / "cancelled").exists() for each in folders)


def test_short_jobs_run_once_while_their_workers_go_from_broker_to_broker(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    """Jobs of one attempt arrive, start and end at every moment of a rolling restart."""
    present, listeners = members_on_fixed_ports(programs, nats)
    folder = job_folder(tmp_path, "runs")
    for first in range(3):
        start_worker(programs, url_of_all(present, first), threads=2, function="writes")
    jobs: dict[str, str] = {}
    problems: list[BaseException] = []
    is_over = threading.Event()

    def submit() -> None:
        try:
            while not is_over.is_set():
                name = str(len(jobs) + 1)
                id, _ = enqueue(list(present), "writes", f"{folder}/{name}".encode(), name, attempts=1)
                jobs[id] = name
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        for index, name in enumerate(NAMES):
            count = len(jobs)
            until(lambda count=count: problems or len(jobs) > count + 10, "jobs arrive", PATIENCE)
            assert stop(present[index]) < SOON
            again = Member(programs, nats, name, listeners=listeners[index])
            again.wait()
            present[index] = again
            until(lambda: all(len(each.knows()) == 3 for each in present), f"{name} is back", PATIENCE)
    finally:
        is_over.set()
        thread.join(PATIENCE)
    assert (problems, thread.is_alive()) == ([], False)
    assert {wait_for_end(present, job) for job in jobs} == {("done", 1)}
    runs = {each.name: each.read_text().count("run") for each in folder.iterdir()}
    assert runs == dict.fromkeys(jobs.values(), 1)


def test_a_rolling_restart_refuses_no_request_of_a_client_with_several_addresses(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    """R244: each broker drains for a while, because a call runs there. Clients stayed, and all their calls were refused
    until it had gone. The call that runs ends where it is."""
    present, listeners = members_on_fixed_ports(programs, nats)
    for first in range(3):
        start_worker(programs, url_of_all(present, first), threads=2, function="upper")
    for member in present:
        until(lambda member=member: member.offers("upper"), "the service is offered", PATIENCE)
    jobs: list[str] = []
    for index, name in enumerate(NAMES):
        folder = job_folder(tmp_path, name)
        start_worker(programs, present[index].url, threads=1)
        until(lambda index=index: present[index].offers("waits"), "the service is offered", PATIENCE)
        with closing(Client(url_of_all(present, index))) as client:
            assert client.call("upper", b"before") == b"BEFORE"
            holding = client.submit("waits", str(folder).encode())
            wait_for_start(folder)
            present[index].program.signal(signal.SIGTERM)
            for number in range(20):
                assert client.call("upper", b"call %d" % number) == b"CALL %d" % number
                jobs.append(client.enqueue("upper", b"job"))
            assert not holding.done()
            (folder / "go").touch()
            assert holding.result(PATIENCE) == b"went"
            assert present[index].program.ends(PATIENCE) == 0
            assert client.call("upper", b"after") == b"AFTER"
        present[index] = Member(programs, nats, name, listeners=listeners[index])
        present[index].wait()
        until(lambda: all(len(each.knows()) == 3 for each in present), f"{name} is back", PATIENCE)
        wait_for_balance(present)
    with closing(Client(url_of_all(present))) as client:
        assert {client.result(job, timeout=PATIENCE) for job in jobs} == {b"JOB"}
    assert len(set(jobs)) == 3 * 20
