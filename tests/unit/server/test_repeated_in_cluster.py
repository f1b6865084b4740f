"""Requests that are repeated in a cluster: at another broker, after a kill, while a shard moves (R239)."""

from __future__ import annotations

import pytest
from shard_operations_world import ShardNode, ShardWorld

from dragoman.core.remembered import CLIENT
from dragoman.operations.group_schemas import BatchJob

ONE = "1" * 32


def numbered(number: int, age: float | None = None) -> str:
    text = f"{ONE}/{number}/1/1700000000000"
    return text if age is None else f"{text}/{age:.3f}"


def two() -> tuple[ShardWorld, ShardNode, ShardNode]:
    world = ShardWorld("a", "b")
    return world, world.nodes["a"], world.nodes["b"]


def finish(world: ShardWorld, count: int) -> None:
    """Let workers run jobs until all are forgotten."""
    before = len(world.ran)
    nodes = list(world.nodes.values())
    workers = [node.worker() for node in nodes]
    world.work_until(lambda: len(world.ran) - before >= count)
    world.work_until(lambda: not any(each.broker.jobs for each in nodes))
    assert len(world.ran) - before == count
    for node, worker in zip(nodes, workers, strict=True):
        node.broker.leave(worker, world.now, "bye")
    world.run(1.0)


def test_any_broker_returns_the_job_of_a_repeated_request() -> None:
    """The job with `keep=0` has ended and is forgotten: its repetition at another broker has run again."""
    world, a, b = two()
    first = {number: a.enqueue(keep=0.0, request_id=numbered(number)) for number in range(1, 13)}
    assert len({id[-2:] for id in first.values()}) > 2, "the requests of one client are in many shards"
    finish(world, 12)
    for node in (b, a):
        assert {number: node.enqueue(keep=0.0, request_id=numbered(number, 1.0)) for number in first} == first
    assert not a.broker.jobs
    assert not b.broker.jobs


def test_what_is_remembered_moves_with_its_shard() -> None:
    world, a, b = two()
    first = {number: a.enqueue(keep=0.0, request_id=numbered(number)) for number in range(1, 13)}
    finish(world, 12)
    world.freeze("a")
    world.wait_for_owners_of(b)
    world.run(1.0)
    assert {number: b.enqueue(keep=0.0, request_id=numbered(number, 1.0)) for number in first} == first
    assert not b.broker.jobs
    assert len(world.notes(CLIENT)) <= 4, "one value for each shard"


def test_request_that_is_not_in_the_log_is_new_at_the_next_owner() -> None:
    """The broker dies before its commit: neither the job nor its request is there."""
    world, a, b = two()
    shards = a.owned()
    for shard in shards:
        world.block(shard)
    answers = {number: a.begin("enqueue", b"x", service="s", request_id=numbered(number)) for number in range(1, 9)}
    world.run(1.0)
    open = [number for number, each in answers.items() if not each.responses]
    assert open
    world.freeze("a")
    for shard in shards:
        world.unblock(shard)
    world.wait_for_owners_of(b)
    world.run(1.0)
    for number in open:
        assert b.job(b.enqueue(request_id=numbered(number, 5.0))).payload == b"x"


@pytest.mark.parametrize("has_key", [False, True])
def test_two_brokers_that_receive_a_request_make_one_job(has_key: bool) -> None:
    world, a, b = two()
    key = {"key": "k"} if has_key else {}
    answers = [each.begin("enqueue", b"x", service="s", request_id=numbered(1), **key) for each in (a, b)]
    world.run_until(lambda: all(each.responses for each in answers))
    assert answers[0].responses[0].id == answers[1].responses[0].id
    assert sum(len(each.broker.jobs) for each in (a, b)) == 1


def test_batch_is_accepted_once_in_the_cluster() -> None:
    world, a, b = two()
    jobs = (BatchJob(payload="x"), BatchJob(payload="y"))
    first = a.ask("enqueue many", service="s", jobs=jobs, keep=0.0, request_id=numbered(1))
    finish(world, 2)
    again = b.ask("enqueue many", service="s", jobs=jobs, keep=0.0, request_id=numbered(1, 1.0))
    assert again.jobs == first.jobs
    other = b.ask("enqueue many", service="s", jobs=jobs[:1], keep=0.0, request_id=numbered(1, 1.0))
    assert other.kind == "conflict"
    assert not a.broker.jobs
    assert not b.broker.jobs


def test_acts_are_carried_out_once_in_the_cluster() -> None:
    _, a, b = two()
    a.ask("set schedule", name="n", service="s", every=3600.0, overlap=True)
    first = a.ask("run schedule", name="n", request_id=numbered(1))
    assert b.ask("run schedule", name="n", request_id=numbered(1, 1.0)).last_job == first.last_job
    assert a.ask("delete schedule", name="n", request_id=numbered(2)).name == "n"
    assert b.ask("delete schedule", name="n", request_id=numbered(2, 1.0)).name == "n"
    a.ask("cancel", id=first.last_job)
    assert a.ask("delete", id=first.last_job, request_id=numbered(3)).id == first.last_job
    assert b.ask("delete", id=first.last_job, request_id=numbered(3, 1.0)).id == first.last_job
    for _ in range(3):
        a.enqueue()
        b.enqueue()
    assert a.ask("purge", name="s", request_id=numbered(4)).purged == 6
    b.enqueue()
    assert b.ask("purge", name="s", request_id=numbered(4, 1.0)).purged == 6
