"""Dashboards of a cluster: snapshots and histories of all brokers, at any of them."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_dashboards import Dashboards
from cluster_world import may

from dragoman.cluster.records import Look
from dragoman.core.model import Job
from dragoman.dashboard.dashboard import Dashboard
from dragoman.operations.dashboard_schemas import SnapshotView


def taken(world: Dashboards, owner: str, executor: str) -> Job:
    """Return a call of one broker that runs at a worker of another one, as that one has it."""
    world.nodes[executor].worker("s")
    world.run()
    attempt = world.run_call(owner)
    copies = [each for each in world.nodes[executor].broker.jobs.values() if each.attempt is not None]
    assert attempt.worker.name == executor
    (copy,) = copies
    return copy


def finish(world: Dashboards, executor: str, copy: Job) -> None:
    assert copy.attempt is not None
    world.nodes[executor].broker.succeed(copy.attempt, b"done", world.now)
    world.run()


def rates(view: Any) -> tuple[float, float]:
    return view.arrived, view.done


def parts(world: Dashboards) -> list[SnapshotView]:
    """Return what each broker adds to the snapshot of all."""
    local = world.nodes["a"].broker.principals.local
    return [each._snapshots.view(local, world.now) for each in world.dashboards.values()]


# -------------------------------------------------------------------- snapshots


def test_a_snapshot_has_the_services_and_totals_of_all_brokers() -> None:
    world = Dashboards("a", "b", "c")
    world.nodes["a"].worker("mail")
    world.nodes["b"].worker("mail")
    world.nodes["b"].worker("ocr", capacity=3)
    for _ in range(4):
        world.nodes["c"].call(service="nobody", waits=True)
    world.samples(4)
    shown = world.watch("a").latest
    rows = {each["name"]: each for each in shown["services"]}
    assert list(rows) == ["nobody", "mail", "ocr"], "those that need attention first"
    assert (rows["mail"]["workers"], rows["mail"]["idle"], rows["mail"]["brokers"]) == (2, 2, ["a", "b"])
    assert (rows["ocr"]["slots"], rows["ocr"]["dialects"], rows["ocr"]["brokers"]) == (3, ["test"], ["b"])
    assert (rows["nobody"]["waiting"], rows["nobody"]["brokers"]) == (4, ["c"])
    totals = shown["totals"]
    assert (totals["waiting"], totals["slots"], totals["workers"], totals["services"]) == (4, 5, {"idle": 3}, 3)
    assert [(each["name"], each["workers"], each["waiting"]) for each in shown["brokers"]] == [
        ("a", 1, 0),
        ("b", 2, 0),
        ("c", 0, 4),
    ]
    assert shown["unanswered"] == []
    assert [(each["kind"], each["brokers"]) for each in shown["attention"]] == [("no worker", ["c"])]
    joined = [(each["text"], each["brokers"]) for each in shown["changes"] if each["kind"] == "workers joined"]
    mail, ocr = "1 worker of 'mail' joined", "1 worker of 'ocr' joined"
    assert sorted(joined) == [(mail, ["a"]), (mail, ["b"]), (ocr, ["b"])]


def test_a_job_that_runs_at_another_broker_counts_once() -> None:
    world = Dashboards("a", "b")
    copy = taken(world, "a", "b")
    world.samples(1)
    for name in "ab":
        shown = world.watch(name).latest
        (row,) = shown["services"]
        assert (row["running"], row["workers"], row["slots"]) == (1, 1, 1)
        totals = shown["totals"]
        assert (totals["running"], totals["present"], totals["workers"]) == (1, 1, {"busy": 1})
        assert [each["running"] for each in shown["brokers"]] == [1, 0], "its own broker has it"
    finish(world, "b", copy)
    world.samples(1)
    shown = world.watch("a").latest
    (row,) = shown["services"]
    assert row["ended"] == {"done": 1}
    own, other = parts(world)
    assert rates(own.totals) == (shown["totals"]["arrived"], shown["totals"]["done"]) != (0.0, 0.0)
    assert rates(own.services[0]) == (row["arrived"], row["done"]) != (0.0, 0.0)
    assert rates(other.totals) == rates(other.services[0]) == (0.0, 0.0), "its own broker counts it"
    services = world.nodes["b"].ask("services").services
    assert rates(services[0]) == (row["arrived"], row["done"]), "the list has the same rates"


def test_jobs_that_fail_at_another_broker_count_once() -> None:
    world = Dashboards("a", "b")
    copy = taken(world, "a", "b")
    world.samples(1)
    assert copy.attempt is not None
    world.nodes["b"].broker.fail(copy.attempt, "no", world.now)
    world.samples(1)
    own, other = (each.totals for each in parts(world))
    assert own is not None
    assert other is not None
    assert own.undone["failed"] > 0.0
    assert other.undone["failed"] == 0.0
    assert world.watch("b").latest["totals"]["undone"] == own.undone


def test_pairs_of_dialects_across_brokers_are_joined() -> None:
    world = Dashboards("a", "b")
    finish(world, "b", taken(world, "a", "b"))
    world.samples(1)
    ((caller, worker, jobs, _),) = world.watch("a").latest["flow"]
    assert "cluster" not in (caller, worker)
    assert jobs > 0.0


def test_only_while_a_reader_watches_other_brokers_are_asked_once_a_second() -> None:
    world = Dashboards("a", "b", "c")
    asked: list[tuple[str, Look]] = []
    for name in "bc":
        receive = world.nodes[name].side.receivers[Look]

        def count(peer: Any, record: Look, now: float, name: str = name, receive: Any = receive) -> None:
            asked.append((name, record))
            receive(peer, record, now)

        world.nodes[name].side.receivers[Look] = count
    world.samples(2)
    assert asked == [], "nobody watches"
    first = world.watch("a")
    assert [name for name, _ in asked] == ["b", "c"]
    second = world.watch("a")
    assert len(asked) == 2, "what a second reader wants is known"
    assert len(first.received) == len(second.received) == 1
    for _ in range(3):
        world.beat("a")
    assert [name for name, _ in asked] == ["b", "c"] * 4
    assert {tuple(each.snapshots) for _, each in asked} == {(("local", ""),)}
    world.dashboards["a"].leave(first)
    world.dashboards["a"].leave(second)
    world.samples(2)
    assert len(asked) == 8


def test_a_broker_that_is_watched_from_another_one_counts_its_workers_often() -> None:
    world = Dashboards("a", "b")
    reader = world.watch("a")
    assert world.dashboards["b"].is_watched
    world.nodes["b"].worker("s")
    world.samples(1)
    world.beat("a")
    assert reader.latest["totals"]["workers"] == {"idle": 1}
    world.dashboards["a"].leave(reader)
    world.run(3.5)
    assert not world.dashboards["b"].is_watched


def test_a_principal_sees_of_each_broker_only_what_it_may_see_there() -> None:
    access = {"viewer": may(see=("mail",)), "all": may(see=("*",))}
    world = Dashboards("a", "b", access=access)
    for name in "ab":
        world.nodes[name].worker("mail")
        world.nodes[name].worker("secret")
    world.samples(1)
    shown = world.watch("a", principal="viewer").latest
    assert [(each["name"], each["workers"]) for each in shown["services"]] == [("mail", 2)]
    assert (shown["totals"], shown["broker"], shown["flow"]) == (None, None, [])
    assert [each["workers"] for each in shown["brokers"]] == [None, None]
    assert {each["service"] for each in shown["changes"]} == {"mail"}
    assert world.watch("a", "service/secret", "viewer").latest["page"] is None
    everything = world.watch("a", principal="all").latest
    assert (everything["totals"]["services"], everything["unanswered"]) == (2, [])
    world.nodes["b"].broker.principals.apply(access | {"all": may(see=("mail",))})
    world.beat("a")
    everything = world.watch("a", principal="all").latest
    assert everything["unanswered"] == ["b"], "its totals are hidden there"
    assert world.nodes["a"].ask("overview", principal="all").unanswered == ["b"]
    assert [(each["name"], each["workers"]) for each in everything["services"]] == [("mail", 2), ("secret", 1)]


def test_two_principals_with_equal_rights_here_see_what_each_may_see_elsewhere() -> None:
    access = {"ann": may(see=("mail",)), "bob": may(see=("mail",))}
    world = Dashboards("a", "b", access=access)
    world.nodes["b"].worker("mail")
    world.nodes["b"].broker.principals.apply(access | {"bob": may(see=())})
    world.samples(1)
    readers = [world.watch("a", principal=name) for name in ("ann", "bob")]
    world.beat("a")
    assert [[each["workers"] for each in reader.latest["services"]] for reader in readers] == [[1], [0]]


def test_a_broker_that_is_late_is_asked_once_and_then_missing() -> None:
    world = Dashboards("a", "b")
    world.nodes["b"].worker("mail")
    world.samples(1)
    reader = world.watch("a")
    asked: list[Look] = []
    world.nodes["b"].side.receivers[Look] = lambda peer, record, now: asked.append(record)  # it does not answer
    world.beat("a")
    assert reader.latest["unanswered"] == [], "its last part is a moment old"
    assert reader.latest["totals"]["workers"] == {"idle": 1}
    world.run(1.0)
    world.beat("a")
    assert len(asked) == 1, "it has not answered yet"
    world.run(3.0)
    world.beat("a")
    assert reader.latest["unanswered"] == ["b"], "it is heard, and does not answer"
    assert reader.latest["totals"]["workers"] == {}
    assert len(asked) == 2, "its answer may be lost"


def test_a_broker_that_dies_is_missing_and_then_gone() -> None:
    world = Dashboards("a", "b", "c")
    world.nodes["b"].worker("mail")
    world.samples(6)
    reader = world.watch("a")
    assert reader.latest["totals"]["workers"] == {"idle": 1}
    world.freeze("b")
    world.run(3.5)
    world.beat("a")
    shown = reader.latest
    assert (shown["unanswered"], [each["name"] for each in shown["brokers"]]) == (["b"], ["a", "c"])
    assert (shown["totals"]["workers"], shown["services"][0]["brokers"]) == ({}, [])
    world.samples(6)
    world.beat("a")
    assert reader.latest["unanswered"] == []
    left = [(each["text"], each["brokers"]) for each in reader.latest["changes"] if each["kind"] == "broker left"]
    assert left == [("broker b left the cluster", ["a", "c"])]


def test_without_nats_the_snapshot_goes_on_and_names_all_others() -> None:
    world = Dashboards("a", "b", "c")
    world.nodes["a"].worker("mail")
    world.samples(1)
    reader = world.watch("a")
    world.cut("a")
    world.samples(8)
    world.beat("a")
    shown = reader.latest
    assert (shown["unanswered"], shown["totals"]["workers"]) == (["b", "c"], {"idle": 1})
    assert "Not heard: b, c." in next(each["text"] for each in shown["attention"] if each["kind"] == "broker silent")
    assert world.watch("a").latest["unanswered"] == ["b", "c"], "a new reader does not wait for them"
    world.heal("a")
    world.run(5.0)
    world.beat("a")
    assert reader.latest["unanswered"] == []


def test_an_error_in_a_dashboard_does_not_lose_the_job_in_the_same_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Dashboards("a", "b")
    world.nodes["b"].worker("s", capacity=2)
    world.run()
    reader = world.watch("a")

    def broken(*_: object) -> object:
        raise RuntimeError("a fault of the dashboard")

    for name in ("show", "received"):
        with monkeypatch.context() as context:
            context.setattr(Dashboard, name, broken)
            world.dashboards["a"].look(world.now)
            assert world.run_call("a").worker.name == "b"
    assert len(world.nodes["b"].broker.jobs) == 2
    world.run(4.0)
    world.beat("a")
    assert reader.latest["unanswered"] == []


# -------------------------------------------------------------------- pages


def test_a_service_page_has_the_workers_of_all_brokers() -> None:
    world = Dashboards("a", "b")
    world.nodes["b"].worker("s")
    world.nodes["b"].worker("s")
    world.samples(1)
    page = world.watch("a", "service/s").latest["page"]
    assert (page["service"]["workers"], page["service"]["brokers"]) == (2, ["b"])
    assert page["says"] == "2 of 2 workers are free. No jobs arrive."
    assert world.watch("a", "service/none").latest["page"] is None


def test_callers_and_reasons_of_a_service_are_those_of_the_brokers_that_own_the_jobs() -> None:
    """The broker whose worker ran a job counted it as one of the caller `cluster`, and its reason a second time."""
    world = Dashboards("a", "b")
    copy = taken(world, "a", "b")
    assert copy.attempt is not None
    world.nodes["b"].broker.fail(copy.attempt, "no", world.now)
    world.samples(1)
    for name in "ab":
        page = world.watch(name, "service/s").latest["page"]
        assert page["callers"] == {"test": 1}
        assert [(each["reason"], each["count"]) for each in page["reasons"]] == [("no", 1)]


def test_a_job_page_and_a_worker_page_are_those_of_the_broker_that_has_them() -> None:
    world = Dashboards("a", "b")
    id = world.nodes["b"].enqueue()
    reader = world.watch("a", f"job/{id}")
    page = reader.latest["page"]
    assert (page["job"]["id"], page["job"]["broker"], page["why"]["kind"]) == (id, "b", "no worker")
    assert page["ladder"]["messages"], "its messages are those of its broker"
    worker = world.nodes["b"].worker("s")
    world.run()
    world.beat("a")
    assert reader.latest["page"]["job"]["state"] == "running"
    page = world.watch("a", f"worker/{worker.id}").latest["page"]
    assert (page["worker"]["broker"], page["worker"]["running"]) == ("b", [id])
    assert worker.conversation is not None, "it is recorded while the page is open at the other broker"


def test_the_copy_of_a_job_at_another_broker_is_not_shown_as_the_job() -> None:
    world = Dashboards("a", "b")
    world.nodes["b"].worker("s")
    world.run()
    id = world.nodes["a"].enqueue()
    world.run()
    assert world.nodes["b"].has(id), "it runs here"
    for name in "ab":
        page = world.watch(name, f"job/{id}").latest["page"]
        assert (page["job"]["broker"], page["job"]["background"]) == ("a", True)


# -------------------------------------------------------------------- histories


def test_an_overview_and_the_series_of_a_service_have_the_sums_of_all_brokers() -> None:
    world = Dashboards("a", "b")
    for name in "ab":
        world.nodes[name].worker("s")
        for _ in range(3):
            world.nodes[name].call(waits=True)
    world.samples(3)
    view = world.nodes["a"].ask("overview")
    assert view.unanswered == []
    assert (view.totals.running, view.totals.waiting) == (2, 4)
    assert [each.name for each in view.brokers] == ["a", "b"]
    assert (view.series.total.waiting[-1], view.series.total.running[-1]) == (4.0, 2.0)
    assert len(view.series.services["s"].done) == len(view.series.total.done) == 150
    assert {tuple(each.brokers) for each in view.series.marks} == {("a",), ("b",)}
    series = world.nodes["b"].ask("service series", name="s")
    assert (series.waiting[-1], series.running[-1], series.unanswered) == (4.0, 2.0, [])
    world.freeze("b")
    assert world.nodes["a"].ask("overview").unanswered == ["b"]


def test_the_steps_of_brokers_whose_wall_clocks_differ_are_added() -> None:
    for ahead in (-0.9, 0.9, 30.0):
        world = Dashboards("a", "b", b=ahead)
        for name in "ab":
            world.nodes[name].call(service=name, waits=True)
        world.samples(20)
        total = world.nodes["a"].ask("overview").series.total
        assert total.waiting[-3:] == [2.0] * 3, ahead


def test_the_series_of_a_service_that_one_broker_knows_is_found_at_all() -> None:
    world = Dashboards("a", "b")
    world.nodes["b"].call(service="only", waits=True)
    world.samples(2)
    series = world.nodes["a"].ask("service series", name="only")
    assert series.step == 2.0
    error = world.nodes["a"].ask("service series", name="none")
    assert error.kind == "not found"
