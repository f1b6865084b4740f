"""Requests that a MemoDB caller repeats, and the replies kept for it: R62, R63, R74."""

from __future__ import annotations

import pytest

from dragoman.dialects.memodb.reply_cache import RECORD

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


@both
def test_r62_a_job_that_waits_is_the_same_job(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(7, job())
    caller, said = repeat(world, caller, 7, job(), is_new)
    assert said == []
    assert world.counters.accepted == 1
    id = world.worker(side)
    side.ask(2, result(id))
    assert caller.heard() == answered(7)


@both
def test_r62_a_job_that_runs_is_the_same_job(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller, said = repeat(world, caller, 501, job(), is_new)
    assert said == []
    assert world.counters.accepted == 1
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert world.counters.dispatched == 1


@both
def test_r63_a_job_that_was_answered_gets_its_answer_again(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    for _ in range(3):
        caller, said = repeat(world, caller, 501, job(), is_new)
        assert said == answered(501)
    assert world.counters.accepted == 1
    assert world.counters.replayed_answers == 3


def test_r63_a_job_that_ended_while_its_caller_was_away_is_answered_when_it_comes_back() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=60_000)
    world.cut(caller)
    world.wait(30)
    side.ask(2, result(id))
    world.wait(30)
    assert world.connect().ask(501, job(timeout=60_000)) == answered(501)
    assert world.counters.accepted == 1


def test_r63_an_answer_is_kept_for_two_minutes() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    caller.heard()
    world.wait(119.9)
    assert caller.ask(501, job()) == answered(501)
    world.wait(0.2)
    assert world.session._callers.answers.bytes == 0
    assert caller.ask(501, job()) == []
    assert world.counters.accepted == 2


def test_r63_an_answer_of_a_caller_that_is_away_is_kept_no_longer() -> None:
    world = World(keep_answers=20)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.cut(caller)
    side.ask(2, result(id))
    world.wait(20.1)
    assert not world.session._callers.orphans
    assert world.connect().ask(501, job()) == []
    assert world.counters.accepted == 2


def test_r63_kept_answers_are_bounded_in_bytes_and_the_oldest_go_first() -> None:
    size = RECORD + 1_000
    world = World(max_kept_bytes=3 * size)
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for number in range(1, 6):
        caller.receive(number, job(b"%d" % number))
        world.run_once()
        side.ask(number + 1, result(id, b"%d" % number * 1_000))
    assert len(caller.heard()) == 5
    assert world.session._callers.answers.bytes == 3 * size
    assert caller.ask(3, job(b"3")) == answered(3, b"3" * 1_000)
    assert world.counters.accepted == 5
    caller.ask(2, job(b"2"))
    assert world.counters.accepted == 6


@pytest.mark.parametrize("options", [{"max_kept_bytes": 0}, {"keep_answers": 0.0}])
def test_r63_keeping_none_is_possible(options: dict[str, float]) -> None:
    world = World(**options)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    world.wait(0.1)
    assert world.session._callers.answers.bytes == 0
    caller.ask(501, job())
    assert world.counters.accepted == 2


def test_r63_answers_whose_caller_asked_for_something_else_leave_nothing_behind() -> None:
    """One that is kept long must not hold on to thousands that are not."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"kept")
    side.ask(2, result(id))
    for number in range(3, 503):
        caller.receive(1, job(b"%d" % number))
        world.run_once()
        side.ask(number, result(id, b"%d" % number))
    assert len(caller.heard()) == 501
    assert len(caller.contacts.answered) == 2
    assert len(world.session._callers.answers._kept) < 200


@both
def test_a_job_that_ended_in_silence_and_comes_again_is_a_new_one(is_new: bool) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller, timeout=1_000)
    world.wait(2)
    caller, said = repeat(world, caller, 501, job(timeout=1_000), is_new)
    assert said == []
    assert world.counters.accepted == 2
    other = world.worker(side, 2)
    side.ask(3, result(other))
    assert caller.heard() == answered(501)


@pytest.mark.parametrize(
    ("request_id", "body", "address"),
    [(8, job(), None), (7, job(b"other"), None), (7, job(timeout=1), None), (7, job(), ELSEWHERE)],
    ids=["another request id", "another payload", "another timeout", "another address"],
)
@pytest.mark.parametrize("state", ["waiting", "running", "answered"])
def test_r62_on_a_new_connection_only_the_very_same_is_adopted(
    state: str, request_id: int, body: bytes, address: str | None
) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(7, job())
    if state != "waiting":
        id = world.worker(side)
        if state == "answered":
            side.ask(2, result(id))
    world.cut(caller)
    new = world.connect(address) if address else world.connect()
    assert new.ask(request_id, body) == []
    assert world.counters.accepted == 2


def test_r62_while_the_old_connection_lives_the_same_on_another_is_a_new_job() -> None:
    world = World()
    one, two = world.connect(), world.connect()
    one.ask(7, job())
    two.ask(7, job())
    assert world.counters.accepted == 2
    assert world.present == 2


def test_r62_an_adopted_job_has_its_answer_path_moved() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    new = world.again(caller)
    new.ask(501, job(), 77)
    side.ask(2, result(id))
    assert new.heard() == answered(501)
    assert [len(route) for route in new.told] == [8]


def test_r62_an_adopted_job_outlives_the_grace() -> None:
    world = World()
    caller = world.connect()
    caller.ask(7, job())
    world.wait(1)
    caller = world.again(caller)
    world.wait(4)
    caller.ask(7, job())
    world.wait(4)
    assert world.present == 1


def test_r74_a_slow_job_whose_caller_repeats_it_every_second_runs_once() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=10_000)
    for _ in range(5):
        world.wait(1)
        assert caller.ask(501, job(timeout=10_000)) == []
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert (world.counters.accepted, world.counters.dispatched) == (1, 1)


def test_r74_even_if_its_connection_breaks_every_time() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=10_000)
    for _ in range(5):
        world.wait(1)
        caller = world.again(caller)
        assert caller.ask(501, job(timeout=10_000)) == []
    side.ask(2, result(id))
    assert caller.heard() == answered(501)
    assert (world.counters.accepted, world.counters.dispatched) == (1, 1)


def test_a_caller_that_asks_for_something_else_under_the_same_id_has_dropped_what_it_asked_before() -> None:
    """R69 for callers: a REQ that sends a new request cancels the old one."""
    world = World()
    side, caller = world.connect(), world.connect()
    caller.ask(7, job(b"old"))
    caller.ask(7, job(b"new"))
    assert world.present == 1
    assert world.silences == {"cancelled": 1}
    id = world.worker(side)
    assert side.ask(2, result(id, b"of the new")) == []
    assert caller.heard() == answered(7, b"of the new")


def test_such_a_job_that_runs_may_end_and_its_result_reaches_nobody() -> None:
    """R19."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"old")
    caller.ask(501, job(b"new"))
    assert side.ask(2, result(id, b"of the old")) == given(2, id, b"new")
    assert caller.heard() == []
    assert world.counters.unclaimed_results == 1
    side.ask(3, result(id, b"of the new"))
    assert caller.heard() == answered(501, b"of the new")


def test_the_answer_and_another_question_under_its_id_may_cross_in_one_turn() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, payload=b"old")
    side.receive(2, result(id, b"of the old"))
    caller.receive(501, job(b"new"))
    world.run_once()
    assert caller.heard() == []
    assert side.heard() == given(2, id, b"new")


def test_constant_request_ids_work_for_different_messages() -> None:
    """Peers that know no better: the message tells one request from another."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side, 1)
    for number in range(20):
        assert caller.ask(1, job(b"%d" % number)) == []
        assert side.heard() == given(1, id, b"%d" % number)
        assert side.ask(1, result(id, b"of %d" % number)) == []
        assert caller.heard() == answered(1, b"of %d" % number)
    world.wait(10)
    assert side.heard() == beats(1, id)
    assert side.ask(1, heartbeat(id)) == []
    caller.ask(1, job(b"last"))
    assert side.heard() == given(1, id, b"last")


def test_constant_request_ids_a_worker_that_was_disconnected_may_say_ready_again_at_once() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side, 1)
    assert side.ask(1, result(id)) == disconnected(1, id)
    assert world.worker(side, 1) != id


def test_constant_request_ids_two_workers_on_one_connection_do_not_make_each_other_s_ready_unknown() -> None:
    """One of them moves to another connection: the other's READY, of the same request id, is still known."""
    world = World()
    side, other = world.connect(), world.connect()
    moving = world.beating_worker(side, 1)  # its HEARTBEAT was 2, too
    staying = world.worker(side, 2)
    assert other.ask(3, heartbeat(moving)) == []
    assert side.ask(2, ready()) == []
    assert set(world.session._remotes) == {moving, staying}
