"""Random but repeatable: hostile clients that send anything at any time, and honest ones on a network that breaks.

With the first, the broker's records stay consistent (`World.check` after every step). For the second, no reply belongs
to another job, and every job runs at most once for each new request (R60: 0 wrong).
"""

from __future__ import annotations

from random import Random

import pytest

from .world import ELSEWHERE, HOME, Said, Side, World, header, heartbeat, job, ready, result

HOSTILE_RUNS, HOSTILE_STEPS = 70, 50
HONEST_RUNS, HONEST_STEPS, HEALING_STEPS = 20, 80, 60


# -------------------------------------------------------------------- hostile peers


class Hostile:
    """A hostile client: few request ids, few payloads, other workers' ids, to provoke collisions."""

    def __init__(self, run: int) -> None:
        self.random = random = Random(run)
        self.world = World(
            attempts=random.choice([None, 2, 3]),
            max_parked_per_peer=random.choice([3, 100]),
            max_parked=random.choice([6, 100]),
            keep_answers=random.choice([0.0, 3.0, 60.0]),
            max_kept_bytes=random.choice([0, 2_000, 1 << 20]),
            orphan_grace=random.choice([0.0, 5.0]),
            detach_timeout=random.choice([3.0, 30.0]),
            stuck_timeout=random.choice([5.0, 3_600.0]),
        )
        self.ids: list[bytes] = [b"", b"short", b"sixteen bytes it"]
        self.sides: list[Side] = [self.world.connect() for _ in range(2)]

    def step(self) -> None:
        random, world = self.random, self.world
        self.sides = [side for side in self.sides if not side.is_lost]
        kind = random.choices(
            ["ask", "same turn", "wait", "cut", "connect", "operator", "stuck", "late"],
            [50, 15, 10, 6, 6, 3, 3, 1],
        )[0]
        if kind == "connect" or not self.sides:
            if len(self.sides) < 6:
                self.sides.append(world.connect(random.choice([HOME, HOME, ELSEWHERE])))
        elif kind == "ask":
            self.ask()
            world.run_once()
        elif kind == "same turn":
            for _ in range(random.randrange(1, 5)):
                self.ask()
                if random.random() < 0.1:
                    self.drop(random.choice(self.sides))
            world.run_once()
        elif kind == "cut":
            self.drop(random.choice(self.sides))
            world.run_once()
        elif kind == "wait":
            world.wait(random.choice([0.0, 0.05, 0.5, 2.0, 10.0, 10.0, 25.0]))
        elif kind == "late":
            world.late(random.choice([0.5, 0.9, 30.0]))
        elif kind == "stuck":
            random.choice(self.sides).stream.room = random.choice([0, 5, 40])
            world.run_once()
        else:
            self.operate()
        self.ids += [id for id in world.session._remotes if id not in self.ids]

    def drop(self, side: Side) -> None:
        if not side.is_lost:
            self.world.drop(side)

    def ask(self) -> None:
        random = self.random
        side = random.choice(self.sides)
        if side.is_lost:
            return
        known = list(self.world.session._remotes) or self.ids
        id = random.choice(known if random.random() < 0.8 else self.ids)
        body = random.choices(
            [
                ready("a"),
                ready("a", "b"),
                heartbeat(id),
                result(id, random.choice([b"x", b"y"]), *random.choice([(), (), (), (True,), (False,)])),
                job(
                    random.choice([b"1", b"2"]), service=random.choice("ab"), timeout=random.choice([0, 500, 4_000, -1])
                ),
                random.choice([b"", b"\xff", header(5, id), job(id=id), ready(id=b"x"), header(9, b"")]),
            ],
            [12, 8, 25, 25, 28, 2],
        )[0]
        side.receive(random.randrange(1, 5), body, *random.choice([(), (), (), (7,)]))

    def operate(self) -> None:
        random, world = self.random, self.world
        broker = world.broker
        workers, jobs = list(broker.worker_registry.workers.values()), list(broker.jobs.values())
        choice = random.randrange(4)
        if choice == 0 and workers:
            broker.availability.drain(random.choice(workers), world.now, at_once=random.random() < 0.3)
        elif choice == 1 and jobs:
            broker.withdraw(random.choice(jobs), world.now)
        elif choice == 2:
            broker.operator.pause("a")
        else:
            broker.operator.resume("a", world.now)
        world.run_once()

    def finish(self) -> None:
        """Disconnect all, and check that no record is left."""
        world = self.world
        for side in self.sides:
            if not side.is_lost:
                world.drop(side)
        world.broker.operator.resume("a", world.now)
        world.run_once()
        world.wait(61)
        session = world.session
        assert (world.workers, world.present, session._callers.waiting, session._callers.answers.bytes) == (0, 0, 0, 0)
        for book in (session._remotes, session._callers.orphans, session._lost_readies, session._callers.answers._kept):
            assert not book
        assert session._heartbeats.armed == 0


@pytest.mark.parametrize("run", range(HOSTILE_RUNS))
def test_whatever_hostile_peers_say_the_books_are_kept(run: int) -> None:
    hostile = Hostile(run)
    for _ in range(HOSTILE_STEPS):
        hostile.step()
    hostile.finish()


