"""A seed's run of the log simulation: brokers write to shard logs on a cluster of NATS servers while things break.

`draw` chooses everything from the seed; `run` lets it happen, heals the world, and checks that all comes to rest: every
shard has one owner, which has every acknowledged write, and takes new ones.

    python -m sim.log_scenario 3 4 5      events and traces of these seeds
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from sim.log_actors import IDENTITY, Kinds, LogBroker, stream_name, subject_of
from sim.log_oracle import Broken, LogOracle
from sim.nats_model import NatsModel
from sim.pipes import Weather
from sim.world import BEGIN, World

# Ways that at least one seed must go, or the simulation proves little.
RARE = (
    "saved", "adopted", "fenced", "refused", "evicted", "released", "cleaned", "voids", "leaks",
    "kill broker", "freeze broker", "cut broker", "cut broker silently", "kill server", "freeze server", "cut route",
    "cut route one way", "stop broker", "clock jump", "two servers", "clean", "vanished", "missed", "denied",
)  # fmt: skip

FAULTS = (
    "kill broker", "kill broker", "freeze broker", "freeze broker", "cut broker", "cut broker silently", "kill server",
    "kill server", "freeze server", "cut route", "cut route one way", "stop broker", "clock jump", "two servers",
    "clean", "clean",
)  # fmt: skip

HEALING = 60.0  # seconds until everything must be well again


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    brokers: int
    servers: int
    shards: int
    length: float  # seconds of faults
    fault_every: float
    write_every: float
    slow: float
    flaky: float


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    events: int
    trace: str
    hits: Counter[str]


class LogSeedFailed(AssertionError):
    """A seed's run broke a rule. The message has the end of its trace."""


def draw(seed: int) -> Plan:
    random = World(seed).random
    return Plan(
        seed=seed,
        brokers=random.randint(2, 5),
        servers=random.choice((1, 3, 3, 3)),
        shards=random.randint(1, 6),
        length=random.uniform(20.0, 60.0),
        fault_every=random.choice((1.5, 3.0, 6.0)),
        write_every=random.choice((0.02, 0.1, 0.5)),
        slow=random.choice((0.0, 0.0, 0.05)),
        flaky=random.choice((0.0, 0.002, 0.01)),
    )


def run(plan: Plan, kinds: Kinds | None = None, tail: int = 60) -> Report:
    story = Story(plan, kinds or Kinds(), tail)
    try:
        story.tell()
    except (AssertionError, KeyError) as error:
        lines = "\n".join(f"{when:9.3f} {who:8} {str(what)[:150]}" for when, who, what in story.world.tail)
        raise LogSeedFailed(f"seed {plan.seed}: {error}\n{plan}\n{lines}") from error
    return Report(plan.seed, story.world.events, story.world.trace(), story.oracle.hits)


