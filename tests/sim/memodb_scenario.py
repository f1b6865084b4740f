"""Scenarios of MemoDB from a seed: a phase of faults, then healing, then a last job for every caller.

Processes with one NNG socket each share one or two addresses. From the seed come the options, the sharing of sockets,
the resend timers, and a random subset of the faults. A third of the seeds are *exact* (see memodb_oracle.py): only
faults of `HARMLESS` happen in them, and the time limits are longer than the run.

`sweep` is systematic: three jobs of one caller and one worker, and one run for every position at which a connection can
be cut: at every boundary between two messages and within every message, in each direction.

Run one seed by hand: `cd tests && python -m sim.memodb_scenario 123`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.sp import Sp
from dragoman.core.states import WorkerState
from dragoman.dialects.memodb.options import ListenerOptions
from sim.broker_setup import Kinds, Life, Setup
from sim.memodb_actors import KEEP_ALIVE, Habits, Process
from sim.memodb_oracle import MemoDbOracle, WatchedMemoDb, books, require
from sim.oracle import Wrong
from sim.pipes import End, Weather, Wire
from sim.scenario import Report, SeedFailed
from sim.world import BEGIN, World

HARMLESS = ("cut", "chop", "slow", "split", "narrow", "pause", "goodbye")
HARMFUL = ("silent", "outrun", "process crash", "broker crash", "lazy", "impatient", "start over", "overrun")
LONG = 600.0  # seconds: longer than any run
GREETING, LENGTH = 8, 8


@dataclass(frozen=True, slots=True)
class Share:
    """The workers and callers that share one socket."""

    workers: int
    callers: int
    resend: float
    address: str
    counts: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a seed before the run."""

    seed: int
    options: ListenerOptions
    faults: frozenset[str]
    is_exact: bool
    shares: tuple[Share, ...]
    services: tuple[str, ...]
    habits: Habits
    chaos: float

    @property
    def bound(self) -> float:
        """By when all must be well again: twice the longest time-out."""
        options = self.options
        lease = options.heartbeat_after + options.heartbeat_timeout
        run = max(self.habits.job_timeouts) / 1000
        waits = (lease, options.queue_timeout, options.detach_timeout, run, KEEP_ALIVE)
        return 2 * (max(waits) + max(share.resend for share in self.shares)) * (options.attempts or 1)


def draw(seed: int) -> Plan:
    random = Random(f"memodb plan {seed}")
    is_exact = random.random() < 0.35
    faults = [fault for fault in HARMLESS if random.random() < 0.4]
    options = ListenerOptions(
        heartbeat_after=random.choice((0.4, 1.0, 3.0)),
        heartbeat_timeout=60.0,
        queue_timeout=LONG,
        attempts=1,
        detach_timeout=LONG,
        orphan_grace=LONG,
        keep_answers=LONG,
    )
    habits = Habits(
        slowest=random.choice((0.05, 0.5, 2.0)),
        think=random.choice((0.1, 0.5, 2.0)),
        goodbyes=0.2 if "goodbye" in faults else 0.0,
        largest=200 if "narrow" in faults else random.choice((200, 3000)),
        job_timeouts=(int(LONG * 1000), -1),
    )
    if not is_exact:
        faults += [fault for fault in HARMFUL if random.random() < 0.3]
        options = replace(
            options,
            heartbeat_timeout=random.choice((0.5, 3.0, 10.0)),
            queue_timeout=random.choice((1.0, 5.0, 15.0)),
            attempts=random.choice((None, 1, 3)),
            detach_timeout=random.choice((1.0, 4.0, 15.0)),
            orphan_grace=random.choice((0.0, 0.3, 5.0)),
            keep_answers=random.choice((120.0, 120.0, 1.0, 0.0)),
            max_kept_bytes=random.choice((64 << 20, 64 << 20, 2_000, 0)),
        )
        job_timeout = random.choice((1.0, 3.0, 8.0))
        timeout = int(job_timeout * 1000)
        habits = replace(
            habits,
            slowest=job_timeout * (1.5 if "overrun" in faults else 0.5),
            patience=random.choice((0.5, 4.0)) if "impatient" in faults else None,
            worker_patience=3 * options.heartbeat_after if "start over" in faults else None,
            laziness=0.3 if "lazy" in faults else 0.0,
            # A worker that starts over on a live connection may leave a job that only its time-out ends.
            job_timeouts=(timeout,) if "start over" in faults else (timeout, timeout, -1),
        )
    shares = tuple(_draw_share(random) for _ in range(random.randint(1, 4)))
    if not any(share.workers for share in shares) or not any(share.callers for share in shares):
        shares = (*shares, Share(1, 1, random.choice((0.5, 60.0)), "here", False))
    services = random.choice((("echo",), ("echo", "mirror")))
    return Plan(seed, options, frozenset(faults), is_exact, shares, services, habits, random.uniform(6.0, 15.0))