# -------------------------------------------------------------------- honest peers, broken connections


class Req:
    """One context of a REQ socket: one request at a time, repeated until its reply comes."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.request = 0
        self.body: bytes | None = None

    def send(self, body: bytes) -> None:
        self.request = self.socket.next_request()
        self.body = body
        self.repeat()

    def repeat(self) -> None:
        if self.body is not None:
            self.socket.outgoing.append((self.request, self.body))

    def take(self, said: Said) -> bool:
        """Tell if this is the expected reply."""
        if self.body is None or said.request != self.request:
            return False
        self.body = None
        return True


class Socket:
    """A REQ socket: its contexts share a connection, and messages on the way are lost with it."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.side = world.connect()
        self.outgoing: list[tuple[int, bytes]] = []
        self.incoming: list[Said] = []
        self.members: list[HonestWorker | HonestClient] = []
        self._request = random.randrange(1 << 31)

    def next_request(self) -> int:
        self._request = (self._request + 1) % (1 << 31)
        return self._request

    def deliver(self) -> None:
        """Deliver some of the messages on the way."""
        for _ in range(self.random.randrange(8)):
            if self.outgoing:
                self.side.receive(*self.outgoing.pop(0))
        self.world.run_once()
        self.incoming += self.side.heard()
        for _ in range(self.random.randrange(8)):
            if self.incoming:
                said = self.incoming.pop(0)
                for member in self.members:
                    if member.req.take(said):
                        member.receive(said)

    def reconnect(self) -> None:
        """Reconnect, and repeat requests without a reply, as NNG does."""
        if self.random.random() < 0.3:
            self.side.stream.room = self.random.randrange(60)  # what we say last does not leave whole
            self.world.run_once()
        self.side = self.world.again(self.side)
        self.outgoing.clear()
        self.incoming.clear()
        for member in self.members:
            member.req.repeat()


class HonestWorker:
    def __init__(self, socket: Socket, runs: dict[bytes, int]) -> None:
        self.req = Req(socket)
        self.runs = runs
        self.job: bytes | None = None
        self.id = b""
        socket.members.append(self)
        self.req.send(ready())

    def receive(self, said: Said) -> None:
        self.id = said.id
        if said.word == "JOB":
            self.job = said.payload
            self.runs[said.payload] = self.runs.get(said.payload, 0) + 1
        elif said.word == "HEARTBEAT":
            self.req.send(heartbeat(said.id))
        else:
            assert said.word == "DISCONNECT"
            self.req.send(ready())

    def work(self) -> None:
        if self.job is not None:
            self.req.send(result(self.id, b"of " + self.job))
            self.job = None


class HonestClient:
    def __init__(self, socket: Socket, name: str, timeout: int) -> None:
        self.req = Req(socket)
        self.name = name
        self.timeout = timeout
        self.asked = 0
        self.answered = 0
        self.payload = b""
        socket.members.append(self)

    def ask(self) -> None:
        if self.req.body is None:
            self.asked += 1
            self.payload = f"{self.name} {self.asked}".encode()
            self.req.send(job(self.payload, timeout=self.timeout))

    def receive(self, said: Said) -> None:
        assert said.word == "RESULT"
        assert said.payload == b"of " + self.payload, "another job's answer"
        self.answered += 1


@pytest.mark.parametrize("run", range(HONEST_RUNS))
def test_r60_on_a_network_that_breaks_no_answer_is_another_job_s(run: int) -> None:
    random = Random(f"honest {run}")
    world = World(max_kept_bytes=1 << 20)
    runs: dict[bytes, int] = {}
    sockets = [Socket(world, random) for _ in range(3)]
    workers = [HonestWorker(random.choice(sockets), runs) for _ in range(3)]
    timeout = random.choice([2_000, 60_000, -1])
    clients = [HonestClient(random.choice(sockets), f"client {number}", timeout) for number in range(4)]
    resend = random.choice([0.02, 0.1, 0.3])
    breaks = random.choice([0.0, 0.02, 0.1])
    for step in range(HONEST_STEPS + HEALING_STEPS):
        is_healing = step >= HONEST_STEPS
        for socket in sockets:
            for member in socket.members:
                if random.random() < resend or (is_healing and step % 10 == 0):
                    member.req.repeat()
            socket.deliver()
            if random.random() < breaks and not is_healing:
                socket.reconnect()
        for worker in workers:
            if random.random() < 0.4:
                worker.work()
        for client in clients:
            if random.random() < 0.4 and not is_healing:
                client.ask()
        world.wait(random.choice([0.0, 0.1, 0.5]))
        if random.random() < 0.03 and not is_healing:
            world.wait(11)
    silent = sum(world.silences.values())
    assert sum(runs.values()) <= world.counters.dispatched, "somebody ran what nobody was given"
    assert max(runs.values(), default=1) <= 1 + silent, "a job ran twice although nobody gave up on it"
    assert sum(client.answered for client in clients) > 0
    if not silent:
        assert [client.answered for client in clients] == [client.asked for client in clients]
        assert set(runs.values()) <= {1}
