"""The operation `enqueue many`: batches of jobs, all of them or none (R193)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.packed_jobs import NO_ID, pack_jobs
from dragoman.core.results_payload import unpack_results
from dragoman.core.rights import ALL_RIGHTS, PrincipalLimits, Rights
from dragoman.core.states import JobState, Outcome
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView

from .world import UNKNOWN, World

A, B, C = "a" * 32, "b" * 32, "c" * 32


def many(world: World, *jobs: BatchJob, **fields: Any) -> list[str]:
    view = world.ask("enqueue many", **{"service": "s", "jobs": jobs, **fields})
    assert not isinstance(view, ErrorView), view
    names: list[str] = view.jobs
    return names


def refused(world: World, *jobs: BatchJob, **fields: Any) -> tuple[str, str]:
    view = world.ask("enqueue many", **{"service": "s", "jobs": jobs, **fields})
    assert isinstance(view, ErrorView), view
    assert world.broker.jobs == {}
    assert world.broker.job_registry.present == 0
    return view.kind, view.detail


def test_jobs_are_accepted_in_their_order_and_answered_after_one_commit(world: World) -> None:
    world.store.is_slow = True
    responder = world.begin("enqueue many", service="s", jobs=tuple(BatchJob(payload=each) for each in "xyz"))
    assert responder.responses == []
    assert len(world.store.held) == 1
    world.store.write()
    world.runner.run_once()
    (view,) = responder.responses
    jobs = [world.job(name) for name in view.jobs]
    assert [job.payload for job in jobs] == [b"x", b"y", b"z"]
    assert [job.number for job in jobs] == sorted(job.number for job in jobs)
    assert view.group is None


def test_fields_of_a_job_replace_those_of_the_batch(world: World) -> None:
    names = many(
        world,
        BatchJob(),
        BatchJob(service="t", priority=9, timeout=None, delay=5.0, payload_base64="AP8="),
        attempts=7,
        priority=1,
    )
    first, second = map(world.job, names)
    assert (first.service.name, first.options.priority, first.options.attempts) == ("s", 1, 7)
    assert (second.service.name, second.options.priority, second.options.attempts) == ("t", 9, 7)
    assert (second.state, second.options.job_timeout, second.payload) == (JobState.DELAYED, float("inf"), b"\x00\xff")


def test_jobs_may_be_beside_the_request(world: World) -> None:
    chosen = bytes.fromhex(A)
    packed = pack_jobs([(NO_ID, b"", b"one"), (chosen, b'{"priority":9}', b"two")])
    view = world.ask("enqueue many", packed, service="s")
    first, second = map(world.job, view.jobs)
    assert (first.payload, second.payload, second.options.priority, view.jobs[1]) == (b"one", b"two", 9, A)


def test_links_of_a_batch_are_bounded_before_they_are_read() -> None:
    """R216. A bug: a batch of 9,000 jobs with 810,000 links held up healthy calls for a second. A link to an unknown
    job would be refused as *not found* if it was read."""
    world = World(max_links_per_batch=5)
    names = many(world, BatchJob(), BatchJob(after=(0,)), BatchJob(after=(0, 1)), BatchJob(after=(0, 1)))
    assert world.broker.job_registry.links.links == 5
    jobs = (BatchJob(after=(UNKNOWN, 1)), BatchJob(after=(UNKNOWN,)), BatchJob(after=(0, 1, UNKNOWN)))
    packed = pack_jobs([(NO_ID, f'{{"after":{[UNKNOWN] * 2}}}'.replace("'", '"').encode(), b"")] * 3)
    for view in (world.ask("enqueue many", service="s", jobs=jobs), world.ask("enqueue many", packed, service="s")):
        detail = "its jobs come after other jobs in 6 cases, of at most 5 (max_links_per_batch); let jobs come after a "
        assert (view.kind, view.detail) == (
            "invalid",
            f"{detail}group, which counts as one, or send several batches",
        )
    assert len(world.broker.jobs) == len(names)


def test_jobs_come_after_each_other_by_index_and_by_id(world: World) -> None:
    names = many(
        world,
        BatchJob(service="last", after=(1, B), input="results"),
        BatchJob(payload="one"),
        BatchJob(payload="two", id=B, after=(C,)),
        BatchJob(payload="zero", id=C),
    )
    states = [world.job(name).state for name in names]
    assert states == [JobState.DEPENDENT, JobState.WAITING, JobState.DEPENDENT, JobState.WAITING]
    worker = world.worker(capacity=3)
    while worker.running:
        for attempt in list(worker.running.values()):
            world.broker.succeed(attempt, attempt.job.payload + b"!", world.now)
            world.runner.run_once()
    assert unpack_results(world.job(names[0]).payload) == (b"", [b"one!", b"two!"])
    assert [world.job(name).number for name in names] == [4, 1, 3, 2], "each is stored behind those before it"


CIRCLES = [
    ((BatchJob(after=(0,)),), "the jobs with the indexes 0 come"),
    ((BatchJob(after=(1,)), BatchJob(after=(0,))), "the jobs with the indexes 0, 1 come"),
    (
        (BatchJob(), BatchJob(id=A, after=(3,)), BatchJob(after=(A,)), BatchJob(after=(2,))),
        "the jobs with the indexes 1, 3, 2 come",
    ),
    ((BatchJob(group=A, after=(A,)),), "the jobs with the indexes 0 come"),
    ((BatchJob(group=A, after=(1,)), BatchJob(after=(A,))), "the jobs with the indexes 0, 1 come"),
]


@pytest.mark.parametrize(("jobs", "detail"), CIRCLES)
def test_circle_is_refused(world: World, jobs: tuple[BatchJob, ...], detail: str) -> None:
    kind, found = refused(world, *jobs)
    assert (kind, found) == ("invalid", f"{detail} after each other, in a circle: none could ever start")


REFUSED: list[tuple[tuple[BatchJob, ...], dict[str, Any], str, str]] = [
    ((), {}, "invalid", "the batch has no jobs; at least one is needed"),
    ((BatchJob(),), {"service": None}, "invalid", "jobs[0]: it names no service, and neither does the batch"),
    ((BatchJob(), BatchJob(after=(UNKNOWN,))), {}, "not found", f"jobs[1]: after: no job or group has id {UNKNOWN}"),
    ((BatchJob(after=(1,)),), {}, "invalid", "jobs[0]: after: index 1, but the batch has 1 jobs"),
    ((BatchJob(input="results"),), {}, "invalid", "jobs[0]: input=results needs jobs whose results it takes"),
    ((BatchJob(id=A), BatchJob(id=A)), {}, "invalid", "two jobs of the batch have the same id"),
    ((BatchJob(payload="a", payload_base64="AA=="),), {}, "invalid", "jobs[0]: the request has two payloads"),
    ((BatchJob(), BatchJob(key="k", payload="a"), BatchJob(key="k", payload="b")), {}, "key reused", "jobs[2]: 'k'"),
    ((BatchJob(group=A),), {"group": True}, "invalid", "jobs name groups of their own"),
    ((BatchJob(service="a\x00b"),), {}, "invalid", "jobs[0]: a service name is"),
]


def test_batch_that_makes_no_sense_is_refused_and_names_the_job(world: World) -> None:
    for jobs, fields, kind, detail in REFUSED:
        found, text = refused(world, *jobs, **fields)
        assert found == kind, text
        assert text.startswith(detail), text


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (b"x", "the payload ends within the length of a job"),
        (NO_ID + b"\0\0\0\x05abcde\0\0\0\x09xx", "the payload ends within job 0"),
        (NO_ID + b"\0\1\0\1" + b"x" * 65_541, "job 0 has more than 65536 bytes of fields"),
    ],
)
def test_bytes_that_are_no_jobs_are_refused(world: World, packed: bytes, problem: str) -> None:
    error = world.ask("enqueue many", packed, service="s")
    assert error.kind == "invalid"
    assert problem in error.detail


def test_fields_beside_the_request_are_checked(world: World) -> None:
    error = world.ask("enqueue many", pack_jobs([(NO_ID, b'{"priority":10}', b"")]), service="s")
    assert (error.kind, error.detail) == ("invalid", "jobs[0]: priority: must be at most 9")
    error = world.ask("enqueue many", pack_jobs([(NO_ID, b'{"id":"x"}', b"")]), service="s")
    assert error.detail.startswith("jobs[0]: id: must")


LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"max_jobs": 2}, "max_jobs"),
    ({"max_jobs_per_service": 2}, "max_jobs_per_service"),
    ({"max_jobs_per_caller": 2}, "max_jobs_per_caller"),
    ({"max_bytes_per_service": 2}, "max_bytes_per_service"),
    ({"max_memory": 20}, "max_memory"),
]


@pytest.mark.parametrize(("policy", "limit"), LIMITS)
def test_batch_over_a_limit_is_refused_as_a_whole(policy: dict[str, int], limit: str) -> None:
    world = World(**policy)
    world.broker.principals.named("web").rights = ALL_RIGHTS
    world.act_as("web")
    size = 7 if limit == "max_memory" else 1
    kind, detail = refused(world, *[BatchJob(payload="x" * size, key=key) for key in "klm"])
    assert kind == "busy"
    assert limit in detail
    assert detail.startswith("jobs[2]")
    assert len(many(world, BatchJob(payload="x", key="k"), BatchJob(payload="x", key="l"))) == 2


def test_limits_of_a_principal_apply_to_the_whole_batch(world: World) -> None:
    principal = world.broker.principals.named("web")
    principal.rights = ALL_RIGHTS
    principal.limit(PrincipalLimits(max_waiting=2, max_rate=2.0, max_payload=5))
    world.act_as("web")
    kind, detail = refused(world, BatchJob(), BatchJob(payload="too large"))
    assert (kind, detail.startswith("jobs[1]: payload"), "max_payload" in detail) == ("too large", True, True)
    assert refused(world, BatchJob(), BatchJob(), BatchJob())[0] == "busy"
    assert len(many(world, BatchJob(), BatchJob())) == 2  # what was refused does not count for the rate


def test_right_to_every_service_is_needed(world: World) -> None:
    world.broker.principals.named("web").rights = Rights(call=("s",))
    world.act_as("web")
    assert refused(world, BatchJob(), BatchJob(service="t")) == ("forbidden", "jobs[1]: web may not call 't'")
    assert list(world.broker.counters.rights_refused.values()) == [1]


def test_batch_with_new_services_makes_none_of_them_be_forgotten() -> None:
    """A wide run found it: to make the second service, the first was forgotten, because it had no jobs yet."""
    world = World(max_services=5)
    for name in ("p", "q"):
        world.broker.operator.pause(name)
    names = many(world, BatchJob(service="a"), BatchJob(service="b"))
    assert [world.job(name).service.name for name in names] == ["a", "b"]
    error = world.ask("enqueue many", jobs=(BatchJob(service="c"), BatchJob(service="d")))
    assert (error.kind, "max_services" in error.detail) == ("busy", True)


def test_repeated_batch_returns_the_same_jobs(world: World) -> None:
    """Its response was lost, and the client has sent it again."""
    batch = (BatchJob(id=A), BatchJob(id=B, after=(A,)))
    assert many(world, *batch) == many(world, *batch) == [A, B]
    assert len(world.broker.jobs) == 2
    error = world.ask("enqueue many", service="s", jobs=(BatchJob(id=B), BatchJob(id=C)))
    assert (error.kind, error.detail) == ("invalid", f"jobs[0]: a job with id {B} already exists")


def test_ids_of_others_are_in_use(world: World) -> None:
    many(world, BatchJob(id=A))
    world.broker.principals.named("web").rights = ALL_RIGHTS
    world.act_as("web")
    assert world.ask("enqueue many", service="s", jobs=(BatchJob(id=A),)).kind == "invalid"


def test_key_that_is_in_use_returns_the_first_job(world: World) -> None:
    first = world.enqueue(body=b"p", key="k")
    names = many(world, BatchJob(payload="p", key="k"), BatchJob(payload="q", key="l"), BatchJob(payload="q", key="l"))
    assert names[0] == first
    assert names[1] == names[2]
    assert len(world.broker.jobs) == 2


def test_store_that_cannot_write_refuses_all_of_them(world: World) -> None:
    world.store.problem = "the disk is full"
    kind, detail = refused(world, BatchJob(group=A), BatchJob(group=A), BatchJob(after=(A,)))
    assert (kind, detail) == ("store unavailable", "the disk is full; none of the 3 jobs was enqueued")
    assert world.broker.job_registry.groups.by_id == {}
    assert world.store.notes == {}
    assert world.broker.job_registry.links.links == 0


def test_batch_waits_while_jobs_are_loaded(world: World) -> None:
    world.broker.job_registry.is_loading = True
    assert refused(world, BatchJob())[0] == "loading"


def test_batch_is_refused_while_the_broker_drains(world: World) -> None:
    world.broker.operator.close(world.now)
    assert refused(world, BatchJob())[0] == "draining"


def test_job_of_a_batch_ends_as_any_other(world: World) -> None:
    world.worker()
    (name,) = many(world, BatchJob(attempts=1))
    world.broker.fail(world.attempt(name), "no", world.now)
    world.runner.run_once()
    assert (world.job(name).outcome, world.job(name).quarantined) == (Outcome.FAILED, True)
    assert world.ask("job", id=name).caller.dialect == "test"
