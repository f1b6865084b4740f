"""Snapshots: for readers with all rights and with few, encoded once, with the part of their page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dragoman.core.options import JobOptions
from dragoman.dashboard.pages import Page, page_of
from dragoman.dashboard.snapshot import Snapshots
from dragoman.operations.schemas import OperationError
from scraped import attempt_of

from .world import World


def busy_world() -> World:
    """A world with a running job of `mail`, a waiting one of `ocr` without a worker, and the sentence about it."""
    world = World()
    world.worker("mail", dialect="native")
    world.job("mail", JobOptions(waits=True, durable=False))
    world.job("ocr")
    world.samples(4)
    return world


def test_a_snapshot_has_totals_services_attention_and_changes() -> None:
    world = busy_world()
    reader = world.watch()
    snapshot = reader.latest
    totals, broker = snapshot["totals"], snapshot["broker"]
    assert {name: totals[name] for name in ("waiting", "delayed", "running", "slots", "present", "kept")} == {
        "waiting": 1,
        "delayed": 0,
        "running": 1,
        "slots": 1,
        "present": 2,
        "kept": 0,
    }
    assert totals["workers"] == {"busy": 1}
    assert totals["undone"] == dict.fromkeys(("failed", "timed out", "lost", "cancelled", "refused"), 0.0)
    assert broker["resident"] > 1_000_000
    assert 0.0 <= broker["dashboard"] <= 1.0
    assert [each["name"] for each in snapshot["services"]] == ["ocr", "mail"]
    assert snapshot["services"][1]["dialects"] == ["native"]
    assert [each["kind"] for each in snapshot["attention"]] == ["no worker"]
    assert [each["kind"] for each in snapshot["changes"]] == ["workers joined", "broker started"]
    assert (snapshot["ready"], snapshot["problems"], snapshot["page"]) == (True, [], {})
    assert snapshot["at"].startswith("1970-01-12T14:03:28")  # by the wall clock


def test_without_a_cluster_no_broker_is_named() -> None:
    world = busy_world()
    local = world.broker.principals.local
    texts = [
        world.watch().received[-1],
        world.watch("service/mail").received[-1],
        msgspec.json.encode(world.dashboard.overview("5m", local, world.now)),
        msgspec.json.encode(world.dashboard.series("mail", "5m", local, world.now)),
    ]
    for text in texts:
        for name in (b'"brokers"', b'"unanswered"', b'"states"', b'"here"'):
            assert name not in text


def test_each_snapshot_has_the_next_number_and_the_instance_of_the_broker() -> None:
    world = World()
    reader = world.watch()
    for _ in range(2):
        world.publish()
    shown = [json.loads(each) for each in reader.received]
    assert [each["seq"] for each in shown] == [1, 2, 3]
    assert len({each["instance"] for each in shown}) == 1
    assert World().watch().latest["instance"] != shown[0]["instance"]


def test_a_principal_sees_its_services_only() -> None:
    world = busy_world()
    viewer = world.principal("viewer", see=("mail",))
    shown = world.watch(principal=viewer).latest
    assert (shown["totals"], shown["broker"], shown["flow"], shown["problems"]) == (None, None, [], [])
    assert [each["name"] for each in shown["services"]] == ["mail"]
    assert shown["attention"] == []
    assert [each["kind"] for each in shown["changes"]] == ["workers joined"]
    nobody = world.watch(principal=world.principal("nobody")).latest
    assert (nobody["services"], nobody["changes"], nobody["attention"]) == ([], [], [])


def test_rights_that_change_apply_to_the_next_snapshot() -> None:
    world = busy_world()
    viewer = world.principal("viewer", see=("mail",))
    reader = world.watch(principal=viewer)
    world.principal("viewer", see=("ocr",))
    world.publish()
    assert [each["name"] for each in reader.latest["services"]] == ["ocr"]


def test_a_series_of_a_principal_has_its_services_and_marks_only() -> None:
    world = busy_world()
    world.finish(next(job for job in world.broker.jobs.values() if job.attempt is not None))
    world.sample(2.0)
    viewer = world.principal("viewer", see=("ocr",))
    series = world.dashboard.overview("5m", viewer, world.now).series
    assert (series.total, list(series.services), series.marks) == (None, ["ocr"], [])
    series = world.dashboard.overview("5m", world.broker.principals.local, world.now).series
    assert list(series.services) == ["ocr", "mail"]
    assert [each.text for each in series.marks] == ["the broker started", "1 worker of 'mail' joined"]
    assert series.total is not None
    assert series.total.waiting[-1] == 1.0


def test_a_snapshot_is_made_once_for_all_readers_with_the_same_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    world = busy_world()
    made: list[Any] = []
    make = Snapshots.view

    def count(self: Snapshots, principal: Any, now: float, service: str | None = None) -> Any:
        made.append((principal.name, service))
        return make(self, principal, now, service)

    monkeypatch.setattr(Snapshots, "view", count)
    viewers = [world.principal(name, see=("mail",)) for name in ("ann", "bob")]
    readers = [world.watch() for _ in range(3)] + [world.watch(principal=each) for each in viewers]
    assert made == [("local", None), ("ann", None)]
    made.clear()
    world.publish()
    assert made == [("local", None), ("ann", None)]
    assert {len(each.received) for each in readers} == {2}
    assert readers[0].received == readers[1].received


def test_a_reader_that_comes_after_a_while_gets_a_new_snapshot() -> None:
    """It got the last one that had been made for another reader."""
    world = World()
    world.dashboard.leave(world.watch())
    world.worker("s")
    world.samples(3)
    assert [each["name"] for each in world.watch().latest["services"]] == ["s"]


def test_readers_that_left_get_no_more() -> None:
    world = World()
    reader = world.watch()
    world.dashboard.leave(reader)
    world.publish()
    assert len(reader.received) == 1


# -------------------------------------------------------------------- pages


def test_a_service_page_has_its_row_and_its_sentence() -> None:
    shown = busy_world().watch("service/mail").latest
    assert [each["name"] for each in shown["services"]] == ["mail"]
    assert shown["page"]["service"] == shown["services"][0]
    assert shown["page"]["says"] == "Its only worker is busy. 0.12 jobs/s arrive, 0 are done; no job waits."


def test_a_service_page_has_its_callers_and_the_reasons_of_jobs_that_were_not_done() -> None:
    world = World()
    world.broker.job_registry.conversations.start()
    world.worker("ocr")
    for page in (7, 11):
        job = world.job("ocr", JobOptions(waits=True, attempts=1))
        world.broker.fail(attempt_of(job), f"page {page} is empty", world.now)
    world.sample(2.0)
    page = world.watch("service/ocr").latest["page"]
    assert page["callers"] == {"native": 2}
    assert page["reasons"] == [
        {
            "outcome": "failed",
            "reason": "page … is empty",
            "count": 2,
            "last": page["reasons"][0]["last"],
            "job": job.id.hex(),
        }
    ]
    caller = world.principal("caller", call=("ocr",))
    assert "callers" not in world.watch("service/ocr", caller).latest["page"], "other callers' jobs need `see`"
    viewer = world.principal("viewer", see=("ocr",))
    assert world.watch("service/ocr", viewer).latest["page"]["callers"] == {"native": 2}


def test_a_job_page_has_the_job_and_its_why() -> None:
    world = busy_world()
    job = world.job("ocr", JobOptions(waits=True, attempts=2))
    page = world.watch(f"job/{job.id.hex()}").latest["page"]
    assert (page["job"]["id"], page["job"]["state"]) == (job.id.hex(), "waiting")
    assert page["why"] == {
        "id": job.id.hex(),
        "why": "It waits: no worker offers 'ocr'.",
        "kind": "no worker",
        "ahead": 1,
        "turn_in": None,
        "about": {"service": "ocr", "worker": None},
        "earlier": "",
        "more": "",
    }


def test_a_worker_page_has_the_worker() -> None:
    world = busy_world()
    (worker,) = world.broker.worker_registry.workers.values()
    page = world.watch(f"worker/{worker.id}").latest["page"]
    (job,) = [each for each in world.broker.jobs.values() if each.attempt is not None]
    assert (page["worker"]["id"], page["worker"]["running"]) == (worker.id, [job.id.hex()])
    assert attempt_of(job).worker is worker


def test_pages_of_jobs_and_workers_have_their_messages() -> None:
    world = busy_world()
    assert "ladder" not in world.watch(f"job/{world.job('ocr').id.hex()}").latest["page"], "nothing is recorded"
    world.broker.job_registry.conversations.start()
    job = world.job("ocr")
    ladder = world.watch(f"job/{job.id.hex()}").latest["page"]["ladder"]
    assert [each["note"] for each in ladder["messages"]] == ["waits in the queue"]
    (worker,) = world.broker.worker_registry.workers.values()
    assert world.watch(f"worker/{worker.id}").latest["page"]["ladder"]["messages"] == []
    assert worker.conversation is not None, "it is recorded while the page is open"


def test_a_page_about_nothing_or_something_hidden_is_null() -> None:
    world = busy_world()
    viewer = world.principal("viewer", see=("ocr",))
    (worker,) = world.broker.worker_registry.workers.values()
    (job,) = [each for each in world.broker.jobs.values() if each.attempt is not None]
    for page in ("service/mail", f"worker/{worker.id}", f"job/{job.id.hex()}"):
        assert world.watch(page, viewer).latest["page"] is None
        assert world.watch(page).latest["page"] is not None
    for page in ("service/none", "worker/99999", "job/" + "0" * 32):
        assert world.watch(page).latest["page"] is None


def test_a_hostile_name_stays_text() -> None:
    world = World()
    name = '<img src=x onerror="alert(1)">/"\\'
    world.worker(name)
    world.sample(2.0)
    assert world.watch(f"service/{name}").latest["page"]["service"]["name"] == name


def test_pages_have_names() -> None:
    assert page_of("overview") == Page("overview")
    assert page_of("service/a/b").service == "a/b"
    for text in ("", "jobs", "service/", "worker/x", "worker/-1", "job/12", "overview/x"):
        with pytest.raises(ValueError, match=r"unknown page .*; pages are overview, workers, service/NAME"):
            page_of(text)


def test_a_series_of_an_unknown_service_is_an_error() -> None:
    with pytest.raises(OperationError, match="no service is called 'none'"):
        World().dashboard.series("none", "5m", World().broker.principals.local, 1_000.0)


# -------------------------------------------------------------------- dialects, pauses, quarantine


def test_flow_has_the_pairs_of_dialects_that_exchange_jobs() -> None:
    world = World()
    world.worker("s", dialect="memodb")
    for _ in range(6):
        world.finish(world.job("s"))
    world.samples(2)
    ((caller, worker, rate, added),) = world.snapshot().flow
    assert (caller, worker, rate, added) == ("native", "memodb", 1.5, 0.0)
    world.samples(7)
    assert world.snapshot().flow == []


def test_flow_has_no_jobs_of_an_earlier_run() -> None:
    """The dialects of their callers are not stored: they were a pair with an empty name."""
    world = World()
    world.worker("s", dialect="memodb")
    job = world.job("s")
    job.caller_dialect = ""
    world.finish(job)
    world.samples(2)
    assert list(world.broker.counters.flow) == [("", "memodb")]
    assert world.snapshot().flow == []


def test_a_pause_has_its_time() -> None:
    world = World()
    world.worker("s")
    world.broker.operator.pause("s", "ops", world.now)
    world.job("s")
    world.samples(6)
    assert world.row("s").paused_at is not None
    assert world.attention() == {"paused": "1 job of 's' waits: the service has been paused for 12 s by ops."}


def test_new_jobs_in_quarantine_are_a_change_and_need_attention() -> None:
    world = World()
    world.worker("s")
    for _ in range(2):
        world.fail(world.job("s", JobOptions(waits=True, durable=True, attempts=1)))
    world.samples(4)
    assert world.snapshot().totals.quarantined == 2
    assert world.attention()["quarantined"] == "2 jobs of 's' went into quarantine in the last 10 minutes."
    assert next(iter(world.dashboard.changes.latest(1))).text == "2 jobs of 's' went into quarantine"
    world.sources.quarantine.sample(world.now, False)
    assert [each.count for each in world.sources.quarantine.recent(world.now + 590.0)] == [2]
    assert world.sources.quarantine.recent(world.now + 610.0) == []


def test_services_that_a_sentence_names_come_first() -> None:
    """They were behind those whose jobs wait for a moment."""
    world = World()
    world.worker("s")
    world.fail(world.job("s", JobOptions(waits=True, durable=True, attempts=1)))
    world.samples(8)
    world.worker("busy")
    for _ in range(2):
        world.job("busy")
    world.sample(2.0)
    assert [each.name for each in world.sources.sampler.first] == ["busy", "s"]
    assert list(world.attention()) == ["quarantined"]
    assert [each.name for each in world.snapshot().services] == ["s", "busy"]


def test_quarantined_jobs_of_an_earlier_run_are_no_news() -> None:
    world = World()
    world.worker("s")
    world.broker.job_registry.is_loading = True
    world.broker.job_registry.kept.counts.total.quarantined = 5
    world.sample(2.0)
    world.broker.job_registry.is_loading = False
    world.sample(2.0)
    assert world.sources.quarantine.recent(world.now) == []


# -------------------------------------------------------------------- slices


def test_work_is_done_in_slices_and_its_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs pass between two slices of at most 5 ms."""
    world = World()
    clock = [0.0]
    pauses: list[float] = []

    def steps() -> Iterator[None]:
        for _ in range(10):
            clock[0] += 0.002
            yield

    async def sleep(seconds: float) -> None:
        pauses.append(clock[0])
        clock[0] += 1.0  # other work of the event loop

    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(f"dragoman.dashboard.dashboard.{name}", lambda: clock[0])
    monkeypatch.setattr("dragoman.dashboard.dashboard.asyncio.sleep", sleep)
    before = world.sources.load.spent
    asyncio.run(world.dashboard._in_slices(steps()))
    assert len(pauses) == 3
    assert world.sources.load.spent - before == pytest.approx(0.02)
