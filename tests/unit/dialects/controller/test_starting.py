"""Starting workers, until the controller knows that they listen: R86, R87."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import STRANGER, World


def test_a_worker_is_idle_when_it_has_answered_on_its_socket(world: World) -> None:
    fellow = world.register()
    world.submit()
    world.wait(0.049)
    assert fellow.calls() == []
    world.wait(0.002)
    status = fellow.call("GET_STATUS")
    assert fellow.state == "starting"
    status.answer()
    assert fellow.state == "busy"
    fellow.call("SET_TASK")


@pytest.mark.parametrize("kind", ["OK", "FETCH_ME"])
def test_a_worker_is_idle_at_its_first_pulse_if_that_is_first(world: World, kind: str) -> None:
    fellow = world.register(listens=False)
    world.wait(1)
    world.sockets.add(fellow.id)
    fellow.pulse(kind)
    assert fellow.state == "idle"


def test_r87_its_socket_is_tried_every_50_ms_for_5_s(world: World) -> None:
    fellow = world.register(listens=False)
    world.wait(0.42)
    assert world.reached == [fellow.id] * 8
    world.wait(4.58)
    tries = len(world.reached)
    assert 95 <= tries <= 100
    world.wait(20)
    assert len(world.reached) == tries
    assert fellow.state == "starting"
    assert world.said("dial rejected") == 0
    world.sockets.add(fellow.id)
    fellow.ok()
    assert fellow.state == "idle"


def test_r87_a_refused_dial_while_starting_is_tried_again(world: World) -> None:
    fellow = world.register()
    world.refusing.add(fellow.id)
    world.wait(1)
    assert fellow.state == "starting"
    world.refusing.clear()
    world.wait(0.1)
    fellow.call("GET_STATUS").answer()
    assert fellow.state == "idle"


def test_r86_a_worker_that_never_heard_of_its_registration_is_dropped_with_its_lease(world: World) -> None:
    fellow = world.register(next_pulse=7, listens=False)
    world.wait(8.9)
    assert fellow.state == "starting"
    world.wait(0.2)
    assert fellow.state == "gone"


def test_a_boot_look_that_is_not_answered_is_repeated_and_read_all_the_same(world: World) -> None:
    fellow = world.register()
    world.wait(2.2)
    first, second, *_ = calls = fellow.calls()
    assert [call.word for call in calls] == ["GET_STATUS"] * len(calls)
    assert fellow.state == "starting"
    first.answer()
    assert fellow.state == "starting"
    assert second.is_open
    calls[-1].answer()
    assert fellow.state == "idle"
    second.answer()
    world.wait(10)
    assert fellow.calls() == []
    assert fellow.state == "idle"


def test_an_ok_pulse_while_the_boot_look_is_open_gives_it_work_at_once(world: World) -> None:
    fellow = world.register()
    world.wait(0.05)
    status = fellow.call("GET_STATUS")
    world.submit()
    fellow.ok()
    task = fellow.call("SET_TASK")
    status.answer()
    task.answer("OK", task.task)
    assert fellow.state == "busy"


def test_r91_another_user_listens_on_the_workers_socket_and_gets_no_job(world: World) -> None:
    fellow = world.worker()
    world.listening_as[fellow.id] = STRANGER
    caller = world.submit()
    assert fellow.calls() == []
    assert fellow.state == "gone"
    assert world.said("worker rejected") == 1
    other = world.worker()
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 0
