"""Requests that a MemoDB worker repeats, on the same connection or a new one: R60, R61."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import (
    ELSEWHERE,
    World,
    answered,
    beats,
    both,
    disconnected,
    given,
    heartbeat,
    job,
    ready,
    repeat,
    result,
)

# -------------------------------------------------------------------- a worker's request again: R60


def test_r60_a_parked_ready_again_on_the_same_connection_changes_nothing() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for _ in range(5):
        world.wait(1)
        assert side.ask(1, ready()) == []
    assert world.workers == 1
    caller.ask(7, job())
    assert side.heard() == given(1, id)


def test_r60_ready_repeated_every_second_for_a_minute_is_one_worker() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    for _ in range(60):
        world.wait(1)
        said = side.ask(1, ready())
        assert said in ([], beats(1, id), beats(1, id) * 2)
        assert world.workers == 1
    assert world.is_known(id)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_r60_repeating_a_request_does_not_put_the_heartbeat_off() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    for _ in range(9):
        world.wait(1)
        assert side.ask(1, ready()) == []
    world.wait(1)
    assert side.heard() == beats(1, id)


@both
def test_r60_r61_a_ready_that_was_answered_with_a_job_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side, said = repeat(world, side, 1, ready(), is_new)
    assert said == given(1, id)
    assert world.state(id) == "busy"
    assert world.counters.replayed_answers == 1
    assert world.counters.dispatched == 1
    side.ask(2, result(id))
    assert caller.heard() == answered(501)


@both
def test_r60_r61_a_ready_that_was_answered_with_heartbeat_gets_it_again(is_new: bool) -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    side, said = repeat(world, side, 1, ready(), is_new)
    assert said == beats(1, id)
    assert world.workers == 1
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


@both
def test_r60_a_parked_heartbeat_again_waits_on_at_the_new_place(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == []
    assert world.state(id) == "idle"
    caller.ask(7, job())
    assert side.heard() == given(2, id)


@both
def test_r60_a_heartbeat_that_was_answered_with_a_job_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    caller.ask(7, job())
    assert side.heard() == given(2, id)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == given(2, id)
    assert world.state(id) == "busy"
    side.ask(3, result(id))
    assert caller.heard() == answered(7)


@both
def test_r60_a_heartbeat_that_was_answered_with_heartbeat_gets_it_again(is_new: bool) -> None:
    world = World()
    side = world.connect()
    id = world.beating_worker(side)
    world.wait(10)
    assert side.heard() == beats(2, id)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == beats(2, id)
    assert side.ask(3, heartbeat(id)) == []
    assert world.state(id) == "idle"


@both
def test_r60_a_parked_result_again_is_not_booked_twice(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id, b"once"))
    side, said = repeat(world, side, 2, result(id, b"once"), is_new)
    assert said == []
    assert caller.heard() == answered(501, b"once")
    assert world.state(id) == "idle"
    assert world.counters.late_results == 0
    caller.ask(502, job(b"next"))
    assert side.heard() == given(2, id, b"next")


@both
def test_r60_a_result_that_was_answered_with_a_job_gets_it_again_and_is_not_that_job_s_result(is_new: bool) -> None:
    """Taken for a new request it would be booked on the worker's next job: another caller's answer."""
    world = World()
    side, caller, other = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    other.ask(7, job(b"second"))
    assert side.ask(2, result(id, b"first's")) == given(2, id, b"second")
    side, said = repeat(world, side, 2, result(id, b"first's"), is_new)
    assert said == given(2, id, b"second")
    assert other.heard() == []
    side.ask(3, result(id, b"second's"))
    assert other.heard() == answered(7, b"second's")
    assert caller.heard() == answered(501, b"first's")
    assert world.counters.dispatched == 2


@both
def test_r60_a_result_that_was_answered_with_heartbeat_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    world.wait(10)
    assert side.heard() == beats(2, id)
    side, said = repeat(world, side, 2, result(id), is_new)
    assert said == beats(2, id)
    assert side.ask(3, heartbeat(id)) == []


@both
def test_r60_a_result_that_was_answered_with_disconnect_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, result(id, b"bye", True)) == disconnected(2, id)
    side, said = repeat(world, side, 2, result(id, b"bye", True), is_new)
    assert said == disconnected(2, id)
    assert caller.heard() == answered(501, b"bye")
    assert world.counters.ended[Outcome.DONE] == 1


@both
def test_r60_a_heartbeat_that_was_answered_with_disconnect_gets_it_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    side, said = repeat(world, side, 2, heartbeat(id), is_new)
    assert said == disconnected(2, id)
    assert world.counters.ended[Outcome.LOST] == 1


def test_r60_the_parked_request_moves_to_a_new_connection_while_the_old_one_still_seems_alive() -> None:
    """A half-open connection: the broker has not noticed its end yet."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    new = world.connect()
    assert new.ask(2, heartbeat(id)) == []
    world.cut(side)
    assert world.state(id) == "idle"
    caller.ask(7, job())
    assert new.heard() == given(2, id)


def test_r60_large_results_are_told_apart_and_known_again() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(502, job(b"second"))
    large = bytes(90_000)
    assert side.ask(2, result(id, large)) == given(2, id, b"second")
    assert side.ask(2, result(id, large)) == given(2, id, b"second")
    assert caller.heard() == answered(501, large)
    side.ask(3, result(id, large))
    assert caller.heard() == answered(502, large)