def overtaken(seed: int) -> Plan:
    """A slow proxy in between: what a worker sent on a connection may arrive after what it sent on the next one."""
    plan = draw(seed)
    return replace(plan, faults=plan.faults | {"slow", "outrun", "overtake"}, is_exact=False)


def _draw_share(random: Random) -> Share:
    workers = random.choice((0, 1, 1, 2, 3))
    return Share(
        workers,
        callers=random.choice((0, 1, 2, 4)),
        resend=random.choice((0.3, 0.5, 1.0, 60.0, 60.0)),
        address=random.choice(("here", "here", "there")),
        counts=not workers and random.random() < 0.7,  # of workers they must differ (R61)
    )


# -------------------------------------------------------------------- the broker's side of the world


class MemoDbLife(Life):
    """A life that notices the end of a connection before it accepts the next one after a pause, as a real loop does."""

    def new_carrier(self) -> Carrier:
        return Sp("REP")

    def address_of(self, end: End) -> str:
        return end.label.split("@")[1]

    def accept(self, endpoint: str, wire: Wire) -> None:
        if self.is_paused and not wire.is_cut:
            wire.broker.is_frozen = True
            self._world.after(0.001, self.accept, endpoint, wire)
        elif self.is_alive:
            super().accept(endpoint, wire)


class MemoDbSetup(Setup):
    def new_life(self, first_worker: int) -> Life:
        return MemoDbLife(self, self._options, self._kinds, first_worker)

    def _look(self) -> None:
        life = self._touched
        super()._look()
        if life is not None:
            books(life.session, life.runner)  # type: ignore[arg-type]


# -------------------------------------------------------------------- a seed


def run(plan: Plan, session: type[WatchedMemoDb] = WatchedMemoDb, tail: int = 60) -> Report:
    """Live through a plan. Raises SeedFailed."""
    world = World(plan.seed, tail)
    try:
        return Run(plan, world, session).live()
    except AssertionError as error:
        raise SeedFailed(plan.seed, world, error) from error


