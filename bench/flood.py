"""Flood of one owner or tenant: the latency of calls on the same service, in units of one job's time, and the CPU per
dispatch.

Pure core, one worker, a clock that advances by one job's time with each job. All owners but one have submitted jobs at
once; the last one calls, waits for the result, and calls again. With k owners a call may wait for k jobs. The same is
measured with k tenants of one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import NamedTuple

from bench.core import BODY, POLICY, SERVICE, CountingEntropy
from bench.table import block, verdict
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Attempt, Caller, Job
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ALL_RIGHTS, LOCAL, Principal

PARTIES = (2, 3, 10)  # owners, or tenants
KINDS = ("owners", "tenants")
FLOOD_JOBS = 100_000
CALLS = 1_000
QUICK_CALLS = 100
JOB_OPTIONS = JobOptions(waits=True)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FloodFigures:
    """Latencies of calls while the other owners, or tenants, have this many jobs waiting."""

    kind: str
    parties: int
    waiting: int
    median_jobs: float
    max_jobs: int
    us_per_job: float  # CPU of the core


def run(tell: Tell, *, quick: bool = False) -> list[FloodFigures]:
    """Measure with each number of owners, and of tenants."""
    found = []
    for kind in KINDS:
        for parties in PARTIES:
            figures = _measure(kind, parties, QUICK_CALLS if quick else CALLS)
            found.append(figures)
            times = f"a call takes {figures.median_jobs:g} jobs' time, at most {figures.max_jobs}"
            tell(f"flood  {parties:>2} {kind:<7}  {times}")
    return found


def flood_table(figures: Sequence[FloodFigures]) -> str:
    """Return a row for each number of owners, and of tenants."""
    rows = [("turns by", "", "waiting jobs", "median jobs", "max jobs", "core CPU µs/job", "")]
    rows += [
        (
            each.kind,
            str(each.parties),
            f"{each.waiting:,}",
            f"{each.median_jobs:g}",
            str(each.max_jobs),
            f"{each.us_per_job:.2f}",
            verdict(each.max_jobs, each.parties),
        )
        for each in figures
    ]
    return "\n".join(block("flood of one owner or tenant: time of another's call, in units of one job's time", rows))


def _measure(kind: str, parties: int, calls: int) -> FloodFigures:
    world = _World(kind, parties - 1)
    start = process_time()
    latencies = [world.call() for _ in range(calls)]
    cpu = process_time() - start
    return FloodFigures(kind, parties, FLOOD_JOBS, median(latencies), max(latencies), cpu * 1e6 / sum(latencies))


class _Party(NamedTuple):
    """An owner, or a tenant of one."""

    caller: Caller
    extras: JobExtras | None


class _World:
    """A broker with one worker, the callers that have flooded it, and the caller whose latency counts."""

    def __init__(self, kind: str, floods: int) -> None:
        self._broker = Broker(POLICY, CountingEntropy())
        self._now = 1.0
        self._attempt: Attempt | None = None
        worker_owner = Owner(Principal(LOCAL, ALL_RIGHTS), is_limited=False)
        worker = self._broker.join(Recipient(), None, "worker", (SERVICE,), WorkerProfile(), self._now, worker_owner)
        assert worker is not None
        self._broker.idle(worker, self._now)
        names = [*(f"flood {number}" for number in range(floods)), "mine"]
        if kind == "owners":
            parties = [_Party(self._caller(name), None) for name in names]
        else:
            owner = self._caller("owner")
            parties = [_Party(owner, JobExtras(tenant=name)) for name in names]
        self._mine = parties.pop()
        for number in range(FLOOD_JOBS + 1):  # one of them runs
            self._submit(parties[number % floods])

    def call(self) -> int:
        """Call, and do jobs until the call has ended. Returns the number of jobs, its own included."""
        job = self._submit(self._mine)
        jobs = 0
        while job.outcome is None:
            assert self._attempt is not None
            self._now += 1.0
            jobs += 1
            self._broker.succeed(self._attempt, BODY, self._now)
            self._take_effects()
        return jobs - 1  # the job that ran when the call came had begun before

    def _caller(self, name: str) -> Caller:
        return Caller(Recipient(), Owner(Principal(name, ALL_RIGHTS)))

    def _submit(self, party: _Party) -> Job:
        job = self._broker.submit(SERVICE, BODY, party.caller, JOB_OPTIONS, self._now, extras=party.extras)
        assert job is not None
        self._take_effects()
        return job

    def _take_effects(self) -> None:
        for effect in self._broker.effects:
            if type(effect) is SendJob:
                self._attempt = effect.attempt
            elif type(effect) is DeliverOutcome:
                effect.caller.remove_job(effect.job)
        self._broker.effects.clear()
