"""The log warns about refused rights: once per principal, right, service, dialect and interval (R173)."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from dragoman.core.broker import Broker
from dragoman.core.counters import MOST_UNLOGGED
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import CALL, WORK, Principal, Rights
from dragoman.server.admission import AdmissionLimits
from dragoman.server.right_warnings import INTERVAL, MOST_LINES, OTHERS
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy


class Side(Recipient):
    """A broker side that ignores its effects."""

    dialect = "majordomo"

    def execute(self, effect: object, now: float) -> None: ...


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[dict[str, Any]] = []
        self.broker = Broker(Policy(), SeededEntropy())
        limits = AdmissionLimits(late_iteration=inf)
        self.runner = Runner(self.broker, NullStore(), lambda: self.now, self.log, limits, strict=True)
        self.side = Side()
        self.owner = Owner(Principal("web", Rights(call=("mail.*",), work=("mail.*",))))

    def log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append({"level": level, "event": event, **fields})

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Return the log lines of an iteration this much later."""
        self.now += seconds
        self.lines.clear()
        self.runner.run_once()
        return list(self.lines)

    def call(self, service: str = "resize") -> None:
        caller = Caller(self.side, self.owner)
        assert self.broker.submit(service, b"x", caller, JobOptions(waits=True), self.now) is None


@pytest.fixture
def world() -> World:
    return World()


def test_a_refused_call_is_logged_at_once_with_the_file_to_edit(world: World) -> None:
    world.call()
    (line,) = world.wait(0.0)
    assert line == {
        "level": "warning",
        "event": "right refused",
        "principal": "web",
        "right": "call",
        "service": "resize",
        "dialect": "majordomo",
        "count": 1,
        "file": "access/web.toml",
        "advice": line["advice"],
    }
    assert "dragoman access allow web --call SERVICE" in line["advice"]
    assert world.broker.counters.rights_refused == {(CALL, "majordomo"): 1}
    assert world.broker.counters.refused == 1


def test_each_service_of_a_worker_without_the_right_is_logged(world: World) -> None:
    services = ("mail.send", "resize", "crop")
    assert world.broker.join(world.side, None, "w", services, WorkerProfile(), world.now, world.owner) is None
    assert [(line["right"], line["service"]) for line in world.wait(0.0)] == [("work", "resize"), ("work", "crop")]
    assert world.broker.counters.rights_refused == {(WORK, "majordomo"): 2}


def test_a_worker_that_adds_a_service_without_the_right_keeps_the_others(world: World) -> None:
    worker = world.broker.join(world.side, None, "w", ("mail.send",), WorkerProfile(), world.now, world.owner)
    assert worker is not None
    assert not world.broker.availability.offer(worker, ("mail.send", "resize"), world.now)
    assert [each.name for each in worker.services] == ["mail.send"]
    assert world.broker.counters.rights_refused == {(WORK, "majordomo"): 1}


def test_one_line_per_interval_with_the_count_of_all(world: World) -> None:
    world.call()
    assert [line["count"] for line in world.wait(0.0)] == [1]
    for _ in range(7):
        world.call()
    assert world.wait(INTERVAL - 1.0) == []
    assert [line["count"] for line in world.wait(1.0)] == [7]
    assert world.wait(INTERVAL) == []


def test_a_caller_that_invents_names_does_not_flood_the_log_or_the_memory(world: World) -> None:
    for number in range(2 * MOST_UNLOGGED):
        world.call(f"s{number}")
    assert len(world.broker.counters.unlogged_rights) == MOST_UNLOGGED + 1
    assert len(world.wait(0.0)) == MOST_LINES
    assert world.wait(0.5) == []
    assert len(world.wait(0.5)) == MOST_LINES
    world.lines.clear()
    world.runner.right_warnings.close()
    assert len(world.lines) == MOST_LINES
    assert world.broker.counters.unlogged_rights == {}


def test_names_beyond_the_limit_have_one_line_together(world: World) -> None:
    for number in range(MOST_UNLOGGED + 3):
        world.call(f"s{number}")
    told = [line for _ in range(60) for line in world.wait(1.0)]
    assert [line["count"] for line in told if line["service"] == OTHERS] == [3]
