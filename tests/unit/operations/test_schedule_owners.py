"""Owners of schedules: runs belong to the principal that set the schedule, and need its right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.core.owners import Owner
from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.operations.schemas import OperationError
from dragoman.operations.table import OPERATIONS

from .two_clocks import DAY, HOUR
from .two_clocks import World as Clocks
from .world import RecordingResponder, World

WEB = (Rights(call=("s",)), PrincipalLimits())


def ask_as(world: World, principal: str, operation: str, **fields: Any) -> Any:
    """Call an operation as this principal. Returns its view or error."""
    responder = RecordingResponder(Owner(world.broker.principals.named(principal)))
    world.operations.ask(operation, OPERATIONS[operation].request(**fields), b"", responder, world.now)
    world.runner.run_once()
    world.runner.run_once()
    return responder.responses[0]


# ---------------------------------------------------------------- owners


def test_jobs_of_runs_belong_to_the_principal_that_set_the_schedule(world: World) -> None:
    """R143."""
    world.broker.principals.apply({"web": WEB})
    assert ask_as(world, "web", "set schedule", name="a", service="s", every=10.0).owner == "web"
    assert ask_as(world, "local", "set schedule", name="b", service="s", every=10.0).owner == "local"
    world.wait(10.0)
    owners = {job.id.hex(): job.principal.name for job in world.broker.jobs.values()}
    views = world.ask("schedules").schedules
    assert [(view.owner, owners[view.last_job]) for view in views] == [("web", "web"), ("local", "local")]


def test_owner_comes_back_after_a_restart() -> None:
    """R143: also while the schedule is paused, and with the state of a run."""
    clocks = Clocks()
    clocks.put("running", "web")
    clocks.put("paused", "web", paused=True)
    clocks.put("plain")
    clocks.advance(HOUR)
    clocks.crash()
    assert [(view.name, view.owner) for view in clocks.scheduler.list()] == [
        ("paused", "web"),
        ("plain", "local"),
        ("running", "web"),
    ]
    clocks.owners.clear()
    clocks.finish_all()
    clocks.advance(HOUR)
    assert sorted(clocks.owners) == ["local", "web"]


def test_schedule_of_a_store_without_owners_is_local() -> None:
    """R143: stores before format 5."""
    clocks = Clocks()
    clocks.put()
    state = json.loads(clocks.notes["cron/report"])
    del state["owner"], state["paused_reason"]
    clocks.notes["cron/report"] = json.dumps(state)
    clocks.crash()
    assert clocks.scheduler.get("report").owner == "local"
    clocks.advance(HOUR)
    assert clocks.owners == ["local"]


def test_schedule_that_another_principal_sets_again_keeps_its_owner() -> None:
    """R143: no run is made twice."""
    clocks = Clocks()
    clocks.put(owner="web", overlap=True)
    clocks.advance(HOUR)
    assert clocks.put(owner="batch", overlap=True).owner == "web"
    clocks.tick()
    assert clocks.owners == ["web"]
    clocks.advance(HOUR)
    assert clocks.owners == ["web", "web"]
    assert clocks.moments() == ["2024-05-15T13:00:00", "2024-05-15T14:00:00"]


def test_pause_and_resume_by_another_principal_keep_the_owner(world: World) -> None:
    world.broker.principals.apply({"web": WEB})
    ask_as(world, "web", "set schedule", name="n", service="s", every=10.0)
    assert ask_as(world, "local", "pause schedule", name="n").owner == "web"
    assert ask_as(world, "local", "resume schedule", name="n").owner == "web"


# ---------------------------------------------------------------- rights


def test_schedule_is_paused_when_its_owner_may_no_longer_call() -> None:
    """R144: the run is not made, and the view has the reason."""
    clocks = Clocks()
    clocks.put(owner="web")
    clocks.put("other")
    clocks.powerless.add("web")
    assert not clocks.scheduler.get("report").paused  # until its next run is due
    clocks.advance(DAY)
    view = clocks.scheduler.get("report")
    assert (view.paused, view.paused_reason, view.next, view.runs) == (True, "web may not call 's'", None, 0)
    assert (clocks.paused, {*clocks.owners}) == ([("report", "web may not call 's'")], {"local"})
    clocks.crash()
    view = clocks.scheduler.get("report")
    assert (view.paused, view.paused_reason, view.owner) == (True, "web may not call 's'", "web")
    clocks.advance(DAY)
    assert {*clocks.owners} == {"local"}


def test_run_that_was_refused_is_not_made_after_the_right_is_gone() -> None:
    """R144: a run that is tried again each second is no exception."""
    clocks = Clocks()
    clocks.put(owner="web")
    clocks.is_open = False
    clocks.advance(HOUR + 5.0)
    clocks.powerless.add("web")
    clocks.is_open = True
    clocks.advance(5.0)
    assert (clocks.owners, clocks.scheduler.get("report").paused) == ([], True)
    assert clocks.tick() == float("inf")


def test_paused_schedule_is_resumed_when_its_owner_has_the_right_again() -> None:
    """R144: missed runs are not made."""
    clocks = Clocks()
    clocks.put(owner="web")
    clocks.powerless.add("web")
    clocks.advance(DAY)
    with pytest.raises(OperationError) as caught:
        clocks.scheduler.resume("report", clocks.now, clocks.wall)
    assert caught.value.problem.kind == "forbidden"
    assert caught.value.problem.detail == (
        "schedule \"report\" belongs to web, and web may not call 's'; give it the right `call` over 's', or delete "
        "the schedule and set it anew"
    )
    assert clocks.scheduler.get("report").paused
    clocks.powerless.clear()
    view = clocks.scheduler.resume("report", clocks.now, clocks.wall)
    assert (view.paused, view.paused_reason) == (False, "")
    clocks.advance(HOUR)
    assert clocks.moments() == ["2024-05-16T13:00:00"]


def test_paused_schedule_continues_when_its_owner_has_the_right_and_it_is_set_again() -> None:
    """R144."""
    clocks = Clocks()
    clocks.put(owner="web")
    clocks.powerless.add("web")
    clocks.advance(HOUR)
    with pytest.raises(OperationError, match="give it the right"):
        clocks.put(owner="batch")
    clocks.powerless.clear()
    view = clocks.put(owner="batch")
    assert (view.paused, view.paused_reason, view.owner) == (False, "", "web")
    clocks.advance(HOUR)
    assert clocks.owners == ["web"]


def test_schedule_is_not_set_without_the_right() -> None:
    """R144: an existing one stays as it is."""
    clocks = Clocks()
    clocks.put(payload="before")
    clocks.powerless.add("web")
    with pytest.raises(OperationError, match="web may not call 's'") as caught:
        clocks.put("new", "web")
    assert caught.value.problem.kind == "forbidden"
    assert [(view.name, view.owner) for view in clocks.scheduler.list()] == [("report", "local")]
    clocks.advance(HOUR)
    assert clocks.owners == ["local"]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"web": (Rights(call=("other",)), PrincipalLimits())}, "web may not call 's'"),
        ({}, "web may not call 's': it is not in the access table"),
    ],
)
def test_reason_names_the_cause(world: World, table: dict[str, Any], reason: str) -> None:
    """R144: a right that was taken away, or a principal that was removed."""
    world.broker.principals.apply({"web": WEB})
    ask_as(world, "web", "set schedule", name="n", service="s", every=10.0)
    world.broker.principals.apply(table)
    world.wait(10.0)
    view = world.ask("schedule", name="n")
    assert (world.broker.jobs, view.paused, view.paused_reason) == ({}, True, reason)
    assert json.loads(world.store.notes["cron/n"])["paused_reason"] == reason
    assert world.ask("resume schedule", name="n").kind == "forbidden"


def test_schedule_whose_payload_exceeds_the_limit_of_its_principal_is_not_set(world: World) -> None:
    """R165: no run of it would ever be accepted."""
    world.broker.principals.apply({"web": (Rights(call=("s",)), PrincipalLimits(max_payload=10))})
    refused = ask_as(world, "web", "set schedule", name="a", service="s", every=10.0, payload="x" * 11)
    assert (refused.kind, "max_payload" in refused.detail, "of web" in refused.detail) == ("too large", True, True)
    assert ask_as(world, "web", "set schedule", name="a", service="s", every=10.0, payload="x" * 10).owner == "web"