@pytest.mark.parametrize("at", [0, 4_000, 20_000, 46_000, 65_536, 70_000, 86_000, 89_999])
def test_constant_request_ids_large_results_that_differ_in_one_byte_are_different(at: int) -> None:
    """Beginning, middle and end were compared: a result that differed elsewhere was taken for the one before."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(502, job(b"second"))
    first = bytes(90_000)
    second = bytearray(first)
    second[at] = 1
    assert side.ask(2, result(id, first)) == given(2, id, b"second")
    assert side.ask(2, result(id, bytes(second))) == []
    assert caller.heard() == [*answered(501, first), *answered(502, bytes(second))]


def test_a_delayed_copy_of_an_earlier_result_on_an_older_connection_is_not_booked_on_the_next_job() -> None:
    """D2, R60: a late result never reaches another caller, on any connection."""
    world = World()
    slow, side, caller, other = world.connect(), world.connect(), world.connect(), world.connect()
    id = world.busy_worker(slow, caller)
    assert side.ask(2, result(id, b"first's")) == []  # the first copy is still on its way over `slow`
    assert caller.heard() == answered(501, b"first's")
    other.ask(7, job(b"second"))
    assert side.heard() == given(2, id, b"second")
    side.ask(3, result(id, b"second's"))
    assert other.heard() == answered(7, b"second's")
    other.ask(8, job(b"third"))
    assert side.heard() == given(3, id, b"third")
    slow.ask(2, result(id, b"first's"))  # here it is
    assert other.heard() == []
    side.ask(4, result(id, b"third's"))
    assert other.heard() == answered(8, b"third's")


def test_r60_a_job_whose_bytes_never_left_is_not_taken_back_once_it_was_said_elsewhere() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    side.stream.room = 0
    caller.ask(7, job())
    new = world.connect()
    assert new.ask(2, heartbeat(id)) == given(2, id)
    world.worker(world.connect(), 50)
    world.cut(side)
    assert world.state(id) == "busy"
    assert world.counters.dispatched == 1
    new.ask(3, result(id))
    assert caller.heard() == answered(7)


def test_r60_nor_if_the_place_where_it_was_said_again_is_gone_by_now() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    side.stream.room = 0
    caller.ask(7, job())
    new = world.connect()
    assert new.ask(2, heartbeat(id)) == given(2, id)
    world.worker(world.connect(), 50)
    world.cut(new)
    world.cut(side)
    assert world.state(id) == "detached"
    assert world.counters.dispatched == 1
    world.connect().ask(3, result(id))
    assert caller.heard() == answered(7)


# -------------------------------------------------------------------- READY after a reconnect: R61


def test_r61_a_parked_ready_again_on_a_new_connection_is_the_same_worker() -> None:
    """A ghost would swallow a job."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    side = world.again(side)
    assert world.state(id) == "detached"
    assert side.ask(1, ready()) == []
    assert world.state(id) == "idle"
    assert world.workers == 1
    caller.ask(7, job())
    assert side.heard() == given(1, id)


def test_r61_over_several_reconnects() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for _ in range(5):
        world.wait(1)
        side = world.again(side)
        assert side.ask(1, ready()) == []
        assert world.workers == 1
    caller.ask(7, job())
    assert side.heard() == given(1, id)


@pytest.mark.parametrize(
    ("request_id", "services", "address"),
    [(2, ("echo",), None), (1, ("echo", "more"), None), (1, ("echo",), ELSEWHERE)],
    ids=["another request id", "another message", "another address"],
)
def test_r61_what_is_not_the_very_same_is_a_new_worker(
    request_id: int, services: tuple[str, ...], address: str | None
) -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.cut(side)
    side = world.connect(address) if address else world.connect()
    assert world.worker(side, request_id, *services) != id
    assert world.workers == 2


def test_r61_while_the_old_connection_lives_it_is_a_new_worker() -> None:
    world = World()
    id = world.worker(world.connect())
    assert world.worker(world.connect()) != id
    assert world.workers == 2


def test_r61_once_the_first_answer_is_confirmed_a_ready_is_a_new_worker() -> None:
    world = World()
    side = world.connect()
    id = world.beating_worker(side)
    assert world.worker(side, 1) != id
    side = world.again(side)
    assert world.workers == 2
    other = world.worker(side, 99)
    assert other != id


def test_r61_two_workers_alike_in_everything_whose_connections_are_gone_both_come_back() -> None:
    """REQs that count from 1 in every process: each gets a registration, and neither leaves a ghost for ever."""
    world = World()
    sides = [world.connect(), world.connect()]
    ids = {world.worker(side) for side in sides}
    for side in sides:
        world.cut(side)
    for _ in range(2):
        world.connect().ask(1, ready())
    assert sum(world.state(id) == "idle" for id in world.session._remotes) == 2
    world.wait(9)
    assert ids & set(world.session._remotes)
    world.wait(30)
    assert world.workers == 0
    assert not world.session._lost_readies


def test_r61_the_end_of_one_does_not_make_its_double_unknown() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    one = world.worker(first)
    world.wait(5)
    two = world.worker(second)
    world.cut(first)
    world.cut(second)
    world.wait(15.1)
    assert (world.is_known(one), world.is_known(two)) == (False, True)
    world.connect().ask(1, ready())
    assert set(world.session._remotes) == {two}
