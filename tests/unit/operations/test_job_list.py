"""The list of jobs: the filters that look at a limited number of jobs, and slices."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations import job_list, slices
from dragoman.operations.list_schemas import JobsView

from .world import World


class CallerSide(Recipient):
    dialect = "pingpong"


class ListWorld(World):
    def list(self, **request: Any) -> JobsView:
        view = self.ask("jobs", **request)
        assert isinstance(view, JobsView), view
        return view

    def ids(self, **request: Any) -> list[str]:
        return [each.id for each in self.list(**request).jobs]

    def call(self, service: str = "s") -> str:
        caller = Caller(CallerSide(), self.owner)
        job = self.broker.submit(service, b"x", caller, JobOptions(waits=True), self.now)
        assert job is not None
        return job.id.hex()


@pytest.fixture
def world() -> ListWorld:
    return ListWorld()


def test_calls_and_background_jobs(world: ListWorld) -> None:
    world.worker("other")
    background = world.enqueue(key="invoice-42")
    call = world.call()
    assert world.ids(kind="call") == [call]
    assert world.ids(kind="background") == [background]
    assert world.ids(caller="pingpong") == [call]
    assert world.ids(caller="native") == []


def test_jobs_of_a_worker(world: ListWorld) -> None:
    worker = world.worker(name="seven")
    failed = world.enqueue(attempts=2, retry_first=100.0)
    world.broker.fail(world.attempt(failed), "no luck", world.now)
    running = world.enqueue()
    world.enqueue()
    assert world.ids(worker="seven") == [running, failed]
    assert world.ids(worker=str(worker.id)) == [running, failed]
    assert world.ids(worker="eight") == []


def test_text_is_looked_for_in_id_key_worker_and_reason(world: ListWorld) -> None:
    world.worker(name="seven")
    failed = world.enqueue(attempts=1, key="Invoice-42")
    world.broker.fail(world.attempt(failed), "Out of memory", world.now)
    world.runner.run_once()
    running = world.enqueue()
    waiting = world.enqueue()
    assert world.ids(text="invoice") == [failed]
    assert world.ids(text="MEMORY") == [failed]
    assert world.ids(text="seven") == [running, failed]
    assert world.ids(text=waiting[:12]) == [waiting]
    assert world.ids(text=waiting[1:12]) == []
    assert world.ids(undone=True) == [failed]


def test_a_key_is_found_by_those_who_may_read_it(world: ListWorld) -> None:
    """R147"""
    world.broker.principals.apply(
        {"viewer": (Rights(see=("s",)), NO_LIMITS), "ops": (Rights(administer=("s",)), NO_LIMITS)}
    )
    name = world.enqueue(key="invoice-42")
    world.act_as("viewer")
    assert world.ids(text="invoice") == []
    assert world.ids(text=name[:8]) == [name]
    world.act_as("ops")
    assert world.ids(text="invoice") == [name]


def test_a_search_looks_at_a_limited_number_and_can_be_continued(
    world: ListWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_list, "MOST_SEARCHED", 10)
    oldest = world.enqueue(key="needle")
    jobs = [world.enqueue() for _ in range(25)]
    view = world.list(text="needle")
    assert (view.jobs, view.searched, view.complete, view.after) == ([], 10, False, jobs[15])
    view = world.list(text="needle", after=view.after)
    view = world.list(text="needle", after=view.after)
    assert ([each.id for each in view.jobs], view.searched, view.complete, view.after) == ([oldest], 6, True, None)
    assert world.ids(state="waiting", limit=100) == [*reversed(jobs), oldest], "other filters look at all jobs"


def test_jobs_of_others_are_not_counted_as_searched(world: ListWorld) -> None:
    world.broker.principals.apply({"viewer": (Rights(see=("s",)), NO_LIMITS)})
    world.enqueue("secret")
    name = world.enqueue("s")
    world.act_as("viewer")
    view = world.list(text=name)
    assert (len(view.jobs), view.searched, view.complete) == (1, 1, True)


def test_a_long_list_takes_several_iterations(world: ListWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.0)
    monkeypatch.setattr(slices, "CHUNK", 4)
    first = world.enqueue("first")
    for _ in range(30):
        world.enqueue()
    responder = world.begin("jobs", service="first")
    assert responder.responses == []
    world.enqueue()  # jobs may be added between two slices
    for _ in range(10):
        world.runner.run_once()
    (view,) = responder.responses
    assert [each.id for each in view.jobs] == [first]
    assert view.complete


def test_counts_by_state(world: ListWorld) -> None:
    world.worker("s")
    world.enqueue("s")
    world.enqueue("s")
    world.enqueue("s", delay=10.0)
    world.enqueue("t")
    counts = world.ask("job counts")
    assert (counts.waiting, counts.delayed, counts.running) == (2, 1, 1)
    counts = world.ask("job counts", service="s")
    assert (counts.waiting, counts.delayed, counts.running) == (1, 1, 1)


def test_counts_of_all_services_need_see_over_all(world: ListWorld) -> None:
    world.broker.principals.apply({"viewer": (Rights(see=("s",)), NO_LIMITS)})
    world.act_as("viewer")
    assert world.ask("job counts").kind == "forbidden"
    assert world.ask("job counts", service="s").waiting == 0


def test_the_list_of_a_state_ends_with_the_last_job_in_that_state(world: ListWorld) -> None:
    """Older jobs are not looked at: the number of jobs in each state is known."""
    world.worker("s")
    running = world.enqueue("s")
    delayed = world.enqueue("t", delay=10.0)
    for _ in range(5):
        world.enqueue("t")
    for state, names in (("running", [running]), ("delayed", [delayed]), ("ended", [])):
        view = world.list(state=state)
        assert ([each.id for each in view.jobs], view.complete) == (names, True)
    assert world.list(state="delayed").searched == 6
    assert world.list(state="ended").searched == 0
    assert world.list(state="running", after=delayed).jobs[0].id == running
    assert world.list(state="delayed", after=delayed).jobs == []
