"""Cost of a job in the pure core, without sockets, with growing numbers of idle workers and waiting jobs. It should not
grow.

A job here is one `submit`, one `SendJob`, one `succeed`, one `DeliverOutcome` and one `next_deadline`, with the worker
profile of PingPong. Ids come from a counter: the core is measured, not the source of randomness.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.entropy import Entropy
from dragoman.core.model import Attempt, Caller, JobId, Token
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ALL_RIGHTS, LOCAL, Principal
from dragoman.server.tuning import collect_rarely

IDLE_WORKERS = (10, 100, 1_000, 10_000)
WAITING_JOBS = (0, 1_000, 100_000, 1_000_000)
BUSY_WORKERS = 64
BATCHES = 15
BATCH_JOBS = 4_000

SERVICE = "echo"
BODY = b"x" * 100
TERMS = WorkerProfile(lease=3.0, silent_while_busy=True)
WISHES = JobOptions(queue_timeout=60.0, job_timeout=600.0, waits=True)
POLICY = Policy(max_jobs=2_000_000, max_jobs_per_service=2_000_000)
BETWEEN_JOBS = 1e-5
OWNER = Owner(Principal(LOCAL, ALL_RIGHTS), is_limited=False)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CoreCost:
    """CPU per job with this many idle workers or waiting jobs: the median of the batches."""

    crowd: str
    number: int
    us_per_job: float


def run(tell: Tell, *, quick: bool = False) -> list[CoreCost]:
    """Measure both rows. A quick run leaves out the million."""
    depths = WAITING_JOBS[:-1] if quick else WAITING_JOBS
    return [
        *(_measure("idle workers", number, _with_idle_workers(number), tell) for number in IDLE_WORKERS),
        *(_measure("waiting jobs", number, _with_waiting_jobs(number), tell) for number in depths),
    ]


def growth(costs: Sequence[CoreCost], crowd: str) -> float:
    """Return the cost of a job in the largest crowd, in multiples of that in the smallest."""
    row = [cost.us_per_job for cost in costs if cost.crowd == crowd]
    return row[-1] / row[0]


def _measure(crowd: str, number: int, world: World, tell: Tell) -> CoreCost:
    world.do_jobs(BATCH_JOBS)
    cost = CoreCost(crowd, number, median(_batch(world) for _ in range(BATCHES)))
    tell(f"core  {number:>9,} {crowd}  {cost.us_per_job:.2f} µs CPU/job")
    return cost


def _batch(world: World) -> float:
    start = process_time()
    world.do_jobs(BATCH_JOBS)
    return (process_time() - start) * 1e6 / BATCH_JOBS


def _with_idle_workers(number: int) -> World:
    world = World()
    world.add_workers(number)
    return world


def _with_waiting_jobs(number: int) -> World:
    """Every worker holds a job and this many more wait, so each result dispatches the next one."""
    world = World()
    world.add_workers(BUSY_WORKERS)
    for _ in range(BUSY_WORKERS + number):
        world.submit()
    return world


class World:
    """A broker, the jobs its workers hold, and a clock that advances a little with each job."""

    def __init__(self) -> None:
        collect_rarely()  # as `dragoman serve` does
        self._broker = Broker(POLICY, CountingEntropy())
        self._held: deque[Attempt] = deque()
        self._caller = Caller(Recipient(), OWNER)
        self._now = 1.0

    def add_workers(self, number: int) -> None:
        """Add idle workers with fresh leases."""
        for index in range(number):
            worker = self._broker.join(Recipient(), None, f"worker {index}", (SERVICE,), TERMS, self._now, OWNER)
            assert worker is not None
            self._broker.idle(worker, self._now)

    def submit(self) -> None:
        """Submit a job. If it is dispatched at once, its worker holds it from now on."""
        self._now += BETWEEN_JOBS
        self._broker.submit(SERVICE, BODY, self._caller, WISHES, self._now)
        self._take_effects()

    def do_jobs(self, number: int) -> None:
        """Submit this many jobs and finish as many, the longest held first."""
        broker = self._broker
        for _ in range(number):
            self.submit()
            broker.succeed(self._held.popleft(), BODY, self._now)
            assert self._take_effects() == 1
            if broker.next_deadline() <= self._now:
                broker.tick(self._now)

    def _take_effects(self) -> int:
        """Execute effects as the runner does. Returns the number of outcomes."""
        answers = 0
        for effect in self._broker.effects:
            if type(effect) is SendJob:
                self._held.append(effect.attempt)
            else:
                assert type(effect) is DeliverOutcome, effect
                effect.caller.remove_job(effect.job)
                answers += 1
        self._broker.effects.clear()
        return answers


class CountingEntropy(Entropy):
    """Ids and tokens that are distinct, but not random."""

    def __init__(self) -> None:
        self._last = 0

    def job_id(self) -> JobId:
        return JobId(self._next())

    def token(self) -> Token:
        return Token(self._next())

    def jitter(self) -> float:
        return 0.0

    def _next(self) -> bytes:
        self._last += 1
        return self._last.to_bytes(16, "big")