class Run:
    def __init__(self, plan: Plan, world: World, session: type[WatchedMemoDb]) -> None:
        self._plan = plan
        self._world = world
        self._is_calm = False
        self._weather = Weather(
            slow=0.1 if "overtake" in plan.faults else 0.03 if "slow" in plan.faults else 0.0,
            splits=0.3 if "split" in plan.faults else 0.0,
            window=world.random.choice((90, 150, 400)) if "narrow" in plan.faults else 1 << 20,
        )
        workers = sum(share.workers for share in plan.shares)
        self.oracle = MemoDbOracle(
            world,
            plan.options,
            plan.services,
            workers=workers,
            is_exact=plan.is_exact,
            outruns="outrun" in plan.faults,
        )
        self._setup = MemoDbSetup(world, self._weather, plan.options, self.oracle, Kinds(session=session))  # type: ignore[arg-type]
        self._setup.open()
        self.processes = [self._start(number, share) for number, share in enumerate(plan.shares)]

    def _start(self, number: int, share: Share) -> Process:
        return Process(
            self._setup,
            self.oracle,
            f"process {number}",
            share.address,
            self._plan.habits,
            workers=share.workers,
            callers=share.callers,
            services=self._plan.services,
            resend=share.resend,
            counts=share.counts,
            outruns="outrun" in self._plan.faults,
            dialled=self.dialled,
        )

    def live(self) -> Report:
        self._let_loose()
        self._world.run(BEGIN + self._plan.chaos)
        self._calm_down()
        self.wait_until_healed()
        self._last_jobs()
        return self.end()

    def end(self) -> Report:
        life = self._setup.life
        assert life is not None
        self.oracle.life_ended(life.broker)
        self.oracle.verdict()
        world = self._world
        return Report(world.events, world.now - BEGIN, world.trace(), self.oracle.hits)

    # ---------------------------------------------------------------- chaos

    def dialled(self, process: Process, wire: Wire, number: int) -> None:
        """A new connection: decide where it will be cut."""
        if "cut" in self._plan.faults and not self._is_calm and self._world.chance(0.8):
            random = self._world.random
            end = random.choice((wire.actor, wire.broker))
            end.fuse = random.randint(0, random.choice((40, 300, 3000)))

    def _let_loose(self) -> None:
        every: dict[str, tuple[float, Callable[[], None]]] = {
            "chop": (1.5, self._cut),
            "silent": (3.0, self._cut_silently),
            "overtake": (1.0, self._hang_up),
            "process crash": (3.0, self._crash_process),
            "broker crash": (5.0, self._crash_broker),
            "pause": (2.0, self._pause_broker),
        }
        for fault, (mean, call) in every.items():
            if fault in self._plan.faults:
                self._befall(mean, call, is_first=True)

    def _befall(self, mean: float, fault: Callable[[], None], is_first: bool = False) -> None:
        if self._is_calm:
            return
        if not is_first:
            fault()
        self._world.after(self._world.random.expovariate(1 / mean), self._befall, mean, fault)

    def _somewhere(self) -> End | None:
        return self._world.random.choice(self.processes).socket.end

    def _cut(self) -> None:
        end = self._somewhere()
        if end is not None:
            end.wire.cut()

    def _cut_silently(self) -> None:
        """A cable: each side finds out by itself."""
        end = self._somewhere()
        if end is not None and not end.wire.is_cut:
            end.wire.cut(silently=True)
            for side in (end, end.other):
                self._world.after(self._world.random.uniform(0.3, 6.0), side.learn, "timed out")

    def _hang_up(self) -> None:
        self._world.random.choice(self.processes).socket.hang_up()

    def _crash_process(self) -> None:
        self._world.random.choice(self.processes).crash(self._world.random.uniform(0.05, 2.0))

    def _crash_broker(self) -> None:
        self._setup.crash(self._world.random.choice((0.0, 0.2, 2.0)))

    def _pause_broker(self) -> None:
        life = self._setup.life
        if life is not None:
            random = self._world.random
            gap = random.choice((random.uniform(0.2, 1.5), random.uniform(1.5, 4.0)))
            if random.random() < 0.6:
                life.pause_next = gap
                life.pauses_before = random.random() < 0.5
            else:
                life.pause(gap)

    # ---------------------------------------------------------------- healing

    def _calm_down(self) -> None:
        self._world.note("world", "calms down")
        self._is_calm = True
        self._weather.calm_down()
        self._weather.window = 1 << 20
        for wire in self._setup.wires:
            wire.actor.fuse = wire.broker.fuse = None
            if wire.is_cut:
                wire.actor.learn("timed out")
                wire.broker.learn("timed out")
        for process in self.processes:
            process.is_calm = True
        if self._setup.life is not None:
            self._setup.life.pause_next = None
            self._setup.life.resume()

    def wait_until_healed(self, step: float = 1.0, steps: int = 3) -> None:
        """By the bound all is well, and stays so for a few steps."""
        world = self._world
        limit = world.now + self._plan.bound
        well = 0
        while well < steps:
            world.run(world.now + step)
            problem = self.unhealed()
            well = well + 1 if problem is None else 0
            if problem is not None and world.now > limit:
                raise Wrong(f"{problem}, {self._plan.bound:g} s after everything calmed down")

    def unhealed(self) -> str | None:
        """Return what has not healed after the faults ended, or None."""
        life = self._setup.life
        if life is None or not all(process.is_up for process in self.processes):
            return "somebody is down"
        session: WatchedMemoDb = life.session  # type: ignore[assignment]
        for caller in (caller for process in self.processes for caller in process.callers):
            if caller.request is not None:
                return f"I14: {caller.name} waits for an answer"
        if life.broker.jobs or session.waiting:
            return f"I14: {len(life.broker.jobs)} jobs and {session.waiting} calls are still there"
        workers = [worker for process in self.processes for worker in process.workers]
        if len(session.remotes) != len(workers):
            return f"R61: {len(session.remotes)} workers in the books, {len(workers)} there"
        for worker in workers:
            if worker.is_at_work or (worker.id and worker.id not in session.remotes):
                return f"I13: {worker.name} is at work, or known by an id that is dead"
        for remote in session.remotes.values():
            is_between = remote.worker.state is WorkerState.DETACHED and remote.answer is not None and remote.peer
            if remote.worker.state is not WorkerState.IDLE and not is_between:
                return f"I13: {remote.worker.name} is {remote.worker.state}"
        return None

    def _last_jobs(self) -> None:
        """Check that every idle worker does the job it gets, and every caller gets the result."""
        callers = [caller for process in self.processes for caller in process.callers]
        before = [caller.answered for caller in callers]
        for caller in callers:
            caller.ask()
        self._world.run(self._world.now + 1.0 + 0.1 * len(callers))
        for caller, answered in zip(callers, before, strict=True):
            require(caller.answered == answered + 1, "I13", f"{caller.name} got no result for its last job")


