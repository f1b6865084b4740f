"""R201. Nested calls that starve: a sentence on the dashboard, and one warning in the log for each episode."""

from __future__ import annotations

import pytest

from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Job
from dragoman.core.starvation import Starvation
from dragoman.dashboard.starvation_watch import StarvationWatch
from scraped import PATIENT, Caller, attempt_of

from .world import World


@pytest.fixture
def world() -> World:
    return World()


def nested(world: World, service: str = "resize") -> tuple[Job, Job]:
    """A job that runs, and a call of its handler that waits."""
    parent = world.job(service)
    child = world.broker.submit(service, b"", Caller(), PATIENT, world.now, extras=JobExtras(parent=parent.id))
    assert child is not None
    return parent, child


def test_sentence_appears_and_disappears(world: World) -> None:
    world.worker("resize")
    parent, child = nested(world)
    world.samples(3)
    assert world.attention() == {}
    world.samples(1)
    assert world.attention() == {
        "nested": "1 job of 'resize' will not start: the only slot of the workers runs a job whose handler waits for "
        "jobs of 'resize', which only these workers offer."
    }
    world.broker.withdraw(child, world.now)
    world.broker.succeed(attempt_of(parent), b"", world.now)
    world.samples(6)
    assert world.attention() == {}


def test_sentence_is_for_those_who_see_all_services_in_it(world: World) -> None:
    world.worker("a")
    world.worker("b")
    for parent, other in ((world.job("a"), "b"), (world.job("b"), "a")):
        world.broker.submit(other, b"", Caller(), PATIENT, world.now, extras=JobExtras(parent=parent.id))
    world.samples(4)
    both, one = world.principal("both", see=("a", "b")), world.principal("one", see=("a",))
    assert {each.about.service for each in world.snapshot(both).attention} == {"a", "b"}
    assert world.snapshot(one).attention == []


class Watched:
    """The watch alone, with the times of its reports."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reports: list[float] = []
        self.watch = StarvationWatch(world.broker, self._report)

    def _report(self, found: Starvation) -> None:
        assert (found.service.name, found.slots) == ("resize", 1)
        self.reports.append(self.world.now)

    def look(self, seconds: float) -> None:
        self.world.now += seconds
        self.watch.search(self.world.broker.worker_registry.services.values(), self.world.now)


def test_log_has_one_line_for_each_episode_and_minute(world: World) -> None:
    world.worker("resize")
    watched = Watched(world)
    start = world.now
    parent, child = nested(world)
    watched.look(0.0)
    assert watched.reports == [], "the handler may end without waiting"
    for _ in range(30):
        watched.look(2.0)
    assert watched.reports == [start + 2.0]
    for _ in range(2):  # the time-out of the child ends an episode, and the next parent begins another
        world.broker.withdraw(child, world.now)
        world.broker.succeed(attempt_of(parent), b"", world.now)
        watched.look(2.0)
        parent, child = nested(world)
        watched.look(2.0)
        watched.look(2.0)
        assert len(watched.reports) == 2
    assert watched.reports[1] - watched.reports[0] >= 60.0


def test_nothing_is_searched_while_no_job_has_a_parent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.worker("resize")
    world.job("resize")
    world.job("resize")
    watched = Watched(world)
    monkeypatch.setattr("dragoman.dashboard.starvation_watch.starved", None)
    watched.look(2.0)
