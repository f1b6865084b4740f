"""Random stories with workers that go from broker to broker with their jobs (R119)."""

from __future__ import annotations

import pytest

from dragoman.core.model import Attempt, Token, Worker
from dragoman.core.options import WorkerProfile
from dragoman.core.states import DONE, GONE
from owners import LOCAL_OWNER

from .shard_world import ShardNode, ShardWorld
from .test_shard_jobs import world_with_workers

CAPACITY = 3


class Roamer:
    """A worker that knows all brokers. It runs on when its connection ends, and names its jobs to the next broker."""

    def __init__(self, world: ShardWorld, name: str) -> None:
        self.world = world
        self.held: dict[bytes, bytes] = {}  # payloads of running jobs, by token
        self.node: ShardNode | None = None
        self.worker: Worker | None = None
        self.back_at = 0.0
        self.join(world.node(name))

    def join(self, node: ShardNode) -> None:
        now = self.world.now
        profile = WorkerProfile(capacity=CAPACITY, can_resume=True, can_move=True)
        worker = node.broker.join(node.local, None, "roamer", ("s",), profile, now, LOCAL_OWNER)
        assert worker is not None
        self.node, self.worker = node, worker
        self.world.moved |= set(self.held)
        claim = node.broker.handover.claim
        self.held = {token: held for token, held in self.held.items() if claim(worker, Token(token), "s", now)}
        node.broker.idle(worker, now)

    def part(self, delay: float) -> None:
        """End the connection. If its broker lives, that notices it."""
        node, worker = self.node, self.worker
        self.node = self.worker = None
        self.back_at = self.world.now + delay
        if node is not None and worker is not None and worker.state is not GONE and node in self.world.all_nodes:
            node.broker.leave(worker, self.world.now, "its worker's connection ended")

    def step(self) -> None:
        world, node, worker = self.world, self.node, self.worker
        if node is None or worker is None:
            live = [each for each in world.all_nodes if not each.broker.dispatch.is_draining]
            if world.now >= self.back_at and live:
                self.join(world.random.choice(live))
            return
        for attempt in [each for each in node.local.sent if each.worker is worker]:
            node.local.sent.remove(attempt)
            self.held[attempt.token] = bytes(attempt.job.payload)
        for attempt in [each for each in node.local.cancelled if each.worker is worker]:
            node.local.cancelled.remove(attempt)
            self.held.pop(attempt.token, None)
            node.broker.attempts.undelivered(attempt, world.now)
        if node not in world.all_nodes or worker.state is GONE or worker in node.local.moved:
            self.part(world.random.uniform(0.0, 1.0))
            return
        for token, payload in list(self.held.items()):
            attempt = worker.find(Token(token))
            if world.random.random() < 0.05 and isinstance(attempt, Attempt):
                del self.held[token]
                node.finish(attempt, payload.upper())


def stop(world: ShardWorld, node: ShardNode) -> None:
    node.broker.operator.close(world.now)
    node.keeper.shards.drain(world.now)


def is_stopped(node: ShardNode) -> bool:
    """True if a broker that stops may end: nothing runs there, and nothing waits for an acknowledgement."""
    is_running = any(each.running for each in node.broker.worker_registry.workers.values())
    is_working = is_running or bool(node.broker.effects or node.io.calls)
    return (
        not is_working
        and node.keeper.shards.is_drained
        and not len(node.keeper.outcomes)
        and node.side.departure.is_quiet
    )


@pytest.mark.parametrize("seed", range(8))
def test_no_job_is_lost_or_runs_twice_while_brokers_are_stopped_and_started(seed: int) -> None:
    names = ("a", "b", "c")
    world = world_with_workers(*names, seed=seed)
    roamers = [Roamer(world, name) for name in names]
    count = 0

    def run(seconds: float) -> None:
        until = world.now + seconds
        while world.now < until:
            world.run(0.05)
            for roamer in roamers:
                roamer.step()

    for turn in range(4):
        for _ in range(10):
            for node in world.all_nodes:
                count += 1
                node.enqueue(b"job %d" % count, attempts=1)
            run(world.random.uniform(0.05, 0.3))
        node = world.node(names[turn % 3])
        stop(world, node)
        began = world.now
        while not is_stopped(node):
            run(0.05)
            assert world.now < began + 5.0, "it waits for jobs"
        world.freeze(node.name)
        run(world.random.uniform(0.0, 2.0))
        world.start(node.name)
        run(6.0)

    def all_ended() -> bool:
        run(0.05)
        return all(getattr(world.find(id), "outcome", None) is not None for id in world.accepted.values())

    world.run_until(all_ended, 120.0)
    assert len(world.accepted) > 50
    lost = {
        payload: job.reason
        for payload, id in world.accepted.items()
        if (job := world.find(id)) is not None and job.outcome is not DONE
    }
    assert lost == {}
    assert all(world.runs[payload] == 1 for payload in world.accepted)


@pytest.mark.parametrize("seed", range(8))
def test_no_job_runs_too_often_while_brokers_are_killed_frozen_and_cut(seed: int) -> None:
    names = ("a", "b", "c")
    world = world_with_workers(*names, seed=seed, loss=0.01, log_loss=0.03)
    random = world.random
    roamers = [Roamer(world, name) for name in names]
    frozen: dict[str, tuple[ShardNode, float]] = {}
    count = 0

    def run(seconds: float) -> None:
        until = world.now + seconds
        while world.now < until:
            world.run(0.05)
            for roamer in roamers:
                roamer.step()

    for _ in range(8):
        for node in world.all_nodes:
            count += 1
            once = count % 2 == 0
            node.enqueue(b"%s %d" % (b"once" if once else b"many", count), attempts=1 if once else 50)
        run(random.uniform(0.05, 0.4))
        for name, (node, until) in list(frozen.items()):
            if world.now >= until:
                world.nodes[name] = node
                del frozen[name]
                for worker in [each for each in node.broker.worker_registry.workers.values() if each.name == "roamer"]:
                    node.broker.leave(worker, world.now, "its worker's connection ended")
        if random.random() < 0.2 and len(world.nodes) == 3:
            name = random.choice(names)
            kind = random.choice(("kill", "freeze", "stop", "cut", "part"))
            if kind == "kill":
                world.freeze(name)
                world.start(name)
            elif kind == "freeze":
                frozen[name] = (world.freeze(name), world.now + random.uniform(1.0, 9.0))  # type: ignore[assignment]
            elif kind == "stop":
                stop(world, world.node(name))
                run(1.0)
                world.freeze(name)
                world.start(name)
            elif kind == "part":
                random.choice(roamers).part(random.uniform(0.0, 2.0))
            elif name in world.down:
                world.heal(name)
            else:
                world.cut(name)
    for name, (node, _) in frozen.items():
        world.nodes[name] = node
        for worker in [each for each in node.broker.worker_registry.workers.values() if each.name == "roamer"]:
            node.broker.leave(worker, world.now, "its worker's connection ended")
    for name in names:
        world.heal(name)
    world.loss = world.log_loss = 0.0

    def all_ended() -> bool:
        run(0.05)
        return all(getattr(world.find(id), "outcome", None) is not None for id in world.accepted.values())

    world.run_until(all_ended, 240.0)
    for payload, id in world.accepted.items():
        job = world.find(id)
        assert job is not None
        assert job.outcome is DONE or payload.startswith(b"once"), (payload, job.reason)
        assert world.runs.get(payload, 0) <= (1 if payload.startswith(b"once") else 50), payload
