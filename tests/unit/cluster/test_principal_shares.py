"""Limits of a principal hold for all brokers of a cluster together (R187)."""

from __future__ import annotations

import pytest

from dragoman.cluster.principal_grants import LINGER, UNITS, divide_rate
from dragoman.cluster.store import NOTES
from dragoman.core.model import Caller
from dragoman.core.owners import Owner
from dragoman.core.reached_limits import limit_in_the_way
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, PrincipalLimits

from .principal_world import OPTIONS, PrincipalWorld
from .shard_world import ShardNode

ADOPTED = 10.0  # seconds: a broker is gone, its shards are adopted, and shares are granted again


def full_world(most: int, *, seed: int = 0, loss: float = 0.0) -> PrincipalWorld:
    """Return three brokers with idle workers and waiting jobs, and as many running jobs as may run."""
    world = PrincipalWorld("a", "b", "c", seed=seed, loss=loss, max_running=most)
    for node in world.all_nodes:
        world.workers(node, 10)
        world.call(node, 30)
    world.run_until(lambda: world.running == most)
    return world


# ---------------------------------------------------------------- max_running


def test_no_more_jobs_of_a_principal_run_than_its_limit_allows() -> None:
    world = full_world(4)
    for _ in range(100):
        world.finish_one()
        world.run(0.03)
        world.run_until(lambda: world.running == 4, 2.0)
        world.top_up()
    done = [world.done(node) for node in world.all_nodes]
    assert min(done) > 0.6 * max(done), done
    assert world.highest == 4


def test_jobs_of_a_principal_count_in_all_services_together() -> None:
    world = PrincipalWorld("a", "b", max_running=3)
    for node in world.all_nodes:
        for service in ("s", "t"):
            node.worker(service, capacity=10)
            for _ in range(5):
                assert world.submit(node, service=service)
    world.run_until(lambda: world.running == 3)
    for _ in range(17):
        world.finish_one()
        world.run_until(lambda: world.running == 3, 3.0)
    assert world.highest == 3


def test_job_of_a_principal_that_runs_at_another_broker_counts_once() -> None:
    world = PrincipalWorld("a", "b", "c", max_running=4)
    world.workers(world.node("c"), 10)
    world.call(world.node("a"), 20)
    world.run_until(lambda: world.running == 4)
    assert world.running_at(world.node("c")) == 4
    assert [world.web(node).running for node in world.all_nodes] == [4, 0, 0]
    assert [world.web(node).taken for node in world.all_nodes] == [0, 0, 4]
    world.call(world.node("c"), 20)
    for _ in range(30):
        world.finish_one()
        world.run_until(lambda: world.running == 4, 3.0)
    assert world.highest == 4
    assert min(world.done(world.node(name)) for name in "ac") > 5


def test_other_principals_are_not_affected() -> None:
    world = full_world(2)
    for node in world.all_nodes:
        other = node.broker.principals.named("other")
        other.rights = ALL_RIGHTS
        caller = Caller(node.local, Owner(other))
        for _ in range(3):
            assert node.broker.submit("s", b"x", caller, OPTIONS, world.now)
    world.most = 2 + 9
    world.run(0.5)
    assert world.running == 2 + 9


def test_why_names_the_brokers_where_jobs_of_the_principal_run() -> None:
    world = full_world(3)
    world.run(2.0)
    for node in world.all_nodes:
        job = next(iter(node.broker.worker_registry.services["s"].queue))
        limit = limit_in_the_way(job, world.now)
        assert limit is not None
        places = {each.name: world.web(each).running for each in world.all_nodes if world.web(each).running}
        assert limit.kind == "max_running"
        start = "web runs 3 of 3 jobs in the cluster (max_running of web): "
        assert limit.sentence.startswith(start)
        shown = dict(reversed(place.split(" at ")) for place in limit.sentence.removeprefix(start).split(", "))  # type: ignore[misc]
        assert {name: int(count) for name, count in shown.items()} == places


def test_principals_without_limits_cost_no_message() -> None:
    world = PrincipalWorld("a", "b")  # with the default of max_waiting
    for node in world.all_nodes:
        world.workers(node, 2)
        world.call(node, 5)
    world.run(6.0)
    assert world.running == 4
    assert [node.side.shares._number for node in world.all_nodes] == [0, 0]


