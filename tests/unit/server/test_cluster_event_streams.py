"""Event streams in a cluster: events of all brokers, while a stream is open, each job once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cluster_readers import Reader, Readers
from cluster_world import Node, ShardTable, World, may

from dragoman.cluster.shard_bytes import CALL, with_shard
from dragoman.core.events import JOB_WAITING, JobEvent
from dragoman.core.model import Caller, JobId
from dragoman.core.options import JobOptions
from dragoman.http.followed_job import FollowedJob
from dragoman.http.sse import MOST_WAITING, EventStream, Streams
from dragoman.server.cluster_events import LEASE, LOOK_EVERY, RENEW_EVERY
from dragoman.server.watched_events import MAX_BEHIND, MAX_RATE
from owners import LOCAL_OWNER

SHOWN = ("id", "state", "broker")


class Cluster:
    """Each broker has a shard: shard 0 is at a, shard 1 at b."""

    def __init__(self, *names: str) -> None:
        self.table = ShardTable(*names)
        self.world = World(*names, table=self.table)
        self.readers = Readers(self.world)
        self.a, self.b = self.world.nodes["a"], self.world.nodes["b"]

    def open(self, node: Node, path: str = "/v1/events", query: str = "", principal: str = "local") -> Reader:
        return self.readers.open(node, path, query, principal)

    def run(self, seconds: float = 0.2) -> None:
        self.readers.run(seconds)

    def allow(self, **access: Any) -> None:
        """Give rights to principals at all brokers."""
        for node in self.world.nodes.values():
            node.broker.principals.apply(access)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of("a", "b") as made:
        yield made


@contextmanager
def cluster_of(*names: str) -> Iterator[Cluster]:
    made = Cluster(*names)
    yield made
    made.readers.close()


# -------------------------------------------------------------------- all events


def test_a_stream_has_the_events_of_all_brokers_and_names_them(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    here, there = cluster.a.enqueue(), cluster.b.enqueue()
    cluster.run()
    assert sorted(reader.outline(*SHOWN)) == sorted(
        [("waiting", here, "waiting", "a"), ("waiting", there, "waiting", "b")]
    )


def test_workers_are_shown_by_the_broker_to_which_they_are_connected(cluster: Cluster) -> None:
    """For each broker, the other one is a worker, too."""
    reader = cluster.open(cluster.a)
    cluster.b.worker("s")
    cluster.run(1.0)
    assert reader.outline("name", "dialect", "broker") == [("joined", "w", "test", "b")]
    cluster.a.worker("s")
    cluster.run(1.0)
    assert reader.outline("name", "dialect", "broker") == [("joined", "w", "test", "a")]


def test_a_job_that_runs_at_another_broker_has_the_events_of_its_owner_alone(cluster: Cluster) -> None:
    cluster.b.worker("s")
    cluster.run(1.0)
    readers = [cluster.open(each) for each in (cluster.a, cluster.b)]
    id = cluster.a.enqueue()
    cluster.run()
    cluster.b.broker.succeed(cluster.b.attempt(id), b"y", cluster.world.now)
    cluster.run()
    for reader in readers:
        assert reader.outline(*SHOWN, "worker") == [
            ("running", id, "running", "a", "b"),
            ("ended", id, "ended", "a", None),
        ]


def test_a_stream_of_a_worker_has_the_events_at_its_broker(cluster: Cluster) -> None:
    """The owner of the job knows the other broker as its worker."""
    cluster.b.worker("s")
    cluster.run(1.0)
    readers = [cluster.open(each, query="worker=w") for each in (cluster.a, cluster.b)]
    id = cluster.a.enqueue()
    cluster.run()
    cluster.b.broker.succeed(cluster.b.attempt(id), b"y", cluster.world.now)
    cluster.run()
    for reader in readers:
        assert reader.outline(*SHOWN, "worker") == [
            ("running", id, "running", "b", "w"),
            ("ended", id, "ended", "b", None),
        ]


def test_filters_hold_at_all_brokers(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a, query="service=wanted&state=waiting")
    cluster.b.enqueue("other")
    id = cluster.b.enqueue("wanted")
    cluster.run()
    assert reader.outline("id") == [("waiting", id)]


def test_a_principal_gets_what_it_may_see(cluster: Cluster) -> None:
    cluster.allow(ann=may(see=("open",), call=("open", "own", "secret")), bob=may(call=("secret",)))
    reader = cluster.open(cluster.a, principal="ann")
    seen = [cluster.b.enqueue("open"), cluster.b.ask("enqueue", b"x", principal="ann", service="own").id]
    cluster.b.ask("enqueue", b"x", principal="bob", service="secret")
    cluster.b.worker("secret")
    cluster.b.worker("open")
    cluster.run(1.0)
    assert reader.outline("id", "services") == [
        ("waiting", seen[0], None),
        ("waiting", seen[1], None),
        ("joined", reader_worker(cluster.b, "open"), ["open"]),
        ("running", seen[0], None),
    ]


def reader_worker(node: Node, service: str) -> int:
    return next(
        each.id for each in node.broker.worker_registry.workers.values() if each.name == "w" and service in names(each)
    )


def names(worker: Any) -> list[str]:
    return [each.name for each in worker.services]


def test_the_broker_of_the_reader_checks_rights_itself(cluster: Cluster) -> None:
    """The access table of the other broker may differ, for instance while it is replaced."""
    cluster.allow(ann=may(see=("open",)))
    cluster.b.broker.principals.apply({"ann": may(see=("*",))})
    reader = cluster.open(cluster.a, principal="ann")
    cluster.b.enqueue("secret")
    cluster.b.worker("secret")
    id = cluster.b.enqueue("open")
    cluster.run()
    assert reader.outline("id") == [("waiting", id)]


def test_the_broker_of_the_events_checks_rights_itself(cluster: Cluster) -> None:
    cluster.allow(ann=may(see=("*",)))
    cluster.b.broker.principals.apply({"ann": may(see=("open",))})
    reader = cluster.open(cluster.a, principal="ann")
    cluster.b.enqueue("secret")
    id = cluster.b.enqueue("open")
    cluster.run()
    assert reader.outline("id") == [("waiting", id)]


def test_without_a_stream_nothing_is_subscribed_and_nothing_is_sent(cluster: Cluster) -> None:
    before = cluster.b.broker.events.wanted
    cluster.run(3.0)
    assert (len(cluster.b.watched), cluster.b.broker.events.wanted) == (0, before)
    reader = cluster.open(cluster.a)
    assert len(cluster.b.watched) == 1
    assert cluster.b.broker.events.wanted != before
    reader.leave()
    assert (len(cluster.b.watched), cluster.b.broker.events.wanted) == (0, before)
    assert reader.task.done()


# -------------------------------------------------------------------- failures


def test_a_watch_is_renewed(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    cluster.run(3 * LEASE)
    id = cluster.b.enqueue()
    cluster.run()
    assert reader.outline("id") == [("waiting", id)]


def test_a_watch_ends_when_its_broker_is_gone(cluster: Cluster) -> None:
    before = cluster.b.broker.events.wanted
    cluster.open(cluster.a)
    cluster.world.freeze("a")
    cluster.run(LEASE)
    assert (len(cluster.b.watched), cluster.b.broker.events.wanted) == (0, before)


def test_a_watch_goes_on_after_a_restart_of_the_other_broker(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    b = cluster.world.start("b")
    cluster.world.run_until(lambda: len(b.watched) == 1)
    id = b.enqueue()
    cluster.run()
    assert reader.outline("id", "broker")[-1] == ("waiting", id, "b")


def test_a_broker_that_joins_is_watched(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    c = cluster.world.start("c")
    cluster.world.run_until(lambda: len(c.watched) == 1)
    c.worker("s")
    cluster.run()
    assert reader.outline("name", "broker") == [("joined", "w", "c")]


def test_a_watch_goes_on_when_nats_is_back(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    cluster.world.cut("b")
    cluster.run(2.0)
    cluster.b.broker.operator.pause("s", "ann", cluster.world.now)
    cluster.world.heal("b")
    cluster.run(RENEW_EVERY + 3.0)
    assert len(cluster.b.watched) == 1
    id = cluster.b.enqueue()
    cluster.run()
    assert reader.outline("id")[-1] == ("waiting", id)


def test_events_survive_lost_messages(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    cluster.world.loss = 0.3
    ids = []
    for _ in range(20):
        job = cluster.b.call(waits=True)
        assert job is not None
        ids.append(job.id.hex())
        cluster.run(0.1)
    cluster.world.loss = 0.0
    cluster.run(10.0)
    assert [id for _, id in reader.outline("id")] == ids


# -------------------------------------------------------------------- too many events


def calls(cluster: Cluster, number: int) -> None:
    for _ in range(number):
        cluster.b.call(waits=True)


def test_a_flood_is_limited_and_what_was_left_out_is_counted(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    arrived: list[int] = []
    watch = next(iter(cluster.a.events._watches.values()))
    receive = watch.receive
    watch.receive = lambda broker, events, skipped: (arrived.append(len(events)), receive(broker, events, skipped))[1]
    calls(cluster, 5000)
    cluster.run(2.0)
    events = run_reports(cluster, reader)
    assert 1 <= sum(arrived) <= MAX_RATE
    shown = [fields for event, fields in events if event == "waiting"]
    skipped = sum(fields["count"] for event, fields in events if event == "skipped")
    assert 1 <= len(shown) <= MAX_RATE
    assert len(shown) + skipped == 5000


def run_reports(cluster: Cluster, reader: Reader) -> list[tuple[str, dict[str, Any]]]:
    """Return all events, when the timer of `skipped` events has run: it is one of the event loop."""
    subscribers = reader.context.session.subscribers
    for stream, timer in list(subscribers._reports.items()):
        timer.cancel()
        subscribers._report(stream, subscribers._filtered[stream])
    cluster.readers.settle()
    return reader.events()


def test_the_rate_of_a_stream_holds_for_each_broker(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a, query="max_rate=10")
    calls(cluster, 100)
    cluster.run(1.5)
    events = run_reports(cluster, reader)
    shown = [fields for event, fields in events if event == "waiting"]
    skipped = sum(fields["count"] for event, fields in events if event == "skipped")
    assert (len(shown), skipped) == (1, 99)


def test_events_that_were_left_out_are_counted_though_no_other_follows(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a, query="max_rate=1")
    calls(cluster, 1)
    cluster.run(0.1)
    calls(cluster, 5)
    cluster.run(2.0)
    assert [fields["count"] for event, fields in run_reports(cluster, reader) if event == "skipped"] == [5]


def test_events_for_a_broker_that_does_not_acknowledge_are_not_kept(cluster: Cluster) -> None:
    """NATS is away: the events of the time until the watch expires fill no memory."""
    cluster.b.worker("s")
    reader = cluster.open(cluster.a)
    id = cluster.b.enqueue()
    cluster.run()
    peer = cluster.b.side.peers["a"]
    cluster.world.cut("a")
    for _ in range(40):
        cluster.b.broker.attempts.progress(cluster.b.attempt(id), bytes(20_000), cluster.world.now)
        cluster.world.run(0.01)
    assert MAX_BEHIND - 40_000 < peer.link.unacknowledged < MAX_BEHIND + 40_000
    cluster.run(LEASE)
    assert len(cluster.b.watched) == 0
    assert reader.outline("id")[0] == ("running", id)


def test_progress_that_is_too_large_is_left_out(cluster: Cluster) -> None:
    cluster.b.worker("s")
    id = cluster.b.enqueue()
    reader = cluster.open(cluster.a)
    for size in (MAX_BEHIND + 1, 1):
        cluster.b.broker.attempts.progress(cluster.b.attempt(id), bytes(size), cluster.world.now)
    cluster.run()
    events = run_reports(cluster, reader)
    assert [event for event, _ in events] == ["progress", "skipped"]
    assert events[1][1] == {"count": 1}


def test_a_slow_reader_misses_events_of_other_brokers_and_keeps_its_stream(cluster: Cluster) -> None:
    reader = cluster.open(cluster.a)
    reader.stop_reading()
    for _ in range(20):
        calls(cluster, 40)
        cluster.run(0.1)
    reader.read_on()
    events = run_reports(cluster, reader)
    shown = [fields for event, fields in events if event == "waiting"]
    skipped = sum(fields["count"] for event, fields in events if event == "skipped")
    assert "overflow" not in [event for event, _ in events]
    assert skipped
    assert len(shown) + skipped == 800
    assert not reader.task.done()


# -------------------------------------------------------------------- one job


def call(cluster: Cluster, node: Node) -> str:
    """Submit a call, whose id names no shard."""
    id = JobId(with_shard(bytes(16), CALL))
    node.broker.submit("s", b"x", Caller(node.local, LOCAL_OWNER), JobOptions(waits=True), cluster.world.now, id=id)
    return id.hex()


def follow(cluster: Cluster, node: Node, id: str, principal: str = "local") -> Reader:
    return cluster.open(node, f"/v1/jobs/{id}/events", principal=principal)


def test_a_job_of_another_broker_is_followed_from_its_state_to_its_end(cluster: Cluster) -> None:
    id = cluster.b.enqueue()
    reader = follow(cluster, cluster.a, id)
    assert reader.events() == [
        ("waiting", {"id": id, "service": "s", "state": "waiting", "background": True, "broker": "b"})
    ]
    cluster.b.enqueue("other")
    cluster.b.worker("s")
    cluster.run()
    attempt = cluster.b.attempt(id)
    cluster.b.broker.attempts.progress(attempt, b"half", cluster.world.now)
    cluster.run()
    cluster.b.broker.succeed(attempt, b"y", cluster.world.now)
    cluster.run()
    assert reader.outline("state", "worker", "progress", "outcome", "broker") == [
        ("running", "running", "w", None, None, "b"),
        ("progress", "running", "w", "half", None, "b"),
        ("ended", "ended", None, None, "done", "b"),
    ]
    assert reader.task.done()
    assert (len(cluster.a.watched), len(cluster.b.watched)) == (0, 0)


def test_a_job_of_this_broker_is_followed(cluster: Cluster) -> None:
    id = cluster.a.enqueue()
    reader = follow(cluster, cluster.a, id)
    cluster.a.worker("s")
    cluster.run()
    cluster.a.broker.succeed(cluster.a.attempt(id), b"y", cluster.world.now)
    cluster.run()
    assert reader.outline("broker") == [("waiting", "a"), ("running", "a"), ("ended", "a")]
    assert reader.task.done()


def test_a_copy_is_followed_at_its_owner(cluster: Cluster) -> None:
    cluster.b.worker("s")
    cluster.run(1.0)
    id = cluster.a.enqueue()
    cluster.run()
    readers = [follow(cluster, each, id) for each in (cluster.a, cluster.b)]
    cluster.b.broker.succeed(cluster.b.attempt(id), b"y", cluster.world.now)
    cluster.run()
    for reader in readers:
        assert reader.outline("worker", "broker") == [("running", "b", "a"), ("ended", None, "a")]


def test_a_call_at_another_broker_is_followed(cluster: Cluster) -> None:
    id = call(cluster, cluster.b)
    reader = follow(cluster, cluster.a, id)
    cluster.b.worker("s")
    cluster.run()
    cluster.b.finish(cluster.b.attempt(id))
    cluster.run()
    assert reader.outline("broker", "outcome") == [
        ("waiting", "b", None),
        ("running", "b", None),
        ("ended", "b", "done"),
    ]


def test_a_job_that_has_ended_has_its_end_and_no_more(cluster: Cluster) -> None:
    cluster.b.worker("s")
    id = cluster.b.enqueue()
    cluster.run()
    cluster.b.broker.succeed(cluster.b.attempt(id), b"y", cluster.world.now)
    cluster.run()
    reader = follow(cluster, cluster.a, id)
    assert reader.outline("outcome") == [("ended", "done")]
    assert reader.task.done()


def test_a_job_that_nobody_has_is_not_found(cluster: Cluster) -> None:
    assert follow(cluster, cluster.a, "01" * 16).status == 404


def test_a_job_that_a_principal_may_not_see_is_not_found(cluster: Cluster) -> None:
    cluster.allow(ann=may(see=("open",)))
    hidden, seen = cluster.b.enqueue("secret"), cluster.b.enqueue("open")
    assert follow(cluster, cluster.a, hidden, "ann").status == 404
    reader = follow(cluster, cluster.a, seen, "ann")
    assert (reader.status, reader.outline("id")) == (200, [("waiting", seen)])
    cluster.b.worker("open")
    cluster.run()
    cluster.b.broker.attempts.progress(cluster.b.attempt(seen), b"content", cluster.world.now)
    cluster.run()
    assert reader.outline("id") == [("running", seen)]


@pytest.mark.parametrize("asked", ["a", "b", "c"])
def test_a_stream_goes_on_when_the_shard_moves(asked: str) -> None:
    """The stream begins again with the state at the new owner."""
    with cluster_of("a", "b", "c") as cluster:
        b, c = cluster.world.nodes["b"], cluster.world.nodes["c"]
        id = b.enqueue()
        reader = follow(cluster, cluster.world.nodes[asked], id)
        job = b.job(id)
        cluster.table.owners = ["a", "c", "c"]
        b.broker.eviction.evict([job], (), lambda _: None, cluster.world.now)
        c.adopt(job)
        cluster.run(1.0)
        c.worker("s")
        cluster.run()
        c.broker.succeed(c.attempt(id), b"y", cluster.world.now)
        cluster.run()
        events = reader.outline("broker")
        assert list(dict.fromkeys(events)) == [("waiting", "b"), ("waiting", "c"), ("running", "c"), ("ended", "c")]
        assert reader.task.done()


def test_the_state_at_another_owner_is_asked_for_at_once() -> None:
    """A broker that adopts jobs may not be watched yet, and the jobs have no events when they are restored."""
    with cluster_of("a", "b", "c") as cluster:
        b, c = cluster.world.nodes["b"], cluster.world.nodes["c"]
        id = b.enqueue()
        reader = follow(cluster, cluster.a, id)
        for each in list(c.watched._streams):
            c.watched._end(each)
        job = b.job(id)
        cluster.table.owners = ["a", "c", "c"]
        b.broker.eviction.evict([job], (), lambda _: None, cluster.world.now)
        c.adopt(job)
        cluster.run(1.0)
        assert reader.outline("broker") == [("waiting", "b"), ("waiting", "c")]


def test_the_end_of_a_job_is_never_skipped(cluster: Cluster) -> None:
    cluster.b.worker("s")
    id = call(cluster, cluster.b)
    reader = follow(cluster, cluster.a, id)
    attempt = cluster.b.attempt(id)
    for _ in range(2 * MAX_RATE):
        cluster.b.broker.attempts.progress(attempt, b"x", cluster.world.now)
    cluster.b.broker.succeed(attempt, b"y", cluster.world.now)
    cluster.run(1.0)
    events = reader.events()
    assert events[-1][1]["state"] == "ended"
    shown = len([event for event, _ in events if event == "progress"])
    assert 1 < shown < MAX_RATE
    assert shown + sum(fields["count"] for event, fields in events if event == "skipped") == 2 * MAX_RATE


def test_progress_of_a_job_is_for_those_that_may_read_it(cluster: Cluster) -> None:
    cluster.allow(ann=may(see=("s",)))
    cluster.a.worker("s")
    id = cluster.a.enqueue()
    reader = follow(cluster, cluster.a, id, "ann")
    cluster.a.broker.attempts.progress(cluster.a.attempt(id), b"content", cluster.world.now)
    cluster.run()
    assert reader.outline("id") == [("running", id)]


def test_events_before_the_first_state_are_part_of_it(cluster: Cluster) -> None:
    stream = EventStream(Streams(1))
    job = FollowedJob(stream, None, cluster.a.broker, shows_progress=True)
    event = JobEvent(JOB_WAITING, JobId(bytes(16)), "s", True, True)
    job.receive("b", [event], 0)
    assert stream.room == MOST_WAITING
    job.show(None)


def test_an_end_whose_event_was_lost_is_found(cluster: Cluster) -> None:
    """The broker of the reader was cut off for so long that its watch has expired."""
    cluster.b.worker("s")
    id = cluster.b.enqueue()
    reader = follow(cluster, cluster.a, id)
    cluster.run()
    for each in list(cluster.b.watched._streams):
        cluster.b.watched._end(each)
    cluster.b.broker.succeed(cluster.b.attempt(id), b"y", cluster.world.now)
    cluster.run(LOOK_EVERY + 1.0)
    assert reader.outline("outcome")[-1] == ("ended", "done")
    assert reader.task.done()


def test_a_call_whose_broker_is_gone_ends_its_stream(cluster: Cluster) -> None:
    id = call(cluster, cluster.b)
    reader = follow(cluster, cluster.a, id)
    cluster.world.freeze("b")
    cluster.run(30.0)
    assert reader.outline("state") == [("waiting", "waiting")]
    assert reader.task.done()
