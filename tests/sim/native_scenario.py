"""Scenarios of the native dialect from a seed: a phase of faults, then healing.

One to three clients with small windows submit jobs to one to three workers. From the seed come the options and a random
subset of the faults. Half of the seeds are *exact* (see native_oracle.py): only faults of `HARMLESS` happen in them.

`sweep` is systematic: three jobs of one client, and one run for every position at which its connection can be cut: at
every boundary between two messages and within every message, in each direction; and then by closing it there, so that
bytes in transit arrive late.

Run one seed by hand: `cd tests && python -m sim.native_scenario 123`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from dragoman.dialects.native.options import ListenerOptions
from sim.broker_setup import Kinds, Life, Setup
from sim.native_actors import Client, Program, Worker
from sim.native_oracle import NativeOracle, WatchedNative, books, require
from sim.oracle import Wrong
from sim.pipes import Weather, Wire
from sim.scenario import Report, SeedFailed
from sim.world import BEGIN, World

HARMLESS = ("cut", "chop", "hang up", "slow", "split", "narrow", "pause", "fail", "cancel")
HARMFUL = ("cut workers", "broker crash", "little kept", "short resume")
LONG = 600.0
GREETING = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a seed before the run."""

    seed: int
    options: ListenerOptions
    faults: frozenset[str]
    is_exact: bool
    clients: int
    workers: int
    concurrency: int
    window: int
    jobs: int
    pace: float
    slowest: float
    chaos: float
    attempts: int = 1


def draw(seed: int) -> Plan:
    random = Random(f"native plan {seed}")
    is_exact = random.random() < 0.5
    faults = [fault for fault in HARMLESS if random.random() < 0.45]
    options = ListenerOptions(client_resume_timeout=random.choice((4.0, LONG)), job_timeout=LONG, window=50)
    if not is_exact:
        faults += [fault for fault in HARMFUL if random.random() < 0.4]
        if "little kept" in faults:
            options = replace(options, max_kept_bytes=random.choice((0, 16, 100)))
        if "short resume" in faults:
            options = replace(options, client_resume_timeout=random.choice((0.0, 0.2, 1.0)))
    return Plan(
        seed,
        options,
        frozenset(faults),
        is_exact,
        clients=random.randint(1, 3),
        workers=random.randint(1, 3),
        concurrency=random.choice((1, 2, 4)),
        window=random.choice((1, 2, 2, 3, 10)),
        jobs=random.choice((5, 15, 30)),
        pace=random.choice((0.05, 0.4)),
        slowest=random.choice((0.02, 0.3, 1.5)),
        chaos=random.uniform(3.0, 9.0),
        attempts=1 if is_exact else random.choice((1, 1, 3)),
    )


class NativeSetup(Setup):
    def _look(self) -> None:
        life: Life | None = self._touched
        super()._look()
        if life is not None:
            books(life.session)  # type: ignore[arg-type]


class Run:
    def __init__(self, plan: Plan, world: World, session: type[WatchedNative]) -> None:
        self._plan = plan
        self._world = world
        self._is_calm = False
        self._weather = Weather(
            slow=0.05 if "slow" in plan.faults else 0.0,
            slowest=1.5,
            splits=0.3 if "split" in plan.faults else 0.0,
            window=world.random.choice((90, 400)) if "narrow" in plan.faults else 1 << 20,
        )
        self.oracle = NativeOracle(
            world,
            is_exact=plan.is_exact,
            attempts=plan.attempts,
            cancels=0.2 if "cancel" in plan.faults else 0.0,
            failures=0.2 if "fail" in plan.faults else 0.0,
        )
        self._setup = NativeSetup(world, self._weather, plan.options, self.oracle, Kinds(session=session))  # type: ignore[arg-type]
        self._setup.open()
        self.workers = [self._worker(number) for number in range(plan.workers)]
        self.clients = [self._client(number) for number in range(plan.clients)]

    def _worker(self, number: int) -> Worker:
        plan, name = self._plan, f"worker {number}"
        return Worker(self._setup, self.oracle, name, self.dialled, concurrency=plan.concurrency, slowest=plan.slowest)

    def _client(self, number: int) -> Client:
        plan, name = self._plan, f"client {number}"
        return Client(self._setup, self.oracle, name, self.dialled, jobs=plan.jobs, window=plan.window, pace=plan.pace)

    def live(self) -> Report:
        self._befall()
        self._world.run(BEGIN + self._plan.chaos)
        self._calm_down()
        self.heal()
        return self.end()

    def end(self) -> Report:
        life = self._setup.life
        assert life is not None
        self.oracle.life_ended(life.broker)
        self.oracle.verdict()
        world = self._world
        return Report(world.events, world.now - BEGIN, world.trace(), self.oracle.hits)

    # ---------------------------------------------------------------- chaos

    def dialled(self, program: Program, wire: Wire, number: int) -> None:
        """A new connection: decide where it will be cut."""
        random = self._world.random
        is_meant = isinstance(program, Client) or "cut workers" in self._plan.faults
        if "cut" in self._plan.faults and is_meant and not self._is_calm and random.random() < 0.7:
            end = random.choice((wire.actor, wire.broker))
            end.fuse = random.randint(0, random.choice((200, 600, 3000)))

    def _befall(self) -> None:
        if self._is_calm:
            return
        random, faults = self._world.random, self._plan.faults
        client = random.choice(self.clients)
        if "chop" in faults and client.end is not None and random.random() < 0.5:
            client.end.wire.cut()
        elif "hang up" in faults and random.random() < 0.5:
            client.hang_up()
        elif "cut workers" in faults and random.random() < 0.3:
            worker = random.choice(self.workers)
            if worker.end is not None:
                worker.end.wire.cut()
        elif "broker crash" in faults and random.random() < 0.1:
            self._setup.crash(random.choice((0.0, 0.2, 1.0)))
        elif "pause" in faults and random.random() < 0.2 and self._setup.life is not None:
            self._setup.life.pause(random.choice((0.3, 1.5, 2.5)))
        self._world.after(random.expovariate(3.0), self._befall)

    # ---------------------------------------------------------------- healing

    def _calm_down(self) -> None:
        self._world.note("world", "calms down")
        self._is_calm = True
        self._weather.calm_down()
        for wire in self._setup.wires:
            wire.actor.fuse = wire.broker.fuse = None
        for program in (*self.clients, *self.workers):
            program.is_calm = True
        if self._setup.life is not None:
            self._setup.life.resume()

    def heal(self) -> None:
        """Every job ends, nothing is left, and all are as they were."""
        world = self._world
        jobs = self._plan.clients * self._plan.jobs
        limit = world.now + 30.0 + 2 * jobs * (self._plan.slowest + 0.1 + self._plan.pace)
        while (problem := self._unhealed()) is not None:
            require(
                world.now < limit, "I14", f"{problem}, {world.now - BEGIN - self._plan.chaos:.0f} s after it was calm"
            )
            world.run(world.now + 0.5)
        world.run(world.now + 1.0)

    def _unhealed(self) -> str | None:
        life = self._setup.life
        if life is None:
            return "the broker is down"
        for client in self.clients:
            if not client.is_done:
                return f"{client.name} waits for {client.open_jobs} jobs"
        if life.broker.jobs:
            return f"{len(life.broker.jobs)} jobs are still there"
        return None