def test_principal_that_does_nothing_is_not_reported() -> None:
    world = PrincipalWorld("a", "b", max_running=3, max_rate=10.0, max_waiting=5, max_waiting_bytes=100)
    world.run_until(world.is_granted)
    world.call(world.node("a"))
    world.workers(world.node("a"), 1)
    world.run(1.0)
    assert "web" in world.node("a").side.shares._uses[1]  # type: ignore[index]
    while world.finish_one():
        world.run(LINGER + 10.0)
    assert all(node.side.shares._uses[1] == {} for node in world.all_nodes)  # type: ignore[index]
    assert not world.granter.side.shares.granter._principals.names(world.now)


# ---------------------------------------------------------------- failures


def test_broker_that_is_killed_keeps_its_share_of_a_principal_until_it_is_gone() -> None:
    world = full_world(6)
    victim = next(node for node in world.all_nodes if node is not world.granter)
    left = 6 - world.running_at(victim)
    world.freeze(victim.name)
    world.run(2.0)
    assert world.running == left  # it may only be cut off
    world.run_until(lambda: world.running == 6, ADOPTED)


def test_jobs_of_a_principal_whose_broker_was_killed_count_while_another_one_runs_them() -> None:
    world = PrincipalWorld("a", "b", "c", max_running=4)
    granter = world.granter
    first, second = (node for node in world.all_nodes if node is not granter)
    world.workers(second, 10)
    world.call(first, 3)
    world.run_until(lambda: world.running == 3)
    world.freeze(first.name)
    world.call(granter, 10)
    world.run(ADOPTED)
    assert (world.running, world.web(granter).running) == (4, 1)
    while world.finish_one():
        world.run(0.5)
        if world.done(granter) == 10:
            break
    assert world.done(granter) == 10


@pytest.mark.parametrize("fate", ["killed", "frozen", "released"])
def test_granter_of_principals_moves(fate: str) -> None:
    world = full_world(5)
    old = world.granter
    if fate == "killed":
        world.freeze(old.name)
    elif fate == "frozen":
        world.stop_time(old.name, is_long=True)
    else:
        old.keeper.shards.rest(world.now, 30.0)
    for _ in range(140):
        world.run(0.1)
        world.top_up()
        if world.random.random() < 0.4:
            world.finish_one()
    assert world.granter is not old
    if fate == "frozen":
        world.thaw(old.name)
        for _ in range(60):
            world.finish_one()
            world.run(0.1)
            world.top_up()
        assert world.running == 5
        world.may_exceed = False
    for _ in range(30):
        world.finish_one()
        world.run_until(lambda: world.running == 5, 3.0)
        world.top_up()


def test_broker_without_nats_starts_no_more_jobs_of_a_limited_principal() -> None:
    world = full_world(6)
    victim = world.granter
    world.cut(victim.name)
    world.run(3.0)
    for attempt in world.attempts_at(victim):
        victim.finish(attempt)
    world.run(2.0)
    assert world.running_at(victim) == 0
    job = next(iter(victim.broker.worker_registry.services["s"].queue))
    limit = limit_in_the_way(job, world.now)
    assert limit is not None
    assert "web may run 6 jobs in the cluster (max_running of web)" in limit.sentence
    world.heal(victim.name)
    world.run_until(lambda: world.running == 6)


@pytest.mark.parametrize("seed", range(4))
def test_limit_of_a_principal_holds_whatever_happens(seed: int) -> None:
    world = full_world(5, seed=seed, loss=0.02)
    random = world.random
    frozen_until = killed_until = 0.0
    for number in range(300):
        world.run(0.1)
        world.top_up()
        if number % 5 == 0:  # a background job, whose shard may move while it runs
            node = random.choice(world.all_nodes)
            if node.name not in world.frozen:
                node.enqueue(b"%d" % number, owner=Owner(world.web(node), is_limited=False), attempts=9)
        for _ in range(random.randrange(3)):
            world.finish_one()
        if world.frozen and world.now >= frozen_until:
            for name in list(world.frozen):
                world.thaw(name)
        missing = [name for name in "abc" if name not in world.nodes]
        if missing and world.now >= killed_until:
            world.workers(world.start(missing[0]), 10)
        event = random.random()
        is_whole = not world.frozen and len(world.nodes) == 3
        if event < 0.02 and is_whole:
            world.stop_time(random.choice("abc"))
            frozen_until = world.now + 3.0 * random.random()  # shorter than a broker needs to be gone
        elif event < 0.03 and is_whole:
            world.freeze(random.choice("abc"))
            killed_until = world.now + 15.0 * random.random()
        elif event < 0.05 and is_whole:
            shard = random.choice((NOTES, NOTES, 1, 2))
            for node in world.all_nodes:
                if node.keeper.owns(shard):
                    node.keeper.shards.release(shard, world.now)
    assert world.highest == 5


