"""A chaos campaign from its start to its verdict."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.faults import KINDS, POWER, Faults
from chaos.load import Load
from chaos.processes import ChaosBroker, Processes
from chaos.record import Record
from dragoman import AsyncClient, DragomanError

OWNED_WITHIN = 30.0  # seconds after the last fault
REST_WITHIN = 240.0  # seconds after the last fault until all jobs have ended


@dataclass(frozen=True, slots=True)
class Plan:
    jobs: int
    seconds: float
    seed: int
    every: tuple[float, float] = (3.0, 8.0)  # seconds between two faults
    lasts: tuple[float, float] = (1.0, 9.0)
    workers: int = 2  # of each dialect
    faults: int | None = None  # their number, if it is not the time that decides
    flags: tuple[str, ...] = ()  # of each broker
    shards: int = 6
    power: str = ""  # `synced` or `unsynced`: the power of all NATS servers is cut, and nothing else is broken


class Watch:
    """Looks which shards have an owner, all the time."""

    def __init__(self, brokers: list[ChaosBroker], shards: int) -> None:
        self.longest = 0.0  # seconds in which a shard had no owner
        self._clients = [AsyncClient(each.native, wait_for_broker=False, connect_timeout=2.0) for each in brokers]
        self._since = dict.fromkeys(range(shards), time.monotonic())
        self.unusable: set[str] = set()

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.25)

    async def look(self) -> list[int]:
        """Return the shards that no broker owns that can be asked."""
        found = await asyncio.gather(*(self._owned(each) for each in self._clients))
        now = time.monotonic()
        owned = set().union(*found)
        for shard, since in self._since.items():
            self.longest = max(self.longest, now - since)
            if shard in owned:
                self._since[shard] = now
        return [shard for shard in self._since if shard not in owned]

    async def _owned(self, client: AsyncClient) -> set[int]:
        with suppress(DragomanError, TimeoutError, OSError):
            view = await asyncio.wait_for(client.cluster(), 2.0)
            self.unusable.update(each.problem for each in view.shards if each.state == "unusable")
            return {each.number for each in view.shards if each.state == "owned"}
        return set()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


class Campaign:
    """One run. `record` has what was seen, and `lines` the table for people."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.record = Record()
        self.lines: list[tuple[str, object]] = []
        self.story: list[str] = []
        self._folder = folder

    def run(self) -> None:
        plan = self.plan
        processes = Processes(self._folder, plan.workers, plan.flags, plan.shards, plan.power)
        try:
            asyncio.run(self._run(processes))
            self.record.judge(processes.executed())
            self._judge_processes(processes)
        finally:
            processes.close()
        self._count()

    async def _run(self, processes: Processes) -> None:
        plan = self.plan
        watch = Watch(processes.brokers, plan.shards)
        load = Load(processes.brokers, self.record, plan.jobs, plan.seconds, plan.seed)
        kinds = (POWER,) if plan.power else KINDS
        faults = Faults(processes, random.Random(plan.seed).randrange(1 << 30), plan.every, plan.lasts, kinds)
        if plan.faults is not None:
            faults.least = faults.most = plan.faults
        begin = time.monotonic()
        await self._until_owned(watch, "before the first fault")
        watch.longest = 0.0
        watching = asyncio.create_task(watch.run())
        try:
            faults.start()
            await load.run()
            await asyncio.to_thread(faults.stop)
            healed = time.monotonic()
            watching.cancel()
            owned_after = await self._until_owned(watch, "after the last fault")
            left = await load.poll(REST_WITHIN, 0)
            rested_after = time.monotonic() - healed
            await load.poll(REST_WITHIN if not left else 1.0, 1)
        finally:
            watching.cancel()
            await asyncio.to_thread(faults.stop)
            self.story = faults.story
            await load.close()
            await watch.close()
        self.lines += [
            ("seconds", f"{time.monotonic() - begin:.0f}"),
            ("faults", faults.total),
            *sorted(faults.counts.items()),
            ("longest time without owner, s", f"{watch.longest:.1f}"),
            ("all shards owned after the last fault, s", f"{owned_after:.1f}"),
            ("all jobs ended after the last fault, s", f"{rested_after:.1f}"),
        ]
        for problem in watch.unusable:
            self.record.violated("a log is unusable", problem)

    async def _until_owned(self, watch: Watch, text: str) -> float:
        begin = time.monotonic()
        while left := await watch.look():
            if time.monotonic() - begin > OWNED_WITHIN:
                self.record.violated("without owner", f"{text}, shards {left}")
                break
            await asyncio.sleep(0.1)
        return time.monotonic() - begin

    def _judge_processes(self, processes: Processes) -> None:
        for program in processes.workers:
            if program.process.poll() is not None:
                self.record.violated("a worker ended", f"{program.words}\n{program.err[-2000:]}")
        for program in processes.programs.started:
            if "Traceback" in program.err and program not in processes.workers:
                self.record.violated("a broker reports an internal error", program.err[-4000:])

    def _count(self) -> None:
        record = self.record
        self.lines.insert(0, ("jobs acknowledged", len(record.jobs)))
        self.lines += sorted(record.counts.items())
        kinds = ("lost", "changed", "two ids for a key", "runs > attempts", "unfinished", "without owner")
        for kind in (*kinds, *sorted(record.violations.keys() - set(kinds))):
            self.lines.append((kind, len(record.violations.get(kind, ()))))
