"""Background jobs in the shards of a cluster: adopted, evicted, handed over, and never lost."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.cluster.shard_rows import Batch
from dragoman.core.eviction import UNKNOWN_FATE
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.model import JobId
from dragoman.core.states import DONE, JobState
from dragoman.server.store_access import MOVED

from .shard_world import SHARDS, ShardNode, ShardWorld


def world_with_workers(*names: str, **options: object) -> ShardWorld:
    world = ShardWorld(*names, **options)  # type: ignore[arg-type]
    world.wait_for_owners()
    return world


def enqueue(world: ShardWorld, payload: bytes, **options: object) -> bytes:
    """Enqueue a job at a broker that takes it, and wait for the acknowledgement. Returns its id."""
    key = options.pop("key", None)
    for _ in range(3_000):
        for node in world.all_nodes:
            if node.enqueue(payload, key, **options) is not None:  # type: ignore[arg-type]
                world.run_until(lambda: payload in world.accepted)
                return world.accepted[payload]
        world.run(0.05)
    raise AssertionError("no broker takes the job")


def owner_of(world: ShardWorld, id: bytes) -> ShardNode:
    return next(each for each in world.all_nodes if each.keeper.owns(each.keeper.shard_of(id)))


def test_shards_are_shared_out_and_a_job_runs_at_a_worker_of_any_broker() -> None:
    world = world_with_workers("a", "b", "c")
    assert [len(each.owned) for each in world.all_nodes] == [1, 1, 1]
    ids = [enqueue(world, b"job %d" % number) for number in range(6)]
    world.node("b").worker("s", capacity=10)
    world.run(1.0)
    world.work()
    world.run(1.0)
    found = [world.find(id) for id in ids]
    assert [(job.outcome, bytes(job.result)) for job in found if job is not None] == [
        (DONE, b"JOB %d" % number) for number in range(6)
    ]
    assert not any(len(node.keeper.outcomes) for node in world.all_nodes)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_r1_the_token_of_an_attempt_names_its_shard_without_a_zero_byte(shard: int) -> None:
    """Tokens of shard 0 ended with a zero byte, which workers that keep them as C strings do not return."""
    world = world_with_workers("a", "b", "c")
    (node,) = (each for each in world.all_nodes if shard in each.owned)
    node.worker("s")
    assert node.enqueue(b"job") is not None
    world.run(1.0)
    (attempt,) = node.local.sent
    assert 0 not in attempt.token
    assert node.keeper.shard_of(attempt.token) == node.keeper.shard_of(attempt.job.id) == shard


def test_a_deleted_outcome_is_reported_when_its_log_has_it() -> None:
    """The store did not report a commit that only deletes, so that a request for it waited for ever."""
    world = world_with_workers("a")
    id = enqueue(world, b"job")
    (node,) = world.all_nodes
    node.worker("s")
    world.run(1.0)
    world.work()
    world.run(1.0)
    registry = node.broker.job_registry
    registry.kept.erase(registry.jobs[JobId(id)], is_waited_for=True)
    assert registry.pending_commits.is_holding
    world.run(1.0)
    assert not registry.pending_commits.is_holding
    world.freeze("a")
    world.start("b")
    world.wait_for_owners()
    assert world.find(id) is None


def test_jobs_of_a_broker_that_is_gone_are_adopted_with_their_payload_and_key() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"payload", key="k", delay=60.0, attempts=3)
    dead = owner_of(world, id)
    created = dead.broker.jobs[id].created
    world.freeze(dead.name)
    world.run_until(lambda: world.find(id) is not None)
    job = world.find(id)
    assert job is not None
    assert (job.key, job.state, job.options.attempts) == ("k", JobState.DELAYED, 3)
    assert abs(job.created - created) < 0.5
    (left,) = world.all_nodes
    again = left.enqueue(b"payload", "k", delay=60.0, attempts=3)
    assert again is job
    left.worker("s")
    world.run(61.0)
    (attempt,) = left.local.sent
    assert attempt.job.payload == b"payload"


def test_an_attempt_at_a_living_broker_delivers_to_the_broker_that_adopts_its_job() -> None:
    """C5: nothing runs twice, and the one attempt is enough."""
    world = world_with_workers("a", "b", "c")
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    other = next(each for each in world.all_nodes if each is not owner)
    other.worker("s")
    world.run_until(lambda: other.local.sent)
    world.freeze(owner.name)
    world.run_until(lambda: world.find(id) is not None)
    job = world.find(id)
    assert job is not None
    assert job.state is JobState.RUNNING
    world.work()
    world.run_until(lambda: job.outcome is not None)
    assert (job.outcome, bytes(job.result), job.spent, world.runs) == (DONE, b"X", 0, {b"x": 1})
    world.run(1.0)
    assert not len(other.keeper.outcomes)


def test_an_attempt_at_the_broker_that_is_gone_is_lost() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=2)
    owner = owner_of(world, id)
    owner.worker("s")
    world.run_until(lambda: owner.local.sent)
    world.freeze(owner.name)
    world.run_until(lambda: world.find(id) is not None)
    job = world.find(id)
    assert job is not None
    assert job.history is not None
    assert [(each.outcome.value, each.reason) for each in job.history] == [("lost", "the broker died while it ran")]


def test_a_job_that_runs_while_its_shard_is_released_is_finished_by_its_worker() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    worker = owner.worker("s")
    world.run_until(lambda: owner.local.sent)
    owner.keeper.shards.drain(world.now)
    world.run_until(lambda: owner.keeper.shards.is_drained)
    world.run_until(lambda: world.find(id) is not None)
    job = world.find(id)
    assert job is not None
    assert (job.state, list(owner.broker.jobs)) == (JobState.RUNNING, [id])
    world.work()
    world.run_until(lambda: job.outcome is not None)
    assert (job.outcome, bytes(job.result), world.runs, worker.free) == (DONE, b"X", {b"x": 1}, 1)
    world.run(1.0)
    assert (len(owner.keeper.outcomes), len(owner.broker.jobs)) == (0, 0)


@pytest.mark.parametrize("seconds", [0.0, 0.02, 5.0])
def test_shards_have_owners_while_all_brokers_rest(seconds: float) -> None:
    """They had none for a minute, if all were released. `seconds`: between two of them."""
    world = world_with_workers("a", "b", "c")
    for node in world.all_nodes:
        node.side.hub.rest(world.now)
        world.run(seconds)
    world.run(5.0)
    assert sum(len(each.owned) for each in world.all_nodes) == SHARDS
    world.run(70.0)
    assert [len(each.owned) for each in world.all_nodes] == [1, 1, 1]


def test_a_broker_that_is_cut_off_loses_its_shards_and_acknowledges_nothing() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    world.cut(owner.name)
    assert owner.enqueue(b"y") is None
    world.run_until(lambda: any(each is not owner and len(each.owned) == SHARDS for each in world.all_nodes), 60.0)
    world.heal(owner.name)
    world.run_until(lambda: id not in owner.broker.jobs, 60.0)
    world.run(1.0)
    assert b"y" not in world.accepted
    assert world.find(id) is not None


def test_all_brokers_restart() -> None:
    world = world_with_workers("a", "b")
    ids = [enqueue(world, b"job %d" % number, attempts=3) for number in range(5)]
    for name in ("a", "b"):
        world.freeze(name)
    world.start("a")
    world.start("b")
    world.run_until(lambda: all(world.find(id) is not None for id in ids), 60.0)
    world.node("a").worker("s", capacity=9)
    world.run(2.0)
    world.work()
    world.run(1.0)
    assert [getattr(world.find(id), "outcome", None) for id in ids] == [DONE] * 5


def test_cleaning_keeps_every_live_row() -> None:
    """R116: also payloads and results that only the log has, keys, delays, retries and notes."""
    world = world_with_workers("a", "b", clean_above=4_000)
    done = [enqueue(world, b"done %d" % number) for number in range(4)]
    world.node("a").worker("s", capacity=50)
    world.run(0.5)
    world.work()
    world.run(0.5)
    waiting = [enqueue(world, b"waiting %d" % number, delay=5_000.0, key=f"k{number}") for number in range(8)]
    for name in ("a", "b"):
        world.freeze(name)
    for round in range(3):  # each owner has all payloads and results in its log only
        node = world.start("c")
        world.run_until(lambda node=node: len(node.owned) == SHARDS)
        node.worker("s", capacity=50)
        firsts = [log.first for log in world.logs]
        for number in range(100):
            node.enqueue(b"filler %d %d" % (round, number), keep=0.0)
            world.run(0.05)
            world.work()
        world.run(1.0)
        assert node.keeper.cleanings >= SHARDS
        assert all(log.first > first for log, first in zip(world.logs, firsts, strict=True))
        assert all(log.state().size < 20_000 for log in world.logs)
        found = [world.find(id) for id in done + waiting]
        assert [job.outcome for job in found if job is not None] == [DONE] * 4 + [None] * 8
        assert [job.key for job in found[4:] if job is not None] == [f"k{number}" for number in range(8)]
        world.freeze("c")
    node = world.start("d")
    world.run_until(lambda: len(node.owned) == SHARDS)
    bodies: dict[bytes, tuple[bytes, bytes]] = {}
    for id in done + waiting:
        job = world.find(id)
        assert job is not None

        def fetched(payload: object, result: object, failure: object, id: bytes = id) -> None:
            assert isinstance(payload, bytes)
            assert isinstance(result, bytes)
            bodies[id] = payload, result

        node.store.fetch(job, fetched)
    world.run(1.0)
    assert [bodies[id][1] for id in done] == [b"DONE %d" % number for number in range(4)]
    assert [bodies[id][0] for id in waiting] == [b"waiting %d" % number for number in range(8)]


def test_the_store_counts_the_jobs_of_each_shard() -> None:
    """Rebalancing gives up the shard with the fewest."""
    world = world_with_workers("a")
    ids = [enqueue(world, b"waiting %d" % number, delay=5_000.0) for number in range(6)]
    enqueue(world, b"short", keep=0.0)
    first = world.node("a")
    counts = {shard: len(first.keeper.jobs_of(shard)) for shard in range(SHARDS)}
    assert (first.store.jobs, sum(counts.values())) == (counts, 7)
    first.worker("s")
    world.run(0.5)
    world.work()
    world.run(0.5)
    counts = {shard: len(first.keeper.jobs_of(shard)) for shard in range(SHARDS)}
    assert (first.store.jobs, sum(counts.values())) == (counts, 6)
    world.freeze("a")
    second = world.start("b")
    world.run_until(lambda: len(second.owned) == SHARDS)
    assert second.store.jobs == counts
    assert [world.find(id) is not None for id in ids] == [True] * 6


def test_a_read_from_the_log_of_a_shard_that_is_lost_is_refused() -> None:
    """The request got no answer at all."""
    world = world_with_workers("a")
    id = enqueue(world, b"payload", delay=5_000.0)
    world.freeze("a")
    node = world.start("b")
    world.run_until(lambda: len(node.owned) == SHARDS)
    job = world.find(id)
    assert job is not None
    found: list[object] = []
    node.access.fetch(job, lambda payload, result, failure: found.append(payload), found.append)
    world.run(0.5)
    assert found == [b"payload"]
    found.clear()
    node.access.fetch(job, lambda payload, result, failure: found.append(payload), found.append)
    node.store.detach(node.keeper.shard_of(id))
    assert found == [MOVED]
    node.access.fetch(job, lambda payload, result, failure: found.append(payload), found.append)
    assert found == [MOVED, MOVED]


def test_a_shard_that_waits_for_a_commit_for_long_is_reported() -> None:
    world = world_with_workers("a")
    node = world.node("a")
    world.log_loss = 1.0
    assert node.enqueue(b"one") is not None
    world.run(20.0)
    assert node.store.delays() == {}
    world.run(15.0)
    (sentence,) = node.store.delays().values()
    assert sentence.startswith("shard ")
    assert "has waited for a commit for 3" in sentence
    world.log_loss = 0.0
    world.run(5.0)
    assert node.store.delays() == {}


def test_imported_jobs_stay_in_the_shard_that_has_them() -> None:
    """Their ids name another shard: everything about them is written to the log where they are."""
    world = world_with_workers("a")
    now = world.now
    id, call = b"\x07" * 15 + b"\x01", b"\x08" * 15 + b"\xff"
    heads = [[each, "s", '{"durable":true}', -1.0, None, None, None, None, None] for each in (id, call)]
    node = world.node("a")
    node.store.add(2, msgspec.msgpack.encode(Batch([(head, b"payload") for head in heads], [], [], [], [], [])), now)
    world.run(0.5)
    world.freeze("a")
    second = world.start("b")
    world.run_until(lambda: len(second.owned) == SHARDS)
    assert [second.keeper.shard_of(each) for each in (id, call)] == [2, 2]
    assert second.store.jobs[2] == 2
    second.worker("s", capacity=2)
    world.run(0.5)
    assert [attempt.token[-1] for attempt in second.local.sent] == [2, 2]
    world.work()
    world.run(0.5)
    world.freeze("b")
    third = world.start("c")
    world.run_until(lambda: len(third.owned) == SHARDS)
    assert [job.outcome for job in third.keeper.jobs_of(2)] == [DONE, DONE]


def test_an_outcome_is_sent_again_to_the_next_owner() -> None:
    """C5: the owner dies before it has committed the outcome that it was sent."""
    world = world_with_workers("a", "b", "c")
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    other = next(each for each in world.all_nodes if each is not owner)
    other.worker("s")
    world.run_until(lambda: other.local.sent)
    world.freeze(owner.name)
    world.work()
    world.run(0.1)
    assert len(other.keeper.outcomes) == 1
    world.run_until(lambda: getattr(world.find(id), "outcome", None) is not None)
    job = world.find(id)
    assert job is not None
    assert (job.outcome, job.spent, world.runs) == (DONE, 0, {b"x": 1})
    world.run(1.0)
    assert not len(other.keeper.outcomes)


def test_what_waits_for_a_commit_is_not_told_it_if_the_shard_leaves_before_the_commit_is_written() -> None:
    """A broker that woke read a batch, and then the gossip of the next owner: the batch was acknowledged, and lost."""
    world = world_with_workers("a", "b")
    owner = next(each for each in world.all_nodes if each.owned)
    other = next(each for each in world.all_nodes if each is not owner)
    job = owner.enqueue(b"x")
    assert job is not None
    heard: list[str | None] = []
    owner.access.when_saved(heard.append)
    number = owner.keeper.shard_of(job.id)
    newer = {number: owner.keeper.shards[number].epoch + 100}
    owner.keeper.shards.heard(other.name, other.side.incarnation, newer, False, world.now)
    world.run(0.5)
    assert (heard, world.accepted) == ([UNKNOWN_FATE], {})


def test_a_pause_holds_at_every_broker() -> None:
    world = world_with_workers("a", "b", "c")
    owner = next(each for each in world.all_nodes if 0 in each.owned)
    others = [each for each in world.all_nodes if each is not owner]
    for node in world.all_nodes:
        node.worker("s")
    world.run(0.5)
    owner.broker.operator.pause("s", "Ada", world.now)
    world.run(1.5)
    ids = [enqueue(world, b"job %d" % number) for number in range(6)]
    world.run(1.0)
    assert [each.broker.worker_registry.services["s"].paused_by for each in others] == ["Ada", "Ada"]
    assert not world.runs
    owner.broker.operator.resume("s", world.now)
    world.run(1.5)
    world.work()
    world.run_until(lambda: world.work() or all(getattr(world.find(id), "outcome", None) is DONE for id in ids))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost_whatever_is_killed_frozen_or_cut(seed: int) -> None:
    """C1 to C8: brokers are killed, frozen and cut off while messages and answers of logs get lost."""
    names = ("a", "b", "c")
    world = world_with_workers(*names, seed=seed, loss=0.01, log_loss=0.05, clean_above=4_000)
    random = world.random
    for name in names:
        world.node(name).worker("s", capacity=3)
    frozen: dict[str, tuple[ShardNode, float]] = {}
    count = 0
    for _ in range(60):
        for node in world.all_nodes:
            count += 1
            once = count % 3 == 0
            node.enqueue(b"%s %d" % (b"once" if once else b"many", count), attempts=1 if once else 50)
            number = random.randrange(40)  # the same keys again and again, at every broker
            node.enqueue(b"many with key %d" % number, f"k{number}", attempts=50)
        world.run(random.uniform(0.05, 0.4))
        if random.random() < 0.7:
            world.work()
        for name, (node, until) in list(frozen.items()):
            if world.now >= until:
                del frozen[name]
                world.nodes[name] = node
        if random.random() < 0.15 and len(world.nodes) == 3:
            _fault(world, random.choice(names), frozen)
    for name, (node, _) in frozen.items():
        world.nodes[name] = node
    for name in names:
        world.heal(name)
    world.loss = world.log_loss = 0.0
    assert world.accepted

    def all_ended() -> bool:
        world.work()
        return all(getattr(world.find(id), "outcome", None) is not None for id in world.accepted.values())

    world.run_until(all_ended, 120.0)
    for payload, id in world.accepted.items():
        job = world.find(id)
        assert job is not None
        assert job.outcome is not None
        if payload.startswith(b"many"):
            assert job.outcome is DONE, (payload, job.reason)
        else:
            assert world.runs.get(payload, 0) <= 1, payload
        if payload in world.outcomes:
            assert world.outcomes[payload][0] == job.outcome.value


def _fault(world: ShardWorld, name: str, frozen: dict[str, tuple[ShardNode, float]]) -> None:
    kind = world.random.choice(("kill", "freeze", "cut"))
    if kind == "kill":
        world.freeze(name)
        world.start(name).worker("s", capacity=3)
    elif kind == "freeze":
        node = world.node(name)
        world.freeze(name)
        frozen[name] = (node, world.now + world.random.uniform(1.0, 9.0))
    elif name in world.down:
        world.heal(name)
    else:
        world.cut(name)


def test_job_that_another_brokers_worker_refuses_waits_at_its_owner_for_a_worker_that_knows() -> None:
    """R269: the owner of the job decides, whichever broker the worker is connected to. A broker gives such a job to
    workers of its own that have declared the parameters, or answers busy."""
    world = world_with_workers("a", "b", "c")
    id = enqueue(world, b"job", parameters=("a", "x"))
    owner = owner_of(world, id)
    other, third = (each for each in world.all_nodes if each is not owner)

    def declare(node: ShardNode, *names: str) -> None:
        node.broker.limiter.declare_parameters(node.worker("s"), {"s": {"properties": {each: {} for each in names}}})

    declare(other, "a")
    world.run(1.0)
    (attempt,) = other.local.sent
    refusal = Failure("dragoman.WrongArguments", "s has no parameter 'x'", "", inf, ("x",), ("a",))
    other.broker.fail(attempt, refusal.sentence, world.now, refusal)
    other.local.sent.clear()
    world.run(10.0)
    job = world.find(id)
    assert job is not None
    assert (job.needs, job.spent, job.outcome, other.local.sent) == (("x",), 0, None, [])
    declare(third, "a", "x")
    world.run(30.0)
    assert not other.local.sent
    (attempt,) = third.local.sent
    third.finish(attempt, b"JOB")
    world.run(1.0)
    job = world.find(id)
    assert job is not None
    assert (job.outcome, bytes(job.result), job.spent) == (DONE, b"JOB", 0)
