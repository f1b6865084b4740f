"""Large jobs for a worker with many slots: the broker sends no more than the worker takes (R206)."""

from __future__ import annotations

import pytest

from dragoman.core.invariants import check
from dragoman.core.model import Worker
from dragoman.core.policy import Policy
from dragoman.core.rights import Principal
from dragoman.operations.why import explain

from .world import End, World, names, result

MIB = 1 << 20
LARGE = bytes(MIB)


@pytest.fixture
def world() -> World:
    return World(max_payload=64 * MIB)


def core(end: End) -> Worker:
    worker: Worker = end.peer.remote.worker
    return worker


def take(world: World, end: End, count: int) -> list[bytes]:
    """Let the kernel of a worker take so many bytes. Returns the tokens of the jobs that have arrived."""
    end.stream.room = count
    end.stream.drain()
    world.run_once()
    end.stream.room = 0
    return [each[1] for each in end.told()]


def waiting(world: World) -> int:
    return world.broker.worker_registry.services["echo"].queue.length


def test_large_jobs_of_one_turn_are_sent_as_the_worker_takes_them(world: World) -> None:
    """A bug: the broker handed out a job for each free slot in one turn, found more than `max_send_buffer` unsent, and
    closed the connection of the worker, which had done nothing wrong; and again when it was back."""
    client, worker = world.client(), world.worker(capacity=100)
    worker.stop_reading()
    world.submit(client, *[LARGE] * 40)
    assert (len(core(worker).running), waiting(world), world.state(worker)) == (4, 36, "busy")
    arrived = len(take(world, worker, 3 * MIB + 4_096))
    assert (len(core(worker).running), waiting(world)) == (8, 32), "little was left: the next four are on their way"
    while waiting(world):
        before = waiting(world)
        arrived += len(take(world, worker, 5 * MIB))
        assert waiting(world) < before
        assert worker.stream.backlog <= 5 * MIB + 4_096
    arrived += len(take(world, worker, 100 * MIB))
    assert arrived == len(core(worker).running) == 40
    assert (world.state(worker), core(worker).is_behind, world.counters.connections_closed_slow) == ("idle", False, 0)
    assert not world.broker.dispatch.loaded


def test_a_worker_that_takes_everything_at_once_gets_all_jobs(world: World) -> None:
    client, worker = world.client(), world.worker(capacity=100)
    world.submit(client, *[LARGE] * 40)
    while waiting(world):
        world.run_once()
    assert len(core(worker).running) == 40
    assert not world.broker.dispatch.loaded


def test_small_jobs_are_not_counted(world: World) -> None:
    client, worker = world.client(), world.worker(capacity=1_000)
    worker.stop_reading()
    world.submit(client, *[bytes(16 << 10)] * 500)
    assert (len(core(worker).running), waiting(world)) == (500, 0)
    assert not world.broker.dispatch.loaded


def test_a_job_of_any_size_may_be_sent_and_the_next_one_goes_to_another_worker(world: World) -> None:
    client, slow = world.client(), world.worker(capacity=10)
    slow.stop_reading()
    world.submit(client, bytes(12 * MIB), b"small")
    assert (len(core(slow).running), waiting(world)) == (1, 1)
    other = world.worker(capacity=10)
    assert (len(core(slow).running), len(core(other).running), waiting(world)) == (1, 1, 0)


def test_why_says_that_the_worker_has_not_read(world: World) -> None:
    client, worker = world.client(), world.worker(capacity=10)
    worker.stop_reading()
    *_, last = world.submit(client, *[LARGE] * 6)
    job = next(each for each in world.broker.jobs.values() if each.id == last)

    def why() -> tuple[str, str]:
        found = explain(job, world.broker, world.now, Principal("p"))
        return found.kind, found.sentence

    kind, sentence = why()
    assert kind == "all busy"
    assert sentence.startswith("It waits: its only worker is behind: at least 41")
    assert sentence.endswith(" bytes of other jobs are still to be sent there.")
    second = world.worker(capacity=1)
    world.broker.availability.detach(core(second), world.now)
    assert why()[1] == ("It waits: none of 2 workers is free (1 unreachable, 1 behind with reading their jobs).")
    world.broker.availability.attach(core(second), world.now)


