"""The list of workers: filters, orders, pages, counts, slices; and the fleet."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.model import Worker
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations import slices
from dragoman.operations.list_schemas import FleetView, WorkersView
from dragoman.operations.schemas import ErrorView
from dragoman.operations.worker_list import LETTERS, MOST_SQUARES, WORST_FIRST

from .world import World


class FleetWorld(World):
    """Workers of two services: `idle-1`, `busy-1` (for 30 s), `busy-2` (for 20 s), `stuck`, `away` and `boots`."""

    def __init__(self) -> None:
        super().__init__()
        self.worker("s", name="busy-1", lease=100.0)
        self.enqueue("s")
        self.now += 10.0
        self.worker("s", name="busy-2", lease=1_000.0)
        self.enqueue("s", timeout=None)
        stuck = self.worker("s", name="stuck")
        name = self.enqueue("s", timeout=5.0, attempts=1)
        assert self.attempt(name).worker is stuck
        self.now += 20.0
        self.runner.run_once()
        away = self.worker("t", name="away", lease=1_000.0)
        self.broker.availability.detach(away, self.now)
        self.broker.join(self.workers, None, "boots", ("t",), away.profile, self.now, self.owner)
        self.worker("t", name="idle-1")

    def names(self, **request: Any) -> list[str]:
        view = self.list(**request)
        return [each.name for each in view.workers]

    def list(self, **request: Any) -> WorkersView:
        view = self.ask("workers", **request)
        assert isinstance(view, WorkersView), view
        return view


@pytest.fixture
def world() -> FleetWorld:
    return FleetWorld()


def test_without_parameters_all_workers_are_listed_as_they_joined(world: FleetWorld) -> None:
    view = world.list()
    assert [each.name for each in view.workers] == ["busy-1", "busy-2", "stuck", "away", "boots", "idle-1"]
    assert view.after is None


def test_workers_are_filtered(world: FleetWorld) -> None:
    assert world.names(state="busy") == ["busy-1", "busy-2"]
    assert world.names(dialect="test") == world.names()
    assert world.names(dialect="native") == []
    assert world.names(service="t") == ["away", "boots", "idle-1"]
    assert world.names(text="BUSY") == ["busy-1", "busy-2"]
    assert world.names(text="t", state="stuck") == ["stuck"]
    stuck = world.list(text="stuck").workers[0].id
    assert world.names(text=str(stuck)) == ["stuck"]


def test_workers_are_sorted(world: FleetWorld) -> None:
    assert world.names(sort="name") == sorted(world.names())
    assert world.names(sort="silent")[:2] == ["busy-1", "busy-2"]  # 30 % and 2 % of their leases
    assert world.names(sort="need") == ["stuck", "away", "boots", "busy-1", "busy-2", "idle-1"]


def test_the_slowest_workers_are_those_that_take_longer_than_others_of_their_service() -> None:
    world = FleetWorld()
    quick, slow = world.worker("v", name="quick"), world.worker("v", name="slow")
    attempts = [world.attempt(world.enqueue("v")) for _ in range(2)]
    assert [each.worker for each in attempts] == [quick, slow]
    for attempt in attempts:
        world.now += 2.0
        world.broker.succeed(attempt, b"", world.now)
    assert world.names(sort="slow")[:2] == ["slow", "quick"]


def test_a_worker_with_jobs_that_is_silent_for_most_of_its_lease_needs_attention(world: FleetWorld) -> None:
    world.now += 35.0  # `busy-1` is silent for 65 of 100 seconds
    assert world.names(sort="need")[:4] == ["stuck", "away", "busy-1", "boots"]


def test_counts_are_those_of_all_workers(world: FleetWorld) -> None:
    for view in (world.list(), world.list(state="busy", limit=1)):
        assert view.counts is not None
        assert view.counts.state == {"busy": 2, "stuck": 1, "detached": 1, "starting": 1, "idle": 1}
        assert view.counts.dialect == {"test": 6}


@pytest.mark.parametrize("sort", [None, "need", "slow", "silent", "name"])
def test_pages_have_every_worker_once_while_time_passes(world: FleetWorld, sort: str | None) -> None:
    whole = world.names(sort=sort, limit=1_000)
    found: list[str] = []
    after = None
    while True:
        view = world.list(sort=sort, limit=2, after=after)
        found += [each.name for each in view.workers]
        after = view.after
        if after is None:
            break
        world.now += 3.0
    assert found == whole
    assert len(found) == 6


@pytest.mark.parametrize("after", ["x", "1.0/2.0", "1.0/two/3", "1.0/2.0/three", "1.0//3"])
def test_a_cursor_of_no_row_is_an_error(world: FleetWorld, after: str) -> None:
    error = world.ask("workers", sort="need", after=after)
    assert isinstance(error, ErrorView)
    assert error.kind == "not found"
    assert error.detail == (
        f"after {after!r} is no position in this list; send the `after` of the previous page and the same sort"
    )


def test_without_see_over_all_services_there_are_no_counts_and_no_foreign_rows(world: FleetWorld) -> None:
    world.broker.principals.apply({"viewer": (Rights(see=("t",)), NO_LIMITS)})
    both = world.worker("s", "t", name="both")
    world.act_as("viewer")
    view = world.list(sort="name")
    assert [each.name for each in view.workers] == ["away", "boots", "both", "idle-1"]
    assert view.counts is None
    assert world.names(service="s") == [], "the service that it may not see is no filter"
    assert world.names(text="s") == ["boots"]
    assert world.ask("fleet").ids[-1] == both.id


# -------------------------------------------------------------------- slices


def many(world: World, number: int) -> list[Worker]:
    return [world.worker("s", name=f"w{each:04}") for each in range(number)]


def in_the_end(world: World, **request: Any) -> WorkersView:
    """List workers, over several iterations."""
    responder = world.begin("workers", **request)
    for _ in range(20):
        world.runner.run_once()
    (view,) = responder.responses
    assert isinstance(view, WorkersView)
    return view


def test_a_long_list_takes_several_iterations_and_is_kept_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.0)
    monkeypatch.setattr(slices, "CHUNK", 16)
    world = World()
    workers = many(world, 100)
    responder = world.begin("workers", sort="name", limit=3)
    assert responder.responses == [], "two iterations are not enough"
    world.broker.leave(workers[0], world.now, "gone")  # it may leave between two slices
    for _ in range(10):
        world.runner.run_once()
    (view,) = responder.responses
    assert [each.name for each in view.workers] == ["w0000", "w0001", "w0002"], "it was looked at before it left"
    assert world.ask("workers", sort="name", limit=3) is view
    world.now += 1.0
    view = in_the_end(world, sort="name", limit=3)
    assert [each.name for each in view.workers] == ["w0001", "w0002", "w0003"]


def test_a_kept_list_is_not_for_other_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.0)
    monkeypatch.setattr(slices, "CHUNK", 16)
    world = World()
    many(world, 20)
    world.broker.principals.apply({"viewer": (Rights(see=("s",)), NO_LIMITS)})
    world.act_as("viewer")
    assert len(in_the_end(world).workers) == 20
    world.broker.principals.apply({"viewer": (Rights(see=("t",)), NO_LIMITS)})
    assert in_the_end(world).workers == []


# -------------------------------------------------------------------- the fleet


def test_the_fleet_has_a_letter_for_each_worker(world: FleetWorld) -> None:
    view = world.ask("fleet")
    ids = [each.id for each in world.list().workers]
    assert view == FleetView(each=1, states="bbsdti", first=ids[0], ids=ids)


def test_a_square_of_several_workers_shows_the_worst_state(monkeypatch: pytest.MonkeyPatch, world: FleetWorld) -> None:
    monkeypatch.setattr("dragoman.operations.worker_list.MOST_SQUARES", 2)
    view = world.ask("fleet")
    ids = [each.id for each in world.list().workers]
    assert (view.each, view.states, view.ids) == (3, "sd", [ids[2], ids[3]])


def test_an_empty_fleet() -> None:
    assert World().ask("fleet") == FleetView(each=1, states="", first=None, ids=[])


def test_every_state_has_a_letter_and_a_place() -> None:
    assert sorted(LETTERS.values()) == sorted(WORST_FIRST)
    assert MOST_SQUARES == 2_000