class Story:
    def __init__(self, plan: Plan, kinds: Kinds, tail: int) -> None:
        self.plan = plan
        self.kinds = kinds
        self.world = World(plan.seed, tail)
        self.model = NatsModel(self.world, Weather(slow=plan.slow, slowest=1.0), plan.servers)
        self.model.flaky = plan.flaky
        self.oracle = LogOracle(plan.shards)
        metadata = {"dragoman_identity": IDENTITY}
        for number in range(plan.shards):
            self.model.logs.create(stream_name(number), subject_of(number), plan.servers, metadata)
        self.oracle.watch(self.model, [stream_name(number) for number in range(plan.shards)])
        self.world.after_event = self.oracle.look
        self.runs: Counter[str] = Counter()
        self.brokers: dict[str, LogBroker] = {}
        self.writes = 0
        self.is_calm = False
        for index in range(plan.brokers):
            self._start_broker(f"b{index}")

    def tell(self) -> None:
        world, plan = self.world, self.plan
        self._write()
        world.after(8.0, self._fault)
        world.run(BEGIN + 8.0 + plan.length)
        self._heal()
        world.run(world.now + HEALING)
        self._check_end()
        self.oracle.hits["voids"] += self.oracle.voids
        self.oracle.hits["vanished"] += self.model.vanished
        self.oracle.hits["leaks"] += sum(each.leaked for each in self.model.logs.streams.values())

    # ---------------------------------------------------------------- what happens

    def _start_broker(self, name: str) -> None:
        old = self.brokers.get(name)
        if old is not None and old.is_alive:
            return
        self.runs[name] += 1
        args = (self.world, self.model, self.oracle, name, self.runs[name], self.plan.shards, self.kinds)
        self.brokers[name] = LogBroker(*args)

    def _write(self) -> None:
        self.world.after(self.plan.write_every * self.world.random.uniform(0.2, 1.8), self._write)
        broker = self.brokers[self.world.random.choice(sorted(self.brokers))]
        text = f"w{self.writes}"
        if broker.write(text):
            self.writes += 1
        self.brokers[self.world.random.choice(sorted(self.brokers))].ask()

    def _fault(self) -> None:
        if self.is_calm:
            return
        world = self.world
        world.after(self.plan.fault_every * world.random.uniform(0.3, 1.7), self._fault)
        kind = world.random.choice(FAULTS)
        duration = round(world.random.choice((0.2, 1.0, 3.0, 8.0, 14.0)) * world.random.uniform(0.5, 1.5), 3)
        broker = self.brokers[world.random.choice(sorted(self.brokers))]
        server = world.random.choice(self.model.servers)
        world.note("fault", kind)
        self.oracle.hit(kind)
        if kind == "kill broker" and broker.is_alive:
            broker.kill()
            world.after(duration, self._start_broker, broker.name)
        elif kind == "freeze broker" and broker.is_alive and not broker.is_frozen:
            broker.freeze()
            world.after(duration, broker.thaw)
        elif kind in ("cut broker", "cut broker silently") and broker.is_alive:
            broker.cut(silently=kind.endswith("silently"))
            world.after(duration, broker.uncut)
        elif kind == "stop broker" and broker.is_alive and not broker.is_frozen:
            broker.act(lambda: broker.shards.drain(world.now))
            world.after(duration, self._stop, broker)
        elif kind == "clean" and broker.is_alive and not broker.is_frozen:
            for table in broker.tables:
                broker.act(lambda table=table: table.clean(world.now))  # type: ignore[misc]
        elif kind == "kill server":
            server.kill()
            world.after(duration, server.start)
        elif kind == "two servers":
            for each in world.random.sample(self.model.servers, min(2, len(self.model.servers))):
                each.kill()
                world.after(duration, each.start)
        elif kind == "freeze server":
            server.freeze()
            world.after(duration, server.thaw)
        elif kind in ("cut route", "cut route one way") and len(self.model.servers) > 1:
            a, b = world.random.sample(self.model.servers, 2)
            self.model.cut_route(a, b, one_way=kind.endswith("way"))
            world.after(duration, self.model.heal_routes)
        elif kind == "clock jump":
            server.clock += world.random.choice((-3600.0, 3600.0))

    def _stop(self, broker: LogBroker) -> None:
        """A broker that was told to stop ends, whether it has released everything or not."""
        if broker.is_alive:
            broker.kill()
            self.world.after(0.5, self._start_broker, broker.name)

    def _heal(self) -> None:
        self.is_calm = True
        self.world.note("story", "heal")
        self.model.heal()
        self.model.weather.calm_down()
        for name in sorted(self.brokers):
            broker = self.brokers[name]
            broker.thaw()
            broker.uncut()
            if broker.is_alive and broker.shards.is_draining:
                broker.kill()
            self._start_broker(name)

    def _check_end(self) -> None:
        self.oracle.look()
        owners: dict[int, list[str]] = {number: [] for number in range(self.plan.shards)}
        for name in sorted(self.brokers):
            broker = self.brokers[name]
            for number in broker.shards.epochs:
                owners[number].append(broker.label)
                table, truth = broker.tables[number], self.oracle.truths[number]
                if broker.shards[number].phase.name != "OWNED":
                    raise Broken(f"liveness: {broker.label} has shard {number}, and is {broker.shards[number].phase}")
                missing = [each for each in self.oracle.acknowledged[number] if each not in table.writes]
                if missing:
                    raise Broken(f"C2: {broker.label} owns shard {number}, and has not {missing[:3]}")
                if truth.rule.epoch != table.log.epoch:
                    raise Broken(f"C1: {broker.label} owns shard {number} at {table.log.epoch}, not {truth.rule.epoch}")
        wrong = {number: names for number, names in owners.items() if len(names) != 1}
        if wrong:
            raise Broken(f"liveness: owners of shards are {wrong}")
        before = self.oracle.hits["saved"]
        self.world.run(self.world.now + 60.0 * self.plan.write_every)
        if self.oracle.hits["saved"] == before:
            raise Broken("liveness: nothing is saved any more")


if __name__ == "__main__":
    for word in sys.argv[1:]:
        made = run(draw(int(word)))
        print(made.seed, made.events, made.trace)
