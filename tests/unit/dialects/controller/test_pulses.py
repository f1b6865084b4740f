"""Pulses with unknown ids, and the tasks that pulses name: R88, R89, R91."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome
from dragoman.dialects.controller import remote_workers

from .world import (
    ROOT,
    UID,
    Fellow,
    Told,
    World,
    editions,
    framed,
    numbers,
    pulse,
    retry,
    second_worker,
)

# -------------------------------------------------------------------- R88 and R89: pulses of somebody else


@editions
@pytest.mark.parametrize("kind", ["OK", "FETCH_ME", "SHUTDOWN"])
def test_r88_a_dropped_id_is_unknown_and_counted(world: World, edition: str, kind: str) -> None:
    fellow = world.worker(edition)
    fellow.pulse("SHUTDOWN")
    assert world.counters.false_expiries == 0
    assert fellow.pulse(kind) == Told("UNKNOWN_ID")
    assert world.counters.false_expiries == 1
    assert not world.session._workers.by_id


def test_r88_an_id_that_was_never_given_is_unknown_and_not_counted(world: World) -> None:
    visitor = world.visit()
    visitor.say(pulse("OK", worker_id=77))
    world.run_once()
    assert visitor.told() == Told("UNKNOWN_ID")
    assert world.counters.false_expiries == 0


def test_r88_dropped_ids_are_forgotten_by_time_and_by_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_workers, "DROPPED_KEPT", 2)
    fellows = [world.worker() for _ in range(3)]
    for fellow in fellows:
        fellow.pulse("SHUTDOWN")
    assert list(world.session._workers.dropped) == [fellow.id for fellow in fellows[1:]]
    world.wait(601)
    last = world.worker()
    last.pulse("SHUTDOWN")
    assert list(world.session._workers.dropped) == [last.id]


@pytest.mark.parametrize("kind", ["OK", "FETCH_ME", "SHUTDOWN"])
def test_r89_a_pulse_of_another_user_is_not_the_workers(world: World, kind: str) -> None:
    fellow, _, _ = world.busy(next_pulse=10)
    assert fellow.pulse(kind, address=ROOT, next_pulse=1000) == Told("UNKNOWN_ID")
    assert fellow.state == "busy"
    assert fellow.calls() == []
    world.wait(11.9)
    assert fellow.state == "busy"
    world.wait(0.2)
    fellow.call("GET_STATUS")


@editions
def test_an_unknown_type_is_answered_whatever_the_id(world: World, edition: str) -> None:
    fellow, _, _ = world.busy(edition)
    assert fellow.pulse(9) == Told("UNKNOWN_TYPE")
    assert fellow.state == "busy"
    assert world.bad == {"unknown type": 1}
    stranger = Fellow(world, fellow.id + 1000, edition, UID)
    assert stranger.pulse(9) == Told("UNKNOWN_TYPE")


def test_a_pulse_with_fields_of_the_future_is_read(world: World) -> None:
    visitor = world.visit()
    visitor.say(framed(numbers(0, 0, 0, 60) + b"\x7a\x03abc"))
    world.run_once()
    assert visitor.told() == Told("OK", 1)


# -------------------------------------------------------------------- R91: which task a pulse names


@pytest.mark.parametrize("names", ["0", "own", "previous"])
@pytest.mark.parametrize("is_busy", [False, True])
def test_r91_zero_own_and_previous_are_fine(world: World, names: str, is_busy: bool) -> None:
    fellow, _, first = world.busy()
    fellow.finish(first)
    own = 0
    if is_busy:
        world.submit()
        own = fellow.take().task
    world.wait(1)
    fellow.ok({"0": 0, "own": own, "previous": first.task}[names])
    assert fellow.calls() == []
    assert fellow.is_known


@editions
def test_r91_a_foreign_task_is_asked_about_and_then_the_worker_must_restart(world: World, edition: str) -> None:
    fellow, caller, _ = world.busy(edition)
    other = second_worker(world)
    world.wait(1)
    fellow.ok(4711)
    fellow.ok(4711)
    status = fellow.call("GET_STATUS")
    assert fellow.state == "busy"
    status.answer("OK", 4711)
    restart = fellow.call("RESTART")
    assert fellow.state == "gone"
    restart.answer("FAILED", 0, b"I will not")
    assert not restart.is_open
    retry(world)
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")


@pytest.mark.parametrize("names", [0, 1])
def test_r91_a_foreign_task_in_a_pulse_that_the_status_does_not_confirm_is_forgiven(world: World, names: int) -> None:
    fellow, _, _ = world.busy()
    world.wait(1)
    fellow.ok(4711)
    fellow.call("GET_STATUS").answer("OK", names)
    assert fellow.state == "busy"
    assert fellow.calls() == []


def test_r91_a_pulse_that_crossed_an_exchange_is_not_judged(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    world.wait(1)
    crossing = world.visit()
    world.wait(1)
    call.answer("OK", call.task)
    crossing.say(pulse("OK", worker_id=fellow.id, task_id=4711))
    world.run_once()
    assert crossing.told() == Told("OK")
    assert fellow.calls() == []
    assert fellow.state == "busy"


def test_r91_a_pulse_while_an_exchange_is_open_is_not_judged(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    world.wait(1)
    for task in (4711, 0, 0, 0):
        fellow.ok(task)
    assert fellow.calls() == []
    call.answer("OK", call.task)
    assert fellow.calls() == []


def test_r91_idle_pulses_that_crossed_the_exchange_do_not_count(world: World) -> None:
    fellow = world.worker()
    world.submit()
    call = fellow.call("SET_TASK")
    world.wait(1)
    crossing = [world.visit() for _ in range(4)]
    call.answer("OK", call.task)
    for visitor in crossing:
        visitor.say(pulse("OK", worker_id=fellow.id))
    world.run_once()
    assert fellow.calls() == []


@editions
@pytest.mark.parametrize("names", [0, 4711])
def test_r91_always_is_the_letter_of_the_document(edition: str, names: int) -> None:
    world = World(restart_on_mismatch="always")
    fellow, caller, call = world.busy(edition, attempts=1)
    world.wait(1)
    fellow.ok(call.task)
    assert fellow.calls() == []
    fellow.ok(names)
    fellow.call("RESTART").answer()
    assert fellow.state == "gone"
    assert caller.outcome is Outcome.LOST


def test_r91_always_does_not_judge_a_pulse_that_crossed_an_exchange() -> None:
    world = World(restart_on_mismatch="always")
    fellow = world.worker()
    world.submit()
    crossing = world.visit()
    fellow.take()
    crossing.say(pulse("OK", worker_id=fellow.id))
    world.run_once()
    assert fellow.state == "busy"
    assert fellow.calls() == []


def test_r91_always_restarts_an_idle_worker_that_names_its_last_task() -> None:
    world = World(restart_on_mismatch="always")
    fellow, _, call = world.busy()
    fellow.finish(call)
    world.wait(1)
    fellow.ok(call.task)
    fellow.call("RESTART")
    assert fellow.state == "gone"


def test_r91_a_task_that_was_refused_is_not_the_previous_one(world: World) -> None:
    """It still works at what was cancelled, says BUSY to all else, and names in its pulses what it has."""
    fellow, first, call = world.busy()
    world.withdraw(first)
    second = world.submit(b"second")
    fellow.call("SET_TASK").answer("BUSY", call.task)
    world.wait(0.05)
    fellow.ok(call.task)
    assert fellow.calls() == []
    world.wait(1)
    for each in fellow.calls():
        each.answer("BUSY", call.task)
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"late")
    assert fellow.is_known
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE


def test_r91_a_task_that_was_cancelled_and_then_refused_is_not_the_previous_one(world: World) -> None:
    fellow, first, call = world.busy()
    world.withdraw(first)
    second = world.submit(b"second")
    refused = fellow.call("SET_TASK")
    world.withdraw(second)
    refused.answer("BUSY", call.task)
    world.wait(0.05)
    fellow.ok(call.task)
    assert fellow.calls() == []
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"late")
    assert fellow.state == "idle"


def test_r91_a_task_that_never_left_us_is_not_the_previous_one(world: World) -> None:
    fellow, _, call = world.busy()
    fellow.finish(call)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    second = world.submit(b"second")
    world.withdraw(second)
    fetch.answer("NO_FETCH")
    world.wait(1)
    fellow.ok(call.task)
    assert fellow.calls() == []
    assert fellow.state == "idle"
