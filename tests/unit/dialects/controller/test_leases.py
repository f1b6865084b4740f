"""Leases of the controller's workers: R90."""

from __future__ import annotations

import pytest

from .world import Told, World, editions, retry


@pytest.mark.parametrize(("next_pulse", "lease"), [(0, 10), (1, 1), (600, 600), (86_400, 86_400), (2**64 - 1, 86_400)])
@pytest.mark.parametrize("kind", ["REGISTER", "OK", "FETCH_ME"])
def test_r90_the_lease_is_what_was_promised_within_bounds(
    world: World, kind: str, next_pulse: int, lease: float
) -> None:
    if kind == "REGISTER":
        fellow = world.register(next_pulse=next_pulse, listens=False)
    else:
        fellow = world.worker(next_pulse=5)
        fellow.pulse(kind, next_pulse=next_pulse)
        if kind == "FETCH_ME":
            fellow.call("FETCH").answer("NO_FETCH")
    assert world.session._workers.lease_end(fellow.remote) == world.now + lease + 2
    world.now += lease + 1.99 - 0.4  # no need for all the turns between
    world.connections.next_run = world.now
    world.wait(0.39)
    assert fellow.is_known
    fellow.calls()
    world.wait(0.02)
    if kind == "REGISTER":
        assert not fellow.is_known
    else:
        assert [call.word for call in fellow.calls()] == ["GET_STATUS"]


@editions
def test_r90_one_get_status_before_it_is_dead_and_a_good_answer_renews_its_lease(world: World, edition: str) -> None:
    fellow, caller, _ = world.busy(edition, next_pulse=10, job_timeout=1000)
    for _ in range(3):
        world.wait(12.1)
        fellow.call("GET_STATUS").answer("OK", 1)
        assert fellow.state == "busy"
    assert caller.told == []


def test_r90_without_an_answer_it_is_gone_after_a_second_and_the_answer_is_still_read(world: World) -> None:
    fellow, _, _ = world.busy(next_pulse=10, job_timeout=1000)
    other = world.worker(next_pulse=1000)
    world.wait(12.01)
    status = fellow.call("GET_STATUS")
    world.wait(0.9)
    assert fellow.state == "busy"
    world.wait(0.2)
    assert fellow.state == "gone"
    assert status.is_open
    retry(world)
    other.call("SET_TASK")
    world.wait(500)
    status.answer("OK", 1)
    assert not status.is_open
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")
    assert world.counters.false_expiries == 1


def test_r90_an_abandoned_get_status_is_closed_in_the_end(world: World) -> None:
    fellow = world.worker(next_pulse=10)
    world.wait(14)
    status = fellow.call("GET_STATUS")
    assert not fellow.is_known
    world.may_close_early = True
    world.wait(3_500)
    assert status.is_open
    world.wait(200)
    assert not status.is_open


@pytest.mark.parametrize("way", ["refused", "no file", "cut", "FAILED", 77])
def test_r90_a_lease_that_is_over_and_a_get_status_that_goes_wrong(world: World, way: str | int) -> None:
    fellow = world.worker(next_pulse=10)
    if way == "refused":
        world.refusing.add(fellow.id)
    elif way == "no file":
        world.sockets.clear()
    world.wait(12.01)
    for call in fellow.calls():
        if way == "cut":
            call.cut()
        else:
            call.answer(way)
    assert fellow.state == "gone"
    assert world.counters.false_expiries == 0


@pytest.mark.parametrize("way", ["silent", "cut"])
def test_r90_a_pulse_that_comes_while_it_is_asked_saves_it(world: World, way: str) -> None:
    """It has sent a pulse since: a GET_STATUS without a response does not prove its death any more."""
    fellow, caller, call = world.busy(next_pulse=10, job_timeout=1000)
    world.wait(12.1)
    status = fellow.call("GET_STATUS")
    fellow.ok(call.task, next_pulse=10)
    if way == "cut":
        status.cut()
    world.wait(5)
    assert fellow.state == "busy"
    assert caller.told == []


def test_r90_nobody_is_asked_while_an_exchange_is_open_and_its_lease_judges_it(world: World) -> None:
    """A worker that computes inside the exchange cannot answer anything else."""
    fellow = world.worker(next_pulse=10)
    world.submit(job_timeout=1000)
    call = fellow.call("SET_TASK")
    for _ in range(5):
        world.wait(11)
        fellow.ok(0, next_pulse=10)
    assert fellow.calls() == []
    assert fellow.state == "busy"
    world.wait(12.1)
    assert fellow.calls() == []
    assert fellow.state == "gone"
    assert call.is_open
    call.answer("OK", 1)


def test_two_leases_do_not_know_of_each_other(world: World) -> None:
    short, long = world.worker(next_pulse=10), world.worker(next_pulse=100)
    world.wait(12.1)
    short.call("GET_STATUS")
    world.wait(1)
    assert (short.state, long.state) == ("gone", "idle")
