"""R241: a broker of a cluster says that something does not exist only if it can prove it."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import may
from shard_operations_world import SHARDS, ShardNode, ShardWorld

from case_tables import check_every_row
from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.records import Watched
from dragoman.core.model import JobId
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView
from dragoman.server.open_store import store_problems

UNKNOWN = "ab" * 15
GROUP = "77" * 15

Fields = dict[str, Any]


def error(view: Any) -> tuple[str, str]:
    assert isinstance(view, ErrorView), view
    return view.kind, view.detail


def cut_off() -> tuple[ShardWorld, ShardNode, ShardNode, int]:
    """Return a world in which a does not know that b has its shards; and a shard that both believe to have."""
    world = ShardWorld("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    shard = a.owned()[0]
    world.cut_off(a)
    assert len(b.owned()) == SHARDS
    assert shard in a.owned()
    assert a.is_connected
    return world, a, b, shard


def key_in(shard: int) -> str:
    return next(key for key in map(str, range(99)) if shard_of_key("local", "s", key, SHARDS) == shard)


# Operations on what the broker that is asked has not got: their fields, from the ids of a job, a group and a key.
DENIALS: list[tuple[str, Fields]] = [
    ("job", {"id": "JOB"}),
    ("payload", {"id": "JOB"}),
    ("result", {"id": "JOB"}),
    ("result", {"id": "JOB", "wait": 5.0}),
    ("why", {"id": "JOB"}),
    ("ladder", {"id": "JOB"}),
    ("cancel", {"id": "JOB"}),
    ("retry", {"id": "JOB"}),
    ("delete", {"id": "JOB"}),
    ("group", {"id": "GROUP"}),
    ("group results", {"id": "GROUP"}),
    ("cancel group", {"id": "GROUP"}),
    ("find job", {"service": "s", "key": "KEY"}),
    ("enqueue", {"service": "s", "after": ("JOB",)}),
    ("enqueue", {"service": "s", "after": ("JOB",), "key": "KEY"}),
    ("enqueue many", {"service": "s", "jobs": (BatchJob(payload="x", after=["JOB"]),)}),
    ("delete schedule", {"name": "nightly"}),
    ("retry group", {"group": "0" * 16}),
    ("purge", {"name": "unseen"}),
    ("service", {"name": "unseen"}),
    ("worker", {"id": 12345}),
    ("broker", {"broker": "b"}),
]


def filled(value: Any, job: str, group: str, key: str) -> Any:
    names = {"JOB": job, "GROUP": group, "KEY": key}
    if isinstance(value, tuple):
        return tuple(filled(each, job, group, key) for each in value)
    if isinstance(value, BatchJob):
        return BatchJob(payload=value.payload, after=[job])
    return names.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize("way", ["cut off without its knowledge", "NATS is away", "never reached NATS"])
def test_a_broker_that_is_cut_off_denies_nothing(way: str) -> None:
    """Every request was answered with 404, and clients raised NoSuchJob for jobs that ran."""
    world = ShardWorld("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    shard = 0 if 0 in a.owned() else a.owned()[0]
    if way == "cut off without its knowledge":
        world.cut_off(a)
    elif way == "NATS is away":
        world.cut("a")
        world.run(30.0)
    else:
        world.freeze("a")
        world.wait_for_owners_of(b)
        world.down.add("a")
        a = world.start("a")
        a.side.hub.keeper = None
        world.run(1.0)
    assert len(b.owned()) == SHARDS
    key = key_in(shard)
    job = b.enqueue(key=key)
    group = GROUP + f"{shard:02x}"
    jobs = tuple(BatchJob(id=f"{number:02x}" * 15 + f"{shard:02x}", payload="x") for number in (1, 2))
    assert b.ask("enqueue many", service="s", jobs=jobs, group_id=group).jobs

    def check(operation: str, fields: Fields) -> None:
        found = a.ask(operation, b"", **{name: filled(each, job, group, key) for name, each in fields.items()})
        assert isinstance(found, ErrorView), found
        assert found.kind == "partitioned", found
        assert any(word in found.detail for word in ("retry", "NATS", "away")), found

    check_every_row(check, DENIALS)


def test_a_broker_denies_what_does_not_exist() -> None:
    """The same operations are answered as before if all shards can be proved to be where they are."""

    def check(operation: str, fields: Fields) -> None:
        key = key_in(world.nodes["b"].owned()[0])
        for asked in world.nodes.values():
            for shard in range(SHARDS):
                job, group = (prefix + f"{shard:02x}" for prefix in (UNKNOWN, GROUP))
                values = {name: filled(each, job, group, key) for name, each in fields.items()}
                if operation == "broker":
                    values = {"broker": "nobody"}
                found = asked.ask(operation, b"", **values)
                assert isinstance(found, ErrorView), found
                assert found.kind == "not found", found

    world = ShardWorld("a", "b")
    check_every_row(check, DENIALS)


def test_the_next_owner_is_asked_when_the_shard_turns_out_to_be_lost() -> None:
    """A broker that was frozen believes that it has its shards until its log or gossip says otherwise."""
    _, a, b, shard = cut_off()
    id = b.enqueue_in(shard)
    a.is_cut_off = False
    a.side.shares.granter.echoed_at = a.world.now  # it was frozen, and does not know that nothing came back
    assert a.ask("job", id=id).kind == "partitioned"
    a.world.run(2.0)
    view = a.ask("job", id=id)
    assert (view.id, view.broker) == (id, "b")


def test_a_broker_that_is_cut_off_is_not_ready() -> None:
    """A load balancer went on to send it requests."""
    world = ShardWorld("a", "b")
    a = world.nodes["a"]
    assert store_problems(a.shards, a.side, world.now) == ([], [])
    world.cut_off(a, 5.0)
    (problem,), _ = store_problems(a.shards, a.side, world.now)
    assert "nothing comes back from NATS" in problem
    a.is_cut_off = False
    world.run_until(lambda: store_problems(a.shards, a.side, world.now) == ([], []), 2.0)


def test_lists_of_a_broker_that_is_cut_off_name_the_shards_without_an_answer() -> None:
    """They were empty, and said that they were complete."""
    _, a, b, shard = cut_off()
    b.enqueue_in(shard)

    def check(operation: str, fields: Fields) -> None:
        missing = a.ask(operation, **fields)
        assert missing.unanswered_shards == ([0] if operation == "schedules" else list(range(SHARDS)))
        whole = b.ask(operation, **fields)
        assert not whole.unanswered_shards
        if operation == "jobs":
            assert (missing.complete, whole.complete) == (False, True)

    lists: list[tuple[str, Fields]] = [
        ("jobs", {}),
        ("job counts", {}),
        ("quarantine", {}),
        ("schedules", {}),
        ("cancel jobs", {"service": "other", "dry_run": True}),
    ]
    check_every_row(check, lists)


def test_a_list_names_a_shard_without_an_owner() -> None:
    world = ShardWorld("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    lost = b.owned()
    world.freeze("b")
    world.run_until(lambda: a.side.peers["b"].is_silent)
    view = a.ask("jobs")
    assert (view.unanswered_shards, view.unanswered, view.complete) == (lost, ["b"], False)
    world.wait_for_owners_of(a)
    world.run_until(lambda: not a.side.peers)
    view = a.ask("jobs")
    assert (bool(view.unanswered_shards), view.complete) == (False, True)


def test_the_children_of_a_job_are_listed_without_a_proof() -> None:
    """Each look at a job would write to all logs."""
    world = ShardWorld("a", "b")
    a = world.nodes["a"]
    a.worker("s")
    id = a.enqueue_in(a.owned()[0])
    world.work_until(lambda: world.outcome(id) == "done")
    world.run(1.0)
    before = [log.last for log in world.logs]
    assert a.ask("job", id=id).children == []
    assert [log.last for log in world.logs] == before
    a.ask("jobs")
    assert [log.last for log in world.logs] == [last + 1 for last in before]


def test_a_flood_of_unknown_ids_writes_twenty_times_a_second_to_one_log() -> None:
    world = ShardWorld("a", "b")
    a = world.nodes["a"]
    shard = a.owned()[0]
    before = [log.last for log in world.logs]
    begun = world.now
    responders = []
    for _ in range(100):
        responders += [a.begin("job", id=UNKNOWN + f"{shard:02x}") for _ in range(20)]
        world.run(0.01)
    world.run_until(lambda: all(each.responses for each in responders))
    assert {each.responses[0].kind for each in responders} == {"not found"}
    written = [log.last - last for log, last in zip(world.logs, before, strict=True)]
    assert 0 < written[shard] <= 20.0 * (world.now - begun) + 1
    assert [each for number, each in enumerate(written) if number != shard] == [0] * (SHARDS - 1)


def test_a_job_that_a_principal_may_not_see_is_denied_as_one_that_does_not_exist() -> None:
    world = ShardWorld("a", "b", access={"ann": may(call=("s",)), "bob": may(call=("s",))})
    a, b = world.nodes["a"], world.nodes["b"]
    id = b.ask("enqueue", b"x", "ann", service="s").id
    unknown = UNKNOWN + id[-2:]
    for asked in (a, b):
        hidden, missing = (error(asked.ask("job", b"", "bob", id=each)) for each in (id, unknown))
        assert hidden[0] == missing[0] == "not found"
        assert hidden[1].replace(id, unknown) == missing[1]
    world.freeze("a")
    world.run(5.0)
    hidden, missing = (error(b.ask("job", b"", "bob", id=each)) for each in (id, unknown))
    assert hidden[0] == missing[0]


def test_after_an_import_every_shard_is_asked() -> None:
    """A job that was imported has kept its id, which may name another shard."""
    world = ShardWorld("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    a.keeper.has_imports = b.keeper.has_imports = True
    shard = a.owned()[0]
    assert error(b.ask("job", id=UNKNOWN + f"{shard:02x}"))[0] == "not found"
    lost = b.owned()
    world.freeze("b")
    world.run_until(lambda: a.side.peers["b"].is_silent)
    kind, detail = error(a.ask("job", id=UNKNOWN + f"{shard:02x}"))
    assert (kind, "broker b has not" in detail) == ("partitioned", True)
    world.run_until(lambda: not a.side.peers)
    while len(a.owned()) < SHARDS:
        found = a.ask("job", id=UNKNOWN + f"{shard:02x}")
        assert found.kind == ("not found" if len(a.owned()) == SHARDS else "partitioned"), (lost, found)
    assert error(a.ask("job", id=UNKNOWN + f"{shard:02x}"))[0] == "not found"


def test_a_log_that_cannot_be_written_denies_nothing_and_says_why() -> None:
    world = ShardWorld("a")
    a = world.nodes["a"]
    world.block(2)
    kind, detail = error(a.ask("job", id=UNKNOWN + "02"))
    assert kind == "partitioned"
    assert "shard 2" in detail
    assert error(a.ask("job", id=UNKNOWN + "01"))[0] == "not found"


def test_a_broker_that_has_just_reached_nats_denies_no_call() -> None:
    """It has not heard the others yet, and one of them may have the call."""
    world = ShardWorld("a", "b")
    b = world.nodes["b"]
    call = b.call(service="s", waits=True)
    assert call is not None
    world.freeze("a")
    a = world.start("a")
    kinds = []
    for _ in range(100):
        found = a.ask("job", id=call.id.hex())
        if not isinstance(found, ErrorView):
            break
        kinds.append(found.kind)
        world.run(0.05)
    assert found.broker == "b"
    assert set(kinds) <= {"partitioned"}


def test_a_dependent_job_is_not_cancelled_because_a_broker_that_is_cut_off_has_not_its_predecessor() -> None:
    _, a, b, shard = cut_off()
    b.enqueue_in(shard)
    sent: list[Watched] = []
    a.keeper.watches.jobs._send = lambda to, record: sent.append(record)
    a.keeper.watches.jobs._deny(JobId(bytes.fromhex(UNKNOWN + f"{shard:02x}")), 1)
    a.world.run(5.0)
    assert sent == []
    b.keeper.watches.jobs._send = lambda to, record: sent.append(record)
    b.keeper.watches.jobs._deny(JobId(bytes.fromhex(UNKNOWN + f"{shard:02x}")), 1)
    a.world.run(0.5)
    assert [each.searched for each in sent] == [list(range(SHARDS))]
