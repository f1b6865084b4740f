"""R120: a shard whose log cannot be written delays only its own jobs, at a broker that owns others."""

from __future__ import annotations

from typing import Any

import pytest
from shard_operations_world import SHARDS, ShardNode, ShardWorld

from dragoman.cluster.log import VERIFY_EVERY, LogPhase
from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.replicas import Replicas
from dragoman.cluster.store import TOGETHER
from dragoman.cluster.writer_watch import UNWRITABLE_AFTER
from dragoman.core.set_aside import AT_ONCE, LOOK_AGAIN
from dragoman.core.states import JobState
from dragoman.core.store_entries import StoreValue
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import EnqueueRequest
from dragoman.operations.table import ENQUEUE
from dragoman.server.cluster_places import Places
from dragoman.server.cluster_status import cluster_numbers, shard_views
from dragoman.server.open_store import store_problems

BLOCKED = 2
OTHER = 1


@pytest.fixture
def world() -> ShardWorld:
    world = ShardWorld("a")
    world.nodes["a"].worker("s", capacity=4)
    world.block(BLOCKED)
    return world


def node_of(world: ShardWorld) -> ShardNode:
    return world.nodes["a"]


def keys_of(shard: int) -> list[str]:
    return [key for key in map(str, range(99)) if shard_of_key("local", "s", key, SHARDS) == shard]


def begin_in(node: ShardNode, shard: int) -> Any:
    """Submit a job with a key of this shard. Returns the responder of the request."""
    return node.begin("enqueue", b"x", service="s", key=keys_of(shard)[0])


def enqueue_in(node: ShardNode, shard: int, number: int = 0) -> str:
    return node.enqueue(key=keys_of(shard)[number])


def test_jobs_of_other_shards_are_accepted_started_and_ended(world: ShardWorld) -> None:
    """One queue of commits for all shards held everything back, for ever if a stream had been deleted."""
    node = node_of(world)
    waiting = begin_in(node, BLOCKED)
    id = enqueue_in(node, OTHER)
    world.work_until(lambda: world.outcome(id) == "done", 5.0)
    assert node.ask("job", id=id).state == "ended"
    assert node.ask("result", id=id, wait=1.0).outcome == "done"
    assert waiting.responses == []
    world.unblock(BLOCKED)
    world.run_until(lambda: waiting.responses)
    world.work_until(lambda: world.outcome(waiting.responses[0].id) == "done", 5.0)


def test_operations_on_other_shards_are_answered(world: ShardWorld) -> None:
    node = node_of(world)
    waiting = begin_in(node, BLOCKED)
    world.run(0.2)
    assert node.ask("pause", name="s", by="Ada").paused
    id = enqueue_in(node, OTHER)
    assert node.ask("cancel", id=id).outcome == "cancelled"
    assert node.ask("delete", id=id).id == id
    ids = [f"{number:02x}" * 15 + f"{OTHER:02x}" for number in (1, 2, 3)]
    jobs = tuple(BatchJob(id=id, payload="x") for id in ids[:2])
    assert node.ask("enqueue many", service="s", jobs=jobs, group_id=ids[2]).jobs == ids[:2]
    assert node.ask("cancel group", id=ids[2]).undone == 2
    assert node.ask("group", id=ids[2]).complete
    assert not node.ask("resume", name="s").paused
    assert waiting.responses == []


def test_what_is_decided_about_a_job_of_the_shard_itself_waits_for_its_commit(world: ShardWorld) -> None:
    node = node_of(world)
    world.unblock(BLOCKED)
    node.ask("pause", name="s", by="Ada")
    id = enqueue_in(node, BLOCKED)
    world.block(BLOCKED)
    cancelled = node.begin("cancel", id=id)
    seen = node.begin("job", id=id)
    world.run(3.0)
    assert (cancelled.responses, seen.responses) == ([], [])
    world.unblock(BLOCKED)
    world.run_until(lambda: cancelled.responses and seen.responses)
    assert (cancelled.responses[0].outcome, seen.responses[0].outcome) == ("cancelled", "cancelled")


