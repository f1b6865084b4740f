"""Jobs whose shard moves while they run at another broker count until their next owner counts them."""

from __future__ import annotations

import pytest

from dragoman.core.owners import Owner
from owners import LOCAL_OWNER

from .limit_world import LimitWorld
from .principal_world import PrincipalWorld


def move_shards(world: LimitWorld, owners: dict[str, Owner]) -> None:
    """Give shards up at random moments, while jobs are enqueued, start and end. `check` counts after each step."""
    random = world.random
    for node in random.sample(world.all_nodes, random.randrange(1, 3)):
        world.workers(node, 10)
    count = 0
    for _ in range(150):
        for node in world.all_nodes:
            if random.random() < 0.2:
                count += 1
                node.enqueue(b"%d" % count, owner=owners[node.name], attempts=9)
            for shard in node.owned:
                if random.random() < 0.02:
                    node.keeper.shards.release(shard, world.now)
        world.run(random.choice((0.01, 0.05, 0.2)))
        if random.random() < 0.2:
            world.finish_one()
    assert world.highest == world.most


@pytest.mark.parametrize("seed", [0, 9, 13, 22])
def test_limit_of_a_service_holds_while_shards_move_whose_jobs_run(seed: int) -> None:
    """A broker that gave a shard away reported its job as running, and started another one in its place. And a share
    grew to the jobs that a new owner had adopted, while more jobs ran than the limit allows."""
    world = LimitWorld("a", "b", "c", seed=seed)
    world.limit(world.random.randrange(1, 5))
    move_shards(world, {node.name: LOCAL_OWNER for node in world.all_nodes})


@pytest.mark.parametrize("seed", [0, 1, 3, 9])
def test_limit_of_a_principal_holds_while_shards_move_whose_jobs_run(seed: int) -> None:
    world = PrincipalWorld("a", "b", "c", seed=seed, max_running=2)
    world.run_until(world.is_granted)
    move_shards(world, {node.name: Owner(world.web(node), is_limited=False) for node in world.all_nodes})
