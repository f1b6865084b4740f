"""Rings of values: wrap, gaps, longer steps, and the start of the broker."""

from __future__ import annotations

from math import nan

from dragoman.dashboard.history import RANGES, VALUES, History, slot_of


def row(done: float, waiting: float = 0.0, wait95: float = nan) -> list[float]:
    values = {"arrived": done, "done": done, "undone": 0.0, "waiting": waiting, "running": 1.0, "wait95": wait95}
    return [values.get(name, nan) for name in VALUES]


def column(history: History, slot: int, name: str, range_name: str = "5m") -> list[float | None]:
    return history.series(range_name, (name,), slot)[name]


def test_a_slot_has_two_seconds() -> None:
    assert [slot_of(each) for each in (0.0, 1.9, 2.0, 7.9)] == [0, 0, 1, 3]


def test_series_have_the_length_of_their_range_and_begin_with_the_start() -> None:
    history = History(1_000)
    history.record(1_001, row(3.0))
    history.record(1_002, row(5.0))
    assert column(history, 1_002, "done") == [None] * 148 + [3.0, 5.0]
    assert {name: len(column(history, 1_002, "done", name)) for name in RANGES} == {"5m": 150, "1h": 180, "24h": 180}


def test_values_older_than_the_range_are_gone() -> None:
    history = History(0)
    for slot in range(1, 400):
        history.record(slot, row(float(slot)))
    assert column(history, 399, "done") == [float(each) for each in range(250, 400)]


def test_a_gap_has_no_ended_jobs_and_the_last_number_of_waiting_ones() -> None:
    history = History(0)
    history.record(1, row(2.0, waiting=7.0, wait95=0.5))
    assert column(history, 3, "done")[-3:] == [2.0, 0.0, 0.0]
    assert column(history, 3, "waiting")[-3:] == [7.0, 7.0, 7.0]
    assert column(history, 3, "wait95")[-3:] == [0.5, None, None]
    history.record(5, row(4.0, waiting=1.0))
    assert column(history, 5, "done")[-5:] == [2.0, 0.0, 0.0, 0.0, 4.0]
    assert column(history, 5, "waiting")[-5:] == [7.0, 7.0, 7.0, 7.0, 1.0]


def test_a_gap_longer_than_the_ring_leaves_nothing_old() -> None:
    history = History(0)
    for slot in range(1, 151):
        history.record(slot, row(9.0))
    history.record(1_000, row(1.0))
    assert column(history, 1_000, "done") == [0.0] * 149 + [1.0]


def test_longer_steps_have_means_of_rates_and_maxima_of_the_others() -> None:
    history = History(-1)
    for slot in range(20):
        history.record(slot, row(float(slot), waiting=float(slot % 10), wait95=0.1 * (slot % 10 + 1)))
    assert column(history, 19, "done", "1h")[-2:] == [4.5, 14.5]
    assert column(history, 19, "waiting", "1h")[-2:] == [9.0, 9.0]
    assert column(history, 19, "wait95", "1h")[-1] == 1.0
    assert column(history, 19, "done", "24h")[-2:] == [None, 9.5]


def test_a_step_that_is_not_over_has_the_mean_so_far() -> None:
    history = History(9)
    for slot in range(10, 13):
        history.record(slot, row(6.0))
    assert column(history, 12, "done", "1h")[-1] == 6.0


def test_a_late_sample_counts_for_all_slots_since_the_last_one() -> None:
    history = History(0)
    history.record(1, row(1.0))
    history.record(4, row(3.0), slots=3)
    assert column(history, 4, "done")[-4:] == [1.0, 3.0, 3.0, 3.0]


def test_a_history_takes_22_kilobytes() -> None:
    rings = History(0)._rings.values()
    assert sum(len(ring._rows) * ring._rows.itemsize for ring in rings) == 510 * 11 * 4