# -------------------------------------------------------------------- every place where a connection can be cut


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of one connection of one process, when this many bytes have arrived at the broker, or at the process."""

    process: int
    connection: int
    at_broker: bool
    at: int
    is_boundary: bool


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    shares: tuple[Share, ...]
    heartbeat_after: float


SETTINGS = tuple(
    Setting(f"{name}, resend {resend:g} s", tuple(Share(w, c, resend, "here", False) for w, c in people), heartbeat)
    for name, people in (("one socket", ((1, 1),)), ("two sockets", ((1, 0), (0, 1))))
    for resend, heartbeat in ((0.13, 0.25), (60.0, 0.1))
)


class DirectedRun(Run):
    def __init__(self, plan: Plan, world: World, session: type[WatchedMemoDb], cuts: tuple[Cut, ...]) -> None:
        self._cuts = cuts
        super().__init__(plan, world, session)

    def dialled(self, process: Process, wire: Wire, number: int) -> None:
        for cut in self._cuts:
            if process.name == f"process {cut.process}" and number == cut.connection:
                (wire.broker if cut.at_broker else wire.actor).fuse = cut.at
                self.oracle.hit("cut at a boundary" if cut.is_boundary else "cut within a message")

    def live(self) -> Report:
        """Until three jobs are done."""
        world = self._world
        callers = [caller for process in self.processes for caller in process.callers]
        while not all(caller.is_done for caller in callers):
            world.run(world.now + 0.1)
            require(world.now < BEGIN + 30, "I14", "three jobs are not done in 30 s")
        self.wait_until_healed(step=0.1, steps=2)
        return self.end()

    def places(self, connection: int, *, within: bool) -> Iterator[Cut]:
        """Return the positions at which each process's connection can be cut, from the bytes of this run."""
        for number, process in enumerate(self.processes):
            if len(process.socket.connections) >= connection:
                traffic = process.socket.connections[connection - 1]
                for at_broker, stream in ((True, traffic.written), (False, traffic.heard)):
                    for at, is_boundary in _places_of(bytes(stream)):
                        if is_boundary or within:
                            yield Cut(number, connection, at_broker, at, is_boundary)


def _places_of(stream: bytes) -> Iterator[tuple[int, bool]]:
    yield 0, True
    yield 3, False
    at = GREETING
    while at <= len(stream):
        yield at, True
        size = LENGTH + int.from_bytes(stream[at : at + LENGTH], "big")
        if at + size <= len(stream):
            yield from ((at + 1, False), (at + LENGTH + 2, False), (at + size // 2, False), (at + size - 1, False))
        at += size


def directed(setting: Setting, cuts: tuple[Cut, ...], session: type[WatchedMemoDb]) -> tuple[Report, DirectedRun]:
    options = ListenerOptions(
        heartbeat_after=setting.heartbeat_after,
        heartbeat_timeout=60.0,
        queue_timeout=LONG,
        detach_timeout=LONG,
        orphan_grace=LONG,
        keep_answers=LONG,
    )
    habits = Habits(slowest=0.3, think=0.3, jobs=3)
    plan = Plan(0, options, frozenset(), True, setting.shares, ("echo",), habits, 0.0)
    world = World(0)
    try:
        run = DirectedRun(plan, world, session, cuts)
        return run.live(), run
    except AssertionError as error:
        raise SeedFailed(0, world, Wrong(f"{setting.name}, {cuts}: {error}")) from error


def sweep(setting: Setting, session: type[WatchedMemoDb] = WatchedMemoDb) -> Iterator[Report]:
    """One run for every place where a first connection can be cut."""
    report, run = directed(setting, (), session)
    yield report
    for cut in run.places(1, within=True):
        yield directed(setting, (cut,), session)[0]


def sweep_twice(setting: Setting, session: type[WatchedMemoDb] = WatchedMemoDb) -> Iterator[Report]:
    """One run for every two boundaries: of the first connection, and of the one that follows it."""
    _, run = directed(setting, (), session)
    for cut in run.places(1, within=False):
        _, run = directed(setting, (cut,), session)
        for second in run.places(2, within=False):
            yield directed(setting, (cut, second), session)[0]


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
