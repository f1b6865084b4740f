"""Draining and stopping of a broker with Powerhose workers."""

from __future__ import annotations

from .world import (
    GIVE,
    PONG,
    SECOND,
    WAKE,
    World,
)


def test_drain_refuses_what_waits_and_lets_end_what_runs() -> None:
    world = World()
    bench, caller = world.busy()
    waiting = world.call(b"next")
    world.drain()
    assert waiting.ending() == "refused"
    late = world.call(b"late")
    assert late.ending() == "refused"
    assert bench.ping() == [PONG]
    bench.finish()
    assert caller.told() == [b"result"]
    assert bench.state == "idle"


def test_drain_while_a_worker_is_asked_lets_it_do_the_job() -> None:
    world = World()
    bench, caller = world.asked()
    world.drain()
    bench.say(GIVE)
    bench.job_id = bench.told()[0].split(b":::")[1]
    bench.finish()
    assert caller.told() == [b"result"]


def test_drain_while_a_worker_is_asked_and_does_not_answer_refuses_the_job() -> None:
    world = World()
    _, caller = world.asked()
    world.drain()
    world.wait(1)
    assert caller.ending() == "refused"


def test_a_worker_that_is_killed_by_an_operator_is_hung_up_on() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    (worker,) = world.broker.worker_registry.workers.values()
    world.broker.availability.drain(worker, world.now, at_once=True)
    world.run_once()
    assert bench.end.is_over
    assert caller.ending() == "lost"
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_abort_gives_up_what_runs_and_what_is_asked() -> None:
    world = World(attempts=1)
    _, caller = world.busy()
    asked = world.worker(SECOND)
    other = world.call(b"next")
    assert asked.told() == [WAKE]
    world.broker.dispatch.is_draining = True
    world.broker.operator.abort(world.now)
    world.runner.run_once()
    for end in world.ends:
        end.pump()
    assert caller.ending() == "lost"
    assert other.told() != []
