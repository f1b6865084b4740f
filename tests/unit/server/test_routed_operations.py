"""Operations in a cluster with shards: each is executed by the broker that the table names, wherever it is asked."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import Node, ShardTable, World, may

from case_tables import check_every_row
from dragoman.cluster.ranks import shard_of_key
from dragoman.core.model import Caller, JobId
from dragoman.core.options import JobOptions
from dragoman.core.packed_jobs import pack_jobs
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView
from dragoman.operations.table import OPERATIONS
from dragoman.server.cluster_gathering import ANSWER_TIME
from dragoman.server.cluster_router import PATIENCE
from owners import LOCAL_OWNER

UNKNOWN = "01" * 15


def shards() -> World:
    """Shard 0 is at a, shard 1 at b."""
    return World("a", "b", table=ShardTable("a", "b"))


def key_in(shard: int) -> str:
    return next(key for key in map(str, range(99)) if shard_of_key("local", "s", key, 2) == shard)


def quarantined(world: World, node: Node) -> str:
    node.worker("s")
    id = node.enqueue(attempts=1)
    node.broker.fail(node.attempt(id), "poison", world.now)
    world.run()
    return id


def error(view: Any) -> tuple[str, str]:
    assert isinstance(view, ErrorView), view
    return view.kind, view.detail


# -------------------------------------------------------------------- one job


def ask_about_a_job(operation: str, state: str, check: Any) -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    id = quarantined(world, b) if state == "quarantined" else b.enqueue(body=b"payload")
    assert id.endswith("01")
    view = a.ask(operation, **{OPERATIONS[operation].request.__struct_fields__[0]: id})
    assert not isinstance(view, ErrorView), view
    assert check(view, a, b, id), view
    assert not a.has(id)


JOB_OPERATIONS = [
    ("job", "waiting", lambda view, a, b, id: (view.id, view.state, view.broker) == (id, "waiting", "b")),
    ("payload", "waiting", lambda view, a, b, id: a.payload == b"payload"),
    ("result", "waiting", lambda view, a, b, id: view.state == "waiting"),
    ("why", "waiting", lambda view, a, b, id: view.kind == "no worker"),
    ("cancel", "waiting", lambda view, a, b, id: b.job(id).outcome == "cancelled"),
    ("ladder", "waiting", lambda view, a, b, id: view.job == id),
    ("retry", "quarantined", lambda view, a, b, id: b.job(id).retried_as.hex() == view.id),
    ("delete", "quarantined", lambda view, a, b, id: not b.has(id)),
]


def test_every_operation_about_a_job_is_executed_by_its_owner() -> None:
    assert {each[0] for each in JOB_OPERATIONS} == {
        name for name, row in OPERATIONS.items() if row.answered_by == "job owner"
    }
    check_every_row(ask_about_a_job, JOB_OPERATIONS)


def test_a_job_that_nobody_has_is_not_found() -> None:
    world = shards()
    assert error(world.nodes["a"].ask("job", id=UNKNOWN + "01"))[0] == "not found"
    assert error(world.nodes["a"].ask("job", id=UNKNOWN + "ff"))[0] == "not found"


def test_a_call_has_no_shard_and_is_found_at_its_broker() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    job = b.call(service="s", waits=True)
    assert job is not None
    view = a.ask("job", id=job.id.hex())
    assert (view.broker, view.background) == ("b", False)


def test_a_call_whose_id_names_a_shard_is_found_at_its_broker() -> None:
    """A client chose an id that names a shard of the broker which was asked, and that one had no such job."""
    world = World("a", "b", "c", table=ShardTable("a", "b", "c"))
    a, b, c = (world.nodes[name] for name in "abc")
    for number in range(3):
        id = JobId(bytes([number] * 16))
        caller = Caller(b.local, LOCAL_OWNER)
        b.broker.submit("s", b"x", caller, JobOptions(waits=True), world.now, id=id)
        for node in (a, b, c):
            assert node.ask("job", id=id.hex()).broker == "b"


def test_a_copy_at_the_broker_with_the_worker_does_not_answer() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    id = a.enqueue()
    world.run()
    assert a.job(id).state == b.job(id).state == "running"
    view = b.ask("job", id=id)
    assert (view.broker, view.background, view.attempts[0].worker) == ("a", True, "b")
    counts = b.ask("job counts")
    assert (counts.running, counts.unanswered) == (1, [])
    assert [each.id for each in b.ask("jobs").jobs] == [id]
    service = b.ask("service", name="s")
    assert (service.running, service.workers, service.brokers) == (1, 1, ["a", "b"])
    assert [each.broker for each in a.ask("workers").workers] == ["b"]
    b.ask("cancel", id=id)
    world.run()
    assert a.job(id).outcome == "cancelled"


def test_messages_of_an_ended_copy_do_not_answer_for_the_job() -> None:
    """The broker that ran a job for another one kept its messages, and took the job for its own."""
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    world.run()
    id = a.enqueue()
    world.run()
    b.broker.succeed(b.attempt(id), b"result", world.now)
    world.run()
    assert not b.has(id)
    view = b.ask("job", id=id)
    assert (view.broker, view.outcome) == ("a", "done")


# -------------------------------------------------------------------- new jobs


def test_one_broker_checks_a_key() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    key = key_in(1)
    first = a.enqueue(key=key)
    assert (b.has(first), a.has(first)) == (True, False)
    assert b.enqueue(key=key) == a.enqueue(key=key) == first
    assert error(a.ask("enqueue", b"other", service="s", key=key))[0] == "key reused"


def test_a_job_is_found_by_its_key_at_any_broker() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    key = key_in(1)
    first = a.enqueue(key=key)
    assert [node.ask("find job", service="s", key=key).id for node in (a, b)] == [first, first]
    assert error(a.ask("find job", service="s", key=key_in(0)))[0] == "not found"


def test_a_job_without_a_key_stays_at_a_broker_that_has_a_shard() -> None:
    world = World("a", "b", "c", table=ShardTable("a", "b"))
    assert world.nodes["b"].has(world.nodes["b"].enqueue())
    ids = [world.nodes["c"].enqueue() for _ in range(4)]
    assert not any(map(world.nodes["c"].has, ids))
    assert any(map(world.nodes["a"].has, ids))
    assert any(map(world.nodes["b"].has, ids))


def test_a_job_is_in_the_shard_of_those_that_it_comes_after() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    before = b.enqueue()
    after = a.enqueue(after=(before,), request_id="r")
    assert b.job(after).state == "dependent"


def test_a_job_that_came_after_others_runs_elsewhere() -> None:
    """The broker with the worker took it for a job that waits for others, and stopped (I23)."""
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    jobs = (BatchJob(), BatchJob(after=(0,), input="result"))
    before, after = b.ask("enqueue many", service="s", jobs=jobs, group=True).jobs
    a.worker("s")
    world.run_until(lambda: a.has(before))
    a.broker.succeed(a.attempt(before), b"input", world.now)
    world.run_until(lambda: a.has(after))
    assert a.job(after).payload == b"input"
    a.broker.succeed(a.attempt(after), b"done", world.now)
    world.run()
    assert a.ask("job", id=after).outcome == "done"


def test_a_batch_and_its_group_are_at_one_broker() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    ids = [bytes.fromhex(f"{number:02x}" * 15 + "01") for number in range(3)]
    packed = pack_jobs([(id, b"", b"x") for id in ids])
    group = "ab" * 15 + "01"
    view = a.ask("enqueue many", packed, service="s", group_id=group)
    assert view.jobs == [each.hex() for each in ids]
    assert all(map(b.has, view.jobs))
    assert a.ask("enqueue many", packed, service="s", group_id=group).jobs == view.jobs
    assert a.ask("group", id=group).open == 3
    assert a.ask("group results", id=group).size == 3
    assert [each.id for each in a.ask("jobs", group=group).jobs] == sorted(view.jobs, reverse=True)
    assert a.ask("cancel group", id=group).outcomes == {"cancelled": 3}
    several = (BatchJob(id=ids[0].hex()), BatchJob(id="00" * 16))
    assert error(a.ask("enqueue many", service="s", jobs=several))[0] == "invalid"
    assert a.has(a.ask("enqueue many", service="s", jobs=(BatchJob(),)).jobs[0])


def test_a_large_payload_is_cut_into_packets() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    body = bytes(3 << 20)
    id = a.enqueue(body=body, key=key_in(1))
    assert len(b.job(id).payload) == len(body)
    a.ask("payload", id=id)
    assert a.payload == body


# -------------------------------------------------------------------- shards without an owner, brokers that are gone


def test_an_operation_waits_until_the_shard_has_an_owner() -> None:
    world = shards()
    table = world.table
    assert table is not None
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.enqueue()
    table.owners[1] = ""
    asked = a.begin("job", id=id)
    world.run(PATIENCE / 2)
    assert asked.responses == []
    table.owners[1] = "b"
    world.run_until(lambda: asked.responses)
    assert asked.responses[0].broker == "b"
    table.owners[1] = ""
    kind, detail = error(a.ask("job", id=id))
    assert kind == "partitioned"
    assert detail == ("the operation belongs to shard 1, and no broker has it at the moment; retry in a few seconds")


def test_a_broker_that_lost_the_shard_passes_the_operation_back() -> None:
    world = shards()
    table = world.table
    assert table is not None
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.enqueue()
    table.reading.append(1)
    asked = a.begin("cancel", id=id)
    world.run(0.5)
    assert asked.responses == []
    table.reading.clear()
    world.run_until(lambda: asked.responses)
    assert b.job(id).outcome == "cancelled"


def test_without_nats_operations_of_others_are_refused_at_once() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.enqueue()
    world.cut("a")
    (problem,) = a.begin("job", id=id).responses
    assert error(problem) == (
        "partitioned",
        "the operation belongs to shard 1 (of broker b), and NATS is not reached; retry in a few seconds",
    )
    listed = a.ask("jobs")
    assert (listed.jobs, listed.unanswered) == ([], ["b"])
    world.heal("a")
    world.run(2.0)
    assert a.ask("job", id=id).broker == "b"


def test_a_write_whose_broker_dies_is_not_repeated() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.enqueue()
    world.freeze("b")
    asked = a.begin("cancel", id=id)
    world.run_until(lambda: asked.responses, 2 * ANSWER_TIME)
    kind, detail = error(asked.responses[0])
    assert kind == "partitioned"
    assert "it may have executed the operation" in detail


def test_a_broker_that_was_frozen_asks_again() -> None:
    """The other broker had dropped the link, and ignored what came on it: no question was ever answered."""
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    id = a.enqueue()
    assert b.ask("job", id=id).broker == "a"
    frozen = world.freeze("b")
    world.run(11.0)
    assert "b" not in a.side.peers
    world.nodes["b"] = frozen
    for peer in b.side.peers.values():
        peer.heard = world.now  # it heard the others again before it noticed the time
    assert b.ask("job", id=id).broker == "a"


def test_a_key_makes_a_repetition_safe() -> None:
    world = World("a", "b", "c", table=ShardTable("a", "b"))
    table = world.table
    assert table is not None
    a = world.nodes["a"]
    world.freeze("b")
    asked = a.begin("enqueue", b"x", service="s", key=key_in(1))
    world.run(5.0)
    table.owners[1] = "c"
    assert asked.responses == []
    world.run_until(lambda: asked.responses, 2 * ANSWER_TIME)
    kind, _ = error(asked.responses[0])
    assert kind == "partitioned"  # its time was over; the client sends it again
    assert world.nodes["c"].has(a.enqueue(key=key_in(1)))


# -------------------------------------------------------------------- waiting


def test_a_result_is_awaited_at_the_other_broker() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    id = b.enqueue()
    asked = a.begin("result", id=id, wait=60.0)
    world.run(20.0)
    assert asked.responses == []
    b.broker.succeed(b.attempt(id), b"result", world.now)
    world.run_until(lambda: asked.responses)
    assert (asked.responses[0].outcome, asked.payload) == ("done", b"result")


def test_a_client_that_leaves_is_forgotten_at_both_brokers() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.enqueue()
    asked = a.begin("result", id=id, wait=60.0)
    world.run()
    assert (len(a.side.questions), len(b.side.questions), len(b.job(id).callers)) == (1, 1, 1)
    assert asked.pending is not None
    a.operations.leave(asked.pending, world.now)
    world.run()
    assert (len(a.side.questions), len(b.side.questions), len(b.job(id).callers)) == (0, 0, 0)
    assert asked.responses == []


def test_a_wait_goes_on_at_the_next_owner() -> None:
    world = World("a", "b", "c", table=ShardTable("a", "b"))
    table = world.table
    assert table is not None
    a, b, c = world.nodes["a"], world.nodes["b"], world.nodes["c"]
    id = b.enqueue()
    asked = a.begin("result", id=id, wait=120.0)
    world.run()
    world.freeze("b")
    table.owners[1] = ""
    world.run(15.0)
    c.adopt(b.job(id))
    table.owners[1] = "c"
    c.worker("s")
    world.run(1.0)
    c.broker.succeed(c.attempt(id), b"late", world.now)
    world.run_until(lambda: asked.responses)
    assert asked.payload == b"late"


@pytest.mark.parametrize("asked_at", ["a", "b"])
def test_a_wait_follows_a_job_whose_shard_moves(asked_at: str) -> None:
    world = shards()
    table = world.table
    assert table is not None
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.enqueue()
    asked = world.nodes[asked_at].begin("result", id=id, wait=60.0)
    world.run()
    job = b.job(id)
    table.owners[1] = ""
    b.broker.eviction.evict([job], (), lambda _: None, world.now)
    world.run(5.0)
    assert asked.responses == []
    a.adopt(job)
    table.owners[1] = "a"
    a.worker("s")
    world.run(1.0)
    a.broker.succeed(a.attempt(id), b"moved", world.now)
    world.run_until(lambda: asked.responses)
    assert (asked.responses[0].broker, asked.payload) == ("a", b"moved")


# -------------------------------------------------------------------- rights


def test_both_brokers_check_rights() -> None:
    access = {"web": may(call=("s",), see=("s",)), "ops": may(administer=("s",))}
    world = World("a", "b", table=ShardTable("a", "b"), access=access)
    a, b = world.nodes["a"], world.nodes["b"]
    mine = a.ask("enqueue", b"x", principal="web", service="s", key=next(iter(keys_of("web", 1)))).id
    assert b.job(mine).owner.principal.name == "web"
    assert b.job(mine).owner.address == "10.0.0.1"
    assert a.ask("job", principal="web", id=mine).key is not None
    assert error(a.ask("enqueue", b"x", principal="web", service="secret", key="1"))[0] == "forbidden"
    assert error(a.ask("cancel", principal="stranger", id=mine))[0] == "not found"  # it may not even know of the job
    assert a.ask("jobs", principal="stranger").jobs == []
    b.broker.principals.apply({})  # the other broker has another table
    assert (
        error(a.ask("enqueue", b"x", principal="web", service="s", key=next(iter(keys_of("web", 1)))))[0] == "forbidden"
    )


def keys_of(principal: str, shard: int) -> list[str]:
    return [key for key in map(str, range(99)) if shard_of_key(principal, "s", key, 2) == shard]


# -------------------------------------------------------------------- shard 0, workers, lists


def test_schedules_pauses_and_limits_are_at_the_owner_of_shard_0() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    assert b.ask("set schedule", name="nightly", service="s", every=3600.0).broker == "a"
    assert a.store.notes
    assert not b.store.notes
    for operation in ("schedule", "pause schedule", "resume schedule"):
        assert b.ask(operation, name="nightly").name == "nightly"
    assert [each.broker for each in b.ask("schedules").schedules] == ["a"]
    assert b.ask("delete schedule", name="nightly").name == "nightly"
    assert b.ask("pause", name="s", by="me").paused_by == "me"
    assert a.broker.worker_registry.services["s"].paused
    assert b.ask("limit", name="s", max_running=3).limits.max_running == 3
    assert not b.ask("resume", name="s").paused


def test_pauses_and_limits_hold_at_every_broker() -> None:
    world = World("a", "b", "c", table=ShardTable("a", "b"))
    table = world.table
    assert table is not None
    a, b, c = (world.nodes[name] for name in "abc")
    c.ask("pause", name="s", by="me")
    world.run()
    for node in (a, b, c):
        service = node.broker.worker_registry.services["s"]
        assert (service.paused, service.paused_by) == (True, "me")
    b.worker("s")
    waiting = b.enqueue()
    world.run()
    assert b.job(waiting).state == "waiting"
    c.ask("resume", name="s")
    c.ask("limit", name="s", max_running=3, rate="7/s")
    world.run()
    assert b.job(waiting).state == "running"
    for node in (a, b, c):
        service = node.broker.worker_registry.services["s"]
        assert not service.paused
        assert service.limits is not None
        assert (service.limits.by_operator.max_running, str(service.limits.by_operator.rate)) == (3, "7/s")
    late = world.start("d")
    world.run(3.0)
    assert late.broker.worker_registry.services["s"].limits is not None
    table.owners[0] = "b"  # the next owner has what it was told
    c.ask("limit", name="s", reset=True)
    world.run()
    assert all(node.broker.worker_registry.services["s"].limits.setting.is_empty for node in (a, b, c))  # type: ignore[union-attr]
    world.cut("c")
    b.ask("pause", name="t")
    world.run(5.0)
    assert "t" not in c.broker.worker_registry.services
    world.heal("c")
    world.run(5.0)
    assert c.broker.worker_registry.services["t"].paused


def test_a_worker_is_found_and_drained_at_its_broker() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    worker = b.worker("s")
    world.run()
    assert a.ask("worker", id=worker.id).broker == "b"
    a.ask("drain", id=worker.id)
    world.run()
    assert not b.broker.worker_registry.workers
    assert error(a.ask("worker", id=4_711))[0] == "not found"


def test_a_silent_broker_is_named_and_searched_objects_may_be_there() -> None:
    world = shards()
    a = world.nodes["a"]
    frozen = world.freeze("b")
    view = a.ask("services")
    assert view.unanswered == ["b"]
    world.run(2.0)
    assert error(a.ask("worker", id=4_711)) == (
        "partitioned",
        "worker 4711 is at no broker that answered, and broker b has not; retry in a few seconds",
    )
    world.nodes["b"] = frozen
    world.run(2.0)
    assert a.ask("services").unanswered == []


def test_all_brokers_purge_and_retry() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    for node in (a, b):
        quarantined(world, node)
        node.enqueue("idle")
    [cause] = a.ask("quarantine").groups
    assert (cause.count, cause.brokers) == (2, ["a", "b"])
    view = a.ask("retry group", group=cause.group)
    assert (view.of, view.unanswered) == (2, [])
    assert a.ask("purge", name="idle").purged == 2
    assert a.ask("job counts", service="idle").undone == 2


def test_acts_on_many_jobs_are_one_act_of_all_brokers() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    for node in (a, b):
        quarantined(world, node)
        node.enqueue("idle")
    counted = a.ask("cancel jobs", service="idle", dry_run=True)
    assert (counted.of, counted.done, counted.over, sorted(each.broker for each in counted.jobs)) == (
        2,
        0,
        True,
        ["a", "b"],
    )
    begun = a.ask("cancel jobs", service="idle")
    world.run()
    ended = b.ask("bulk act", id=begun.id)
    assert (ended.id, ended.act, ended.of, ended.done, ended.over) == (begun.id, "cancel", 2, 2, True)
    assert a.ask("stop bulk act", id=begun.id).over
    assert a.ask("job counts", service="idle").undone == 2
    assert b.ask("retry jobs", all=True, rate=100.0).of == 2
    assert error(a.ask("bulk act", id="0" * 32))[0] == "not found"


def test_pages_of_jobs_continue_after_any_id() -> None:
    world = World("a", "b", "c", table=ShardTable("a", "b", "c"))
    nodes = list(world.nodes.values())
    made = [nodes[number % 3].enqueue() for number in range(10)]
    newest_first = sorted(made, reverse=True)
    for node in nodes:
        pages, after = [], None
        while True:
            view = node.ask("jobs", limit=3, after=after)
            pages.append([each.id for each in view.jobs])
            after = view.after
            if after is None:
                break
        assert [id for page in pages for id in page] == newest_first
        assert [len(page) for page in pages] == [3, 3, 3, 1]


@pytest.mark.parametrize("sort", ["name", "need", "slow", "silent", None])
def test_pages_of_workers_have_every_worker_once(sort: str | None) -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    ids = [node.worker("s").id for node in (a, b, b, a, b)]
    world.run()
    found, after = [], None
    while True:
        view = a.ask("workers", sort=sort, limit=2, after=after)
        found += [each.id for each in view.workers]
        after = view.after
        if after is None:
            break
    assert sorted(found) == sorted(ids)
    assert view.counts.state == {"idle": 5}
    assert a.ask("fleet").states == "iiiii"


def test_pages_of_services_are_sums() -> None:
    world = shards()
    a, b = world.nodes["a"], world.nodes["b"]
    for name, count in (("x", 1), ("y", 3), ("z", 2)):
        for _ in range(count):
            a.enqueue(name)
            b.enqueue(name)
    found, after = [], None
    while True:
        view = b.ask("services", sort="waiting", limit=1, after=after)
        found += [(each.name, each.waiting, each.brokers) for each in view.services]
        after = view.after
        if after is None:
            break
    both = ["a", "b"]
    assert found == [("y", 6, both), ("z", 4, both), ("x", 2, both)]
