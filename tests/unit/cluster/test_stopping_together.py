"""All brokers of a cluster stop at once: what their workers run is finished, committed, and not run again."""

from __future__ import annotations

import pytest

from dragoman.core.states import DONE, JobState

from .shard_world import SHARDS, ShardNode, ShardWorld
from .test_handover import stop
from .test_shard_jobs import enqueue, owner_of, world_with_workers
from .world import STEP

NAMES = ("a", "b", "c")


def may_end(node: ShardNode) -> bool:
    """True if nothing keeps the process of a broker that stops, as in `server/serve.py`."""
    is_running = any(worker.running for worker in node.broker.worker_registry.workers.values())
    is_saving = node.broker.job_registry.pending_commits.is_holding
    has_given = node.keeper.shards.is_drained and not len(node.keeper.outcomes)
    return not is_running and not is_saving and has_given and node.side.departure.is_quiet


def end_those_that_may(world: ShardWorld) -> None:
    for node in world.all_nodes:
        if node.keeper.shards.is_draining and may_end(node):
            node.side.say_goodbye(world.now)
            world.freeze(node.name)


def seconds_until_all_have_ended(world: ShardWorld) -> float:
    began = world.now
    while world.nodes:
        assert world.now < began + 40.0, f"{list(world.nodes)} do not end"
        world.run(STEP)
        end_those_that_may(world)
    return world.now - began


def start_again(world: ShardWorld) -> None:
    for name in NAMES:
        world.start(name)
    world.wait_for_owners()


def test_idle_brokers_end_at_once() -> None:
    """Each waited three seconds for the answers of those that had ended before."""
    world = world_with_workers(*NAMES)
    enqueue(world, b"waits")
    for node in world.all_nodes:
        stop(world, node)
    assert seconds_until_all_have_ended(world) < 0.3
    start_again(world)
    assert world.find(world.accepted[b"waits"]) is not None


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_job_that_runs_while_all_brokers_stop_is_committed_when_it_ends(is_owner: bool) -> None:
    """Its shard had no owner any more, and the broker of its worker held the outcome until `drain_timeout`."""
    world = world_with_workers(*NAMES)
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    holder = owner if is_owner else next(each for each in world.all_nodes if each is not owner)
    holder.worker()
    world.run_until(lambda: holder.local.sent)
    for node in world.all_nodes:
        stop(world, node)
    for _ in range(100):
        world.run(0.1)
        end_those_that_may(world)
    assert list(world.nodes) == [holder.name]
    world.work()
    assert seconds_until_all_have_ended(world) < 0.3
    start_again(world)
    job = world.find(id)
    assert job is not None
    assert (job.outcome, world.runs) == (DONE, {b"x": 1})


def test_a_job_that_fails_while_all_brokers_stop_is_tried_again_after_the_next_start() -> None:
    world = world_with_workers(*NAMES)
    id = enqueue(world, b"x", attempts=2)
    holder = owner_of(world, id)
    worker = holder.worker(capacity=5)
    world.run_until(lambda: holder.local.sent)
    for node in world.all_nodes:
        stop(world, node)
    world.run(1.0)
    holder.broker.leave(worker, world.now, "its worker died")
    assert seconds_until_all_have_ended(world) < 0.3
    start_again(world)
    job = world.find(id)
    assert job is not None
    assert (job.state in (JobState.WAITING, JobState.DELAYED), job.spent) == (True, 1)


def test_a_broker_that_comes_back_gets_the_shards_of_one_that_waits_for_its_jobs() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=1)
    holder = owner_of(world, id)
    holder.worker()
    world.run_until(lambda: holder.local.sent)
    for node in world.all_nodes:
        stop(world, node)
    world.run(1.0)
    end_those_that_may(world)
    assert list(world.nodes) == [holder.name]
    again = world.start("c")
    world.run_until(lambda: len(again.owned) == SHARDS)
    world.work()
    world.run(STEP)
    world.run_until(lambda: may_end(holder))
    job = world.find(id)
    assert job is not None
    assert (job.outcome, world.runs) == (DONE, {b"x": 1})


def test_the_time_to_stop_ends_the_wait_and_a_worker_may_resume_its_attempt_after_the_next_start() -> None:
    world = world_with_workers("a")
    id = enqueue(world, b"x", attempts=1)
    (node,) = world.all_nodes
    node.worker(moves=True)
    world.run_until(lambda: node.local.sent)
    (attempt,) = node.local.sent
    stop(world, node)
    world.run(30.0)
    assert (node.keeper.owns(node.keeper.shard_of(id)), may_end(node)) == (True, False)
    node.keeper.shards.give_up(world.now)
    node.keeper.tick(world.now)
    node.broker.operator.abort(world.now)
    world.run(0.5)
    assert node.keeper.shards.is_drained
    world.freeze("a")
    again = world.start("a")
    world.wait_for_owners()
    worker = again.worker(moves=True, brings=attempt.token)
    again.finish(worker.running[attempt.token], b"X")
    world.run(1.0)
    job = world.find(id)
    assert job is not None
    assert (job.outcome, bytes(job.result), job.spent, world.runs) == (DONE, b"X", 0, {b"x": 1})


@pytest.mark.parametrize("seed", range(12))
def test_all_brokers_stop_at_any_moment(seed: int) -> None:
    """Jobs of one attempt wait, start, run and end at any broker while the others stop in any order. The network loses
    messages."""
    world = ShardWorld(*NAMES, seed=seed)
    world.wait_for_owners()
    random = world.random
    for node in world.all_nodes:
        if random.random() < 0.7:
            node.worker(capacity=random.randrange(1, 4))
    for number in range(6):
        enqueue(world, b"%d" % number, attempts=1)
    for number in range(6, 12):
        random.choice(world.all_nodes).enqueue(b"%d" % number, attempts=1)  # on its way when they stop
        world.run(STEP * random.choice((0, 1)))
    for node in random.sample(world.all_nodes, 3):
        stop(world, node)
        world.run(STEP * random.choice((0, 0, 1, 3, 20)))
    for _ in range(random.randrange(40)):
        world.run(0.05)
        end_those_that_may(world)
        if random.random() < 0.3:
            finish_one(world)
    world.work()
    assert seconds_until_all_have_ended(world) < 3.0
    start_again(world)
    assert all(is_done(world, each) for each in world.runs)
    world.node("a").worker(capacity=20)
    world.run_until(lambda: len(world.runs) == len(world.accepted))
    world.work()
    world.run_until(lambda: all(is_done(world, each) for each in world.accepted))
    assert world.runs == dict.fromkeys(world.accepted, 1)


def is_done(world: ShardWorld, payload: bytes) -> bool:
    job = world.find(world.accepted[payload])
    return job is not None and job.outcome is DONE


def finish_one(world: ShardWorld) -> None:
    found = [(node, attempt) for node in world.all_nodes for attempt in node.local.sent]
    if found:
        node, attempt = world.random.choice(found)
        node.local.sent.remove(attempt)
        node.finish(attempt, bytes(attempt.job.payload).upper())
