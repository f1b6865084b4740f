"""Limits of services: the operation, the store, and the sentences about them (R182 to R185)."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.core.broker import Broker
from dragoman.core.limit_values import LimitValues, Rate
from dragoman.core.policy import Policy
from dragoman.operations.limits import restore_limits, store_limits
from dragoman.operations.schemas import LimitsView
from dragoman.testing.entropy import SeededEntropy

from .world import World

BY_OPERATOR = "set by an operator"


@pytest.fixture
def world() -> World:
    return World()


def restarted(notes: dict[str, str]) -> tuple[Broker, list[str]]:
    broker = Broker(Policy(), SeededEntropy())
    return broker, restore_limits(broker, notes, 0.0)


# ---------------------------------------------------------------- the operation


def test_limits_are_set_shown_and_stored(world: World) -> None:
    view = world.ask("limit", name="s", max_running=4, rate="100/min")
    authors = {"max_running": BY_OPERATOR, "rate": BY_OPERATOR}
    assert view.limits == LimitsView(max_running=4, rate="100/min", authors=authors)
    assert msgspec.json.decode(world.store.notes["limits/s"]) == {
        "by": "an operator",
        "max_running": 4,
        "rate": "100/min",
    }
    assert world.ask("service", name="s").limits == view.limits
    (row,) = world.ask("services").services
    assert row.limits == view.limits


def test_what_is_not_given_stays(world: World) -> None:
    world.ask("limit", name="s", max_running=4)
    view = world.ask("limit", name="s", max_running_per_tenant=2)
    assert (view.limits.max_running, view.limits.max_running_per_tenant, view.limits.rate) == (4, 2, None)
    assert world.ask("limit", name="s").limits == view.limits


def test_reset_removes_what_operators_have_set_and_no_limit_is_a_value(world: World) -> None:
    """R183."""
    worker = world.worker(capacity=9)
    world.broker.limiter.declare(worker, {"s": LimitValues(2, None, Rate(5))}, world.now)
    view = world.ask("limit", name="s", max_running=0, rate="none")
    assert view.limits is None
    assert msgspec.json.decode(world.store.notes["limits/s"]) == {"by": "an operator", "max_running": 0, "rate": "none"}
    view = world.ask("limit", name="s", rate="7/s", reset=True)
    assert (view.limits.max_running, view.limits.rate) == (2, "7/s")
    assert view.limits.authors == {"max_running": "declared by its workers", "rate": BY_OPERATOR}
    view = world.ask("limit", name="s", reset=True)
    assert view.limits.rate == "5/s"
    assert world.store.notes == {}


def test_limit_holds_when_it_is_answered(world: World) -> None:
    world.worker(capacity=9)
    jobs = [world.enqueue() for _ in range(3)]
    assert world.ask("limit", name="s", max_running=1).running == 3
    for name in jobs:
        world.broker.succeed(world.attempt(name), b"", world.now)
    assert [world.job(world.enqueue()).state.value for _ in range(2)] == ["running", "waiting"]


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"name": "s", "rate": "5/x"}, "rate '5/x' is not a rate; write a number from 1 to 1000000 and a unit"),
        ({"name": "s", "rate": "0/s"}, "rate '0/s' is out of range; write a number from 1 to 1000000 and a unit"),
        ({"name": "ü" * 100, "max_running": 1}, "1 to 128 bytes of visible text are allowed"),
    ],
)
def test_limits_that_cannot_be_set_change_nothing(world: World, fields: dict[str, object], detail: str) -> None:
    problem = world.ask("limit", **fields)
    assert problem.kind == "invalid"
    assert detail in problem.detail
    assert (world.store.notes, world.broker.worker_registry.services) == ({}, {})


def test_one_name_too_many_is_busy() -> None:
    world = World(max_services=1)
    world.worker("taken")
    assert world.ask("limit", name="s", max_running=1).kind == "busy"


def test_author_is_the_principal_unless_it_is_local(world: World) -> None:
    """R151."""
    world.act_as("ops")
    world.owner.principal.rights = world.broker.principals.local.rights
    assert world.ask("limit", name="s", max_running=1).limits.authors == {"max_running": "set by ops"}


# ---------------------------------------------------------------- the store


def test_limits_are_the_same_after_a_restart() -> None:
    broker = Broker(Policy(), SeededEntropy())
    values = {
        "a": LimitValues(4, 2, Rate(100, "min")),
        "b": LimitValues(0, None, None),
        "c/d": LimitValues(None, None, Rate(0)),
        "e": LimitValues(),
    }
    notes: dict[str, str] = {}
    for name, each in values.items():
        service = broker.limiter.set_by_operator(name, each, "ada", 0.0)
        assert service is not None
        store_limits(service, lambda key, value: notes.update({key: value}) if value else None)  # type: ignore[dict-item]
    again, unread = restarted(notes)
    assert unread == []
    for name, each in values.items():
        found = again.worker_registry.services.get(name)
        limits = found.limits if found is not None else None
        assert (limits.by_operator if limits is not None else LimitValues()) == each, name
    assert again.worker_registry.services["a"].limits.operator == "ada"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "{}", '{"by": "ada", "rate": "5/d"}', '{"by": "ada", "max_running": "x"}'])
def test_limits_that_cannot_be_read_are_named(text: str) -> None:
    broker, unread = restarted({"limits/s": text, "pause/s": "ada"})
    assert unread == ["s"]
    assert broker.worker_registry.services == {}


# ---------------------------------------------------------------- why


def test_why_names_the_limit_of_the_service(world: World) -> None:
    world.worker(capacity=9)
    world.ask("limit", name="s", max_running=1)
    world.enqueue()
    view = world.ask("why", id=world.enqueue())
    assert view.why == "It waits: 's' runs 1 job, the maximum (max_running, set by an operator)."
    assert (view.kind, view.ahead) == ("service max_running", 0)


def test_why_tells_when_the_rate_allows_the_next(world: World) -> None:
    world.worker(capacity=9)
    world.ask("limit", name="s", rate="100/min")
    world.enqueue()
    job = world.enqueue()
    world.now += 0.1
    view = world.ask("why", id=job)
    assert view.why == "It waits: 's' has the rate 100/min: the next starts in 0.4 s (set by an operator)."
    assert view.kind == "rate"


def test_why_names_the_tenant(world: World) -> None:
    world.worker(capacity=9)
    world.ask("limit", name="s", max_running_per_tenant=2)
    jobs = {tenant: [world.enqueue(tenant=tenant) for _ in range(3)] for tenant in ("acme", None)}
    assert world.ask("why", id=jobs["acme"][2]).why == (
        "It waits: tenant acme runs 2 jobs, the maximum (max_running_per_tenant, set by an operator)."
    )
    view = world.ask("why", id=jobs[None][2])
    assert view.why == (
        "It waits: jobs without a tenant count as one, which runs 2 jobs, the maximum (max_running_per_tenant, set by "
        "an operator)."
    )
    assert view.kind == "max_running_per_tenant"


def test_why_tells_that_jobs_are_being_read(world: World) -> None:
    world.worker(capacity=9)
    world.broker.job_registry.is_loading = True
    world.ask("limit", name="s", max_running=1)
    view = world.ask("why", id=world.enqueue())
    assert view.kind == "loading"
    assert view.why == ("It waits: jobs of the last run are still being read, and some of 's' may run (max_running).")


# ---------------------------------------------------------------- tenants


def test_view_of_a_job_has_its_tenant(world: World) -> None:
    assert world.ask("job", id=world.enqueue(tenant="acme")).tenant == "acme"
    assert world.ask("job", id=world.enqueue()).tenant is None


def test_tenant_of_too_many_bytes_is_invalid(world: World) -> None:
    for operation, fields in {"enqueue": {}, "set schedule": {"name": "n", "every": 60.0}}.items():
        problem = world.ask(operation, b"", service="s", tenant="ü" * 65, **fields)  # type: ignore[arg-type]
        assert problem.kind == "invalid", operation
        assert "1 to 128 bytes of visible text are allowed" in problem.detail


def test_runs_of_a_schedule_have_its_tenant(world: World) -> None:
    world.ask("set schedule", b"x", name="n", service="s", every=60.0, tenant="acme")
    world.wait(61.0)
    (job,) = world.broker.jobs.values()
    assert job.tenant == "acme"
