"""Merged dashboards: steps of brokers that begin at different moments, pairs of dialects, sentences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dragoman.operations.dashboard_schemas import (
    AboutView,
    AttentionView,
    ChangeView,
    Level,
    MarkView,
    Numbers,
    QuantilesView,
    SeriesView,
    SnapshotView,
)
from dragoman.operations.merged_dashboard import merge_series, merge_snapshots, merged_flow

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def series(begin: float, values: Numbers, *, step: float = 2.0, marks: tuple[MarkView, ...] = ()) -> SeriesView:
    lines = QuantilesView(p50=values, p95=values, p99=values)
    return SeriesView(
        step=step,
        begin=at(begin),
        arrived=values,
        done=values,
        undone=values,
        waiting=values,
        running=values,
        wait=lines,
        run=lines,
        marks=list(marks),
    )


def merged(*parts: SeriesView) -> SeriesView:
    return merge_series(None, {f"eu{number}": part for number, part in enumerate(parts, 1)}, 0.0)


def snapshot(**fields: object) -> SnapshotView:
    empty = {
        "instance": "i",
        "seq": 1,
        "at": START,
        "ready": True,
        "problems": [],
        "totals": None,
        "broker": None,
        "attention": [],
        "services": [],
        "flow": [],
        "changes": [],
    }
    return SnapshotView(**{**empty, **fields})  # type: ignore[arg-type]


# -------------------------------------------------------------------- series


def test_values_of_the_same_time_are_added_and_quantiles_are_the_highest() -> None:
    view = merged(series(0, [1, 2, 3]), series(0, [10, None, 5]))
    assert view.done == view.waiting == [11, 2, 8]
    assert view.wait.p95 == view.run.p50 == [10, 2, 5]
    assert (view.begin, view.step) == (START, 2.0)


def test_a_value_belongs_to_the_nearest_step() -> None:
    for begin in (0.0, 0.9, -0.9):
        assert merged(series(0, [1, 2, 3]), series(begin, [10, 20, 30])).done == [11, 22, 33]
    assert merged(series(0, [1, 2, 3]), series(2.5, [10, 20, 30])).done == [1, 12, 23]
    day = merged(series(0, [1, 2], step=480.0), series(300.0, [10, 20], step=480.0))
    assert day.done == [1, 12]


def test_a_broker_that_sampled_a_moment_earlier_keeps_its_last_value() -> None:
    """Without it, the newest step of a chart had the values of one broker only."""
    assert merged(series(0, [1, 2, 3]), series(-2.0, [10, 20, 30])).done == [21, 32, 33]


def test_steps_of_which_a_broker_knows_nothing_have_the_values_of_the_others() -> None:
    assert merged(series(0, [1, 2, 3]), series(100.0, [10, 20, 30])).done == [1, 2, 3]
    assert merged(series(0, [1, 2, 3]), series(-100.0, [10, 20, 30])).done == [1, 2, 3]
    assert merged(series(0, [None, 2]), series(0, [None, 3])).done == [None, 5]


def test_a_mark_that_all_brokers_notice_is_one_and_others_are_not() -> None:
    paused, left = "'s' was paused", "1 worker of 's' left"

    def marks(first: float, second: float) -> tuple[MarkView, ...]:
        return (
            MarkView(at=at(first), text=paused, kind="service paused"),
            MarkView(at=at(second), text=left, kind="workers left"),
        )

    view = merged(series(0, [1], marks=marks(5, 90)), series(0, [1], marks=marks(6, 91)))
    assert [(each.text, each.brokers) for each in view.marks] == [
        (paused, ["eu1", "eu2"]),
        (left, ["eu1"]),
        (left, ["eu2"]),
    ]
    again = merged(series(0, [1], marks=marks(5, 90)), series(0, [1], marks=marks(50, 91)))
    assert [each.brokers for each in again.marks if each.text == paused] == [["eu1"], ["eu2"]]


# -------------------------------------------------------------------- snapshots


def test_changes_of_all_brokers_are_in_one_order_and_name_them() -> None:
    def change(seconds: float, text: str) -> ChangeView:
        kind = "service paused" if text == "paused" else "workers left"
        return ChangeView(at=at(seconds), kind=kind, service=None, count=1, text=text, level="info")

    view = merge_snapshots(
        {
            "eu1": snapshot(changes=[change(30, "x"), change(10, "paused")]),
            "eu2": snapshot(changes=[change(29, "x"), change(20, "y"), change(11, "paused")]),
        },
        0.0,
    )
    assert [(each.text, each.brokers) for each in view.changes] == [
        ("x", ["eu1"]),
        ("x", ["eu2"]),
        ("y", ["eu2"]),
        ("paused", ["eu1", "eu2"]),
    ]


def test_findings_come_worst_first_and_those_about_the_same_once() -> None:
    def finding(text: str, level: Level, since: float) -> AttentionView:
        return AttentionView(
            kind=text.split()[-1], level=level, about=AboutView(), text=text, since=at(since), advice=""
        )

    view = merge_snapshots(
        {
            "eu1": snapshot(attention=[finding("3 jobs wait.", "warning", 1), finding("full", "warning", 9)]),
            "eu2": snapshot(attention=[finding("broken", "error", 5), finding("5 jobs wait.", "warning", 0)]),
            "eu3": snapshot(attention=[finding("7 jobs wait.", "warning", 2)]),
        },
        0.0,
    )
    assert [(each.text, each.brokers) for each in view.attention] == [
        ("broken", ["eu2"]),
        ("At eu2: 5 jobs wait. Likewise at eu1, eu3.", ["eu2", "eu1", "eu3"]),
        ("full", ["eu1"]),
    ]


def test_a_pair_of_dialects_across_brokers_is_joined_by_shares() -> None:
    here = [("http", "native", 1.0, 0.001), ("http", "cluster", 4.0, 0.002), ("zmq", "cluster", 4.0, 0.002)]
    there = [("cluster", "native", 6.0, 0.001), ("cluster", "memodb", 2.0, 0.003)]
    assert merged_flow([here, there]) == [
        ("http", "native", 4.0, 0.0025),  # 1 a second here, and 3 there
        ("zmq", "native", 3.0, 0.003),
        ("http", "memodb", 1.0, 0.005),
        ("zmq", "memodb", 1.0, 0.005),
    ]
    assert sum(row[2] for row in merged_flow([here, there])) == 9.0, "no job counts twice"
    assert merged_flow([here]) == [
        ("http", "cluster", 4.0, 0.002),
        ("zmq", "cluster", 4.0, 0.002),
        ("http", "native", 1.0, 0.001),
    ]
