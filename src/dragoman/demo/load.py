"""The load of `dragoman demo --stay`: jobs at random for services with ordinary names, some of which fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.demo.broker import CALLERS, DemoBroker
from dragoman.demo.processes import Child, DemoError
from dragoman.dialects.catalogue import DIALECTS
from dragoman.sdk.errors import DragomanError

RATE = 20.0  # jobs a second
BACKGROUND = 0.3  # fraction of background jobs
ATTEMPTS = (1, 2, 3)  # of background jobs; those with one go into quarantine when they fail
PATIENCE = 5.0  # seconds of a call: where a service is paused, calls end and the others go on
STAY, AWAY = 60.0, 30.0  # seconds that one worker is there, and is not


@dataclass(frozen=True, slots=True)
class BusyService:
    """A service of the load: the dialects of its workers, the seconds of a job, and its share of the jobs."""

    name: str
    dialects: tuple[str, ...]
    seconds: float
    share: float


SERVICES = (
    BusyService("resize", ("pingpong", "native"), 0.03, 8),
    BusyService("thumbnail", ("powerhose",), 0.02, 4),
    BusyService("ocr", ("memodb", "memodb"), 0.3, 3),
    BusyService("mail", ("majordomo",), 0.06, 3),
    BusyService("transcode", ("controller",), 0.3, 1),
    BusyService("statement", ("http", "native"), 0.25, 1),
)
FALLIBLE = ("native", "http")  # dialects in which a worker can report a failure and stay
VISITED = "ocr"  # the service of the worker that comes and goes


def keep_busy(broker: DemoBroker) -> None:
    """Submit jobs until the demo is interrupted."""
    for service in SERVICES:
        for dialect in service.dialects:
            broker.start_worker(dialect, {service.name: "work_or_fail" if dialect in FALLIBLE else "work"})
    for service in SERVICES:
        broker.wait_for_workers(service.name, len(service.dialects))
    broker.http.set_schedule("nightly-statements", "statement", b"0.2", cron="0 3 * * *")
    broker.http.set_schedule("mail-digest", "mail", b"0.1", every=30)
    visitor = Visitor(lambda: broker.start_worker("native", {VISITED: "work_or_fail"}), time.monotonic())
    due = time.monotonic()
    while True:
        if not broker.process.is_alive:
            raise DemoError(f"the broker has ended:\n{broker.process.last_lines()}")
        visitor.come_or_go(time.monotonic())
        submit_job(broker)
        due += random.expovariate(RATE)
        time.sleep(max(0.0, due - time.monotonic()))


class Visitor:
    """One worker that joins and leaves again and again."""

    def __init__(self, start: Callable[[], Child], now: float) -> None:
        self._start = start
        self._worker: Child | None = None
        self._next = now + AWAY

    def come_or_go(self, now: float) -> None:
        """Start or stop the worker if it is time."""
        if now < self._next:
            return
        if self._worker is None:
            self._worker = self._start()
            self._next = now + STAY
        else:
            self._worker.stop()
            self._worker = None
            self._next = now + AWAY


def submit_job(broker: DemoBroker) -> None:
    """Submit one job. Its result is of no interest; the broker keeps it for the dashboard."""
    service = random.choices(SERVICES, [each.share for each in SERVICES])[0]  # noqa: S311
    payload = f"{service.seconds:g}".encode()
    try:
        if random.random() < BACKGROUND:  # noqa: S311
            broker.http.enqueue(service.name, payload, attempts=random.choice(ATTEMPTS), retry_first=0.5)  # noqa: S311
        else:
            dialects = [each for each in CALLERS if DIALECTS[each].has_service_names or each in service.dialects]
            dialect = random.choice(dialects)  # noqa: S311
            broker.client(dialect, service.name).submit(service.name, payload, timeout=PATIENCE)
    except DragomanError:
        pass  # a broker that is busy for a moment; the next job follows