def run(plan: Plan, session: type[WatchedNative] = WatchedNative, tail: int = 60) -> Report:
    """Live through a plan. Raises SeedFailed."""
    world = World(plan.seed, tail)
    try:
        return Run(plan, world, session).live()
    except AssertionError as error:
        raise SeedFailed(plan.seed, world, error) from error


# -------------------------------------------------------------------- every place where a connection can be cut


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of one connection of the client, when this many bytes have arrived at the broker, or at the client."""

    connection: int
    at_broker: bool
    at: int
    is_boundary: bool


class DirectedRun(Run):
    def __init__(self, plan: Plan, world: World, session: type[WatchedNative], cuts: tuple[Cut, ...]) -> None:
        self._cuts = cuts
        super().__init__(plan, world, session)

    def dialled(self, program: Program, wire: Wire, number: int) -> None:
        for cut in self._cuts:
            if isinstance(program, Client) and number == cut.connection:
                (wire.broker if cut.at_broker else wire.actor).fuse = cut.at
                self.oracle.hit("cut at a boundary" if cut.is_boundary else "cut within a message")

    def live(self) -> Report:
        self.heal()
        return self.end()

    def places(self, connection: int, *, within: bool) -> Iterator[Cut]:
        """Return the positions at which the client's connection can be cut, from the bytes of this run."""
        (client,) = self.clients
        if len(client.connections) >= connection:
            for at_broker, stream in zip((True, False), client.connections[connection - 1], strict=True):
                for at, is_boundary in _places_of(bytes(stream)):
                    if is_boundary or within:
                        yield Cut(connection, at_broker, at, is_boundary)


def _places_of(stream: bytes) -> Iterator[tuple[int, bool]]:
    yield 0, True
    yield 30, False
    at = GREETING
    while at < len(stream):
        yield at, True
        is_long = stream[at] & 2
        size = 9 + int.from_bytes(stream[at + 1 : at + 9], "big") if is_long else 2 + stream[at + 1]
        yield at + size // 2, False
        at += size


def directed(cuts: tuple[Cut, ...], session: type[WatchedNative] = WatchedNative) -> tuple[Report, DirectedRun]:
    options = ListenerOptions(client_resume_timeout=LONG, job_timeout=LONG)
    plan = Plan(0, options, frozenset(), True, 1, 1, 2, 2, 4, 0.05, 0.1, 0.0)
    world = World(0)
    try:
        run = DirectedRun(plan, world, session, cuts)
        return run.live(), run
    except AssertionError as error:
        raise SeedFailed(0, world, Wrong(f"{cuts}: {error}")) from error


def sweep() -> Iterator[Report]:
    """One run for every place where the first connection can be cut, and for every boundary of the one that follows."""
    report, run = directed(())
    yield report
    for cut in run.places(1, within=True):
        report, again = directed((cut,))
        yield report
        if cut.is_boundary:
            for second in again.places(2, within=False):
                yield directed((cut, second))[0]


def total(reports: Iterator[Report]) -> tuple[int, int, Counter[str]]:
    """Return the number of runs, the number of events, and all their hits."""
    runs, events, hits = 0, 0, Counter[str]()
    for report in reports:
        runs += 1
        events += report.events
        hits += report.hits
    return runs, events, hits


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        report = run(draw(int(argument)), tail=1000)
        print(argument, report.events, report.trace)