def test_job_of_a_principal_counts_while_its_shard_moves() -> None:
    world = PrincipalWorld("a", "b", "c", max_running=1)
    granter = world.granter
    first, second = (node for node in world.all_nodes if node is not granter)
    world.workers(second, 10)
    job = first.enqueue(b"x", owner=Owner(world.web(first), is_limited=False), attempts=9)
    assert job is not None
    world.run_until(lambda: world.running == 1)
    world.call(granter, 5)
    first.keeper.shards.release(job.id[-1], world.now)
    world.run_until(lambda: not first.keeper.owns(job.id[-1]))
    world.run(3.0)
    assert world.running == 1  # no other job has started, and this one goes on
    for _ in range(5):
        assert world.finish_one()
        world.run_until(lambda: world.running == 1, ADOPTED)


# ---------------------------------------------------------------- tables that differ


def test_lowest_limit_holds_where_access_tables_differ() -> None:
    world = PrincipalWorld("a", "b", "c", max_running=6)
    a, b, c = world.all_nodes
    world.apply(b, PrincipalLimits(max_running=3))
    world.apply(c, NO_LIMITS)
    world.run_until(lambda: all(world.web(node).limits.max_running == 3 for node in world.all_nodes))
    world.most = 3
    for node in world.all_nodes:
        world.workers(node, 10)
        world.call(node, 20)
    world.run_until(lambda: world.running == 3)
    world.most = 6
    world.apply(b, PrincipalLimits(max_running=6))
    world.run_until(lambda: world.running == 6)
    world.apply(a, NO_LIMITS)
    world.most = 1 << 30
    world.apply(b, NO_LIMITS)
    world.run_until(lambda: world.running == 30)
    assert world.web(c).share is None


# ---------------------------------------------------------------- max_rate


def submits(world: PrincipalWorld, nodes: list[ShardNode], each: float, seconds: float) -> dict[str, int]:
    """Submit at each of these brokers, so often a second. Returns the accepted submits by broker."""
    accepted = {node.name: 0 for node in nodes}
    owed = 0.0
    until = world.now + seconds
    while world.now < until:
        owed += each * 0.01
        while owed >= 1.0:
            owed -= 1.0
            for node in nodes:
                accepted[node.name] += world.submit(node)
        world.run(0.01)
    return accepted


def rate_world(rate: float) -> PrincipalWorld:
    world = PrincipalWorld("a", "b", "c", max_rate=rate)
    world.run_until(world.is_granted)
    return world


@pytest.mark.parametrize("rate", [30.0, 3.0])
def test_rate_of_a_principal_is_divided_among_brokers(rate: float) -> None:
    world = rate_world(rate)
    submits(world, world.all_nodes, 2.0 * rate, 2.0)  # what was saved up is gone
    accepted = submits(world, world.all_nodes, 2.0 * rate, 20.0)
    assert 0.9 * 20.0 * rate <= sum(accepted.values()) <= 1.1 * 20.0 * rate, accepted
    assert min(accepted.values()) > 0.8 * max(accepted.values()), accepted


@pytest.mark.parametrize("rate", [30.0, 3.0])
def test_caller_of_one_broker_has_nearly_the_whole_rate(rate: float) -> None:
    world = rate_world(rate)
    (first, *_) = world.all_nodes
    submits(world, [first], 2.0 * rate, 2.0)
    accepted = submits(world, [first], 2.0 * rate, 20.0)
    assert 0.9 * 20.0 * rate <= accepted[first.name] <= 1.02 * 20.0 * rate, accepted
    below = submits(world, [first], 0.9 * rate, 5.0)
    assert below[first.name] >= 5.0 * 0.9 * rate - 1


