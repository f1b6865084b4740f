"""Replicas in JetStream's answers: those that are away, a lost majority, a full disk."""

from __future__ import annotations

import json

from dragoman.cluster.jetstream import StreamState, read_stream
from dragoman.cluster.replicas import AWAY_AFTER, DOUBT, UNANSWERED, Replicas
from dragoman.cluster.requests import Answer, AnswerKind

SECOND = 1_000_000_000  # nanoseconds


def replica(name: str, silence: float = 0.5, *, current: bool = True, **more: object) -> dict[str, object]:
    """Return a replica as NATS shows it."""
    known = {"name": name, "current": current, "active": int(silence * SECOND), "peer": f"id of {name}"}
    return known | more


def state(*replicas: dict[str, object], leader: str = "", stream: str = "DGM_c_00", of: int = 3) -> StreamState:
    cluster = {"name": "test", "replicas": list(replicas)} | ({"leader": leader} if leader else {})
    body = {"config": {"name": stream, "num_replicas": of}, "state": {}, "cluster": cluster}
    found = read_stream(Answer(AnswerKind.REPLY, payload=json.dumps(body).encode()))
    assert isinstance(found, StreamState)
    return found


def test_replicas_that_are_away_are_named() -> None:
    made = Replicas(0.0)
    made.led(state(replica("n1"), replica("n2"), leader="n3"), "n3", 1.0)
    assert (made.lack(), made.outage(), made.lost) == ("", "", 0)
    made.led(state(replica("n1", AWAY_AFTER + 0.1, current=False), replica("n2"), leader="n3"), "n3", 2.0)
    assert (made.lack(), made.outage(), made.lost) == ("replicas 2 of 3 (n1 away)", "", 1)
    made.led(state(replica("n1", 0.0, current=False), replica("n2"), leader="n3"), "n3", 3.0)
    assert made.lack() == "replicas 2 of 3 (n1 away)"  # not heard since this leader was elected
    made.led(state(replica("n1", 0.1, current=False, lag=7), replica("n2"), leader="n3"), "n3", 4.0)
    assert made.lack() == ""  # it is back, and catches up
    made.led(state(replica("n1", offline=True), replica("n2"), leader="n3"), "n3", 5.0)
    assert made.lack() == "replicas 2 of 3 (n1 away)"
    made.led(state(replica("n4"), replica("n2"), leader="n3"), "n3", 6.0)
    assert (made.lack(), made.lost) == ("", 0)  # an operator has put another server in its place


def test_a_leader_that_hears_nobody_has_no_majority() -> None:
    made = Replicas(0.0)
    made.led(state(replica("n1", 9.0), replica("n2", 3.0), leader="n3"), "n3", 1.0)
    assert made.outage() == made.lack() == "NATS has no majority: n1, n2 away"
    made.led(state(replica("n1", 9.0), replica("n2", 0.1), leader="n3"), "n3", 2.0)
    assert (made.outage(), made.lack()) == ("", "replicas 2 of 3 (n1 away)")


def test_a_server_that_is_away_is_away_in_all_logs() -> None:
    """One look is at one log: with many, the others would be looked at much later."""
    made = Replicas(0.0)
    servers = ("n1", "n2", "n3", "n4", "n5")
    five = [replica(each) for each in servers[1:]]
    made.led(state(*five, leader="n1", stream="A", of=5), "n1", 1.0)
    made.led(state(replica("n4"), replica("n5"), leader="n3", stream="B"), "n1", 2.0)
    away = [replica(each, 9.0) for each in ("n4", "n5")]
    made.led(state(replica("n2"), replica("n3"), *away, leader="n1", stream="A", of=5), "n1", 3.0)
    assert made.outage() == "NATS has no majority: n4, n5 away"


def test_an_answer_without_a_leader_counts_when_it_lasts() -> None:
    """During an election there is no leader. And a replica whose disk is full answers as if all others were away."""
    made = Replicas(0.0)
    made.led(state(replica("n1"), replica("n2"), leader="n3"), "n3", 0.0)
    alone = state(replica("n1", 0.0, current=False), replica("n2", 0.0, current=False), replica("n3", 0.1))
    made.unled(alone, "n3", 1.0)
    made.unled(alone, "n3", 0.9 + DOUBT)
    assert made.lack() == ""
    made.unled(alone, "n3", 1.0 + DOUBT)
    assert made.outage() == "NATS has no majority: n1, n2 away"
    made.led(state(replica("n1", 0.0, current=False), replica("n3"), leader="n2"), "n3", 9.0)
    made.unled(alone, "n3", 10.0)
    assert (made.outage(), made.lack()) == ("", "replicas 2 of 3 (n1 away)")


def test_the_server_of_this_connection_is_not_away_when_there_is_no_leader() -> None:
    """It may not know itself: a replica that has just lost its leader says so of all."""
    made = Replicas(0.0)
    lost = state(*[replica(each, 9.0, current=False) for each in ("n1", "n2", "n3")])
    made.unled(lost, "n2", 1.0)
    made.unled(lost, "n2", 1.0 + DOUBT)
    assert made.outage() == "NATS has no majority: n1, n3 away"


def test_a_server_without_a_name_has_the_name_that_it_had() -> None:
    made = Replicas(0.0)
    made.led(state(replica("n1"), replica("n2"), leader="n3"), "n3", 1.0)
    nameless = replica("n1", offline=True) | {"name": "Server name unknown at this time (peerID: id of n1)"}
    made.led(state(nameless, replica("n3"), leader="n2"), "n3", 2.0)
    assert made.lack() == "replicas 2 of 3 (n1 away)"


def test_a_full_disk_and_a_stopped_jetstream_are_named() -> None:
    made = Replicas(0.0)
    made.led(state(replica("n1"), replica("n2"), leader="n3"), "n1", 1.0)
    made.refused("DGM_c_00")  # by n3, which led the log
    made.led(state(replica("n2"), replica("n3", 9.0), leader="n1"), "n1", 2.0)
    assert made.lack() == "replicas 2 of 3 (disk of n3 full)"
    made.led(state(replica("n2"), replica("n3", 0.1), leader="n1"), "n1", 3.0)  # it was started again
    made.led(state(replica("n2"), replica("n3", 9.0), leader="n1"), "n3", 4.0)
    assert made.lack() == "replicas 2 of 3 (n3 without JetStream, look at its log and its disk)"
    made.led(state(replica("n2"), replica("n3", 9.0), leader="n1"), "n1", 5.0)
    assert made.lack() == "replicas 2 of 3 (n3 without JetStream, look at its log and its disk)"


def test_looks_without_any_answer_are_said() -> None:
    made = Replicas(0.0)
    made.unanswered(UNANSWERED - 0.1)
    assert made.lack() == ""
    made.unanswered(UNANSWERED)
    assert (made.lack(), made.outage()) == ("JetStream does not answer", "")
    made.away(8.0)  # the connection has ended: that is said elsewhere
    assert made.lack() == ""


def test_one_replica_lacks_nothing() -> None:
    made = Replicas(0.0)
    made.led(state(leader="n1", of=1), "n1", 1.0)
    assert (made.lack(), made.lost) == ("", 0)
