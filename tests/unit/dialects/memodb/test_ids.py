"""Ids of MemoDB's workers, and requests in a wrong state: R66 to R69."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.core.states import Outcome

from .world import (
    ELSEWHERE,
    World,
    answered,
    beats,
    disconnected,
    given,
    heartbeat,
    job,
    result,
)

# -------------------------------------------------------------------- ids: R66


def test_r66_ids_are_16_bytes_and_never_the_same() -> None:
    world = World()
    side = world.connect()
    ids = {world.worker(side, number) for number in range(1, 101)}
    assert len(ids) == 100
    assert {len(id) for id in ids} == {16}


@pytest.mark.parametrize("id", [b"", b"\xd8\x5f\xf4\x7f", b"x" * 15, b"x" * 16, b"x" * 17, b"x" * 1_000])
@pytest.mark.parametrize("word", [heartbeat, result])
def test_r66_an_unknown_id_of_any_length_is_answered_with_disconnect_and_that_very_id(
    word: Callable[[bytes], bytes], id: bytes
) -> None:
    world = World()
    side = world.connect()
    assert side.ask(1, word(id)) == disconnected(1, id)
    assert world.counters.late_results == (word is result)
    assert world.bad == {}


def test_r66_after_a_restart_of_the_broker_an_old_id_gets_disconnect_and_its_worker_begins_anew() -> None:
    world = World()
    old = world.worker(world.connect())
    world.restart()
    side = world.connect()
    assert side.ask(2, heartbeat(old)) == disconnected(2, old)
    new = world.worker(side, 3)
    assert new != old
    assert world.workers == 1


def test_r66_after_a_restart_the_result_of_an_old_job_reaches_nobody() -> None:
    world = World()
    side = world.connect()
    old = world.busy_worker(side, side)
    world.restart()
    side, caller = world.connect(), world.connect()
    caller.ask(501, job())
    assert side.ask(2, result(old, b"of an earlier life")) == disconnected(2, old)
    assert caller.heard() == []
    assert world.counters.late_results == 1


def test_r66_a_worker_s_id_used_from_another_address_gets_disconnect_and_harms_nobody() -> None:
    """T8: an id is good where it was given."""
    world = World()
    side, caller, thief = world.connect(), world.connect(), world.connect(ELSEWHERE)
    id = world.busy_worker(side, caller)
    assert thief.ask(9, result(id, b"forged")) == disconnected(9, id)
    assert thief.ask(10, heartbeat(id)) == disconnected(10, id)
    assert world.state(id) == "busy"
    assert caller.heard() == []
    side.ask(2, result(id, b"true"))
    assert caller.heard() == answered(501, b"true")


def test_r66_a_worker_s_id_used_from_another_address_cannot_fetch_its_answer_by_a_repeated_request() -> None:
    world = World()
    side, caller, thief = world.connect(), world.connect(), world.connect(ELSEWHERE)
    id = world.beating_worker(side)
    caller.ask(9, job(b"secret"))
    assert side.heard() == given(2, id, b"secret")
    assert thief.ask(2, heartbeat(id)) == disconnected(2, id)
    assert world.state(id) == "busy"


def test_workers_may_move_among_connections_of_one_address() -> None:
    """The key is the worker's id, not its connection."""
    world = World()
    side, other, caller = world.connect(), world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert other.ask(2, result(id, b"by another way")) == []
    assert caller.heard() == answered(501, b"by another way")
    caller.ask(7, job(b"next"))
    assert other.heard() == given(2, id, b"next")
    assert side.heard() == []


# -------------------------------------------------------------------- out of turn: R67, R68, R69


def test_r67_a_result_that_is_not_due_gets_disconnect_and_its_worker_is_gone() -> None:
    world = World()
    side = world.connect()
    id = world.beating_worker(side)
    assert side.ask(3, result(id, b"of nothing")) == disconnected(3, id)
    assert world.state(id) == "gone"
    assert world.counters.late_results == 1
    assert side.ask(4, heartbeat(id)) == disconnected(4, id)


def test_r67_a_result_where_a_heartbeat_is_due_gets_disconnect() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    assert side.ask(2, result(id)) == disconnected(2, id)
    assert world.state(id) == "gone"


def test_r67_a_result_for_a_job_that_is_on_its_way_to_the_worker_is_not_booked_on_it() -> None:
    """The JOB was dispatched and not written: the job goes to another worker, and no attempt is used."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    caller.receive(7, job(b"wanted"))
    side.receive(3, result(id, b"a guess"))
    world.run_once()
    assert side.heard() == disconnected(3, id)
    assert caller.heard() == []
    other = world.worker(side, 4)
    assert side.heard() == []
    assert world.state(other) == "busy"
    assert world.job().spent == 0


def test_r68_heartbeat_while_a_result_is_due_means_that_the_job_is_lost() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    assert world.state(id) == "gone"
    assert caller.heard() == []
    assert world.counters.ended[Outcome.LOST] == 1
    assert world.silences == {"lost": 1}


def test_r68_d8_while_attempts_remain_such_a_job_goes_to_another_worker() -> None:
    world = World(attempts=2)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    other = world.worker(side, 10)
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)
    world.wait(0.2)
    assert side.heard() == given(10, other)
    side.ask(11, result(other, b"second try"))
    assert caller.heard() == answered(501, b"second try")


def test_r69_a_second_heartbeat_while_parked_takes_the_place_of_the_first() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    assert side.ask(3, heartbeat(id)) == []
    assert world.state(id) == "idle"
    caller.ask(7, job())
    assert side.heard() == given(3, id)
    assert world.counters.late_results == 0


def test_r69_the_newer_request_wins_on_another_connection_too() -> None:
    world = World()
    side, other, caller = world.connect(), world.connect(), world.connect()
    id = world.beating_worker(side)
    assert other.ask(3, heartbeat(id)) == []
    caller.ask(7, job())
    assert other.heard() == given(3, id)
    assert side.heard() == []
    world.cut(side)
    assert world.state(id) == "busy"


def test_r69_another_ready_under_the_same_request_id_ends_the_first_registration() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    first = world.worker(side, 1, "ape")
    second = world.worker(side, 1, "zebra")
    assert world.state(first) == "gone"
    assert world.workers == 1
    caller.ask(7, job(service="zebra"))
    assert side.heard() == given(1, second, service="zebra")


def test_a_job_that_was_handed_out_to_a_registration_that_ended_is_lost() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller)
    world.worker(side, 1, "zebra")
    assert world.silences == {"lost": 1}
