"""Scenarios from a seed: a phase of faults, then healing, then a last job for every caller.

From the seed come the edition, the time-outs, the actors, and a random subset of the faults with their times. Some
actors take part only under conditions; the reason is in oracle.py. The conditions are these:

- In edition plain no worker takes part that sends a result which is not for the job it holds (`ANY_EDITION` are the
  workers that the rules protect against, `PACKAGE_ONLY` the rest).
- A threaded worker whose socket reconnects without its notice (R38) pings on the new connection while it works at a job
  of the former one. In edition plain it takes part only if a PING does not adopt (`adopt_on_ping=false`, R30).
- A worker that repeats READY is understood as long as its READY comes within a second of the job that it crossed (R34).
  In edition plain it takes part only if neither the network nor the worker itself is slower than that. Pauses of the
  broker must not matter (D13), so they happen.
- A threaded worker that would carry a result over to a new connection (R39) is harmless as long as it has no reason to
  open one. In edition plain it takes part only if the network, the workers and the broker stay alive and pauses of the
  broker are short: then the rules (R36: never omit its PONG) keep it on its connection.

Run one seed by hand: `cd tests && python -m sim.scenario 123`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.options import ListenerOptions
from sim.actors import (
    KEEP_ALIVE,
    PATIENCE,
    Babbler,
    Caller,
    CarriesOver,
    Counting,
    Dropper,
    Impatient,
    Late,
    LateThreaded,
    Mistaken,
    Never,
    Repeater,
    Resetter,
    Socket,
    Steady,
    Threaded,
    Twice,
    Worker,
)
from sim.broker_setup import Kinds, Setup
from sim.oracle import Oracle, Wrong, require
from sim.pipes import Weather
from sim.world import BEGIN, World

HONEST = (Worker, Worker, Threaded, Counting)
ANY_EDITION = (Never, Late, LateThreaded, Resetter, Repeater, Dropper, Babbler)
PACKAGE_ONLY = (CarriesOver, Twice, Mistaken, Impatient)

FAULTS = ("slow", "split", "narrow", "cut", "freeze", "worker crash", "broker crash", "broker pause", "leave", "twins")
OURS = frozenset(("split", "narrow", "broker pause", "leave"))  # faults that leave no worker silent or unheard
CARRIER_TIMEOUT = 15.0
SHORT_PAUSE = 1.9  # with everything else that may delay a PONG, still within a worker's time-out


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a seed before the run."""

    seed: int
    options: ListenerOptions
    faults: frozenset[str]
    cast: tuple[type[Worker], ...]
    longest_pause: float
    callers: tuple[int, ...]  # number of jobs that each submits at once
    chaos: float

    @property
    def is_packaged(self) -> bool:
        return self.options.edition is Edition.PACKAGE

    @property
    def bound(self) -> float:
        """By when all must be well again: twice the longest time-out, or a job's longest way if that is longer."""
        options = self.options
        attempts = options.attempts or 1
        way = attempts * (options.job_timeout + options.queue_timeout + 5.0)
        longest = max(options.job_timeout, options.queue_timeout, options.stuck_timeout, CARRIER_TIMEOUT, KEEP_ALIVE)
        return max(2 * longest, way)


@dataclass(frozen=True, slots=True)
class Report:
    events: int
    seconds: float  # of virtual time
    trace: str
    hits: Counter[str]


class SeedFailed(AssertionError):
    """A seed in which something was wrong, and how to see it again."""

    def __init__(self, seed: int, world: World, error: BaseException) -> None:
        self.seed = seed
        tail = "\n".join(f"  {now:10.3f}  {who:12} {_shown(what)}" for now, who, what in world.tail)
        super().__init__(
            f"seed {seed}, {world.now - BEGIN:.3f} s after its beginning: {type(error).__name__}: {error}\n{tail}\n"
            f"Only this seed: SIM_SEED={seed} python -m pytest tests/sim -k one_seed"
        )