def test_exactly_at_the_marks(world: World) -> None:
    """Behind from 4 MiB on, and until no more than 1 MiB is left."""
    client, worker = world.client(), world.worker(capacity=100)
    worker.stop_reading()
    world.submit(client, *[bytes(2 * MIB - 1)] * 2)
    assert core(worker).unsent > 4 * MIB, "measured, with the heads"
    assert not core(worker).is_behind, "what was given were two bytes less than the mark"
    world.submit(client, LARGE, b"last")
    assert (core(worker).is_behind, len(core(worker).running)) == (True, 3)
    take(world, worker, worker.stream.backlog - MIB - 1)
    assert (worker.stream.backlog, len(core(worker).running)) == (MIB + 1, 3)
    take(world, worker, 1)
    assert (core(worker).is_behind, len(core(worker).running)) == (False, 4)


@pytest.mark.parametrize("act", ["cut", "kill", "drain", "detach", "silence", "resize", "cancel"])
def test_what_else_befalls_a_worker_that_is_behind(world: World, act: str) -> None:
    """No job is lost, and the worker gets jobs again if it stays."""
    client, worker = world.client(), world.worker(capacity=10)
    worker.stop_reading()
    ids = world.submit(client, *[LARGE] * 8)
    availability, slow = world.broker.availability, core(worker)
    if act == "cut":
        worker.cut()
        assert waiting(world) == 8, "none of them had left"
    elif act == "kill":
        availability.drain(slow, world.now, at_once=True)
        world.run_once()
        assert waiting(world) == 4
    elif act == "drain":
        availability.drain(slow, world.now)
        take(world, worker, 100 * MIB)
        assert (len(slow.running), waiting(world)) == (4, 4), "it gets no more"
    elif act == "detach":
        availability.detach(slow, world.now)
        take(world, worker, 100 * MIB)
        assert (len(slow.running), waiting(world)) == (4, 4)
        availability.attach(slow, world.now)
        world.run_once()
        assert waiting(world) == 0
    elif act == "silence":
        world.wait(world.options.lease + 1.0)
        assert worker.is_over
        assert waiting(world) == 8
    elif act == "resize":
        availability.resize(slow, 20, world.now)
        assert (world.state(worker), waiting(world)) == ("busy", 4)
        take(world, worker, 100 * MIB)
        assert waiting(world) == 0
    else:
        client.receive(names("CANCEL", *ids[:4]))
        world.run_once()
        assert (len(slow.running), len(slow.stuck), waiting(world)) == (0, 4, 4), "their bytes are still unsent"
        assert slow.is_behind
        take(world, worker, 100 * MIB)
        assert (len(slow.running), waiting(world)) == (4, 0)
    world.run_once()
    check(world.broker)
    assert all(each.state != "gone" for each in world.broker.dispatch.loaded)


def test_what_the_broker_has_piled_up_for_a_caller_does_not_close_it(world: World) -> None:
    """A bug: results of many workers that were ready at once closed the connection of their caller."""
    client, worker = world.client(), world.worker(capacity=100)
    world.submit(client, *[b"job"] * 60)
    tokens = [each[1] for each in worker.told()]
    client.stop_reading()
    for token in tokens:
        worker.receive(result((token, LARGE)))
    world.run_once()
    assert client.stream.backlog > 50 * MIB
    seen = 0
    for _ in range(60):
        client.stream.room = MIB + 100
        client.stream.drain()
        world.wait(1.0, worker)
        assert not client.is_over
        seen += len(client.told())
    assert seen == 60


def test_memory_that_is_full_of_results_is_bounded(world: World) -> None:
    """R17, L6."""
    world = World(max_payload=16 * MIB, policy=Policy(max_memory=64 * MIB))
    client, worker = world.client(), world.worker(capacity=100)
    world.submit(client, *[b"job"] * 90)
    tokens = [each[1] for each in worker.told()]
    client.stop_reading()
    most = 0
    for token in tokens:
        if not worker.is_over:
            worker.receive(result((token, LARGE)))
            world.run_once()
            most = max(most, world.broker.job_registry.memory.in_transit)
    assert most <= 66 * MIB
