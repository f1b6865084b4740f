"""A kept reply, a running job and a worker's registration belong to a client that comes back, and to no other."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.memodb.records import NOTICED_WITHIN, fingerprint

from .world import Said, Side, World, job, ready, result

LONG_BEFORE = NOTICED_WITHIN + 0.5
JUST_BEFORE = NOTICED_WITHIN - 0.5


def answered(request: int, payload: bytes = b"result") -> list[Said]:
    return [Said(request, "RESULT", b"", (), payload)]


def connect(world: World, label: str) -> Side:
    """Open a connection of the process in the label, as over a Unix socket."""
    return world.connect(process=int(label.removeprefix("pid ")) if label.startswith("pid ") else 0)


def serve(world: World, caller: Side, **asked: Any) -> tuple[Side, bytes]:
    """Run a job of the caller with request id 501. Returns its worker, which waits for the next."""
    worker = world.connect()
    id = world.busy_worker(worker, caller, **asked)
    worker.ask(2, result(id))
    assert caller.heard() == answered(501)
    return worker, id


def close(world: World, side: Side) -> None:
    """Close the connection in order, after receiving everything."""
    side.stream.closed_in_order = True
    world.cut(side)


# ---------------------------------------------------------------- who has the answer


def test_r63_a_caller_that_has_its_answer_and_closes_leaves_none_behind_for_another() -> None:
    """The next client of the same address with the same request id and message was given the kept answer."""
    world = World()
    caller = world.connect()
    worker, id = serve(world, caller)
    close(world, caller)
    assert world.session._callers.answers.bytes == 0
    stranger = world.connect()
    assert stranger.ask(501, job()) == []
    assert worker.heard() == [Said(2, "JOB", id, ("echo", 5_000), b"job")]
    worker.ask(3, result(id, b"its own"))
    assert stranger.heard() == answered(501, b"its own")
    assert world.counters.accepted == 2
    assert world.counters.replayed_answers == 0


def test_r63_a_caller_that_was_cut_off_gets_its_answer_again() -> None:
    world = World()
    caller = world.connect()
    serve(world, caller)
    assert world.again(caller).ask(501, job()) == answered(501)
    assert (world.counters.accepted, world.counters.replayed_answers) == (1, 1)


def test_r63_an_answer_that_had_not_left_when_the_connection_was_closed_is_kept() -> None:
    world = World()
    worker, caller = world.connect(), world.connect()
    id = world.busy_worker(worker, caller)
    caller.stream.closed_in_order = True  # its end was seen in this turn, before the answer was written
    worker.receive(2, result(id))
    world.runner._drain_effects(world.now)
    world.cut(caller)
    assert world.connect().ask(501, job()) == answered(501)
    assert world.counters.accepted == 1


def test_r62_a_caller_that_closes_while_its_job_runs_may_come_back_to_it() -> None:
    """A proxy may close a connection in order, whatever happened to its other half."""
    world = World()
    worker, caller = world.connect(), world.connect()
    id = world.busy_worker(worker, caller)
    close(world, caller)
    caller = world.connect()
    assert caller.ask(501, job()) == []
    worker.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert world.counters.accepted == 1


# ---------------------------------------------------------------- who was there before


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "running"])
@pytest.mark.parametrize("before", [LONG_BEFORE, JUST_BEFORE], ids=["long before", "just before"])
def test_r62_r63_a_connection_that_was_open_long_before_is_another_clients(is_answered: bool, before: float) -> None:
    world = World()
    other, caller = world.connect(), world.connect()
    if is_answered:
        serve(world, caller)
    else:
        world.busy_worker(world.connect(), caller)
    world.wait(before)
    world.cut(caller)
    is_other = before == LONG_BEFORE
    said = other.ask(501, job())
    assert said == ([] if is_other or not is_answered else answered(501))
    assert world.counters.accepted == 1 + is_other


def test_r61_a_ready_of_a_connection_that_was_open_long_before_is_another_worker() -> None:
    world = World()
    other, side = world.connect(), world.connect()
    first = world.worker(side)
    world.wait(LONG_BEFORE)
    world.cut(side)
    assert world.worker(other) != first


# ---------------------------------------------------------------- which process it is


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "running"])
@pytest.mark.parametrize("label", ["pid 7", "pid 8"])
def test_r62_r63_another_process_is_another_client(is_answered: bool, label: str) -> None:
    world = World()
    caller = connect(world, "pid 7")
    if is_answered:
        serve(world, caller)
    else:
        world.busy_worker(world.connect(), caller)
    world.cut(caller)
    is_other = label == "pid 8"
    said = connect(world, label).ask(501, job())
    assert said == ([] if is_other or not is_answered else answered(501))
    assert world.counters.accepted == 1 + is_other


def test_r62_callers_of_two_processes_alike_in_everything_both_come_back() -> None:
    world = World()
    for label in ("pid 7", "pid 8"):
        caller = connect(world, label)
        caller.ask(501, job())
        world.cut(caller)
    for label in ("pid 7", "pid 8"):
        connect(world, label).ask(501, job())
    assert world.counters.accepted == 2


def test_r61_a_ready_of_another_process_is_another_worker() -> None:
    world = World()
    side = connect(world, "pid 7")
    first = world.worker(side)
    world.cut(side)
    assert world.worker(connect(world, "pid 8")) != first
    assert connect(world, "pid 7").ask(1, ready()) == []
    assert world.workers == 2


@pytest.mark.parametrize("is_told", [True, False], ids=["it was told", "it was parked"])
def test_r61_a_worker_that_has_the_answer_to_its_ready_does_not_say_it_again(is_told: bool) -> None:
    world = World()
    side = world.connect()
    first = world.worker(side)
    if is_told:
        world.wait(world.options.heartbeat_after)
        assert side.heard() == [Said(1, "HEARTBEAT", first)]
    close(world, side)
    world.connect().ask(1, ready())
    assert world.workers == 1 + is_told


# ---------------------------------------------------------------- what was asked


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 65_536, 65_537, 200_000])
def test_an_imprint_is_of_every_byte_and_not_of_its_kind(size: int) -> None:
    """Of a message over 16 KiB only samples were compared, so that different payloads got each other's answers."""
    body = bytes(size)
    assert fingerprint(body) == fingerprint(bytearray(body))
    others = {fingerprint(body + b"\0")}
    for at in range(0, size, max(1, size // 50)):
        changed = bytearray(body)
        changed[at] = 1
        others.add(fingerprint(changed))
    assert len(others) == 1 + len(range(0, size, max(1, size // 50)))
    assert fingerprint(body) not in others


@pytest.mark.parametrize("at", [5_000, 20_000, 70_000])
def test_r63_a_large_job_that_differs_in_one_byte_is_another_job(at: int) -> None:
    world = World()
    caller = world.connect()
    payload = bytearray(90_000)
    worker, id = serve(world, caller, payload=bytes(payload))
    caller = world.again(caller)
    payload[at] = 1
    assert caller.ask(501, job(bytes(payload))) == []
    worker.ask(3, result(id, b"of the other"))
    assert caller.heard() == answered(501, b"of the other")