def test_rate_moves_to_the_broker_that_is_used() -> None:
    world = rate_world(20.0)
    a, b, _ = world.all_nodes
    submits(world, [a], 40.0, 5.0)
    submits(world, [b], 40.0, 5.0)
    accepted = submits(world, [b], 40.0, 5.0)
    assert accepted["b"] >= 0.9 * 5.0 * 20.0
    both = submits(world, [a, b], 40.0, 10.0)
    assert 0.9 * 10.0 * 20.0 <= sum(both.values()) <= 1.1 * 10.0 * 20.0


def test_saved_up_submits_of_a_caller_of_one_broker_stay_there() -> None:
    world = rate_world(50.0)
    a = world.all_nodes[0]
    submits(world, [a], 100.0, 3.0)
    world.run(20.0)
    assert sum(world.submit(a) for _ in range(60)) >= 45


def test_broker_without_nats_has_its_part_of_the_rate() -> None:
    world = rate_world(30.0)
    for name in "abc":
        world.cut(name)
    world.run(8.0)  # all are gone, for all others
    submits(world, world.all_nodes, 60.0, 2.0)
    accepted = submits(world, world.all_nodes, 60.0, 20.0)
    assert 0.9 * 600 <= sum(accepted.values()) <= 1.1 * 600, accepted


def test_refusal_names_the_rate_of_the_cluster() -> None:
    world = rate_world(2.0)
    a = world.all_nodes[0]
    while world.submit(a):
        pass
    a.drain()
    assert "web may submit 2 jobs a second in the cluster" in a.local.outcomes[-1].reason


def test_rate_is_divided_by_what_is_tried() -> None:
    assert divide_rate([0, 0], [False, False]) == [UNITS // 2] * 2
    assert divide_rate([10, 0], [True, False]) == [9750, 250]
    assert divide_rate([0, 0], [True, False]) == [9750, 250]
    assert divide_rate([10, 10], [True, True]) == [UNITS // 2] * 2
    assert divide_rate([10, 2], [True, True]) == [7750, 2250]
    assert all(sum(divide_rate([one, two, 0], [True, True, False])) <= UNITS for one in range(11) for two in range(11))


# ---------------------------------------------------------------- max_waiting, max_waiting_bytes, max_peers


def waiting(world: PrincipalWorld) -> int:
    return sum(world.web(node).waiting for node in world.all_nodes)


def test_waiting_jobs_of_all_brokers_count_together() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=100)
    world.run_until(world.is_granted)
    highest = 0
    for _ in range(300):
        for node in world.all_nodes:
            world.submit(node)
        world.run(0.02)
        highest = max(highest, waiting(world))
    assert 100 <= highest <= 110
    reason = world.node("a").local.outcomes[-1].reason
    assert "at this broker: in the cluster, 100 may wait (max_waiting of web)" in reason


def test_places_that_become_free_go_to_any_broker() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=50)
    world.run_until(world.is_granted)
    a, b, _ = world.all_nodes
    for _ in range(60):
        world.submit(a)
        world.run(0.02)
    assert waiting(world) == 50
    assert not world.submit(b)
    world.workers(a, 20)
    world.run(0.2)
    accepted = 0
    for _ in range(40):
        accepted += world.submit(b)
        world.run(0.05)
    assert accepted == 20


def test_large_batch_is_accepted_at_any_broker() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=200, max_waiting_bytes=2000)
    world.run_until(world.is_granted)
    a, b, c = world.all_nodes
    for node in world.all_nodes:
        world.connect(node)
    assert world.batch(a, 100)
    world.run(0.5)
    assert world.batch(b, 75, 10)
    world.run(0.5)
    assert not world.batch(c, 50)
    assert not world.batch(c, 12, 200)
    assert world.batch(c, 25)
    world.run(0.5)
    assert waiting(world) == 200
    assert not world.batch(a, 20)


