"""Pauses of services in the store: the operator and the time are the same after a restart."""

from __future__ import annotations

import pytest

from dragoman.core.broker import Broker
from dragoman.core.policy import Policy
from dragoman.operations.pauses import restore_pauses, store_pause
from dragoman.testing.entropy import SeededEntropy

WALL = 1_800_000_000.0  # lead of the wall clock in the first run
LATER = 1_800_000_500.0  # lead in the second run: its clock started 500 seconds later


def restarted(notes: dict[str, str]) -> Broker:
    broker = Broker(Policy(), SeededEntropy())
    restore_pauses(broker, notes, LATER)
    return broker


def stored(broker: Broker, name: str, notes: dict[str, str | None] | None = None) -> dict[str, str]:
    notes = {} if notes is None else notes
    store_pause(broker.worker_registry.services[name], notes.__setitem__, WALL)
    return {key: value for key, value in notes.items() if value is not None}


def test_pause_has_its_time_after_a_restart() -> None:
    broker = Broker(Policy(), SeededEntropy())
    broker.operator.pause("a/b", "ops", 70.0)
    broker.operator.pause("a/b", "someone else", 90.0)
    service = restarted(stored(broker, "a/b")).worker_registry.services["a/b"]
    assert (service.paused, service.paused_by) == (True, "someone else")
    assert service.paused_at == pytest.approx(70.0 - 500.0)


def test_resumed_service_leaves_nothing_in_the_store() -> None:
    broker = Broker(Policy(), SeededEntropy())
    broker.operator.pause("a", "ops", 70.0)
    notes: dict[str, str | None] = dict(stored(broker, "a"))
    broker.operator.resume("a", 80.0)
    assert broker.worker_registry.services["a"].paused_at is None
    assert stored(broker, "a", notes) == {}


@pytest.mark.parametrize("notes", [{}, {"paused-at/a": "soon"}])
def test_pause_of_an_earlier_release_has_no_time(notes: dict[str, str]) -> None:
    service = restarted({"pause/a": "ops"} | notes).worker_registry.services["a"]
    assert (service.paused, service.paused_at) == (True, None)


def test_time_without_a_pause_is_ignored() -> None:
    assert restarted({"paused-at/a": "1800000070.000"}).worker_registry.services == {}