def draw(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    edition = random.choice((Edition.PLAIN, Edition.PACKAGE))
    options = ListenerOptions(
        edition=edition,
        job_timeout=random.choice((2.0, 4.0, 8.0)),
        queue_timeout=random.choice((2.0, 5.0, 12.0)),
        attempts=random.choice((1, 3)),
        adopt_on_ping=random.random() < 0.7,
        stuck_timeout=random.choice((8.0, 20.0)),
    )
    faults = frozenset(fault for fault in FAULTS if random.random() < 0.3)
    callers = tuple(random.choice((1, 1, 3, 6)) for _ in range(random.randint(1, 4)))
    chaos = random.uniform(20.0, 45.0)
    longest_pause = 8.0
    pool = [*HONEST, *ANY_EDITION, *(PACKAGE_ONLY if edition is Edition.PACKAGE else ())]
    if random.random() < 0.08:
        options = replace(options, edition=Edition.PLAIN)
        faults = (faults & OURS) | {"broker pause"}
        pool, longest_pause = [Steady], SHORT_PAUSE
    elif random.random() < 0.3:
        pool = [random.choice(pool)]  # many of a kind
    if options.edition is Edition.PLAIN and faults & {"slow", "freeze"}:
        pool = [kind for kind in pool if kind is not Repeater] or [Worker]
    cast = (random.choice(HONEST), *(random.choice(pool) for _ in range(random.randint(1, 6))))
    return Plan(seed, options, faults, cast, longest_pause, callers, chaos)


def run(plan: Plan, kinds: Kinds | None = None, tail: int = 60) -> Report:
    """Live through a plan. Raises SeedFailed."""
    world = World(plan.seed, tail)
    try:
        return Run(plan, world, kinds or Kinds()).live()
    except AssertionError as error:
        raise SeedFailed(plan.seed, world, error) from error


class Run:
    def __init__(self, plan: Plan, world: World, kinds: Kinds) -> None:
        self._plan = plan
        self._world = world
        is_slow = bool(plan.faults & {"slow", "freeze"})
        droppers = (Dropper, Impatient, Repeater) if is_slow else (Dropper, Impatient)
        self._oracle = Oracle(
            world,
            plan.options,
            only_we_fail=plan.faults <= OURS,
            nobody_drops=not any(issubclass(kind, droppers) for kind in plan.cast),
        )
        self._weather = Weather(
            slow=0.03 if "slow" in plan.faults else 0.0,
            splits=0.3 if "split" in plan.faults else 0.0,
            window=world.random.choice((150, 400)) if "narrow" in plan.faults else 1 << 20,
        )
        self._setup = Setup(world, self._weather, plan.options, self._oracle, kinds)
        self._setup.open()
        self._workers = [self._hire(number, kind) for number, kind in enumerate(plan.cast)]
        self._twin: Worker | None = None
        if "twins" in plan.faults:
            self._twin = self._hire(0, Worker, "twin")
        self._callers = [self._invite(number, at_once) for number, at_once in enumerate(plan.callers)]
        self._is_calm = False

    def live(self) -> Report:
        self._let_loose()
        self._world.run(BEGIN + self._plan.chaos)
        self._calm_down()
        self._wait_until_healed()
        self._last_jobs()
        life = self._setup.life
        assert life is not None
        self._oracle.life_ended(life.broker)
        world = self._world
        return Report(world.events, world.now - BEGIN, world.trace(), self._oracle.hits)

    # ---------------------------------------------------------------- who takes part

    def _hire(self, number: int, kind: type[Worker], name: str = "worker") -> Worker:
        plan, random = self._plan, self._world.random
        is_transparent = random.random() < 0.6 and kind is not Steady
        if kind.is_threaded and not plan.is_packaged and plan.options.adopt_on_ping:
            is_transparent = False  # R38
        has_name = random.random() < 0.4 or ("twins" in plan.faults and number == 0)
        return kind(
            self._setup,
            self._oracle,
            f"{name} {number}",
            packaged=plan.is_packaged,
            transparent=is_transparent,
            identity=b"name %d" % number if has_name else b"",
            slowest=min(6.0, plan.options.job_timeout * random.choice((0.5, 1.5))),
        )

    def _invite(self, number: int, at_once: int) -> Caller:
        return Caller(
            self._setup,
            self._oracle,
            f"caller {number}",
            at_once=at_once,
            think=self._world.random.choice((0.2, 1.0, 3.0)),
            largest=300 if "narrow" in self._plan.faults else 3000,
        )

    # ---------------------------------------------------------------- chaos

    def _let_loose(self) -> None:
        plan = self._plan
        every: dict[str, tuple[float, Callable[[], None]]] = {
            "cut": (2.0, self._cut),
            "freeze": (3.0, self._freeze),
            "worker crash": (5.0, self._crash_worker),
            "broker crash": (10.0, self._crash_broker),
            "broker pause": (3.0, self._pause_broker),
            "leave": (2.0, self._leave),
        }
        for fault in FAULTS:
            if fault in plan.faults and fault in every:
                self._befall(*every[fault], is_first=True)

    def _befall(self, mean: float, fault: Callable[[], None], is_first: bool = False) -> None:
        if self._is_calm:
            return
        if not is_first:
            fault()
        self._world.after(self._world.random.expovariate(1 / mean), self._befall, mean, fault)

    def _cut(self) -> None:
        actor: Worker | Caller = self._world.random.choice([*self._workers, *self._workers, *self._callers])
        socket = actor.socket
        if socket.end is not None:
            is_silent = self._world.chance(0.4)
            socket.end.wire.cut(silently=is_silent)
            if is_silent:
                self._world.after(KEEP_ALIVE, socket.lose_patience, socket.end)

    def _freeze(self) -> None:
        random = self._world.random
        seconds = random.choice((random.uniform(0.1, 2.0), random.uniform(2.0, 6.0), random.uniform(6.0, 20.0)))
        random.choice(self._workers).freeze(seconds)

    def _crash_worker(self) -> None:
        self._world.random.choice(self._workers).crash(self._world.random.uniform(0.05, 3.0))

    def _crash_broker(self) -> None:
        self._setup.crash(self._world.random.choice((0.0, 0.2, 4.0)))

    def _pause_broker(self) -> None:
        life = self._setup.life
        if life is not None:
            random = self._world.random
            gap = random.choice((random.uniform(0.2, 1.5), random.uniform(1.5, 3.0), random.uniform(3.0, 8.0)))
            gap = min(gap, self._plan.longest_pause)
            if random.random() < 0.6:
                life.pause_next = gap
                life.pauses_before = random.random() < 0.5
            else:
                life.pause(gap)

    def _leave(self) -> None:
        self._world.random.choice(self._callers).leave()

    # ---------------------------------------------------------------- healing

    def _calm_down(self) -> None:
        self._world.note("world", "calms down")
        self._is_calm = True
        self._weather.calm_down()
        if self._twin is not None:
            self._twin.die()
        for worker in self._workers:
            worker.is_calm = True
            worker.thaw()
        for caller in self._callers:
            caller.stop()
            _notice(caller.socket)
        if self._setup.life is not None:
            self._setup.life.pause_next = None
            self._setup.life.resume()

    def _wait_until_healed(self) -> None:
        """I4, I13, I14: within the bound everything has healed, and stays so for longer than a worker's time-out."""
        world = self._world
        limit = world.now + self._plan.bound
        well_since: float | None = None
        while well_since is None or world.now - well_since < PATIENCE + 1.0:
            world.run(world.now + 1.0)
            life = self._setup.life
            problem: str | None = "the broker is down"
            if life is not None:
                problem = self._oracle.unhealed(life.broker, len(self._workers))
            if any(worker.is_working for worker in self._workers):
                problem = problem or "a worker is still at a job of which the broker knows nothing"
            if problem is None:
                well_since = world.now if well_since is None else well_since
            elif world.now <= limit:
                well_since = None
            else:
                raise Wrong(f"{problem}, {self._plan.bound:g} s after everything calmed down")

    def _last_jobs(self) -> None:
        """Check that every idle worker does the job it gets, and every caller gets the result."""
        before = [caller.conversation.done for caller in self._callers]
        for caller in self._callers:
            caller.ask()
        self._world.run(self._world.now + 0.5 + 0.5 * len(self._callers))
        for caller, done in zip(self._callers, before, strict=True):
            require(caller.conversation.done == done + 1, "I13", f"{caller.name} got no result for its last job")
        life = self._setup.life
        assert life is not None
        problem = self._oracle.unhealed(life.broker, len(self._workers))
        require(problem is None, "after the last jobs", problem or "")


def _notice(socket: Socket) -> None:
    """A caller whose connection was cut silently notices it when the network is back."""
    if socket.end is not None and socket.end.wire.is_cut:
        socket.lose_patience(socket.end)


def _shown(what: object) -> str:
    return what.hex(" ") if isinstance(what, bytes) and not what.isascii() else str(what)[:200]


def long_times(seed: int) -> Plan:
    """The dialect's own defaults, up to an hour long, and a worker that may never answer."""
    plan = draw(seed)
    options = ListenerOptions(edition=plan.options.edition)
    return replace(plan, options=options, faults=frozenset(), cast=(Worker, Never), callers=(1,), chaos=20.0)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        report = run(draw(int(argument)), tail=1000)
        print(argument, report.events, report.trace)
