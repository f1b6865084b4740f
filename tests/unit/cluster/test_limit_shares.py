"""Limits of a service hold for all brokers of a cluster together."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from dragoman.cluster.granter import fair_shares
from dragoman.cluster.store import NOTES
from dragoman.core.limit_values import LimitValues, read_rate
from dragoman.core.reached_limits import limit_in_the_way

from .limit_world import LimitWorld

ADOPTED = 10.0  # seconds: a broker is gone, its shards are adopted, and shares are granted again


def full_world(most: int, *, seed: int = 0, loss: float = 0.0, waiting: int = 30) -> LimitWorld:
    """Return three brokers with idle workers and waiting jobs, and as many running jobs as may run."""
    world = LimitWorld("a", "b", "c", seed=seed, loss=loss)
    world.limit(most)
    for node in world.all_nodes:
        world.workers(node, 10)
        world.call(node, waiting)
    world.run_until(lambda: world.running == most)
    return world


def test_number_is_divided_by_demand() -> None:
    assert fair_shares(10, [0, 3, 50], 0) == [0, 3, 7]
    assert fair_shares(10, [9, 9, 9], 0) == [4, 3, 3]
    assert fair_shares(10, [9, 9, 9], 1) == [3, 4, 3]
    assert [fair_shares(1, [5, 0, 5], turn) for turn in range(3)] == [[1, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert fair_shares(10, [1, 2, 3], 0) == [1, 2, 3]
    assert fair_shares(0, [1, 2], 0) == [0, 0]
    assert fair_shares(3, [], 0) == []


def test_no_more_jobs_run_than_the_limit_allows_and_every_broker_gets_its_part() -> None:
    world = full_world(4)
    for _ in range(100):
        world.finish_one()
        world.run(0.03)
        world.run_until(lambda: world.running == 4, 2.0)
        world.top_up()
    done = [world.done(node) for node in world.all_nodes]
    assert min(done) > 0.6 * max(done), done
    assert world.highest == 4


def test_limit_of_one_goes_around() -> None:
    world = full_world(1)
    for _ in range(60):
        world.finish_one()
        world.run(0.1)
    assert min(world.done(node) for node in world.all_nodes) > 6


def test_job_that_runs_at_another_broker_counts_once() -> None:
    world = LimitWorld("a", "b", "c")
    world.limit(4)
    world.workers(world.node("c"), 10)
    world.call(world.node("a"), 20)
    world.run_until(lambda: world.running == 4)
    assert world.running_at(world.node("c")) == 4
    assert [world.limits(node).running for node in world.all_nodes] == [4, 0, 0]  # type: ignore[union-attr]
    world.call(world.node("c"), 20)  # its own jobs wait, and leave its worker to those that may start
    for _ in range(30):
        world.finish_one()
        world.run_until(lambda: world.running == 4, 3.0)
    assert world.highest == 4
    assert min(world.done(world.node(name)) for name in "ac") > 5


def test_unlimited_services_cost_no_message() -> None:
    world = LimitWorld("a", "b")
    for node in world.all_nodes:
        world.workers(node, 2)
        world.call(node, 5)
    world.run(6.0)
    assert world.running == 4
    assert [node.side.shares._number for node in world.all_nodes] == [0, 0]


def test_jobs_of_a_tenant_are_limited_in_the_cluster() -> None:
    world = LimitWorld("a", "b", "c", seed=3)
    world.limit(per_tenant=2)
    for node in world.all_nodes:
        world.workers(node, 10)
        for tenant in ("red", "blue"):
            world.call(node, 40, tenant)
    done: Counter[str] = Counter()
    world.run_until(lambda: world.running == 4)
    for _ in range(60):
        world.finish_one()
        for _ in range(10):
            world.run(0.02)
            jobs = [each.job.tenant for node in world.all_nodes for each in world.attempts_at(node)]
            counts = Counter(jobs)
            assert max(counts.values()) <= 2, counts
            done.update(jobs)
        world.run_until(lambda: world.running == 4, 3.0)
    assert min(done["red"], done["blue"]) > 0


def test_lowest_limit_that_workers_declare_holds_in_the_cluster() -> None:
    world = LimitWorld("a", "b", "c")
    for node, most in zip(world.all_nodes, (6, 3, None), strict=True):
        world.workers(node, 10)
        if most is not None:
            worker = next(each for each in node.broker.worker_registry.workers.values() if each.recipient is node.local)
            node.broker.limiter.declare(worker, {"s": LimitValues(most)}, world.now)
    world.run_until(lambda: all(world.limits(node) is not None for node in world.all_nodes))
    world.run()
    world.most = 3
    for node in world.all_nodes:
        world.call(node, 20)
    world.run_until(lambda: world.running == 3)
    b = world.node("b")
    worker = next(each for each in b.broker.worker_registry.workers.values() if each.recipient is b.local)
    world.most = 6
    b.broker.limiter.undeclare(worker, worker.services[0], world.now)
    world.run_until(lambda: world.running == 6)


def test_why_names_the_brokers_whose_jobs_run() -> None:
    world = full_world(3)
    world.run(2.0)
    for node in world.all_nodes:
        job = next(iter(node.broker.worker_registry.services["s"].queue))
        limit = limit_in_the_way(job, world.now)
        assert limit is not None
        start, places = "'s' runs 3 of 3 jobs in the cluster (max_running, set by me): ", []
        for each in sorted(world.all_nodes, key=lambda each: each.name):
            limits = world.limits(each)
            if limits is not None and limits.running:
                places.append(f"{limits.running} at {each.name}")
        assert limit.sentence.startswith(start)
        assert sorted(limit.sentence.removeprefix(start).split(", "), key=lambda place: place[-1]) == places


# ---------------------------------------------------------------- failures


def test_broker_that_is_killed_keeps_its_share_until_it_is_gone() -> None:
    world = full_world(6)
    victim = next(node for node in world.all_nodes if node is not world.granter)
    held = world.running_at(victim)
    left = 6 - held
    world.freeze(victim.name)
    world.run(2.0)
    assert world.running == left  # it may only be cut off
    world.run_until(lambda: world.running == 6, ADOPTED)


def test_jobs_of_a_broker_that_was_killed_count_while_another_one_runs_them() -> None:
    world = LimitWorld("a", "b", "c")
    world.limit(4)
    granter = world.granter
    first, second = (node for node in world.all_nodes if node is not granter)
    world.workers(second, 10)
    world.call(first, 3)
    world.run_until(lambda: world.running == 3)
    world.freeze(first.name)
    world.call(granter, 10)
    world.run(ADOPTED)
    assert (world.running, world.limits(granter).running) == (4, 1)  # type: ignore[union-attr]
    while world.finish_one():
        world.run(0.5)
        if world.done(granter) == 10:
            break
    assert world.done(granter) == 10


@pytest.mark.parametrize("fate", ["killed", "frozen", "released"])
def test_granter_moves(fate: str) -> None:
    world = full_world(5)
    old = world.granter
    if fate == "killed":
        world.freeze(old.name)
    elif fate == "frozen":
        world.stop_time(old.name, is_long=True)  # the others give its jobs up, and it continues them
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
            world.finish_one()  # its workers' results arrive before anything that others have sent
            world.run(0.1)
            world.top_up()
        assert world.running == 5
        world.may_exceed = False
    for _ in range(30):
        world.finish_one()
        world.run_until(lambda: world.running == 5, 3.0)
        world.top_up()


def test_broker_that_was_frozen_starts_nothing_with_its_old_share() -> None:
    world = full_world(6)
    victim = next(node for node in world.all_nodes if node is not world.granter)
    held = world.running_at(victim)
    assert held
    world.stop_time(victim.name, is_long=True)
    world.run(ADOPTED)
    assert world.running == 6  # its jobs are given up, and not counted
    world.thaw(victim.name)
    assert world.running == 6 + held
    for attempt in world.attempts_at(victim):
        victim.finish(attempt)
    assert world.running_at(victim) == 0  # its lease has ended
    world.run(1.0)
    assert world.running == 6
    world.may_exceed = False
    for _ in range(30):
        world.finish_one()
        world.run_until(lambda: world.running == 6, 3.0)


def test_broker_without_nats_starts_nothing_more() -> None:
    world = full_world(6)
    victim = world.granter
    world.cut(victim.name)
    world.run(3.0)
    for attempt in world.attempts_at(victim):
        victim.finish(attempt)
    world.run(2.0)
    assert world.running_at(victim) == 0
    world.heal(victim.name)
    world.run_until(lambda: world.running == 6)


def test_limits_hold_when_all_brokers_were_away() -> None:
    world = full_world(6)
    for name in "abc":
        world.cut(name)
    world.run(8.0)  # all are gone, for all others
    before = {node.name: world.running_at(node) for node in world.all_nodes}
    world.heal(world.granter.name)
    world.run(2.0)
    for name in "abc":
        world.heal(name)
    world.run(1.0)
    assert {node.name: world.running_at(node) for node in world.all_nodes} == before
    for _ in range(12):
        world.finish_one()
        world.run_until(lambda: world.running == 6, 12.0)


def test_limit_holds_for_jobs_that_a_restarted_broker_restores() -> None:
    """Its jobs were restored, and started, before the limits in shard 0 were read."""
    world = LimitWorld("a")
    world.limit(2)
    (a,) = world.all_nodes
    world.workers(a, 10)
    for number in range(12):
        a.enqueue(b"%d" % number, attempts=9)
    world.run_until(lambda: world.running == 2)
    world.freeze("a")
    again = world.start("a")
    world.workers(again, 10)
    world.run_until(lambda: len(again.broker.jobs) == 12)
    world.run(20.0)  # `check` counts after each step
    assert world.running == 2


@pytest.mark.parametrize("seed", range(4))
def test_limit_holds_whatever_happens(seed: int) -> None:
    world = full_world(5, seed=seed, loss=0.02)
    random = world.random
    frozen_until = 0.0
    killed_until = 0.0
    for number in range(300):
        world.run(0.1)
        world.top_up()
        if number % 5 == 0:  # a background job, whose shard may move while it runs
            node = random.choice(world.all_nodes)
            if node.name not in world.frozen and world.limits(node) is not None:
                node.enqueue(b"%d" % number, attempts=9)
        for _ in range(random.randrange(3)):
            world.finish_one()
        if world.frozen and world.now >= frozen_until:
            for name in list(world.frozen):
                world.thaw(name)
        for name in list(world.down):
            if random.random() < 0.05:
                world.heal(name)
        missing = [name for name in "abc" if name not in world.nodes]
        if missing and world.now >= killed_until:
            node = world.start(missing[0])
            world.run_until(lambda node=node: world.limits(node) is not None)  # type: ignore[misc]
            world.workers(node, 10)
        event = random.random()
        is_whole = not world.frozen and not world.down and len(world.nodes) == 3
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


# ---------------------------------------------------------------- rates


@pytest.mark.parametrize(("rate", "seconds"), [("50/s", 6.0), ("5/s", 20.0), ("60/min", 20.0)])
def test_rate_holds_in_the_cluster(rate: str, seconds: float) -> None:
    world = LimitWorld("a", "b", "c")
    world.limit(rate=rate)
    count = seconds / read_rate(rate).interval
    for node in world.all_nodes:
        world.workers(node, 1000)
        world.call(node, int(0.5 * count))
    world.run_until(lambda: world.running)
    started, already = world.now, world.running
    seen = [0]
    while world.now < started + seconds:
        world.run(1.0)
        seen.append(world.running - already)
    assert 0.9 * count <= seen[-1] <= 1.1 * count, (seen[-1], count)
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) <= 1.1 * count / seconds + 1, steps


def test_tokens_that_nobody_needs_go_back() -> None:
    world = LimitWorld("a", "b")
    world.limit(rate="2/s")
    for node in world.all_nodes:
        world.workers(node, 1000)
    a, b = world.all_nodes
    world.run(8.0)
    for _ in range(10):
        world.call(a)
        world.run(1.0)
        world.call(b)
        world.run(1.0)
    assert world.running == 20
    assert all(world.limits(node).share.tokens == 0 for node in world.all_nodes)  # type: ignore[union-attr]
