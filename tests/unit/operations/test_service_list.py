"""The list of services: text filter, orders, pages, facts of workers."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.operations.list_schemas import ServicesView
from dragoman.operations.service_views import ServiceRates

from .world import WALL, World

RATES = {
    "ocr": ServiceRates(41.2, 21.4, 0.3, [12.1, 20.9, 26.0], [1.9, 4.3, 6.8]),
    "quiet": ServiceRates(0.0, 0.0, 0.0, [None] * 3, [None] * 3),
}


class ServiceWorld(World):
    """`ocr` has a backlog of 5 s, `embed` waits without a worker for 1 s, `pause/d` is paused, `quiet` is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.worker("quiet", "ocr", capacity=2)
        for _ in range(4):
            self.enqueue("ocr")
        self.now += 4.0
        self.enqueue("embed")
        self.enqueue("pause/d")
        self.ask("pause", name="pause/d", by="ops")
        self.now += 1.0
        self.operations.rates = lambda service: RATES.get(service.name)

    def list(self, **request: Any) -> ServicesView:
        view = self.ask("services", **request)
        assert isinstance(view, ServicesView), view
        return view

    def names(self, **request: Any) -> list[str]:
        return [each.name for each in self.list(**request).services]


@pytest.fixture
def world() -> ServiceWorld:
    return ServiceWorld()


def test_without_parameters_all_services_are_listed_as_they_became_known(world: ServiceWorld) -> None:
    assert world.names() == ["quiet", "ocr", "embed", "pause/d"]


def test_services_are_sorted_and_filtered(world: ServiceWorld) -> None:
    assert world.names(sort="need") == ["embed", "pause/d", "ocr", "quiet"]
    assert world.names(sort="name") == ["embed", "ocr", "pause/d", "quiet"]
    assert world.names(sort="waiting") == ["ocr", "embed", "pause/d", "quiet"]
    assert world.names(sort="rate")[0] == "ocr"
    assert world.names(text="E", sort="name") == ["embed", "pause/d", "quiet"]


@pytest.mark.parametrize("sort", [None, "need", "name", "waiting", "rate"])
def test_pages_have_every_service_once_while_time_passes(world: ServiceWorld, sort: str | None) -> None:
    whole = world.names(sort=sort, limit=1_000)
    found: list[str] = []
    view = world.list(sort=sort, limit=1)
    while True:
        found += [each.name for each in view.services]
        if view.after is None:
            break
        world.now += 2.0
        view = world.list(sort=sort, limit=1, after=view.after)
    assert found == whole
    assert len(found) == 4


def test_a_row_has_slots_dialects_rates_and_need(world: ServiceWorld) -> None:
    rows = {each.name: each for each in world.list().services}
    ocr = rows["ocr"]
    assert (ocr.slots, ocr.dialects, ocr.running, ocr.waiting, ocr.oldest) == (2, ["test"], 2, 2, 5.0)
    assert (ocr.arrived, ocr.done, ocr.undone) == (41.2, 21.4, 0.3)
    assert (ocr.wait, ocr.run) == ([12.1, 20.9, 26.0], [1.9, 4.3, 6.8])
    assert ocr.need == 5_139  # 5 s of waiting, 1.4 % of the jobs are not done, and jobs have ended
    assert rows["embed"].need == rows["pause/d"].need == 61_000, "none can be dispatched"
    assert (rows["embed"].arrived, rows["embed"].wait) == (None, [None, None, None]), "its rates are not known"
    assert world.ask("service", name="ocr") == ocr
    paused_at = rows["pause/d"].paused_at
    assert paused_at is not None
    assert paused_at.timestamp() == WALL + 1_004.0


def test_a_cursor_of_no_row_is_an_error(world: ServiceWorld) -> None:
    for after in ("x", "1.0/y/ocr"):
        assert world.ask("services", sort="need", after=after).kind == "not found"