def test_submits_in_the_same_moment_at_all_brokers_do_not_exceed_the_limit() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=120, max_waiting_bytes=1200)
    world.run_until(world.is_granted)
    for node in world.all_nodes:
        assert sum(world.submit(node) for _ in range(200)) == 40  # nobody knew of the principal
    world.run(0.5)
    assert waiting(world) == 120
    assert not any(world.submit(node) for node in world.all_nodes)
    world = PrincipalWorld("a", "b", "c", max_waiting_bytes=1200)
    world.run_until(world.is_granted)
    a, b, _ = world.all_nodes
    world.connect(a)
    world.connect(b)
    world.run(0.5)
    assert [sum(world.submit(node, b"x" * 10) for _ in range(200)) for node in (a, b)] == [63, 63]


def test_broker_gets_no_part_that_another_one_may_be_using() -> None:
    """The broker whose report came first got what slower ones had been granted, and were about to use."""
    world = PrincipalWorld("a", "b", "c", max_waiting=120)
    world.run_until(world.is_granted)
    for node in world.all_nodes:
        world.connect(node)
    world.run(0.5)
    granter = world.granter
    slow = [node for node in world.all_nodes if node is not granter]
    for node in slow:
        world.stop_time(node.name)
    for _ in range(10):
        while world.submit(granter):
            pass
        world.run(0.1)
    for node in slow:
        while world.submit(node):
            pass
    assert 120 <= waiting(world) <= 132


def test_submits_in_the_same_moment_at_the_only_broker_in_use_fill_the_limit() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=120)
    world.run_until(world.is_granted)
    a = world.all_nodes[0]
    world.connect(a)
    world.run(0.5)
    assert sum(world.submit(a) for _ in range(200)) == 120


def test_waiting_bytes_of_all_brokers_count_together() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting_bytes=10_000)
    world.run_until(world.is_granted)
    for _ in range(100):
        for node in world.all_nodes:
            world.submit(node, b"x" * 100)
        world.run(0.02)
    assert 9_500 <= sum(world.web(node).waiting_bytes for node in world.all_nodes) <= 11_000


def test_waiting_jobs_are_bounded_without_nats() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=90)
    world.run_until(world.is_granted)
    for name in "abc":
        world.cut(name)
    world.run(8.0)
    for node in world.all_nodes:
        assert sum(world.submit(node) for _ in range(100)) == 30


@pytest.mark.parametrize("event", ["shard 0 moves", "a broker joins"])
def test_places_for_waiting_jobs_stay_when_brokers_change(event: str) -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=90, max_rate=500.0)
    world.run_until(world.is_granted)
    old = world.granter
    user = next(node for node in world.all_nodes if node is not old)
    world.connect(user)
    world.run(0.2)
    assert sum(world.submit(user) for _ in range(50)) == 50
    world.run(0.2)
    if event == "shard 0 moves":
        old.keeper.shards.rest(world.now, 30.0)
    else:
        world.start("d")
    for _ in range(35):
        world.run(0.1)
        assert world.submit(user)
    assert (world.granter is old) == (event == "a broker joins")


def test_broker_that_joins_takes_no_share_away() -> None:
    """Brokers lost their shares until the new one had answered, and that was never, if it was cut off before."""
    world = full_world(4)
    world.start("d")
    world.run_until(lambda: "d" in world.granter.side.peers)
    world.freeze("d")
    for _ in range(60):
        world.run(0.05)
        assert any(world.web(node).max_running for node in world.all_nodes)
    assert world.running == 4


def test_jobs_of_a_broker_that_is_gone_count_until_that_is_certain() -> None:
    world = PrincipalWorld("a", "b", "c", max_waiting=60)
    world.run_until(world.is_granted)
    victim, other = (node for node in world.all_nodes if node is not world.granter)
    world.connect(victim)
    world.connect(other)
    assert world.batch(victim, 50)
    world.run(0.2)
    world.freeze(victim.name)
    world.run(1.0)
    assert world.web(other).max_waiting <= 6
    world.run_until(lambda: world.web(other).max_waiting == 60, ADOPTED)


def test_connections_of_all_brokers_count_together() -> None:
    world = PrincipalWorld("a", "b", max_peers=5)
    world.run_until(world.is_granted)
    a, b = world.all_nodes
    owners = [Owner(world.web(a)) for _ in range(3)]
    for owner in owners:
        owner.enter()
    world.run(0.2)
    assert (world.web(a).max_peers, world.web(b).max_peers) == (5, 2)
    for owner in owners:
        owner.leave()
    world.run(0.2)
    assert (world.web(a).max_peers, world.web(b).max_peers) == (5, 5)
