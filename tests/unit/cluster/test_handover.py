"""Workers that go to another broker with their running attempts, because theirs stops or was killed (R119)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dragoman.cluster.gossip import ServiceGossip
from dragoman.cluster.records import Failed, Free, Held, Left, Returned, encode_records, read_records
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Job, Token, Worker
from dragoman.core.states import DONE, GONE, LOST, JobState

from .shard_world import ShardNode, ShardWorld
from .test_shard_jobs import enqueue, owner_of, world_with_workers
from .world import STEP


def running_at(world: ShardWorld, node: ShardNode, id: bytes) -> tuple[Worker, Attempt]:
    """Let a worker of this broker run the job, which can take it to another broker."""
    worker = node.worker(moves=True)
    world.run_until(lambda: node.local.sent)
    (attempt,) = node.local.sent
    return worker, attempt


def stop(world: ShardWorld, node: ShardNode) -> None:
    """Stop a broker, as SIGTERM does."""
    node.broker.operator.close(world.now)
    node.keeper.shards.drain(world.now)


def job_of(world: ShardWorld, id: bytes) -> Job:
    world.run_until(lambda: world.find(id) is not None)
    job = world.find(id)
    assert job is not None
    return job


def finish(world: ShardWorld, node: ShardNode, attempt: Attempt, id: bytes) -> None:
    """Let the worker deliver its result at this broker. The job has run once, in its one attempt."""
    worker = next(each for each in node.broker.worker_registry.workers.values() if attempt.token in each.running)
    node.finish(worker.running[attempt.token], b"X")
    world.run_until(lambda: getattr(world.find(id), "outcome", None) is not None)
    job = job_of(world, id)
    assert (job.outcome, bytes(job.result), job.spent, world.runs) == (DONE, b"X", 0, {b"x": 1})
    world.run(1.0)
    assert not any(len(each.keeper.outcomes) for each in world.all_nodes)


def leave(world: ShardWorld, node: ShardNode, worker: Worker) -> None:
    """Let the connection of a worker end, and its broker notice it."""
    node.broker.leave(worker, world.now, "its worker's connection ended")
    world.run(STEP)


def places(world: ShardWorld, is_owner: bool) -> tuple[bytes, ShardNode, ShardNode, ShardNode]:
    """Return a job of one attempt, the broker of its worker, its owner, and a third broker."""
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    others = [each for each in world.all_nodes if each is not owner]
    return (id, owner, others[0], others[1]) if is_owner else (id, others[0], owner, others[1])


@pytest.mark.parametrize("is_owner", [True, False])
@pytest.mark.parametrize("is_quick", [True, False])
def test_a_worker_takes_its_job_to_another_broker_when_its_broker_stops(is_owner: bool, is_quick: bool) -> None:
    """`is_quick`: it arrives there before the owner hears that it has left."""
    world = world_with_workers("a", "b", "c")
    id, first, _, third = places(world, is_owner)
    worker, attempt = running_at(world, first, id)
    stop(world, first)
    world.run_until(lambda: first.local.moved)
    assert first.local.moved == [worker]
    if is_quick:
        third.worker(moves=True, brings=attempt.token)
        world.run(0.5)
    leave(world, first, worker)
    world.run_until(lambda: not len(first.keeper.outcomes))
    assert not first.broker.jobs
    if not is_quick:
        world.run(5.0)
        third.worker(moves=True, brings=attempt.token)
    world.freeze(first.name)
    world.run(20.0)
    job = job_of(world, id)
    assert job.state is JobState.RUNNING
    finish(world, third, attempt, id)


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_worker_takes_its_job_to_another_broker_when_its_broker_is_killed(is_owner: bool) -> None:
    world = world_with_workers("a", "b", "c")
    id, first, _, third = places(world, is_owner)
    _, attempt = running_at(world, first, id)
    world.freeze(first.name)
    world.run(0.1)
    third.worker(moves=True, brings=attempt.token)
    world.run(20.0)
    job = job_of(world, id)
    assert job.attempt is not None
    assert (job.state, job.attempt.worker.name) == (JobState.RUNNING, third.name)
    finish(world, third, attempt, id)


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_worker_may_come_to_the_owner_itself(is_owner: bool) -> None:
    world = world_with_workers("a", "b", "c")
    id, first, _, _ = places(world, is_owner)
    worker, attempt = running_at(world, first, id)
    stop(world, first)
    world.run_until(lambda: first.local.moved)
    leave(world, first, worker)
    world.run_until(lambda: not len(first.keeper.outcomes))
    job_of(world, id)
    owner = owner_of(world, id)
    owner.worker(moves=True, brings=attempt.token)
    world.freeze(first.name)
    world.run(40.0)
    assert job_of(world, id).state is JobState.RUNNING
    finish(world, owner, attempt, id)


def test_a_worker_that_comes_to_the_owner_before_that_has_adopted_the_job_delivers_there() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=1)
    first = owner_of(world, id)
    _, attempt = running_at(world, first, id)
    world.freeze(first.name)
    (second,) = world.all_nodes
    second.worker(moves=True, brings=attempt.token)
    job = job_of(world, id)
    world.run(40.0)
    assert job.state is JobState.RUNNING
    finish(world, second, attempt, id)


def test_a_worker_that_comes_nowhere_has_lost_its_attempt_after_the_resume_timeout() -> None:
    world = world_with_workers("a", "b", "c")
    id, first, owner, _ = places(world, False)
    worker, _ = running_at(world, first, id)
    stop(world, first)
    world.run_until(lambda: first.local.moved)
    leave(world, first, worker)
    world.run_until(lambda: not len(first.keeper.outcomes))
    world.run(owner.broker.policy.worker_resume_timeout - 2.0)
    job = job_of(world, id)
    assert job.state is JobState.RUNNING
    world.run(4.0)
    assert (job.outcome, job.reason) == (LOST, "its worker was out of reach for 30 s")


def test_a_worker_that_comes_after_the_job_was_tried_again_is_recalled_and_its_result_dropped() -> None:
    """The second attempt ends the job. What the first worker brings does not count, and nothing runs a third time."""
    world = world_with_workers("a", "b", "c")
    id = enqueue(world, b"x", attempts=2)
    first = owner_of(world, id)
    _, late = running_at(world, first, id)
    second, third = (each for each in world.all_nodes if each is not first)
    world.freeze(first.name)
    world.run_until(lambda: world.find(id) is not None and job_of(world, id).spent == 1, 60.0)
    second.worker()
    world.run_until(lambda: second.local.sent, 60.0)
    worker = third.worker(moves=True, brings=late.token)
    attempt = worker.running[Token(late.token)]
    world.run_until(lambda: third.local.cancelled)
    assert third.local.cancelled == [attempt]
    third.finish(attempt, b"late")
    world.work()
    world.run_until(lambda: job_of(world, id).outcome is not None)
    job = job_of(world, id)
    assert (job.outcome, bytes(job.result), world.runs) == (DONE, b"X", {b"x": 2})
    world.run(1.0)
    assert (len(third.keeper.outcomes), list(third.broker.jobs)) == (0, [id] if third is owner_of(world, id) else [])


def test_only_the_broker_that_has_the_worker_may_say_that_an_attempt_is_lost() -> None:
    """The first broker notices late that the connection of the worker has ended; the worker is at the third by then."""
    world = world_with_workers("a", "b", "c")
    id, first, _, third = places(world, False)
    worker, attempt = running_at(world, first, id)
    third.worker(moves=True, brings=attempt.token)
    world.run(0.5)
    leave(world, first, worker)
    world.run(1.0)
    assert not len(first.keeper.outcomes)
    assert job_of(world, id).state is JobState.RUNNING
    finish(world, third, attempt, id)


def test_a_worker_that_names_an_attempt_of_another_service_is_recalled() -> None:
    world = world_with_workers("a", "b", "c")
    id, first, owner, third = places(world, False)
    _, attempt = running_at(world, first, id)
    stranger = third.worker("other", moves=True, brings=attempt.token)
    world.run_until(lambda: third.local.cancelled)
    assert [each.worker for each in third.local.cancelled] == [stranger]
    world.work()
    world.run_until(lambda: job_of(world, id).outcome is not None)
    assert (job_of(world, id).outcome, world.runs) == (DONE, {b"x": 1})
    assert owner is owner_of(world, id)


@pytest.mark.parametrize("has_arrived", [True, False])
@pytest.mark.parametrize("is_killed", [True, False])
def test_the_shard_may_move_while_the_worker_does(has_arrived: bool, is_killed: bool) -> None:
    """`has_arrived`: the worker is at another broker when the owner stops or is killed."""
    world = world_with_workers("a", "b", "c", "d")
    id, first, owner, third = places(world, False)
    worker, attempt = running_at(world, first, id)
    stop(world, first)
    world.run_until(lambda: first.local.moved)
    leave(world, first, worker)
    world.run_until(lambda: not len(first.keeper.outcomes))
    world.freeze(first.name)
    if has_arrived:
        third.worker(moves=True, brings=attempt.token)
        world.run(0.5)
    if is_killed:
        world.freeze(owner.name)
    else:
        stop(world, owner)
        world.run_until(lambda: owner.keeper.shards.is_drained)
    world.run_until(lambda: any(not each.keeper.shards.is_draining and each.broker.jobs for each in world.all_nodes))
    if not has_arrived:
        world.run(3.0)
        third.worker(moves=True, brings=attempt.token)
    world.run(20.0)
    assert job_of(world, id).reason == ""
    assert job_of(world, id).state is JobState.RUNNING
    finish(world, third, attempt, id)


def test_a_worker_with_a_running_call_is_sent_away_when_that_has_ended() -> None:
    """Nobody but its broker waits for the call."""
    world = world_with_workers("a", "b", "c")
    _, first, _, _ = places(world, True)
    worker = first.worker(capacity=2, moves=True)
    world.run_until(lambda: first.local.sent)
    first.call(b"call")
    world.run_until(lambda: len(first.local.sent) == 2)
    stop(world, first)
    world.run(2.0)
    assert not first.local.moved
    first.finish(first.local.sent[1], b"called")
    world.run_until(lambda: first.local.moved)
    assert (first.local.moved, first.results) == ([worker], [("done", b"called")])


def test_idle_workers_are_sent_away_at_once() -> None:
    """R246: they stayed until the last call of their broker had ended, and no other broker had their services."""
    world = ShardWorld("a", "b")
    world.wait_for_owners()
    node = world.node("a")
    idle, rooted, busy = node.worker(moves=True), node.worker(), node.worker("other", moves=True)
    node.call(b"call", service="other")
    world.run_until(lambda: node.local.sent)
    stop(world, node)
    world.run_until(lambda: node.local.moved, 2.0)
    world.run(1.0)
    assert node.local.moved == [idle]
    assert rooted in node.broker.worker_registry.workers.values()
    node.finish(node.local.sent[0], b"called")
    world.run(1.0)
    assert node.local.moved == [idle, busy]


def test_a_worker_that_cannot_move_is_waited_for() -> None:
    world = world_with_workers("a", "b", "c")
    id, first, _, _ = places(world, True)
    first.worker()
    world.run_until(lambda: first.local.sent)
    stop(world, first)
    world.run(20.0)
    assert not first.local.moved
    assert job_of(world, id).state is JobState.RUNNING
    world.work()
    world.run_until(lambda: job_of(world, id).outcome is not None)
    assert (job_of(world, id).outcome, world.runs) == (DONE, {b"x": 1})


def test_a_worker_that_is_not_asked_in_time_may_still_come_with_its_job() -> None:
    """The time to stop has passed while a worker that can resume did not answer, or also ran a call."""
    world = world_with_workers("a", "b", "c")
    id, first, _, third = places(world, True)
    worker, attempt = running_at(world, first, id)
    stop(world, first)
    world.run_until(lambda: first.local.moved)
    first.broker.operator.abort(world.now)
    world.run(0.5)
    assert worker.state is GONE
    world.freeze(first.name)
    third.worker(moves=True, brings=attempt.token)
    world.run(20.0)
    assert job_of(world, id).state is JobState.RUNNING
    finish(world, third, attempt, id)


def test_a_worker_is_not_sent_away_if_there_is_no_other_broker() -> None:
    world = world_with_workers("a")
    id = enqueue(world, b"x", attempts=1)
    (node,) = world.all_nodes
    running_at(world, node, id)
    node.worker("other", moves=True)
    stop(world, node)
    world.run(5.0)
    assert not node.local.moved


def test_a_job_that_its_worker_had_not_started_returns_to_the_queue_of_its_new_owner() -> None:
    """It went back to a link that nobody reads, and was lost when the broker ended."""
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=1)
    first = owner_of(world, id)
    _, attempt = running_at(world, first, id)
    stop(world, first)
    job = job_of(world, id)
    world.run_until(lambda: owner_of(world, id) is not first)
    first.broker.attempts.undelivered(attempt, world.now)
    world.run_until(lambda: not len(first.keeper.outcomes) and job_of(world, id).state is JobState.WAITING)
    job = job_of(world, id)
    world.freeze(first.name)
    (second,) = world.all_nodes
    second.worker()
    world.run_until(lambda: second.local.sent)
    world.work()
    world.run_until(lambda: job.outcome is not None)
    assert (job.outcome, job.spent) == (DONE, 0)


def test_progress_of_a_job_that_has_moved_reaches_its_owner() -> None:
    world = world_with_workers("a", "b", "c")
    id, first, _, third = places(world, False)
    _, attempt = running_at(world, first, id)
    world.freeze(first.name)
    worker = third.worker(moves=True, brings=attempt.token)
    world.run(0.5)
    third.broker.attempts.progress(worker.running[attempt.token], b"half", world.now)
    world.run(0.5)
    assert job_of(world, id).progress == b"half"
    finish(world, third, attempt, id)


def test_records_of_handovers_are_read_as_they_were_written() -> None:
    records = [Held(b"t" * 16, "s"), Left(b"t" * 16), Returned(b"t" * 16), Failed(b"t" * 16, "lost", "x")]
    assert read_records(encode_records(list(records))) == records


@pytest.mark.parametrize("steps", range(6))
def test_a_job_on_its_way_to_a_broker_that_stops_returns_to_its_queue(steps: int) -> None:
    """The broker ended before it had answered, and the attempt was lost. `steps`: before the broker stops, so that the
    job waits for its commit then, or is on its way."""
    world = world_with_workers("a", "b", "c")
    _, first, owner, _ = places(world, False)
    first.worker(capacity=5)
    world.run_until(lambda: first.local.sent)
    world.work()
    world.run(1.0)
    job = owner.enqueue(b"y", attempts=1)
    assert job is not None
    world.run(STEP * steps)
    has_run = b"y" in world.runs
    stop(world, first)
    assert not first.side.departure.is_quiet
    world.run_until(lambda: has_run or first.side.departure.is_quiet)
    world.freeze(first.name)
    world.run(15.0)
    assert has_run or (job.state, job.spent, b"y" in world.runs) == (JobState.WAITING, 0, False)


def test_a_broker_that_stops_offers_no_slots_with_its_answers() -> None:
    world = world_with_workers("a", "b", "c")
    _, first, owner, _ = places(world, False)
    first.worker(capacity=5)
    world.run_until(lambda: any(each.attempts for each in owner.side.peers.values()))
    stop(world, first)
    peer = first.side.peers[owner.name]
    peer.freed["s"] = None
    first.side.taken.add_free(peer)
    assert Free("s", 0) in peer.link._records


def test_late_outcomes_are_acknowledged_when_the_log_has_the_end_of_the_attempt() -> None:
    """C5: until then, the next owner may need the outcome."""
    world = world_with_workers("a", "b", "c")
    id, first, owner, _ = places(world, False)
    running_at(world, first, id)
    job = job_of(world, id)
    attempt = job.attempt
    assert attempt is not None
    world.log_loss = 1.0
    owner.broker.attempts.time_out(attempt, world.now)
    first.local.cancelled.clear()
    world.run(0.01)
    world.work()
    world.run(0.5)
    assert len(first.keeper.outcomes) == 1
    world.log_loss = 0.0
    world.run_until(lambda: not len(first.keeper.outcomes))


def test_a_broker_whose_worker_has_left_may_tell_so_before_the_outcomes_of_its_jobs() -> None:
    """The broker had fewer slots than jobs, as others saw it, and an invariant broke."""
    world = world_with_workers("a", "b", "c")
    _, first, _, _ = places(world, False)
    first.worker(capacity=2)
    world.run_until(lambda: first.local.sent)
    enqueue(world, b"y")
    world.run_until(lambda: len(first.local.sent) == 2)
    peer = next(each for each in world.all_nodes if each.side.peers[first.name].attempts).side.peers[first.name]
    assert peer.gossip is not None
    fewer = replace(peer.gossip, services={"s": ServiceGossip(1, 1, 0)})
    for node in world.all_nodes:
        if node is not first:
            node.side._workers.heard(node.side.peers[first.name], fewer, 0, world.now)
            check(node.broker)
