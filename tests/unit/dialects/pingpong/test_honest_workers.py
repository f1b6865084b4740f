"""Honest PingPong workers in any order of events: I3, I4."""

from __future__ import annotations

from random import Random

import pytest

from dragoman.dialects.pingpong.editions import Edition

from .world import EXIT, JOB_COMPLETE, PING, PONG, READY, Side, World, both


class HonestWorker:
    """Runs one job at a time, and sends results only on the connection of the job (R39)."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.peer: Side | None = None
        self.doing: list[bytes] | None = None
        self.is_threaded = random.random() < 0.5

    def act(self) -> None:
        world, random = self.world, self.random
        if self.peer is None or self.peer.is_lost:
            self.peer, self.doing = world.worker(random.choice([b"", b"same"])), None
            self._say(READY)
        elif random.random() < 0.1:
            world.lose(self.peer)
        elif self.doing is not None and random.random() < 0.5:
            (job, *envelope), self.doing = self.doing, None
            result = b"done " + job
            self._say(*([result] if not envelope else [JOB_COMPLETE, *envelope[:2], result]))
        elif self.doing is None or self.is_threaded:
            self._say(random.choice([PING, PING, PING, READY]) if self.doing is None else PING)
        self.look()

    def look(self) -> None:
        for frames in self.peer.told() if self.peer is not None else ():
            if self.peer.is_lost:
                return
            if frames == [EXIT]:
                self.world.lose(self.peer)
            elif frames[0] != PONG:
                assert self.doing is None, "a job came while another was being done"
                self.doing = frames

    def _say(self, *words: bytes) -> None:
        assert self.peer is not None
        if self.peer.closed is None:
            self.world.receive(self.peer, [b"", *words])


@both
@pytest.mark.parametrize("seed", range(8))
def test_i3_i4_honest_workers_give_every_caller_at_most_one_answer_and_its_own(edition: Edition, seed: int) -> None:
    """D1 to D4 in any order of events: no worker gets two jobs at once, no caller gets another's result."""
    random = Random(seed)
    world = World(edition=edition, job_timeout=6, queue_timeout=20, attempts=random.choice([1, 3]), stuck_timeout=40)
    workers = [HonestWorker(world, random) for _ in range(3)]
    asked: list[tuple[Side, bytes]] = []
    for number in range(300):
        for each in workers:
            each.look()
        if random.random() < 0.3:
            caller, payload = world.caller(), b"job %d" % number
            world.receive(caller, [b"", payload])
            asked.append((caller, payload))
        random.choice(workers).act()
        if random.random() < 0.02 and world.broker.worker_registry.workers:
            world.broker.availability.drain(
                random.choice(list(world.broker.worker_registry.workers.values())),
                world.now,
                at_once=random.random() < 0.5,
            )
        if random.random() < 0.6:
            world.settle()
        if random.random() < 0.5:
            world.settle()
            world.wait(random.choice([0.1, 1.0, 3.0]))
    world.settle()
    world.wait(200)
    for caller, payload in asked:
        (answer,) = caller.told()
        assert answer in ([b"done " + payload], [b"", b"ERROR", answer[-1]])
    assert world.present == 0
