"""Two brokers of one name, and two clusters of one name, with a real NATS server."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import PATIENCE, Member, initialise, start_members, start_nats, wait_for_owners

from dragoman import Client
from dragoman.operations.cluster_schemas import ClusterView
from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
SHARDS = 2


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


def readiness(member: Member) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{member.urls['http']}/readyz", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, error.read().decode()


def view(member: Member) -> ClusterView:
    with closing(Client(member.url)) as client:
        return client.cluster()


def started(programs: Programs, nats: NatsServer, name: str) -> Member:
    member = Member(programs, nats, name, listeners=LISTENERS)
    member.wait()
    return member


def test_the_younger_of_two_brokers_of_one_name_is_not_ready_until_the_older_one_is_gone(
    programs: Programs, nats: NatsServer
) -> None:
    """Its /readyz was green, and it logged each gossip of the other one."""
    initialise(programs, nats.url, SHARDS)
    older = started(programs, nats, "eu1")
    other = started(programs, nats, "eu2")
    wait_for_owners([older, other], SHARDS)
    younger = started(programs, nats, "eu1")
    name_taken = "is named eu1 and was started before this one"
    answers: list[tuple[int, str]] = []

    def says_why() -> bool:
        answers.append(readiness(younger))
        return name_taken in answers[-1][1]

    until(says_why, "it says why it is not ready", PATIENCE)
    assert {status for status, _ in answers} == {503}, "it was never ready"
    shown = programs.run("cluster", "status", "--connect", younger.url)
    assert (shown.ends(PATIENCE), "takes no part in the cluster" in shown.out) == (0, True), shown.err
    assert readiness(older)[0] == readiness(other)[0] == 200
    incarnation = view(older).members[0].incarnation
    assert [each.incarnation for each in view(other).members if each.name == "eu1"] == [incarnation]
    assert younger.shards() == 0
    older.program.kill()
    until(lambda: readiness(younger)[0] == 200, "it is ready", PATIENCE)
    wait_for_owners([younger, other], SHARDS)
    assert younger.program.err.count("broker name taken") == 1


def test_brokers_with_the_logs_of_a_former_cluster_are_ignored_and_named(programs: Programs, nats: NatsServer) -> None:
    """The logs were deleted and made again while a broker ran: it took jobs of the new cluster."""
    initialise(programs, nats.url, SHARDS)
    former = started(programs, nats, "old")
    wait_for_owners([former], SHARDS)
    former.worker("upper", "shout")
    until(lambda: former.offers("shout"), "the service is offered", PATIENCE)
    for shard in range(SHARDS):
        assert nats.ask(f"$JS.API.STREAM.DELETE.DGM_dragoman_{shard:02}")["success"]
    initialise(programs, nats.url, SHARDS)
    exported = programs.run("export", "--cluster", nats.url)
    assert exported.ends(PATIENCE) == 0, exported.err
    [new] = start_members(programs, nats, ("new",), listeners=LISTENERS)
    wait_for_owners([new], SHARDS)
    until(lambda: [each.name for each in view(new).strangers] == ["old"], "the other one is named", PATIENCE)
    assert (new.knows(), former.knows(), new.offers("shout")) == (["new"], ["old"], False)
    shown = programs.run("cluster", "status", "--connect", new.url)
    assert (shown.ends(PATIENCE), "broker old is ignored" in shown.out) == (0, True), shown.err
    assert readiness(new)[0] == 200
    until(lambda: "deleted and made again" in readiness(former)[1], "the former one is not ready", 2 * PATIENCE)
    former.program.kill()
    until(lambda: not view(new).problems, "the other one is forgotten", PATIENCE)
