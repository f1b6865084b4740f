"""The capacity that a broker tells the others, and what it costs to count it."""

from __future__ import annotations

import pytest

from dragoman.cluster import capacity
from dragoman.cluster.capacity import COUNT_EVERY, MOST_COUNTED, Capacity, idle_slots
from dragoman.cluster.gossip import ServiceGossip
from dragoman.core.model import Worker
from dragoman.server.cluster_status import cluster_view
from unit.cluster.world import Node, World


def test_workers_are_counted_when_they_join_leave_or_change_their_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gossip visited every worker of the broker up to 50 times a second."""
    world = World("a")
    node = world.nodes["a"]
    counts: list[float] = []
    count = capacity.count_workers
    monkeypatch.setattr(capacity, "count_workers", lambda *given: counts.append(world.now) or count(*given))
    told = Capacity(node.broker, node.side)

    def expect(expected: int, services: dict[str, ServiceGossip]) -> None:
        assert told.services(world.now) == services
        assert len(counts) == expected

    expect(1, {})
    expect(1, {})
    first = node.worker("s", capacity=2)
    expect(2, {"s": ServiceGossip(1, 2, 2)})
    node.call(service="s")
    expect(2, {"s": ServiceGossip(1, 2, 1)})
    node.broker.leave(first, world.now, "gone")
    second = node.worker("t")
    expect(3, {"t": ServiceGossip(1, 1, 1)})
    node.broker.availability.offer(second, ("u",), world.now)
    told.services(world.now)
    assert len(counts) == 3
    world.now += COUNT_EVERY
    expect(4, {"u": ServiceGossip(1, 1, 1)})


def test_a_service_that_is_gone_is_left_out() -> None:
    world = World("a")
    node = world.nodes["a"]
    worker = node.worker("s")
    told = Capacity(node.broker, node.side)
    assert list(told.services(world.now)) == ["s"]
    node.broker.availability.offer(worker, (), world.now)
    del node.broker.worker_registry.services["s"]
    assert told.services(world.now) == {}


def test_not_every_idle_worker_is_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job from another broker visited up to 256 idle workers, to find out whether there is one."""
    world = World("a")
    node = world.nodes["a"]
    for _ in range(MOST_COUNTED):
        node.worker("s")
    service = node.broker.worker_registry.services["s"]
    visits: list[Worker] = []
    monkeypatch.setattr(capacity, "_free", lambda worker: visits.append(worker) or 1)
    assert idle_slots(service, node.side) == MOST_COUNTED
    assert idle_slots(service, node.side, 1) == 1
    assert not visits
    node.call(service="s")
    assert idle_slots(service, node.side) == MOST_COUNTED - 1
    assert len(visits) == MOST_COUNTED - 1


def test_at_most_256_idle_slots_are_told() -> None:
    world = World("a")
    node = world.nodes["a"]
    node.worker("s", capacity=MOST_COUNTED + 1)
    assert Capacity(node.broker, node.side).services(world.now) == {
        "s": ServiceGossip(1, MOST_COUNTED + 1, MOST_COUNTED)
    }


def test_a_worker_of_several_services_counts_once_in_the_status() -> None:
    """`cluster status` counted it once for each of its services, and its free slots as often."""
    world = World("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    worker = b.worker("s", capacity=3)
    b.broker.availability.offer(worker, ("s", "t", "u"), world.now)
    b.worker("t")
    world.run(2.0)

    def shown(node: Node, name: str) -> tuple[int, int]:
        view = cluster_view(node.side, node.client, node.broker, "", [], world.now)
        return next((each.workers, each.idle) for each in view.members if each.name == name)

    assert shown(a, "b") == shown(b, "b") == (2, 4)
    assert shown(a, "a") == shown(b, "a") == (0, 0)
    a.call(service="s")
    a.call(service="u")
    world.run(COUNT_EVERY + 0.1)
    assert shown(a, "b") == shown(b, "b") == (2, 2)
    b.broker.operator.pause("t")
    world.run(COUNT_EVERY + 0.1)
    assert shown(a, "b") == shown(b, "b") == (2, 1), "a worker of a paused service alone has no free slot"


def test_changes_are_told_less_often_to_many_brokers() -> None:
    """With 32 brokers, each received 1,550 messages a second."""

    def told_in_a_second(brokers: int) -> int:
        world = World(*(f"b{number}" for number in range(brokers)))
        world.run(1.5)
        node = world.nodes["b0"]
        before = node.published
        for _ in range(100):
            node.worker("s")
            world.run(0.01)
        return node.published - before

    assert told_in_a_second(2) == pytest.approx(40, abs=12)
    assert told_in_a_second(30) == pytest.approx(18, abs=4)
