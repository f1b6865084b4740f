"""The log warns about dropped jobs: once per service and interval, with a count and advice."""

from __future__ import annotations

from math import inf
from typing import Any

from dragoman.core.broker import Broker
from dragoman.core.counters import QUEUE_TIMEOUT, UNNAMED
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.policy import Policy
from dragoman.core.states import RefusalReason
from dragoman.server.admission import AdmissionLimits
from dragoman.server.drops import INTERVAL, MOST_LINES
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER


class Nobody(Caller):
    """A caller that ignores its outcomes, and its broker side."""

    def __init__(self) -> None:
        super().__init__(self, LOCAL_OWNER)

    def execute(self, effect: object, now: float) -> None: ...


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[dict[str, Any]] = []
        self.broker = Broker(Policy(), SeededEntropy())
        limits = AdmissionLimits(late_iteration=inf)
        self.runner = Runner(self.broker, NullStore(), lambda: self.now, self.log, limits, strict=True)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append({"level": level, "event": event, **fields})

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Return the log lines of an iteration this much later."""
        self.now += seconds
        self.lines.clear()
        self.runner.run_once()
        return list(self.lines)

    def drop(self, service: str = "s", cause: str = QUEUE_TIMEOUT, count: int = 1) -> None:
        for _ in range(count):
            self.broker.counters.drop(service, cause, "the reason")


def test_requests_that_time_out_in_the_queue_leave_a_warning() -> None:
    """A bug: 87,221 of 100,000 requests timed out in the queue, and there was no log line about it."""
    world = World()
    for _ in range(3):
        world.broker.submit("s", b"x", Nobody(), JobOptions(queue_timeout=10.0, waits=True), world.now)
    assert world.wait(9.0) == []
    (line,) = world.wait(1.0)
    assert line == {
        "level": "warning",
        "event": "jobs dropped",
        "service": "s",
        "count": 3,
        "causes": {"queue time-out": 3},
        "reason": "no worker was free within 10 s",
        "advice": line["advice"],
    }
    assert "queue_timeout" in line["advice"]


def test_one_warning_per_service_and_interval() -> None:
    world = World()
    world.drop()
    assert [line["count"] for line in world.wait(0.0)] == [1]
    world.drop(count=5)
    world.drop("other")
    assert [(line["service"], line["count"]) for line in world.wait(1.0)] == [("other", 1)]
    world.drop(count=2)
    assert world.wait(INTERVAL - 1.5) == []
    assert [(line["service"], line["count"]) for line in world.wait(1.0)] == [("s", 7)]
    assert world.wait(INTERVAL) == []


def test_advice_fits_the_most_frequent_cause() -> None:
    world = World()
    world.drop(cause=QUEUE_TIMEOUT)
    world.drop(cause=RefusalReason.BUSY, count=2)
    (line,) = world.wait(0.0)
    assert line["causes"] == {"queue time-out": 1, "busy": 2}
    assert "the reason names the limit" in line["advice"]


def test_every_cause_has_advice() -> None:
    world = World()
    in_other_lines = (RefusalReason.DRAINING, RefusalReason.FORBIDDEN, RefusalReason.STORE_UNAVAILABLE)
    causes = [QUEUE_TIMEOUT, *(each for each in RefusalReason if each not in in_other_lines)]
    for cause in causes:
        world.drop(f"of {cause}", cause)
    assert len({line["advice"] for line in world.wait(0.0)}) == len(causes)


def test_many_services_do_not_flood_the_log() -> None:
    world = World()
    for number in range(MOST_LINES + 3):
        world.drop(f"s{number}")
    assert len(world.wait(0.0)) == MOST_LINES
    assert len(world.wait(1.0)) == 3


def test_names_that_are_no_services_share_a_line() -> None:
    world = World()
    world.drop(UNNAMED, RefusalReason.NO_SUCH_SERVICE, 4)
    (line,) = world.wait(0.0)
    assert (line["service"], line["count"]) == ("(unknown or too many names)", 4)


def test_what_is_left_is_reported_at_the_end() -> None:
    world = World()
    world.drop()
    world.wait(0.0)
    world.drop(count=9)
    world.lines.clear()
    world.runner.drops.close()
    assert [line["count"] for line in world.lines] == [9]
