"""R201. Jobs starve if every slot that could run them runs a job that waits for such jobs."""

from __future__ import annotations

from collections.abc import Callable

from case_tables import check_every_row
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Job, JobId
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.core.starvation import starved

from .world import Caller, CheckedBroker, caller_of


class Nested(CheckedBroker):
    """A broker whose jobs may have parents."""

    def child(self, parent: Job | bytes, service: str = "s", caller: Caller | None = None, **options: object) -> Job:
        """A job that the handler of `parent` has submitted and waits for."""
        id = parent.id if isinstance(parent, Job) else JobId(parent)
        job_options = JobOptions(waits=True, **options)  # type: ignore[arg-type]
        job = self.submit(service, b"", caller or Caller(), job_options, 0.0, extras=JobExtras(parent=id))
        assert isinstance(job, Job)
        return job

    def starving(self) -> dict[str, tuple[int, list[str]]]:
        """Services that starve, with their slots and the services that these wait for."""
        workers = self.worker_registry
        found = starved(workers.services.values(), workers.workers.values(), self.job_registry.with_extras)
        return {each.service.name: (each.slots, [one.name for one in each.services]) for each in found}


def in_the_only_slot(broker: Nested) -> None:
    broker.worker("s")
    broker.child(broker.call())


def in_all_slots_of_all_workers(broker: Nested) -> None:
    broker.worker("s", capacity=2)
    broker.worker("s", "other")
    for parent in [broker.call() for _ in range(3)]:
        broker.child(parent)


def by_way_of_another_service(broker: Nested) -> None:
    """Jobs of `a` call `b`, jobs of `b` call `a`, and each has a worker of its own."""
    broker.worker("a")
    broker.worker("b")
    first, second = broker.call(service="a"), broker.call(service="b")
    broker.child(first, "b")
    broker.child(second, "a")


def by_a_child_that_runs(broker: Nested) -> None:
    """`a` calls `b`, which runs and calls `a`."""
    broker.worker("a")
    broker.worker("b")
    broker.child(broker.child(broker.call(service="a"), "b"), "a")


def by_a_background_job_whose_result_is_awaited(broker: Nested) -> None:
    broker.worker("s")
    child = broker.child(broker.call(), durable=True)
    broker.save_all()
    broker.job_registry.kept.attend(child, Caller())


def beside_a_worker_that_is_drained(broker: Nested) -> None:
    broker.availability.drain(broker.worker("s"), 0.0, stays=True)
    broker.worker("s")
    broker.child(broker.call())


def the_child_runs(broker: Nested) -> None:
    broker.worker("s", capacity=2)
    broker.child(broker.call())


def one_slot_runs_an_ordinary_job(broker: Nested) -> None:
    broker.worker("s", capacity=2)
    parent = broker.call()
    broker.call()
    broker.child(parent)


def another_service_is_not_starved(broker: Nested) -> None:
    """The child waits for a service whose worker runs a job that waits for nobody."""
    broker.worker("s")
    broker.worker("other")
    broker.call(service="other")
    broker.child(broker.call(), "other")
    broker.call()


def nobody_waits_for_the_child(broker: Nested) -> None:
    """A background job: its parent goes on."""
    broker.worker("s")
    child = broker.child(broker.call(), durable=True)
    broker.save_all()
    broker.caller_gone(child.callers[0], 0.0)
    assert child.callers == ()


def the_service_is_paused(broker: Nested) -> None:
    broker.worker("s")
    broker.child(broker.call())
    broker.operator.pause("s")


def no_worker_offers_the_service(broker: Nested) -> None:
    broker.worker("s")
    broker.child(broker.call(), "nobody")


def a_worker_may_come_back(broker: Nested) -> None:
    worker = broker.worker("s")
    broker.child(broker.call())
    broker.availability.detach(worker, 0.0)


def a_slot_is_kept_by_an_ended_attempt(broker: Nested) -> None:
    """It becomes free when the worker proves that it has stopped."""
    broker.worker("s", capacity=2)
    parent, ended = broker.call(), broker.call(job_timeout=1.0)
    broker.child(parent)
    broker.take()
    broker.tick(1.0)
    assert ended.outcome is not None


def the_parent_is_unknown(broker: Nested) -> None:
    broker.worker("s")
    broker.call()
    broker.child(bytes(16))


def the_parent_is_forged(broker: Nested) -> None:
    """A principal that may call the service, and sees no job of others, names their running job as parent."""
    broker.principals.apply({"thief": (Rights(call=("s",)), NO_LIMITS)})
    broker.worker("s")
    broker.child(broker.call(), caller=caller_of(broker.principals.named("thief")))


def parents_form_a_circle(broker: Nested) -> None:
    """Two running jobs that name each other: clients choose ids, so a caller can do that."""
    broker.worker("s", capacity=2)
    one, two = JobId(b"1" * 16), JobId(b"2" * 16)
    for id, parent in ((one, two), (two, one)):
        broker.submit("s", b"", Caller(), JobOptions(), 0.0, id=id, extras=JobExtras(parent=parent))
    broker.call()


CASES: list[tuple[Callable[[Nested], None], dict[str, tuple[int, list[str]]]]] = [
    (in_the_only_slot, {"s": (1, ["s"])}),
    (in_all_slots_of_all_workers, {"s": (3, ["s"])}),
    (by_way_of_another_service, {"a": (1, ["b"]), "b": (1, ["a"])}),
    (by_a_child_that_runs, {"a": (1, ["a"])}),
    (by_a_background_job_whose_result_is_awaited, {"s": (1, ["s"])}),
    (beside_a_worker_that_is_drained, {"s": (1, ["s"])}),
    (the_child_runs, {}),
    (one_slot_runs_an_ordinary_job, {}),
    (another_service_is_not_starved, {}),
    (nobody_waits_for_the_child, {}),
    (the_service_is_paused, {}),
    (no_worker_offers_the_service, {}),
    (a_worker_may_come_back, {}),
    (a_slot_is_kept_by_an_ended_attempt, {}),
    (the_parent_is_unknown, {}),
    (the_parent_is_forged, {}),
    (parents_form_a_circle, {}),
]


def test_starvation_is_found_where_every_slot_waits_and_nowhere_else() -> None:
    def check(situation: Callable[[Nested], None], expected: dict[str, tuple[int, list[str]]]) -> None:
        broker = Nested()
        situation(broker)
        assert broker.starving() == expected

    check_every_row(check, CASES)


def test_owner_of_the_worker_may_submit_children_of_the_jobs_that_it_runs() -> None:
    """A handler submits with the key of its worker, which may see no job of the callers."""
    broker = Nested()
    rights = Rights(call=("s",), work=("s",))
    broker.principals.apply({"pool": (rights, NO_LIMITS)})
    pool = broker.principals.named("pool")
    worker = broker.worker("s")
    worker.owner = Owner(pool, "its connection")
    broker.child(broker.call(), caller=caller_of(pool))
    assert broker.starving() == {"s": (1, ["s"])}


def test_search_gives_up_if_there_are_too_many_children() -> None:
    broker = Nested(max_jobs=100_000, max_jobs_per_caller=100_000, max_jobs_per_service=100_000)
    plain = broker.plain
    broker.worker("s")
    parent, caller = broker.call(), Caller()
    for _ in range(20_001):
        extras = JobExtras(parent=parent.id)
        assert plain.submit("s", b"", caller, JobOptions(waits=True), 0.0, extras=extras) is not None
    assert broker.starving() == {}
