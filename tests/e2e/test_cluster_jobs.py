"""Background jobs of a cluster, on real NATS servers: none is lost, and none has two outcomes, whatever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from cluster_members import (
    ADOPT_AFTER,
    PATIENCE,
    Member,
    enqueue,
    enqueue_at,
    initialise,
    start_members,
    start_nats,
    url_of,
    view_of,
    wait_for_balance,
    wait_for_owners,
)

from dragoman import Client, JobRefused
from nats_servers import NatsCluster, NatsServer, start_on_free_ports
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
    assert "(background jobs are kept in the logs of cluster dragoman; stop" in first.program.out
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


def test_a_frozen_owner_lets_go_when_it_wakes(members: list[Member], tmp_path: Path) -> None:
    first, second, third = members
    folder = tmp_path / "runs"
    folder.mkdir()
    jobs = enqueue_many(members, folder, 40)
    os.kill(first.program.pid, signal.SIGSTOP)
    left = [second, third]
    wait_for_owners(left)
    os.kill(first.program.pid, signal.SIGCONT)
    second.worker("writes", "writes")
    until(lambda: all_done(left, jobs) or all_done(members, jobs), "all jobs are done", PATIENCE)
    assert sorted(each.name for each in folder.iterdir()) == sorted(jobs.values())
    until(lambda: len(first.knows()) == 3, "it is back", PATIENCE)


def test_a_group_is_in_one_shard_and_moves_with_it(members: list[Member], tmp_path: Path) -> None:
    payloads = [f"{tmp_path}/member {number}".encode() for number in range(5)]
    found: list[tuple[str, Member]] = []

    def is_enqueued() -> bool:
        for member in members:
            with closing(Client(member.url)) as client, suppress(JobRefused):
                found.append((client.enqueue_group("writes", payloads), member))
                return True
        return False

    until(is_enqueued, "the group is enqueued", PATIENCE)
    group, owner = found[0]
    with closing(Client(owner.url)) as client:
        last = client.enqueue("writes", f"{tmp_path}/last".encode(), after=[group])
    owner.program.signal(signal.SIGTERM)
    left = [each for each in members if each is not owner]
    left[0].worker("writes", "writes")
    until(lambda: all_done(left, {last: ""}), "the job after the group is done", PATIENCE)
    assert sorted(each.name for each in tmp_path.glob("member *")) == [f"member {number}" for number in range(5)]


def test_a_broker_releases_its_shards_on_request(programs: Programs, members: list[Member], tmp_path: Path) -> None:
    first, second, third = members
    job = enqueue_at(first, "writes", f"{tmp_path}/moved".encode())
    done = programs.run("cluster", "release", "eu1", "--connect", second.url)
    assert (done.ends(PATIENCE), done.out) == (0, "eu1 gives its shards to other brokers\n"), done.err
    until(lambda: not first.shards() and second.shards() + third.shards() == 4, "others have them", PATIENCE)
    first.worker("writes", "writes")
    until(lambda: all_done([second, third], {job: ""}), "the job is done", PATIENCE)
    shown = programs.run("job", job, "--json", "--connect", next(m for m in (second, third) if view_of([m], job)).url)
    assert (shown.ends(PATIENCE), json.loads(shown.out)["durability"]) == (0, "single")
    status = programs.run("cluster", "status", "--connect", second.url)
    assert status.ends(PATIENCE) == 0
    assert re.search(r"^ *\d+ +eu[23] +(owned|elsewhere) ", status.out, re.MULTILINE), status.out
    unknown = programs.run("cluster", "release", "eu9", "--connect", second.url)
    assert unknown.ends(PATIENCE) == 1
    assert "no broker named 'eu9' is heard; the cluster has eu2, eu1, eu3" in unknown.err
    with urllib.request.urlopen(f"{second.urls['http']}/metrics") as answer:
        text = answer.read().decode()
    assert f"dragoman_cluster_shards_owned {second.shards()}" in text
    assert programs.run("cluster", "release", "eu2", "--connect", second.url).ends(PATIENCE) == 0
    until(lambda: third.shards() == 4, "the third has all", PATIENCE)
    last = programs.run("cluster", "release", "eu3", "--connect", third.url)
    kept = "eu3 keeps its shards: no other broker takes any now; it gives them to the first one that does\n"
    assert (last.ends(PATIENCE), last.out) == (0, kept), last.err
    assert third.shards() == 4


def test_all_brokers_restart(programs: Programs, members: list[Member], nats: NatsServer, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    jobs = enqueue_many(members, folder, 40)
    for member in members:
        member.program.kill()
    again = start_members(programs, nats, listeners=LISTENERS)
    again[0].worker("writes", "writes")
    until(lambda: all_done(again, jobs), "all jobs are done", PATIENCE)
    assert sorted(each.name for each in folder.iterdir()) == sorted(jobs.values())


def test_the_worker_of_a_living_broker_delivers_to_the_broker_that_adopts_the_job(
    members: list[Member], tmp_path: Path
) -> None:
    """The owner dies while a worker of another broker runs its job: nothing runs twice."""
    first, second, third = members
    second.worker("waits", "waits")
    until(lambda: first.offers("waits"), "the service is offered", PATIENCE)
    job = enqueue_at(first, "waits", str(tmp_path).encode(), attempts=1)
    until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
    first.program.kill()
    left = [second, third]
    until(lambda: view_of(left, job) is not None, "it is adopted", PATIENCE)
    (tmp_path / "go").touch()
    until(lambda: getattr(view_of(left, job), "outcome", None) is not None, "it has ended", PATIENCE)
    view = view_of(left, job)
    assert view is not None
    assert (view.outcome, len(view.attempts), (tmp_path / "started").read_text()) == ("done", 1, "x")


def test_a_broker_that_stops_hands_its_jobs_over(members: list[Member], tmp_path: Path) -> None:
    """Its own worker finishes a job whose shard has left meanwhile, and the next owner gets the result."""
    first, second, third = members
    first.worker("waits", "waits")
    until(lambda: first.offers("waits"), "the service is offered", PATIENCE)
    job = enqueue_at(first, "waits", str(tmp_path).encode(), attempts=1)
    later = enqueue_at(first, "waits", str(tmp_path).encode(), delay=3_600.0)
    until(lambda: (tmp_path / "started").exists(), "the job runs", PATIENCE)
    first.program.signal(signal.SIGTERM)
    left = [second, third]
    until(lambda: view_of(left, job) is not None and view_of(left, later) is not None, "they have moved", PATIENCE)
    (tmp_path / "go").touch()
    assert first.program.ends(PATIENCE) == 0
    until(lambda: getattr(view_of(left, job), "outcome", None) is not None, "it has ended", PATIENCE)
    view = view_of(left, job)
    assert view is not None
    assert (view.outcome, len(view.attempts), (tmp_path / "started").read_text()) == ("done", 1, "x")


def test_background_jobs_are_refused_without_nats_and_again_accepted_with_it(
    members: list[Member], nats: NatsServer, tmp_path: Path
) -> None:
    first = members[0]
    job = enqueue_at(first, "writes", f"{tmp_path}/before".encode())
    nats.kill()
    with closing(Client(first.url)) as client:
        until(lambda: not client.cluster().connected, "the connection ended", PATIENCE)
        with pytest.raises(JobRefused, match="NATS is not reached"):
            client.enqueue("writes", f"{tmp_path}/away".encode())
    nats.start()
    first.worker("writes", "writes")
    again, _ = enqueue(members, "writes", f"{tmp_path}/after".encode(), "after")
    until(lambda: all_done(members, {job: "", again: ""}), "both are done", PATIENCE)
    assert (tmp_path / "before").exists()
    assert (tmp_path / "after").exists()


def test_a_broker_does_not_start_before_the_cluster_is_initialised(programs: Programs, nats: NatsServer) -> None:
    started = programs.dragoman("serve", *LISTENERS, "--cluster", nats.url, "--data", "memory")
    assert started.ends(PATIENCE) == 2
    assert "make them once with `dragoman cluster init --cluster nats://HOST" in started.err


def owners_of(member: Member) -> dict[int, tuple[str, int]]:
    """Return the owner and the epoch of each shard."""
    with closing(Client(member.url)) as client:
        return {each.number: (each.owner, each.epoch) for each in client.cluster().shards}


def all_agree(members: list[Member]) -> bool:
    seen = [owners_of(each) for each in members]
    return seen == seen[:1] * len(seen) and all(owner for owner, _ in seen[0].values())


def test_a_frozen_nats_server_moves_no_shard(programs: Programs, tmp_path: Path) -> None:
    """Its brokers noticed it later than the others took them for gone: their shards were adopted, and when it woke,
    queued claims took shards of living brokers."""
    cluster = start_on_free_ports(lambda: NatsCluster(tmp_path / "nats"))
    try:
        initialise(programs, url_of(cluster), shards=6, replicas=3)
        members = start_members(programs, cluster, listeners=LISTENERS, adopt_after=1.5 * ADOPT_AFTER)
        wait_for_balance(members, 6)
        until(lambda: all_agree(members), "each knows all owners", PATIENCE)
        before = owners_of(members[0])
        for server in cluster.servers:
            server.freeze()
            adopted = time.monotonic() + 2.0 * ADOPT_AFTER
            until(lambda adopted=adopted: time.monotonic() > adopted, "others would have adopted", PATIENCE)
            server.thaw()
            seen = [owners_of(member) for member in members]
            assert seen == [before] * 3, [each.program.err for each in members]
            enqueue(members, "writes", f"{tmp_path}/{server.name}".encode(), server.name)
        until(lambda: [len(each.knows()) for each in members] == [3, 3, 3], "all know all", PATIENCE)
        assert owners_of(members[0]) == before
        assert "broker left" not in "".join(each.program.err for each in members)
    finally:
        cluster.kill()


def problems_of(member: Member) -> list[str]:
    with closing(Client(member.url)) as client:
        return client.cluster().problems


def readiness_of(member: Member) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{member.urls['http']}/readyz") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


def test_lost_replicas_and_a_lost_majority_are_visible_without_traffic(programs: Programs, tmp_path: Path) -> None:
    """With two of three servers dead, nothing was said for 40 seconds, and an enqueue was refused after ten, with the
    name of a healthy broker."""
    cluster = start_on_free_ports(lambda: NatsCluster(tmp_path / "nats"))
    try:
        initialise(programs, url_of(cluster), shards=3, replicas=3)
        members = start_members(programs, cluster, listeners=LISTENERS)
        wait_for_balance(members, 3)
        _, second, third = cluster.servers
        second.kill()
        lack = "replicas 2 of 3 (n2 away)"
        for member in members:
            until(lambda member=member: lack in problems_of(member), f"{member.name} says it", PATIENCE)
            assert readiness_of(member) == (200, f"ready\ndegraded: {lack}\n")
        third.kill()
        outage = "NATS has no majority: n2, n3 away"
        for member in members:
            until(lambda member=member: outage in problems_of(member), f"{member.name} says it", PATIENCE)
            code, text = readiness_of(member)
            assert (code, outage in text) == (503, True)
            for key in ("a", "b", "c"):
                with closing(Client(member.url)) as client, pytest.raises(JobRefused, match=outage):
                    client.enqueue("writes", b"", key=key)
        second.start()
        for member in members:
            until(lambda member=member: readiness_of(member)[0] == 200, f"{member.name} is ready", PATIENCE)
        enqueue(members, "writes", f"{tmp_path}/after".encode(), "after")
    finally:
        cluster.kill()


def test_one_of_three_servers_is_killed(programs: Programs, tmp_path: Path) -> None:
    cluster = start_on_free_ports(lambda: NatsCluster(tmp_path / "nats"))
    try:
        initialise(programs, url_of(cluster), shards=2, replicas=3)
        members = start_members(programs, cluster, ("eu1", "eu2"), listeners=LISTENERS)
        wait_for_balance(members, 2)
        folder = tmp_path / "runs"
        folder.mkdir()
        jobs = enqueue_many(members, folder, 20)
        leader = cluster.leader_of("DGM_dragoman_00")
        assert leader is not None
        leader.kill()
        members[0].worker("writes", "writes")
        more, _ = enqueue(members, "writes", f"{folder}/more".encode(), "more", attempts=20)
        jobs[more] = "more"
        until(lambda: all_done(members, jobs), "all jobs are done", PATIENCE)
        assert sorted(each.name for each in folder.iterdir()) == sorted(jobs.values())
    finally:
        cluster.kill()