def test_clients_that_wait_for_a_commit_are_refused_when_nats_has_no_majority(world: ShardWorld) -> None:
    """They waited until NATS was back, or ten seconds for an answer of a healthy broker. The jobs stay, and nothing is
    told that the log does not have."""
    node = node_of(world)
    world.unblock(BLOCKED)
    id = enqueue_in(node, BLOCKED)
    world.block(BLOCKED)
    ids = tuple(f"{number:02x}" * 15 + f"{BLOCKED:02x}" for number in (1, 2))
    batch = node.begin("enqueue many", service="s", jobs=tuple(BatchJob(id=each, payload="x") for each in ids))
    waiting = [node.begin("enqueue", b"x", service="s", key=keys_of(BLOCKED)[1]), batch, node.begin("cancel", id=id)]
    told = [node.begin("job", id=id), node.begin("result", id=id, wait=60.0)]
    world.run(0.2)
    node.operations.refuse_unstored("NATS has no majority: n1, n3 away", world.now)
    world.run(0.2)
    detail = "NATS has no majority: n1, n3 away; it is not known whether this was stored; ask again"
    for each in waiting:
        (refused,) = each.responses
        assert (refused.kind, refused.detail) == ("partitioned", detail)
    assert [each.responses for each in told] == [[], []]
    world.unblock(BLOCKED)
    world.run_until(lambda: all(each.responses for each in told))
    assert [each.responses[0].outcome for each in told] == ["cancelled", "cancelled"]
    assert [len(each.responses) for each in waiting] == [1, 1, 1]
    again = enqueue_in(node, BLOCKED, 1)
    world.work_until(lambda: [world.outcome(each) for each in (*ids, again)] == ["done"] * 3, 5.0)


def test_a_job_without_a_key_goes_to_a_shard_that_can_be_written(world: ShardWorld) -> None:
    node = node_of(world)
    writer = node.keeper.kept[BLOCKED].log.writer
    assert writer is not None
    writer.problem = "maximum bytes exceeded"
    shards = {int(node.enqueue("s", b"x")[-2:], 16) for _ in range(8)}
    assert shards == {0, 1, 3}
    assert "maximum bytes exceeded" in str(node.ask("enqueue", b"x", service="s", key=keys_of(BLOCKED)[0]))
    assert node.shards.problem is None
    assert node.shards.delays() == {BLOCKED: "shard 2: maximum bytes exceeded"}


# ---------------------------------------------------------------- slots of workers


def wait_until_noticed(world: ShardWorld) -> None:
    world.run(UNWRITABLE_AFTER + 0.5)


def test_attempts_that_cannot_be_committed_leave_their_slots_to_other_jobs(world: ShardWorld) -> None:
    """A deleted stream held the slots of all workers, so that nothing of their services ran any more."""
    node = node_of(world)
    waiting = [node.begin("enqueue", b"blocked", service="s", key=key) for key in keys_of(BLOCKED)[:9]]
    world.run(0.2)
    assert all(not each.free for each in node.broker.worker_registry.workers.values())
    wait_until_noticed(world)
    ids = [enqueue_in(node, OTHER, number) for number in range(6)]
    call = node.call(b"call")
    assert call is not None
    world.work_until(lambda: all(world.outcome(id) == "done" for id in ids) and call.outcome is not None, 5.0)
    assert b"blocked" not in world.ran
    assert not any(each.responses for each in waiting)


def test_jobs_of_the_shard_run_once_when_it_can_be_written_again(world: ShardWorld) -> None:
    node = node_of(world)
    waiting = [node.begin("enqueue", b"blocked", service="s", key=key) for key in keys_of(BLOCKED)[:9]]
    wait_until_noticed(world)
    assert node.ask("why", id=next(iter(node.broker.jobs)).hex()).kind == "storing"
    world.unblock(BLOCKED)
    world.run_until(lambda: all(each.responses for each in waiting))
    ids = [each.responses[0].id for each in waiting]
    world.work_until(lambda: all(world.outcome(id) == "done" for id in ids), 5.0)
    assert world.ran.count(b"blocked") == 9
    assert {world.owner(id).job(id).spent for id in ids} == {0}


def test_a_job_that_was_waiting_keeps_its_place(world: ShardWorld) -> None:
    node = node_of(world)
    world.unblock(BLOCKED)
    node.ask("pause", name="s", by="Ada")
    first, second = enqueue_in(node, BLOCKED), enqueue_in(node, BLOCKED, 1)
    later = enqueue_in(node, OTHER)
    world.block(BLOCKED)
    cancelled = node.begin("cancel", id=second)
    wait_until_noticed(world)
    node.ask("resume", name="s")
    world.run(0.5)
    assert node.job(first).state is JobState.DELAYED
    assert node.ask("why", id=first).kind == "storing"
    arrival = node.job(first).arrival
    world.run(LOOK_AGAIN + 1.0)  # it is looked at again meanwhile
    assert node.job(first).state is JobState.DELAYED
    world.unblock(BLOCKED)
    world.run_until(lambda: cancelled.responses)
    assert node.job(first).arrival == arrival
    world.work_until(lambda: world.outcome(first) == "done" and world.outcome(later) == "done", 5.0)


