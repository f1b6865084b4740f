"""R90: the end of a worker's process is noticed at once, if the kernel knows the process."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import Call, Caller, Fellow, Told, World

OURS, OTHER = 4711, 4712


@pytest.fixture
def world() -> World:
    return World()


def computing(world: World, **processes: int) -> tuple[Fellow, Caller, Call]:
    """Return a worker that has accepted SET_TASK, a minute before its next pulse."""
    fellow = world.worker(**processes)
    caller = world.submit(attempts=1, job_timeout=600.0)
    return fellow, caller, fellow.take()


def test_a_worker_whose_process_ends_while_it_computes_is_noticed_at_once(world: World) -> None:
    """It was noticed at the end of its lease: after its promised minute and `pulse_grace`."""
    fellow, caller, _ = computing(world, process=OURS)
    world.refusing.add(fellow.id)
    world.process_ends(OURS)
    assert not fellow.is_known
    assert caller.told == [(Outcome.LOST, b"", "its worker's process has ended")]


def test_an_idle_worker_whose_process_ends_is_given_nothing_more(world: World) -> None:
    fellow = world.worker(process=OURS)
    world.refusing.add(fellow.id)
    world.process_ends(OURS)
    assert not fellow.is_known


def test_a_worker_that_boots_and_whose_process_ends_is_forgotten(world: World) -> None:
    fellow = world.register(process=OURS)
    world.wait(0.05)
    assert [call.word for call in fellow.calls()] == ["GET_STATUS"]
    world.refusing.add(fellow.id)
    world.process_ends(OURS)
    assert not fellow.is_known


def test_a_job_that_never_left_for_a_process_that_ended_spends_no_attempt(world: World) -> None:
    fellow = world.worker(process=OURS)
    world.hanging.add(fellow.id)
    caller = world.submit(attempts=1, job_timeout=600.0)
    world.hanging.clear()
    world.refusing.add(fellow.id)
    world.process_ends(OURS)
    assert not fellow.is_known
    assert caller.told == []
    other = world.worker()
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE


def test_a_worker_whose_socket_another_process_has_taken_over_is_kept(world: World) -> None:
    """A daemon that forks after it has registered: its parent's end is not its own."""
    fellow, caller, call = computing(world, process=OURS)
    world.process_ends(OURS)
    fellow.call("GET_STATUS").answer("OK", call.task)
    fellow.process = OTHER
    fellow.finish(call)
    assert caller.outcome is Outcome.DONE


def test_a_socket_that_a_child_of_the_dead_process_holds_open_is_not_taken_for_a_worker(world: World) -> None:
    world.may_close_early = True
    fellow, caller, _ = computing(world, process=OURS)
    world.process_ends(OURS)
    assert fellow.call("GET_STATUS").is_open
    world.wait(1.0)
    assert not fellow.is_known
    assert caller.outcome is Outcome.LOST


@pytest.mark.parametrize("processes", [{}, {"process": OURS, "listener": OTHER}, {"process": OURS, "listener": 0}])
def test_a_process_that_only_speaks_or_only_listens_for_a_worker_is_not_watched(
    world: World, processes: dict[str, int]
) -> None:
    computing(world, **processes)
    assert world.watched == {}


def test_a_pulse_from_another_process_ends_the_watch_for_good(world: World) -> None:
    fellow = world.worker(process=OURS)
    assert list(world.watched) == [OURS]
    fellow.process = OTHER
    fellow.ok()
    assert world.watched == {}
    fellow.process = OURS
    fellow.ok()
    world.submit()
    fellow.take()
    assert world.watched == {}


def test_where_a_process_cannot_be_watched_its_lease_is_the_judge(world: World) -> None:
    world.connections.host_access.process_watch = lambda process, ended: None
    fellow, caller, _ = computing(world, process=OURS)
    world.refusing.add(fellow.id)
    world.wait(61.0)
    assert fellow.is_known
    world.wait(2.0)
    assert not fellow.is_known
    assert caller.outcome is Outcome.LOST


def test_a_worker_that_leaves_is_not_watched_any_more(world: World) -> None:
    fellow = world.worker(process=OURS)
    assert fellow.pulse("SHUTDOWN") == Told("OK")
    assert world.watched == {}
    drained = world.worker(process=OTHER)
    world.broker.availability.drain(drained.remote.worker, world.now)
    world.run_once()
    assert world.watched == {}
    drained.call("RESTART").answer()
    assert world.watched == {}