def test_a_job_that_is_set_aside_can_be_cancelled_and_evicted(world: ShardWorld) -> None:
    node = node_of(world)
    waiting = [node.begin("enqueue", b"blocked", service="s", key=key) for key in keys_of(BLOCKED)[:9]]
    wait_until_noticed(world)
    ids = [job.id.hex() for job in node.broker.jobs.values()]
    cancelled = node.begin("cancel", id=ids[0])
    node.keeper.evict(BLOCKED, "a test", world.now)
    world.run_until(lambda: cancelled.responses and all(each.responses for each in waiting))
    assert not node.broker.jobs
    world.unblock(BLOCKED)
    assert enqueue_in(node, OTHER)


def test_many_jobs_of_the_shard_are_set_aside_in_many_steps(world: ShardWorld) -> None:
    node = node_of(world)
    world.unblock(BLOCKED)
    node.ask("pause", name="s", by="Ada")
    ids = [f"{number:030x}{BLOCKED:02x}" for number in range(1, 2 * AT_ONCE)]
    jobs = tuple(BatchJob(id=id, payload="blocked") for id in ids)
    assert node.ask("enqueue many", service="s", jobs=jobs).jobs == ids
    last = enqueue_in(node, OTHER)
    world.block(BLOCKED)
    node.begin("cancel", id=ids[-1])
    wait_until_noticed(world)
    node.ask("resume", name="s")
    world.work_until(lambda: world.outcome(last) == "done", 5.0)
    assert b"blocked" not in world.ran
    world.unblock(BLOCKED)
    world.work_until(lambda: world.ran.count(b"blocked") == len(ids) - 1, 60.0)


# ---------------------------------------------------------------- brokers that stop


def test_a_broker_with_a_lost_log_stops_without_waiting_for_it(world: ShardWorld) -> None:
    """It waited for drain_timeout, and ran without a pause: the log was due to be looked at, and was not."""
    node = node_of(world)
    log = node.keeper.kept[BLOCKED].log
    log.loss = "the log cannot be used: stream not found"
    node.broker.operator.close(world.now)
    node.keeper.shards.drain(world.now)
    world.run(1.0)
    assert node.keeper.shards.is_drained
    assert node.keeper.shards[BLOCKED].alarm.startswith("the log cannot be used: stream not found; repair the log")
    assert log.tick(world.now) > world.now


def test_a_log_that_is_being_released_is_not_due_to_be_verified(world: ShardWorld) -> None:
    node = node_of(world)
    log = node.keeper.kept[BLOCKED].log
    node.keeper.shards.release(BLOCKED, world.now)
    world.run(2.0 * VERIFY_EVERY)
    assert log.phase is LogPhase.RELEASING
    assert log.tick(world.now) > world.now


# ---------------------------------------------------------------- the signs of it


def test_the_size_of_a_log_is_that_of_its_stream(world: ShardWorld) -> None:
    """The view had the size at the time of the claim, for as long as the broker had the shard. The metric added what it
    had written since, without claims and numbers."""
    node = node_of(world)
    world.unblock(BLOCKED)
    before = shard_views(node.keeper, node.broker, world.now)[OTHER].log_bytes
    assert before is not None
    for number in range(3):
        enqueue_in(node, OTHER, number)
    grown = shard_views(node.keeper, node.broker, world.now)[OTHER].log_bytes
    assert grown is not None
    assert grown > before
    world.run(10.5)  # the log is looked at
    true = world.logs[OTHER].state().size
    assert shard_views(node.keeper, node.broker, world.now)[OTHER].log_bytes == true
    samples = cluster_numbers(node.side, node.shards, Replicas(0.0))["dragoman_cluster_log_bytes"]
    assert ({"shard": str(OTHER)}, float(true)) in samples


def test_a_broker_is_ready_while_one_of_its_shards_can_be_written(world: ShardWorld) -> None:
    """Red brokers would be taken out of service for jobs that no other broker accepts either. Those with a full shard
    among others were red."""
    node = node_of(world)
    for shard, kept in enumerate(node.keeper.kept):
        assert kept.log.writer is not None
        assert store_problems(node.shards, node.side, node.world.now) == (
            [],
            [f"shard {each}: full" for each in range(shard)],
        )
        kept.log.writer.problem = "full"
    assert store_problems(node.shards, node.side, node.world.now) == (
        ["background jobs are refused: shard 0: full"],
        [],
    )


def test_a_log_that_is_lost_while_its_owner_lives_is_named(world: ShardWorld) -> None:
    """Its jobs are still shown: nobody else has them."""
    world.unblock(BLOCKED)
    node = node_of(world)
    id = enqueue_in(node, BLOCKED)
    world.logs[BLOCKED].is_gone = True
    world.run_until(lambda: node.keeper.kept[BLOCKED].log.loss, 90.0)
    before = node.remarks.count("shard log unusable")
    problems, (sentence,) = store_problems(node.shards, node.side, node.world.now)
    assert problems == []
    assert sentence.startswith("shard 2 of the cluster is unusable: the log cannot be used: stream not found; ")
    answer = node.ask("enqueue", b"x", service="s", key=keys_of(BLOCKED)[1])
    assert (answer.kind, answer.detail) == ("partitioned", sentence)
    assert node.ask("job", id=id).id == id
    world.run(125.0)
    assert node.remarks.count("shard log unusable") == before + 2
    world.logs[BLOCKED].is_gone = False
    world.run(20.0)
    assert store_problems(node.shards, node.side, node.world.now) == ([], [])


class NoOwners:
    """Shards that nobody has yet, and one that nobody gets."""

    count = SHARDS

    def owner(self, shard: int) -> str:
        return ""

    def is_ready(self, shard: int) -> bool:
        return False

    def unusable(self, shard: int) -> str:
        return "it is unusable" if shard == BLOCKED else ""


def test_a_job_without_a_key_waits_for_a_shard_that_gets_an_owner(world: ShardWorld) -> None:
    """It was refused with the reason of the unusable one, when it was the turn of that one."""
    places = Places(node_of(world).operations, "a", NoOwners())
    request = EnqueueRequest(service="s")
    chosen = {places.of(ENQUEUE, request, b"x", "local").shard for _ in range(2 * SHARDS)}
    assert chosen == {0, 1, 3}


def test_an_unusable_shard_is_named_with_its_reason_and_the_way_out(world: ShardWorld) -> None:
    """A request for it was refused as one to retry in a moment, and nothing but the log of the broker named it."""
    world.unblock(BLOCKED)
    node = node_of(world)
    id = enqueue_in(node, BLOCKED)
    world.run(1.0)
    world.logs[BLOCKED].messages[world.logs[BLOCKED].last - 1] = (b"nonsense", 0)
    world.freeze("a")
    other = world.start("b")
    world.run_until(lambda: len(other.owned()) == SHARDS - 1, 60.0)
    sentence = "shard 2 of the cluster is unusable: message "
    for _ in range(400):  # it is looked at again meanwhile
        world.run(0.1)
        problems, (degraded,) = store_problems(other.shards, other.side, other.world.now)
        assert problems == []
        assert degraded.startswith(sentence)
        assert "dragoman export --skip-damaged" in degraded
        view = shard_views(other.keeper, other.broker, world.now)[BLOCKED]
        assert (view.state, f"shard 2 of the cluster is unusable: {view.problem}") == ("unusable", degraded)
    assert other.keeper.claims["alarm"] > 1
    for answer in (other.ask("job", id=id), other.ask("enqueue", b"x", service="s", key=keys_of(BLOCKED)[0])):
        assert (answer.kind, answer.detail) == ("partitioned", degraded)
    assert cluster_numbers(other.side, other.shards, Replicas(0.0))["dragoman_cluster_shards_unusable"] == [({}, 1)]


# ---------------------------------------------------------------- commits of one iteration


def test_commits_of_one_iteration_are_reported_together_unless_one_takes_long(world: ShardWorld) -> None:
    """Reported one by one, they led to many small batches: a third more CPU for each job."""
    node = node_of(world)
    reported: list[tuple[float, int]] = []
    notes = node.broker.job_registry.pending_commits
    report = node.broker.store_reports.saved

    def saved(number: int, now: float, problem: str | None = None, shard: int = 0) -> None:
        reported.append((now, shard))
        report(number, now, problem, shard)

    world.unblock(BLOCKED)
    entries = [StoreValue(f"key/{shard}/{shard}", "x", shard + 1, shard) for shard in (OTHER, BLOCKED)]

    def apply() -> float:
        reported.clear()
        began = world.now
        node.shards.apply(list(entries), lambda number, problem, shard=0: saved(number, world.now, problem, shard))
        world.run(TOGETHER + 0.1)
        return began

    assert not notes.is_holding
    apply()
    assert [shard for _, shard in reported] == [OTHER, BLOCKED]
    assert reported[0][0] == reported[1][0]
    world.block(BLOCKED)
    began = apply()
    assert [shard for _, shard in reported] == [OTHER]
    assert reported[0][0] >= began + TOGETHER
    began = apply()  # it is known to be slow
    assert [shard for _, shard in reported] == [OTHER]
    assert reported[0][0] < began + TOGETHER
